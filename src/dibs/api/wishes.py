"""The wishes of a job as keywords: the words of `dibs add` and of JSON lines, read by the same readers."""

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING, Any, TypedDict

from dibs.client.requests import NOTHING
from dibs.errors import BadInput
from dibs.inputs.checks import check_text
from dibs.inputs.wishes import apply_wishes
from dibs.model.jobs import After, Dependency, JobId, Request

if TYPE_CHECKING:
    from dibs.api.job import Job
    from dibs.client.client import Client


class Wishes(TypedDict, total=False):
    """What may be said of a job, each as `dibs add` takes it; whatever is left out is as it is there."""

    num_gpus: int
    share: float | str
    vram: int | str  # GiB, "12G", "auto"
    gpu_type: str
    only: int | str | Sequence[int | str]
    prefer: int | str | Sequence[int | str]
    cpus: int
    mem: int | str
    bind: bool
    time: float | str  # minutes, "2h"
    grace: float | str
    priority: int
    name: str
    project: str
    tags: str | Sequence[str]
    env: Mapping[str, str | int | float]
    workdir: "str | os.PathLike[str]"
    output: "str | os.PathLike[str]"
    retries: int
    retry_on: str | Sequence[str]
    restartable: bool
    checkpoint_signal: str  # "USR1@60"
    after: "Job | int | str | Sequence[Job | int | str]"
    after_any: "Job | int | str | Sequence[Job | int | str]"
    after_fail: "Job | int | str | Sequence[Job | int | str]"
    begin: str | datetime
    hold: bool
    once: str
    notify: str  # "end" or "failure"
    warm: str | Sequence[str]
    on: str  # "local" or "slurm"
    partition: str  # this and the following are for Slurm
    account: str
    qos: str
    constraint: str
    reservation: str
    exclude: str
    nodelist: str
    licenses: str
    mail_user: str
    mail_type: str


def read_wishes(wishes: Mapping[str, Any], *, client: "Client | None" = None) -> Request:
    """A request without a command. What cannot be meant raises BadInput, in the words of `dibs add`.

    `client` is asked for jobs that are named by `@` or by a name.
    """
    said = {word: value for word, value in wishes.items() if value is not None}
    ours = {word: said.pop(word) for word in _OURS if word in said}
    request = replace(NOTHING, workdir=_here(), umask=_umask())
    if isinstance(said.get("workdir"), os.PathLike):
        said["workdir"] = os.fspath(said["workdir"])
    for word in ("only", "prefer"):  # a GPU may be a number in Python
        if isinstance(said.get(word), int):
            said[word] = str(said[word])
    request = apply_wishes(request, said)
    if "workdir" in said and not os.path.isdir(request.workdir):
        raise BadInput(f"there is no folder {request.workdir}", remedy="make it, or name another as workdir")
    return replace(request, **_others(ours, request, client))


def _others(said: Mapping[str, Any], request: Request, client: "Client | None") -> dict[str, Any]:
    """The words that a line of a list has not, and `dibs add` has as options."""
    fields: dict[str, Any] = {}
    if "grace" in said:
        fields["grace"] = _duration(said["grace"])
    if "output" in said:
        fields["output"] = os.path.join(request.workdir, _text(said["output"], "output", most=4096))
    if "retry_on" in said:
        from dibs.inputs.again import parse_causes

        words = said["retry_on"]
        fields["retry_on"] = parse_causes(words if isinstance(words, str) else ",".join(map(str, words)))
    if "checkpoint_signal" in said:
        from dibs.inputs.again import parse_checkpoint

        text = _text(said["checkpoint_signal"], "checkpoint_signal")
        fields["checkpoint"] = parse_checkpoint(text, request.time_limit)
    if "begin" in said:
        fields["begin"] = _begin(said["begin"])
    if "hold" in said:
        if not isinstance(said["hold"], bool):
            raise BadInput(f"cannot read {said['hold']!r:.60} as hold", remedy="it is True or False")
        fields["hold"] = said["hold"]
    if "once" in said:
        fields["once"] = _text(said["once"], "once")
    if "notify" in said:
        if said["notify"] not in ("end", "failure"):
            raise BadInput(f"cannot read {said['notify']!r} as notify", remedy="it is end or failure")
        fields["notify"] = said["notify"]
    after = [
        Dependency(JobId(number), kind)
        for word, kind in _AFTER.items()
        if word in said
        for number in _numbers(said[word], word, client)
    ]
    if len({one.job for one in after}) < len(after):
        raise BadInput("a job is to be waited for in two ways", remedy="name it once")
    return {**fields, "after": tuple(after)}


_AFTER = {"after": After.OK, "after_any": After.ANY, "after_fail": After.FAIL}
_OURS = (
    *("grace", "output", "retry_on", "checkpoint_signal", "begin", "hold", "once", "notify"),
    *_AFTER,
)


def _numbers(value: Any, word: str, client: "Client | None") -> Iterable[int]:
    listed = list(value) if isinstance(value, list | tuple | set | frozenset) else [value]
    numbers: dict[int, None] = {}
    for one in listed:
        found = getattr(one, "id", one)
        if isinstance(found, str) and client is not None:
            names = [name.strip() for name in found.split(",") if name.strip()]
            numbers |= dict.fromkeys(client.find(*names)) if names else {}
        elif isinstance(found, int) and not isinstance(found, bool) and found > 0:
            numbers[found] = None
        else:
            raise BadInput(f"cannot read {one!r} as {word}", remedy="name jobs by their numbers, or give the jobs")
    if not numbers:
        raise BadInput(f"{word} names no job", remedy="leave it out, or name jobs like [12, 13]")
    return numbers


def _begin(value: Any) -> float:
    if isinstance(value, datetime):
        return value.timestamp()
    from dibs.inputs.begin import parse_begin

    return parse_begin(_text(value, "begin"), datetime.now())


def _duration(value: Any) -> float:
    from dibs.model.units import parse_duration

    if isinstance(value, int | float) and not isinstance(value, bool):
        value = f"{value}s"  # as in `grace=30`: nobody means minutes
    return parse_duration(_text(value, "grace"))


def _text(value: Any, word: str, most: int = 255) -> str:
    if isinstance(value, os.PathLike):
        value = os.fspath(value)
    if not isinstance(value, str) or not value or len(value) > most:
        raise BadInput(
            f"cannot read {str(value)[:60]!r} as {word}", remedy=f"it is text of 1 to {most} characters"
        )
    check_text(value, word)
    return value


def _here() -> str:
    try:
        return os.getcwd()
    except FileNotFoundError:
        raise BadInput(
            "the folder you are in has been removed", remedy="change to one, or name it as workdir"
        ) from None


def _umask() -> int | None:
    """This process's umask. Not by setting it: other threads may be making files meanwhile."""
    try:
        with open("/proc/self/status") as lines:
            return next((int(line.split()[1], 8) for line in lines if line.startswith("Umask:")), None)
    except OSError:
        return None
