"""`dibs edit`: change a job, or its place in the queue, before it starts."""

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from dibs.cli.elsewhere import elsewhere_options, write_options
from dibs.cli.options import GPU_IDS, SHARE, SIZE, TIME, VRAM_SIZE, Parsed, count
from dibs.cli.references import REF
from dibs.errors import BadInput

if TYPE_CHECKING:
    from dibs.client.client import Client

_EPILOG = """\b
Examples:
  dibs edit 17 --top                      before everything else that waits
  dibs edit 17 --before 12
  dibs edit 3-9 --priority 5 -t 4h
  dibs edit 17 -n 1 --vram none           `none` takes a wish back
  dibs edit 17 --on slurm --partition long
  dibs edit 17 -- python train.py --lr 0.01
"""


class _EditCommand(click.Command):
    """Takes everything behind `--` out before click reads the options."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        ctx.meta["command"] = None
        if "--" in args:
            place = args.index("--")
            args, ctx.meta["command"] = args[:place], args[place + 1 :]
        try:
            return super().parse_args(ctx, args)
        except click.UsageError as error:
            error.ctx = error.ctx or ctx  # click forgets it where an option lacks its value
            raise

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        write_options(self, ctx, formatter)


class _OrNone(click.ParamType):  # type: ignore[type-arg]  # generic only in newer clicks
    """Another type, or the word `none`, which takes a wish back."""

    def __init__(self, inner: click.ParamType, nothing: Any = None) -> None:  # type: ignore[type-arg]
        self.name = inner.name
        self._inner = inner
        self._nothing = nothing

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if value == "none":
            return (self._nothing,)
        return (self._inner.convert(value, param, ctx),)


def _priority(text: str) -> int:
    digits = text.strip().removeprefix("+").removeprefix("-")
    if not (digits.isascii() and digits.isdigit() and len(digits) <= 6):
        raise BadInput(
            f"cannot read {text!r} as a priority", remedy="it is a whole number; higher ones come first"
        )
    return int(text)


def _begin(text: str) -> str:
    from datetime import UTC, datetime

    from dibs.inputs.begin import parse_begin

    return datetime.fromtimestamp(parse_begin(text, datetime.now()), UTC).isoformat().replace("+00:00", "Z")


@click.command(cls=_EditCommand, epilog=_EPILOG, options_metavar="[OPTIONS]")
@click.argument("references", nargs=-1, required=True, type=REF, metavar="REF... [-- COMMAND...]")
@click.option("--top", is_flag=True, help="Let it be the next: its priority goes above all others.")
@click.option("--before", type=REF, metavar="REF", help="Put it in front of this job.")
@click.option("--priority", type=Parsed("priority", _priority), metavar="N", help="Higher ones come first.")
@click.option("-J", "--name", metavar="NAME", help="What it is called.")
@click.option("-P", "--project", metavar="NAME", help="The project it belongs to.")
@click.option("--tag", "tags", multiple=True, metavar="WORD", help="Its words to be found by; again for more.")
@click.option("-n", "--num-gpus", type=count(0), metavar="N", help="How many GPUs it wants.")
@click.option("--share", type=_OrNone(SHARE), metavar="PART", help="The part of a GPU it books: 0.5 or 1/3.")
@click.option(
    "--vram", type=_OrNone(VRAM_SIZE, (None, "")), metavar="SIZE", help="GPU memory it books on each: 12G, auto."
)
@click.option(
    "--gpu-type", type=_OrNone(click.STRING, ""), metavar="NAME", help="A part of the card's name: h200."
)
@click.option("--only", type=_OrNone(GPU_IDS, ()), metavar="IDS", help="The GPUs it may use.")
@click.option("--prefer", type=_OrNone(GPU_IDS, ()), metavar="IDS", help="GPUs to take first.")
@click.option("--cpus", type=_OrNone(count(1)), metavar="N", help="CPUs it books.")
@click.option("--mem", type=_OrNone(SIZE), metavar="SIZE", help="Memory of the machine it books.")
@click.option("-t", "--time", "time_limit", type=_OrNone(TIME), metavar="TIME", help="Longest time: 2h, 90s.")
@click.option("--grace", type=TIME, metavar="TIME", help="Time between TERM and KILL.")
@click.option("--begin", type=_OrNone(Parsed("time", _begin)), metavar="TIME", help="Not before: 22:00, +2h.")
@click.option("--retries", type=count(0), metavar="N", help="How often it is tried again.")
@click.option("--restartable/--no-restartable", default=None, help="Whether it may run again after it was lost.")
@click.option("--bind/--no-bind", default=None, help="Whether it is kept to the CPUs near its GPUs.")
@click.option("-C", "--workdir", metavar="DIR", help="The folder it runs in.")
@click.option("-o", "output", metavar="FILE", help="Its output goes here.")
@elsewhere_options
@click.option("--json", "as_json", is_flag=True, help="Print the job, or of several a list.")
@click.pass_context
def edit(ctx: click.Context, /, references: Sequence[str], as_json: bool, **options: Any) -> int:
    """Change jobs that have not started: their command, wishes and place in the queue."""
    from dibs.cli.asking import ask_daemon
    from dibs.cli.output import say, show_json
    from dibs.cli.references import as_ranges, find_job, find_jobs

    changes = _changes(options, ctx.meta["command"])
    slurm = _told(options)
    if not changes and not slurm and not options["before"]:
        raise BadInput(
            "there is nothing to change", remedy="dibs edit 17 --priority 5; `dibs edit --help` has more"
        )
    if options["top"] and options["before"]:
        raise BadInput("--top and --before were both given", remedy="one of them says where it stands")
    client = ask_daemon()
    if options["before"]:
        changes["before"] = find_job(client, options["before"])
    jobs = find_jobs(client, references)
    # Each goes to the very top: the last one first, so that they stand there in the order they were named.
    order = reversed(jobs) if options["top"] else jobs
    edited = {number: client.edit(number, {**changes, **_with_options(client, number, slurm)}) for number in order}
    if as_json:
        show_json([edited[number] for number in jobs] if len(jobs) > 1 else edited[jobs[0]])
    else:
        say(f"changed job {jobs[0]}" if len(jobs) == 1 else f"changed {len(jobs)} jobs: {as_ranges(jobs)}")
    return 0


def _changes(options: Mapping[str, Any], command: list[str] | None) -> dict[str, Any]:
    """The daemon's words for what is to be different."""
    changes: dict[str, Any] = {}
    for key in ("priority", "name", "project", "num_gpus", "retries", "restartable", "bind", "on"):
        if options[key] is not None:
            changes[key] = options[key]
    for key, name in _MAY_BE_NONE.items():
        if options[name] is not None:
            changes[key] = options[name][0]
    if options["vram"] is not None:
        ((changes["vram_bytes"], learns),) = options["vram"]
        changes["vram"] = learns or None
    if options["tags"]:
        changes["tags"] = [tag for tag in dict.fromkeys(options["tags"]) if tag != "none"]
    if changes.get("share"):
        changes["share"] = str(changes["share"])
    if options["grace"] is not None:
        changes["grace_seconds"] = options["grace"]
    for key in ("workdir", "output"):
        if options[key]:
            changes[key] = os.path.abspath(options[key])
    if options["top"]:
        changes["top"] = True
    if command is not None:
        changes |= _command(command)
    return changes


def _told(options: Mapping[str, Any]) -> dict[str, str | None]:
    """What Slurm is to be told from now on, and None for what it is not to be told any more."""
    from dibs.cli.elsewhere import told

    return {name: None if text == "none" else text for name, text in told(options).items()}


def _with_options(client: "Client", job: int, changes: Mapping[str, str | None]) -> dict[str, Any]:
    """What is told to Slurm goes there as a whole: what a job has already stays."""
    if not changes:
        return {}
    whole = {**client.job(job)["on_options"], **changes}
    return {"on_options": {name: text for name, text in whole.items() if text is not None}}


def _command(words: Sequence[str]) -> dict[str, Any]:
    """Words are executed as they are; a single one with blanks in it is a line for the shell, as in `add`."""
    from dibs.cli.commands import with_command
    from dibs.model.jobs import Command, Request

    if not words:
        raise BadInput("there is no command behind --", remedy="dibs edit 17 -- python train.py")
    command = with_command(Request(command=Command((), "")), words, "bash").command
    return {"words": list(command.words), "command": command.shown}


_MAY_BE_NONE = {
    "share": "share",
    "gpu_type": "gpu_type",
    "only": "only",
    "prefer": "prefer",
    "cpus": "cpus",
    "mem_bytes": "mem",
    "time_limit_seconds": "time_limit",
    "begin_at": "begin",
}
