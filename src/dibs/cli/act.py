"""`dibs kill`, `retry`, `hold` and `release`: one act on many jobs."""

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from dibs.cli.options import Parsed
from dibs.cli.references import REF, in_chunks
from dibs.errors import BadInput
from dibs.model.ranges import show_ranges

if TYPE_CHECKING:
    from dibs.client.client import Client

_AT_ONCE = 5_000  # jobs in one call
_MOST_SAID = 10  # sentences about jobs that nothing was done to

_REFERENCES = click.argument("references", nargs=-1, type=REF, metavar="[REF...]")
_PROJECT = click.option("-P", "--project", metavar="NAME", help="All jobs of this project that it fits.")
_JSON = click.option("--json", "as_json", is_flag=True, help="Print an object: changed, and unchanged with why.")


def _signal(text: str) -> int:
    """`TERM`, `SIGTERM` or `15`."""
    import signal

    word = text.strip().upper()
    if word.isascii() and word.isdigit() and len(word) <= 3 and 1 <= int(word) <= signal.NSIG - 1:
        return int(word)
    found = getattr(signal.Signals, word if word.startswith("SIG") else f"SIG{word}", None)
    if found is None:
        raise BadInput(f"there is no signal {text!r}", remedy="write it like TERM, USR1 or 9")
    return int(found)


@click.command(
    epilog="""\b
Examples:
  dibs kill 17              ask it to end; it is killed after its grace
  dibs kill 3-9 train @     several
  dibs kill --signal USR1 17
  dibs kill --project old   everything of a project that waits or runs
"""
)
@_REFERENCES
@click.option("--signal", type=Parsed("signal", _signal), metavar="SIGNAL", help="Send this instead: USR1, 9.")
@_PROJECT
@_JSON
def kill(references: Sequence[str], signal: int | None, project: str | None, as_json: bool) -> int:
    """End jobs: those that wait never start, those that run are asked to end and killed after their grace."""
    chosen = {"state": ["queued", "held", "submitted", "running"], "project": project}
    from dibs.cli.words import signal_name

    done = "ending" if signal is None else f"sent {signal_name(signal)} to"
    return _act("kill", done, references, chosen if project else None, as_json, signal)


@click.command(
    epilog="""\b
Examples:
  dibs retry 17                     with the command, folder and environment it had
  dibs retry --failed               everything that failed, ran out of time or was lost
  dibs retry --failed --project a
"""
)
@_REFERENCES
@click.option("--failed", is_flag=True, help="Everything that did not succeed, except what was cancelled.")
@_PROJECT
@_JSON
def retry(references: Sequence[str], failed: bool, project: str | None, as_json: bool) -> int:
    """Put jobs that are over back into the queue, under their old numbers."""
    if project and not failed:
        raise BadInput("--project needs --failed beside it", remedy="dibs retry --failed --project NAME")
    chosen = {"failed": True, **({"project": project} if project else {})}
    return _act("retry", "queued again:", references, chosen if failed else None, as_json)


@click.command(
    epilog="""\b
Examples:
  dibs hold 17 18           they wait until `dibs release 17 18`
  dibs hold --project a     everything of a project that waits now; `dibs pause --project a` lasts
"""
)
@_REFERENCES
@_PROJECT
@_JSON
def hold(references: Sequence[str], project: str | None, as_json: bool) -> int:
    """Keep waiting jobs from starting until they are released."""
    chosen = {"state": ["queued"], "project": project}
    return _act("hold", "held", references, chosen if project else None, as_json)


@click.command(
    epilog="""\b
Examples:
  dibs release 17
  dibs release --project a  all held jobs of a project
"""
)
@_REFERENCES
@_PROJECT
@_JSON
def release(references: Sequence[str], project: str | None, as_json: bool) -> int:
    """Let jobs start that were held."""
    chosen = {"state": ["held"], "project": project}
    return _act("release", "released", references, chosen if project else None, as_json)


def _act(
    action: str,
    done: str,
    references: Sequence[str],
    chosen: dict[str, Any] | None,
    as_json: bool,
    signal: int | None = None,
) -> int:
    """Do it, and say to which jobs. 1 where there was something to do it to and it was done to none."""
    from dibs.cli.output import one_line, say, show_json
    from dibs.client.client import connect

    if bool(references) == bool(chosen):
        other = "--failed" if action == "retry" else "--project NAME"
        raise BadInput(
            f"cannot tell which jobs to {action}" if not references else f"jobs and {other} were both given",
            remedy=f"dibs {action} 17, or dibs {action} {other}",
        )
    changed, unchanged = _told(connect(os.environ), action, references, chosen, signal)
    if as_json:
        show_json({"changed": changed, "unchanged": unchanged})
    else:
        if changed:
            say(f"{done} {_named(changed)}")
        for one in unchanged[:_MOST_SAID]:
            say(f"dibs: job {one['id']} was left as it is: {one_line(one['why'], 500)}")
        if len(unchanged) > _MOST_SAID:
            say(f"dibs: … and {len(unchanged) - _MOST_SAID} more jobs were left as they are")
        if not changed and not unchanged:
            say(f"dibs: there is no job to {action}")
    return 1 if unchanged and not changed else 0


def _told(
    client: "Client",
    action: str,
    references: Sequence[str],
    chosen: dict[str, Any] | None,
    signal: int | None,
) -> tuple[list[int], list[dict[str, Any]]]:
    from dibs.cli.references import find_jobs

    if chosen is not None:
        answers = [client.act(action, chosen=chosen, signal=signal)]
    else:
        ids = find_jobs(client, references)
        answers = [client.act(action, chunk, signal=signal) for chunk in in_chunks(ids, _AT_ONCE)]
    changed = [number for answer in answers for number in answer["changed"]]
    return changed, [one for answer in answers for one in answer["unchanged"]]


def _named(jobs: Sequence[int]) -> str:
    if len(jobs) == 1:
        return f"job {jobs[0]}"
    return f"{len(jobs)} jobs: {show_ranges(jobs)}" if len(jobs) < 1000 else f"{len(jobs)} jobs"
