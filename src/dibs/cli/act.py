"""`dibs kill`, `retry`, `hold`, `release`, `pause` and `unpause`: what is done to jobs, projects and GPUs."""

import os
import signal
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import click

from dibs.cli.filters import parse_since
from dibs.cli.options import GPU_IDS, ParsedOption
from dibs.cli.output import OVER, WAITING, confirm, one_line, say, say_first, show, show_json, signal_name
from dibs.cli.references import OF_PROJECT, Reference, complete_projects, find_jobs, in_chunks
from dibs.client.client import Client, connect
from dibs.errors import BadInput
from dibs.model.units import show_ranges

_Function = TypeVar("_Function", bound=Callable[..., Any])
_AT_ONCE = 5_000  # jobs in one call
_MOST_UNASKED = 20  # jobs that `retry --failed` queues again without asking a person
_FAILED = "failed,timed_out,lost"
_ANSWER = ("changed", "cancelled", "unchanged")  # of the daemon, about the jobs that it was told of

_JSON = click.option("--json", "as_json", is_flag=True, help="Print an object: changed, and unchanged with why.")


def _references(*states: str) -> Callable[[_Function], _Function]:
    """The jobs that a command is given; the shell completes those in the states that it is for."""
    return click.argument("references", nargs=-1, type=Reference(*states), metavar="[REF...]")


def _signal(text: str) -> int:
    """`TERM`, `SIGTERM` or `15`."""
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
  dibs kill 17              ask it to end; it is killed after its grace period
  dibs kill 3-9 train @     several
  dibs kill --signal USR1 17
  dibs kill --project old   everything of a project that waits or runs
"""
)
@_references(*WAITING, "running", "suspended")
@click.option(
    "--signal", type=ParsedOption("signal", _signal), metavar="SIGNAL", help="Send this instead: USR1, 9."
)
@OF_PROJECT
@click.option(
    "--json", "as_json", is_flag=True, help="Print an object: changed, cancelled, and unchanged with why."
)
def kill(references: Sequence[str], signal: int | None, project: str | None, as_json: bool) -> int:
    """End jobs: waiting jobs never start, running ones are asked to end and killed after their grace period."""
    chosen = {"state": ["queued", "held", "submitted", "running", "suspended"], "project": project}

    done = "ending" if signal is None else f"sent {signal_name(signal)} to"
    return _act("kill", done, references, chosen if project else None, as_json, signal)


@click.command(
    epilog="""\b
Examples:
  dibs retry 17                     with the command, folder and environment it had
  dibs retry --failed               everything that failed, ran out of time or was lost
  dibs retry --failed --project a --since 2h
  dibs retry --failed --dry-run     only say which jobs these are

\b
--failed leaves cancelled jobs alone, except those that were cancelled because of a job that is
queued again. At a terminal it asks before it queues more than 20 jobs.
"""
)
@_references(*OVER)
@click.option("--failed", is_flag=True, help="Everything that failed, ran out of time or was lost.")
@OF_PROJECT
@click.option(
    "--since",
    type=ParsedOption("moment", parse_since),
    metavar="WHEN",
    help="With --failed: since 2h, 14:30 or a date.",
)
@click.option("--dry-run", is_flag=True, help="With --failed: change nothing, and say which jobs these are.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@_JSON
def retry(
    references: Sequence[str],
    failed: bool,
    project: str | None,
    since: str | None,
    dry_run: bool,
    yes: bool,
    as_json: bool,
) -> int:
    """Put jobs that are over back into the queue, under their old numbers."""
    for flag, value in (("--project", project), ("--since", since), ("--dry-run", dry_run)):
        if value and not failed:
            raise BadInput(f"{flag} needs --failed beside it", remedy="dibs retry --failed --since 2h --dry-run")
    if not failed or references:
        return _act("retry", "queued again:", references, {"failed": True} if failed else None, as_json)
    client = connect(os.environ)
    chosen = {"state": _FAILED, "project": project, "since": since, "order": "oldest"}
    jobs = [job["id"] for job in client.jobs(**{name: value for name, value in chosen.items() if value})]
    if dry_run:
        if as_json:
            show_json({"jobs": jobs})
        else:
            show(f"would queue again: {_named(jobs)}" if jobs else "there is no job to retry")
        return 0
    if len(jobs) > _MOST_UNASKED and os.isatty(0) and not yes:
        question = f"queue {len(jobs)} jobs again?"
        if not confirm(question, what="queue jobs again", before=[_named(jobs)]):
            say("nothing was changed")
            return 1
    return _report("retry", "queued again:", _told_of(client, "retry", jobs), as_json)


@click.command(
    epilog="""\b
Examples:
  dibs hold 17 18           they wait until `dibs release 17 18`
  dibs hold --project a     everything of a project that waits now; `dibs pause --project a` lasts
"""
)
@_references("queued", "submitted")
@OF_PROJECT
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
@_references("held")
@OF_PROJECT
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
    if bool(references) == bool(chosen):
        other = "--failed" if action == "retry" else "--project NAME"
        raise BadInput(
            f"cannot tell which jobs to {action}" if not references else f"jobs and {other} were both given",
            remedy=f"dibs {action} 17, or dibs {action} {other}",
        )
    client = connect(os.environ)
    if chosen is not None:
        answer = client.act(action, chosen=chosen, signal=signal)
    else:
        answer = _told_of(client, action, find_jobs(client, references), signal)
    return _report(action, done, answer, as_json)


def _told_of(client: Client, action: str, jobs: Sequence[int], signal: int | None = None) -> dict[str, list[Any]]:
    """Do it to these jobs, in as many calls as it takes: the answers in one."""
    answers = [client.act(action, chunk, signal=signal) for chunk in in_chunks(jobs, _AT_ONCE)]
    return {key: [one for answer in answers for one in answer[key]] for key in _ANSWER}


def _report(action: str, done: str, answer: Mapping[str, Sequence[Any]], as_json: bool) -> int:
    changed, cancelled, unchanged = (answer[key] for key in _ANSWER)
    if as_json:
        show_json({key: answer[key] for key in _ANSWER if key != "cancelled" or action == "kill"})
    else:
        over = set(cancelled)
        if cancelled:
            say(f"cancelled {_named(cancelled)}")
        if others := [number for number in changed if number not in over]:
            say(f"{done} {_named(others)}")
        say_first([f"job {one['id']} was left as it is: {one['why']}" for one in unchanged])
        if not changed and not unchanged:
            say(f"dibs: there is no job to {action}")
    return 1 if unchanged and not changed else 0


def _named(jobs: Sequence[int]) -> str:
    if len(jobs) == 1:
        return f"job {jobs[0]}"
    return f"{len(jobs)} jobs: {show_ranges(jobs)}" if len(jobs) < 1000 else f"{len(jobs)} jobs"


_ONLY_PROJECT = click.option(
    "-P", "--project", metavar="NAME", shell_complete=complete_projects, help="Only this project."
)
_GPU = click.option(
    "--gpu", "gpus", type=GPU_IDS, metavar="IDS", help="Only these GPUs, as `dibs gpus drain` does."
)
_CHANGED = click.option("--json", "as_json", is_flag=True, help="Print an object: whether that changed anything.")


@click.command(
    epilog="""\b
Examples:
  dibs pause                what runs goes on; nothing more is started
  dibs pause --project a
  dibs pause --gpu 1        GPU 1 gets no more jobs
"""
)
@_ONLY_PROJECT
@_GPU
@_CHANGED
def pause(project: str | None, gpus: tuple[str, ...] | None, as_json: bool) -> int:
    """Start nothing more. What runs goes on, and jobs can still be added."""
    return _set(True, project, gpus, as_json)


@click.command(
    epilog="""\b
Examples:
  dibs unpause
  dibs unpause --project a
  dibs unpause --gpu 1
"""
)
@_ONLY_PROJECT
@_GPU
@_CHANGED
def unpause(project: str | None, gpus: tuple[str, ...] | None, as_json: bool) -> int:
    """Undo a pause: of the queue, of a project or of a GPU."""
    return _set(False, project, gpus, as_json)


def _set(paused: bool, project: str | None, gpus: tuple[str, ...] | None, as_json: bool) -> int:
    if project is not None and gpus is not None:
        raise BadInput("--project and --gpu were both given", remedy="pause one, then the other")
    if project is not None and not project:
        raise BadInput("--project names no project", remedy="leave it out to pause everything")
    client = connect(os.environ)
    if gpus is not None:
        changed = bool(client.act_on_gpus("drain" if paused else "undrain", gpus))
        what = f"GPU {', '.join(gpus)}"
    else:
        changed = client.pause(project or "") if paused else client.unpause(project or "")
        what = f"project {one_line(project, 60)}" if project else "the queue"
    if as_json:
        show_json({"changed": changed})
        return 0
    state = "is paused: what runs goes on" if paused else "goes on"
    say(f"{what} {state}" if changed else f"{what} {'was paused already' if paused else 'was not paused'}")
    if paused and project:
        _tell_of_unused(client, project)
    return 0


def _tell_of_unused(client: Client, project: str) -> None:
    """Say so where no job has a project: its name may be a mistake."""
    known = [one["name"] for one in client.projects() if one["name"] and any(one["counts"].values())]
    if project in known:
        return
    import difflib  # only needed for a mistake

    near = difflib.get_close_matches(project, known, n=1)
    say(f"dibs: no job has this project yet{f'; did you mean {one_line(near[0], 60)}?' if near else ''}")
