"""`dibs add`: jobs into the queue. It prints their numbers and returns."""

import os
from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

import click

from dibs.cli import options as shared
from dibs.cli.commands import TakesCommand, check_parameters, check_words, open_closed_streams
from dibs.cli.options import SIZE, Parsed, count
from dibs.errors import BadInput

if TYPE_CHECKING:
    from dibs.client.adding import Batch, Sent
    from dibs.client.client import Client
    from dibs.model.jobs import Checkpoint, Dependency, Request

_LONGEST_NAME = 255  # characters
_SHOWN = 20  # jobs of a dry run

_EPILOG = """\b
Examples:
  dibs add -- python train.py --lr 0.1        one job; it prints its number and returns
  dibs add -f commands.txt                    one job a line; jobs.py with yielder(); a #SBATCH script
  dibs add -n 2 -t 4h -J big -- ./train.sh    two GPUs, at most four hours, by the name of big
  dibs add -p lr 0.1 0.01 -- python train.py --lr {lr}
  dibs add --array 1-16%4 -- ./one.sh         DIBS_ARRAY_TASK_ID is 1 to 16, four at a time
  dibs add --after @ -- python evaluate.py    when the job before has succeeded
  dibs add --begin 22:00 -- python train.py   not before ten in the evening
  dibs add --dry-run -n 4 -- python train.py  where and when it would start, and why not now

\b
Causes for --retry-on:
  exit-code signal killed time-limit start-error lost
  gpu-oom host-oom gpu-fault import-error syntax-error port-in-use disk-full
"""


def _priority(text: str) -> int:
    try:
        number = int(text)
    except ValueError:
        number = 10**9
    if not -999_999 <= number <= 999_999 or not text.strip().lstrip("+-").isascii():
        raise BadInput(f"cannot read {text!r} as a priority", remedy="it is a whole number; higher goes first")
    return number


@click.command(cls=TakesCommand, epilog=_EPILOG, options_metavar="[OPTIONS] [-] [-- COMMAND...]")
@shared.INPUTS
@shared.FILE
@shared.NUM_GPUS
@shared.ONLY
@shared.PREFER
@shared.SHARE_OPTION
@shared.VRAM
@click.option("--gpu-type", default="", metavar="NAME", help="A part of the card's name: h200.")
@click.option("--cpus", type=count(1), metavar="N", help="CPUs each job books.")
@click.option("--mem", type=SIZE, metavar="SIZE", help="Memory of the machine each job books.")
@shared.BIND
@shared.TIME_LIMIT
@shared.GRACE
@click.option(
    "--priority", type=Parsed("number", _priority), default=0, metavar="N", help="Higher goes first (default 0)."
)
@click.option("-J", "--name", default="", metavar="NAME", help="What the jobs are called.")
@click.option("-P", "--project", default="", metavar="NAME", help="What they belong to; projects take turns.")
@click.option("--tag", "tags", multiple=True, metavar="WORD", help="A word to find them by; may be given again.")
@click.option(
    "--after", multiple=True, metavar="JOBS", help="Start when these have succeeded: 12,13 · @ · a name."
)
@click.option("--after-any", multiple=True, metavar="JOBS", help="Start when these are over, however they ended.")
@click.option("--after-fail", multiple=True, metavar="JOBS", help="Start when these have failed.")
@click.option("--begin", metavar="TIME", help="Not before: 22:00 · '2026-12-01 08:00' · +2h · tomorrow.")
@click.option(
    "--array", metavar="TASKS", help="The command once for each: 1-16 · 1-16%4 (four at once) · 1,3,5-9:2."
)
@shared.RETRIES
@click.option(
    "--retry-on", default="", metavar="CAUSES", help="Try again only after these: gpu-oom,lost,exit-code."
)
@click.option("--restartable", is_flag=True, help="May run again when nobody saw its end, as after a power cut.")
@click.option(
    "--checkpoint-signal", metavar="SIG@SECONDS", help="USR1@60: a signal before the time limit, then again."
)
@click.option("--hold", is_flag=True, help="Wait until `dibs release`.")
@click.option("--once", default="", metavar="KEY", help="Add it only if no job has this key yet.")
@click.option("--env", "env", multiple=True, metavar="K=V", help="A variable for the jobs; may be given again.")
@shared.WORKDIR
@click.option(
    "-o", "output", default="", metavar="FILE", help="Their output goes here; %j is the number, %a the task."
)
@click.option("--snapshot", is_flag=True, help="Keep a copy of the code as it is now, and run in it.")
@click.option("--notify", type=click.Choice(["end", "failure"]), default=None, help="Tell you about it.")
@shared.PARAM
@shared.SHUFFLE
@shared.SEED
@shared.SAMPLES
@shared.SHELL
@click.option("--dry-run", is_flag=True, help="Add nothing; say where and when it would start, and why.")
@click.option("-q", "--quiet", "--parsable", is_flag=True, help="Print only the number: 17, or 17-116.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead.")
@click.pass_context
def add(ctx: click.Context, /, **options: Any) -> int:
    """Put commands into the queue. Each runs when its GPUs are free, also after you have logged out.

    Commands come from -f files, from a pipe, or stand behind --. The folder, the environment and the umask are
    those of now.
    """
    check_words(options, ctx.meta["words"], "add")
    check_parameters(options, ctx.meta["params"], ctx.meta["command"], "add")
    open_closed_streams()
    return _Add(options).execute(ctx.meta["command"], ctx.meta["params"])


class _Add:
    """One call of `dibs add`: from options to numbers."""

    def __init__(self, options: dict[str, Any]) -> None:
        self._options = options
        self._environ = dict(os.environ)
        self._now = datetime.now()

    def execute(self, command: Sequence[str] | None, params: Any) -> int:
        from dibs.cli.asking import ask_daemon
        from dibs.cli.gather import Gathering, in_snapshot
        from dibs.cli.output import say
        from dibs.client.adding import check_wishes, send
        from dibs.client.requests import NOTHING, difference

        options = self._options
        request = self._request()
        gathering = Gathering(options, request, self._environ)
        batches = gathering.read(command, params, self._now)
        defaults = difference(request, NOTHING)
        if options["shell"] != "bash":
            defaults["shell"] = options["shell"]
        for warning in [*gathering.warnings, *self._warnings(batches)]:
            say(f"dibs: {warning}")
        if not batches:
            say("dibs: there is no job in it; nothing was added")
            return 0
        client = ask_daemon()
        if after := self._after(client):
            defaults["after"] = [{"job": one.job, "kind": str(one.kind)} for one in after]
        if options["dry_run"]:
            return self._show_prospects(client, batches, defaults)
        code = self._code(request.workdir)
        if options["snapshot"]:
            check_wishes(client, batches, defaults=defaults)
            snapshot = self._snapshot(request.workdir)
            code = {**(code or {}), "root": snapshot.root, "snapshot": snapshot.copy}
            defaults["workdir"] = snapshot.place_of(request.workdir)
            batches = in_snapshot(batches, snapshot.place_of, snapshot.root)
        sent = send(client, batches, defaults=defaults, environment=self._environ, code=code)
        self._tell(sent, batches)
        return 0

    def _request(self) -> "Request":
        """What every job of this call has in common."""
        from dataclasses import replace

        from dibs.cli.gather import umask
        from dibs.client.requests import NOTHING
        from dibs.model.jobs import Wishes

        options = self._options
        workdir = _workdir(options["workdir"])
        for what in ("name", "project", "once", "gpu_type"):
            _check_short(options[what], f"--{what.replace('_', '-')}")
        for tag in options["tags"]:
            _check_short(tag, "--tag")
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
            begin=self._begin(),
            hold=options["hold"],
            retry_on=_causes(options["retry_on"]),
            checkpoint=_checkpoint(options["checkpoint_signal"], options["time_limit"]),
            bind=options["bind"],
            notify=options["notify"] or "",
            once=options["once"],
        )

    def _begin(self) -> float | None:
        if self._options["begin"] is None:
            return None
        from dibs.inputs.begin import parse_begin

        return parse_begin(self._options["begin"], self._now)

    def _after(self, client: "Client") -> "list[Dependency]":
        """The jobs that come first, by their numbers; a name or `@` is asked for."""
        options = self._options
        if not (options["after"] or options["after_any"] or options["after_fail"]):
            return []
        from dibs.cli.references import find_jobs
        from dibs.model.jobs import After, Dependency, JobId

        found: dict[int, Dependency] = {}
        for name, kind in (("after", After.OK), ("after_any", After.ANY), ("after_fail", After.FAIL)):
            references = [one.strip() for text in options[name] for one in text.split(",") if one.strip()]
            if options[name] and not references:
                raise BadInput(f"--{name.replace('_', '-')} names no job", remedy="name jobs like 12,13")
            for number in find_jobs(client, references):
                if number in found and found[number].kind is not kind:
                    raise BadInput(f"job {number} is to be waited for in two ways", remedy="keep one of them")
                found[number] = Dependency(JobId(number), kind)
        return list(found.values())

    def _code(self, workdir: str) -> "dict[str, Any] | None":
        from dibs.inputs.code import describe_code

        return describe_code(workdir, self._environ)

    def _snapshot(self, workdir: str) -> Any:
        from dibs.inputs.snapshot import take_snapshot
        from dibs.paths import make_private, queue_folder, state_folder

        make_private(state_folder(self._environ))
        shelf = f"{make_private(queue_folder(self._environ))}/code"
        return take_snapshot(workdir, shelf, self._environ)

    def _warnings(self, batches: "Sequence[Batch]") -> list[str]:
        count = sum(len(batch.jobs) for batch in batches)
        output = self._options["output"]
        if output and count > 1 and "%j" not in output and "%a" not in output:
            return [f"all {count} jobs write to {output}; with %j in it each has its own"]
        return []

    def _show_prospects(self, client: "Client", batches: "Sequence[Batch]", defaults: dict[str, Any]) -> int:
        jobs = [{**batch.common, **job} for batch in batches for job in batch.jobs]
        if not self._options["as_json"]:
            shown = client.check(jobs[:_SHOWN], defaults=defaults)
            told: set[str] = set()
            for prospect, job in zip(shown, jobs, strict=False):
                click.echo(_prospect(prospect))
                for sentence in _known(prospect, {**defaults, **job}):
                    if sentence not in told:
                        click.echo(f"  {sentence}")
                    told.add(sentence)
            if len(jobs) > _SHOWN:
                from dibs.client.adding import check_wishes

                check_wishes(client, batches, defaults=defaults)
                click.echo(f"... and {len(jobs) - _SHOWN} more jobs")
            return 0
        import json

        prospects = [
            prospect
            for start in range(0, len(jobs), 2000)
            for prospect in client.check(jobs[start : start + 2000], defaults=defaults)
        ]
        click.echo(json.dumps({"prospects": prospects}, indent=2))
        return 0

    def _tell(self, sent: "Sent", batches: "Sequence[Batch]") -> None:
        """The numbers on stdout; on a terminal, the command that is most likely wanted next."""
        options = self._options
        first = sent.ranges[0][0]
        if options["as_json"]:
            import json

            told = {"first": first, "last": sent.ranges[-1][1], "count": sent.number}
            click.echo(json.dumps({**told, "jobs": sent.shown, "is_new": sent.is_new}))
            return
        if options["quiet"]:
            click.echo(sent.shown)
            return
        from dibs.cli.output import one_line, say

        if not sent.is_new:
            click.echo(f"job {sent.shown} has the key {one_line(options['once'], 80)} already")
        elif sent.number > 1:
            array = " (an array)" if len(batches) == 1 and batches[0].is_array else ""
            click.echo(f"added jobs {sent.shown}{array}")
        else:
            name = one_line(options["name"], 80)
            click.echo(f"added job {sent.shown}{f' ({name})' if name else ''}")
        if os.isatty(2):
            say("dibs ls" if sent.number > 1 else f"dibs log -f {first}")


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


def _check_short(text: str, option: str) -> None:
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
    from dibs.model.jobs import Cause

    known = {cause.value.replace(" ", "-"): cause.value for cause in Cause}
    found = []
    for word in text.split(","):
        name = word.strip().lower().replace(" ", "-")
        if name not in known:
            raise BadInput(
                f"there is no cause called {word.strip()[:60]!r}", remedy=f"dibs knows {', '.join(known)}"
            )
        found.append(known[name])
    return tuple(dict.fromkeys(found))


def _checkpoint(text: str | None, time_limit: float | None) -> "Checkpoint | None":
    if text is None:
        return None
    import re
    import signal

    from dibs.model.jobs import Checkpoint

    match = re.fullmatch(r"(?:[BR]+:)?(?:SIG)?([A-Z0-9]{1,10})@([0-9]{1,6})", text.strip().upper())
    number = 0
    if match:
        name = match[1]
        number = int(name) if name.isdigit() else int(getattr(signal, f"SIG{name}", 0))
    if not match or not 1 <= number <= 64 or not int(match[2]):
        raise BadInput(f"cannot read {text[:60]!r} as a signal and seconds", remedy="write it like USR1@60")
    seconds = float(match[2])
    if time_limit is None or seconds >= time_limit:
        raise BadInput(
            "--checkpoint-signal comes before the time limit", remedy="give a longer one with -t, such as -t 4h"
        )
    return Checkpoint(number, seconds)


def _known(prospect: dict[str, Any], job: dict[str, Any]) -> list[str]:
    """What jobs like this one were seen to need, where it wants `--vram auto`."""
    if job.get("vram") is None:
        return []
    if lessons := prospect.get("lessons"):
        return [lesson["sentence"] for lesson in lessons]
    from dibs.model.units import show_size

    size = show_size(job["vram_bytes"]) if job.get("vram_bytes") else "the whole card"
    return [f"nothing is known of jobs of this shape yet: the first books {size}"]


def _prospect(prospect: dict[str, Any]) -> str:
    """`would start now on GPU 0`, or when and why not now."""
    reason = (prospect["reason"] or {}).get("sentence", "")
    gpus = ",".join(map(str, prospect["gpus"] or ()))
    where = f" on GPU {gpus}" if gpus else ""
    if not reason:
        return f"would start now{where}"
    if not prospect["starts_at"]:
        return (
            f"would wait{reason.removeprefix('waits')}" if reason.startswith("waits") else f"would wait: {reason}"
        )
    from dibs.cli.times import about

    return f"would start about {about(prospect['starts_at'])}{where}: {reason}"
