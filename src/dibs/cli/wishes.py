"""From the options of `dibs add` and `dibs sweep` to what every job of the call has in common."""

import os
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from dibs.errors import BadInput

if TYPE_CHECKING:
    from dibs.model.jobs import Checkpoint, Request

_LONGEST_NAME = 255  # characters


def request_of(options: Mapping[str, Any], now: datetime) -> "Request":
    """What every job of this call has in common."""
    from dataclasses import replace

    from dibs.cli.elsewhere import told
    from dibs.cli.gather import umask
    from dibs.client.requests import NOTHING
    from dibs.model.jobs import Wishes

    workdir = _workdir(options["workdir"])
    for what in ("name", "project", "once", "gpu_type"):
        check_short(options[what], f"--{what.replace('_', '-')}")
    for tag in options["tags"]:
        check_short(tag, "--tag")
    return replace(
        NOTHING,
        wishes=Wishes(
            num_gpus=1 if options["num_gpus"] is None else options["num_gpus"],
            share=options["share"],
            vram=options["vram"][0],
            shape=options["vram"][1],
            only=options["only"] or (),
            prefer=options["prefer"] or (),
            gpu_type=options["gpu_type"],
            cpus=options["cpus"],
            mem=options["mem"],
        ),
        name=options["name"],
        workdir=workdir,
        env=_variables(options["env"]),
        priority=options["priority"],
        retries=options["retries"],
        restartable=options["restartable"],
        time_limit=options["time_limit"],
        grace=10.0 if options["grace"] is None else options["grace"],
        project=options["project"],
        tags=tuple(dict.fromkeys(options["tags"])),
        umask=umask(),
        output=os.path.join(workdir, options["output"]) if options["output"] else "",
        begin=_begin(options["begin"], now),
        hold=options["hold"],
        retry_on=_causes(options["retry_on"]),
        checkpoint=_checkpoint(options["checkpoint_signal"], options["time_limit"]),
        bind=options["bind"],
        notify=options["notify"] or "",
        once=options["once"],
        warm=options["warm"],
        on=options["on"] or "",
        on_options=tuple(told(options).items()),
    )


def snapshot_of(workdir: str, environ: Mapping[str, str]) -> Any:
    """A copy of the code as it is now, in the state folder."""
    from dibs.inputs.snapshot import take_snapshot
    from dibs.paths import make_private, queue_folder, state_folder

    make_private(state_folder(environ))
    shelf = f"{make_private(queue_folder(environ))}/code"
    return take_snapshot(workdir, shelf, environ)


def _begin(text: str | None, now: datetime) -> float | None:
    if text is None:
        return None
    from dibs.inputs.begin import parse_begin

    return parse_begin(text, now)


def _workdir(chosen: str | None) -> str:
    try:
        folder = os.path.abspath(os.path.expanduser(chosen)) if chosen else os.getcwd()
    except FileNotFoundError:
        raise BadInput(
            "the folder you are in has been removed", remedy="change to one, or name it with -C"
        ) from None
    if chosen is not None and (not chosen or "\0" in chosen or not os.path.isdir(folder)):
        raise BadInput(f"there is no folder {chosen}", remedy="make it, or name another with -C")
    return folder


def check_short(text: str, option: str) -> None:
    if not text:
        return
    from dibs.inputs.checks import check_text

    check_text(text, option)
    if len(text) > _LONGEST_NAME:
        raise BadInput(f"{option} has {len(text)} characters", remedy=f"it has at most {_LONGEST_NAME}")


def _variables(words: Sequence[str]) -> tuple[tuple[str, str], ...]:
    found = {}
    for word in words:
        name, equals, value = word.partition("=")
        if not equals or not name:
            raise BadInput(f"cannot read {word[:60]!r} as a variable", remedy="write it like --env SEED=1")
        found[name] = value
    return tuple(found.items())


def _causes(text: str) -> tuple[str, ...]:
    if not text.strip():
        return ()
    from dibs.inputs.again import parse_causes

    return parse_causes(text)


def _checkpoint(text: str | None, time_limit: float | None) -> "Checkpoint | None":
    if text is None:
        return None
    from dibs.inputs.again import parse_checkpoint

    return parse_checkpoint(text, time_limit)
