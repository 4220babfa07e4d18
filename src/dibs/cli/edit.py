"""`dibs edit`: change a job, or its place in the queue, before it starts."""

import os
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import click

from dibs.cli.field_options import NONE, field_options, write_options
from dibs.cli.output import say, say_first, show_json
from dibs.cli.references import Reference, find_job, find_jobs
from dibs.cli.requests import ALL, changes_of, check_shell, dependencies_of, given, merges_of, with_command
from dibs.client.client import Client, connect
from dibs.errors import BadInput, Conflict
from dibs.model.fields import Verb
from dibs.model.jobs import Command, Request
from dibs.model.units import show_ranges

_PLACES = ("top", "before", "behind")
_EPILOG = """\b
Examples:
  dibs edit 17 --top                      before everything else that waits
  dibs edit 17 --before 12
  dibs edit 3-9 --priority 5 -t 4h
  dibs edit 17 -n 1 --vram none           `none` takes a wish back
  dibs edit 17 --env SEED=2 --after 12    other variables stay; it follows job 12 only
  dibs edit 30_ --array-limit 4           of the array 30, as far as it has not started
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


@click.command(cls=_EditCommand, epilog=_EPILOG, options_metavar="[OPTIONS]")
@click.argument(
    "references", nargs=-1, required=True, type=Reference("queued", "held"), metavar="REF... [-- COMMAND...]"
)
@click.option("--top", is_flag=True, help="Start it next: its priority goes above all others.")
@click.option("--before", type=Reference("queued"), metavar="REF", help="Put it in front of this job.")
@click.option("--behind", type=Reference("queued"), metavar="REF", help="Put it behind this job.")
@field_options(Verb.EDIT)
@click.option("--shell", metavar="SHELL", help="The shell for a job that is a line.")
@click.option("--json", "as_json", is_flag=True, help="Print the job, or of several a list.")
@click.pass_context
def edit(ctx: click.Context, /, references: Sequence[str], as_json: bool, **options: Any) -> int:
    """Change jobs that have not started: their command, wishes and place in the queue."""
    changes, merges = changes_of(options), merges_of(options)
    if options["top"]:
        changes["top"] = True
    shell = options["shell"]
    if shell is not None:
        check_shell(options, os.environ)
    if ctx.meta["command"] is not None:
        changes |= _command(ctx.meta["command"], shell or "bash")
        shell = None
    places = [name for name in _PLACES if options[name]]
    if not changes and not places and shell is None and not any(given(options, Verb.EDIT)):
        raise BadInput(
            "there is nothing to change", remedy="dibs edit 17 --priority 5; `dibs edit --help` has more"
        )
    if len(places) > 1:
        given_places = " and ".join(f"--{name}" for name in places)
        raise BadInput(f"{given_places} were both given", remedy="one of them says where it stands")
    client = connect(os.environ)
    for name in ("before", "behind"):
        if options[name]:
            changes[name] = find_job(client, options[name])
    if (after := dependencies_of(options, Verb.EDIT, partial(find_jobs, client))) is not None:
        changes["after"] = [{"job": one.job, "kind": str(one.kind)} for one in after]
    jobs = find_jobs(client, references)
    if options["once"] not in (None, NONE) and len(jobs) > 1:
        raise BadInput("--once names one job", remedy="give each job its own call, with a key of its own")
    wanted = {job: {**changes, **_merged(client, job, merges, options["array_limit"], shell)} for job in jobs}
    edited: dict[int, Any] = {}
    refused: list[Conflict] = []
    # Each goes to the very top, or right behind that job: the last one first, so that they stand there as named.
    for number in reversed(jobs) if options["top"] or options["behind"] else jobs:
        try:
            edited[number] = client.edit(number, wanted[number])
        except Conflict as error:  # it has started
            refused.append(error)
    if not edited:
        raise refused[0]
    changed = [number for number in jobs if number in edited]
    if as_json:
        show_json([edited[number] for number in changed] if len(jobs) > 1 else edited[jobs[0]])
    elif len(changed) == 1:
        say(f"changed job {changed[0]}")
    else:
        say(f"changed {len(changed)} jobs: {show_ranges(changed)}")
    say_first([error.message for error in refused])
    return 0


def _merged(
    client: Client,
    job: int,
    merges: Mapping[str, Mapping[str, str | None]],
    limit: int | str | None,
    shell: str | None,
) -> dict[str, Any]:
    """What goes there as a whole, and so with what a job has already: variables, Slurm's options, array, line."""
    if not merges and limit is None and shell is None:
        return {}
    known = client.job(job)
    found: dict[str, Any] = {
        key: {
            name: text
            for name, text in {**({} if ALL in changes else known[key]), **changes}.items()
            if text is not None
        }
        for key, changes in merges.items()
    }
    if limit is not None:
        if known["array"] is None:
            raise BadInput(f"job {job} is no task of an array", remedy="dibs edit 30_ --array-limit 4")
        found["array"] = {"task": known["array"]["task"], "most": None if limit == NONE else limit}
    if shell is not None:
        line = known["command"]
        if known["words"][1:] != ["-c", line]:
            raise BadInput(f"job {job} is no line for a shell", remedy="dibs edit 17 --shell sh -- 'a | b'")
        found |= _sent(Command.line(line, shell))
    return found


def _command(words: Sequence[str], shell: str) -> dict[str, Any]:
    """Words are executed as they are; a single one with blanks in it is a line for the shell, as in `add`."""
    if not words:
        raise BadInput("there is no command behind --", remedy="dibs edit 17 -- python train.py")
    return _sent(with_command(Request(command=Command((), "")), words, shell).command)


def _sent(command: Command) -> dict[str, Any]:
    return {"words": list(command.words), "command": command.shown}
