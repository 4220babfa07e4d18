"""`dibs wait`: until jobs are over. Its exit code is theirs."""

import math
import os
import time
from collections.abc import Sequence
from functools import partial
from typing import Any

import click

from dibs.cli.options import TIME
from dibs.cli.output import (
    WAITING,
    exit_status,
    job_name,
    one_line,
    outcome_text,
    say,
    show_json,
    trouble_text,
)
from dibs.cli.references import Reference, find_jobs
from dibs.client.client import PATIENCE, Client, RetryingClient, connect
from dibs.client.connection import ConnectionBroken, NoAnswer
from dibs.errors import DibsError, NoSuchJob
from dibs.model.units import show_ranges

_STILL_RUNNING = 75  # sysexits' "try again later", as for `--no-wait`
_MOST_NAMED = 20  # jobs: of more, only those that did not succeed are told one by one
_ROUND = 30.0  # seconds of one question; the daemon answers at once when all are over
_AT_ONCE = 500  # jobs in one question
_SAY_AFTER = 2.0  # seconds of waiting before we say for what
_LATE = 0.5  # seconds after --timeout in which an answer still counts

_EPILOG = """\b
Examples:
  dibs wait 17 && echo it worked
  dibs wait 3-9                   all of them; the highest exit code
  dibs wait @ --timeout 2h        75 when it still runs by then

\b
Exit status: the job's own, 128+n for a signal, 124 when it ran out of its time limit, 1 when
its end is unknown or it never began; of several the highest; 75 when --timeout passed first.
Where `dibs wait` itself fails, as with 69 without a daemon, it says so, and --json has an `error`.
"""


@click.command(epilog=_EPILOG)
@click.argument(
    "references", nargs=-1, required=True, type=Reference(*WAITING, "running", "suspended"), metavar="REF..."
)
@click.option("--timeout", type=TIME, metavar="TIME", help="Wait no longer than this: 2h, 90s.")
@click.option("-q", "--quiet", is_flag=True, help="Do not say how each job ended.")
@click.option("--json", "as_json", is_flag=True, help="Print an object: jobs that are over, and numbers waiting.")
def wait(references: Sequence[str], timeout: float | None, quiet: bool, as_json: bool) -> int:
    """Wait until jobs are over, and end with their exit code."""
    ends_at = math.inf if timeout is None else time.monotonic() + timeout
    client = connect(os.environ, patience=min(PATIENCE, ends_at - time.monotonic() + _LATE))
    daemon = RetryingClient(client, say)
    waiting: list[int] = []
    over: dict[int, Any] = {}
    failure: DibsError | None = None
    try:
        waiting += _find(client, daemon, references, ends_at)
        _wait(daemon, waiting, over, ends_at, quiet or as_json)
    except DibsError as error:
        # Of a job that ended with the same number, nothing would tell it apart.
        error.message += f" ({error.exit_status} is the exit code of `dibs wait` itself)"
        failure = error
    left = [number for number in waiting if number not in over]
    if as_json:
        told = failure and {"code": failure.code, "message": failure.message, "remedy": failure.remedy}
        jobs = [over[number] for number in waiting if number in over]
        show_json({"jobs": jobs, "waiting": left, "error": told})
    if failure is not None:
        raise failure
    if left:
        if not quiet:
            say(f"dibs: {_named(left)} {'is' if len(left) == 1 else 'are'} not over yet")
        return _STILL_RUNNING
    return max((exit_status(job) for job in over.values()), default=0)


def _find(client: Client, daemon: RetryingClient, references: Sequence[str], ends_at: float) -> list[int]:
    """Their numbers. `client` starts a daemon where there is none; one that does not answer is asked again."""
    began = time.monotonic()
    try:
        return find_jobs(client, references)
    except (NoAnswer, ConnectionBroken):
        again = partial(_found, references=references, ends_at=ends_at)
        return daemon.ask(again, until=ends_at, since=began)


def _wait(
    daemon: RetryingClient, wanted: Sequence[int], over: dict[int, Any], ends_at: float, quiet: bool
) -> None:
    """Return when all are over, or when the time has passed. Those that are over are put into `over`."""
    seconds = _SAY_AFTER
    left = list(wanted)
    has_said = not os.isatty(2) or quiet
    has_told = ""
    while left:
        # Those at the front only: when they are over the next ones are asked for.
        asked = left[:_AT_ONCE]
        answer = daemon.ask(partial(_asked, jobs=asked, longest=seconds, ends_at=ends_at), until=ends_at)
        if not quiet and (told := trouble_text(answer)) not in ("", has_told):
            say(told)
            has_told = told
        for job in answer["jobs"]:
            over[job["id"]] = job
            if not quiet and (len(wanted) <= _MOST_NAMED or job["state"] != "succeeded"):
                say(f"job {job_name(job)} {outcome_text(job)}")
        for number in asked:
            if number not in over and number not in answer["waiting"]:
                raise NoSuchJob(number)
        left = [number for number in left if number not in over]
        if left and time.monotonic() >= ends_at:
            break
        if left and not has_said:
            say(f"dibs: waiting for {_named(left)}")
            has_said = True
        seconds = _ROUND


def _found(client: Client, *, references: Sequence[str], ends_at: float) -> list[int]:
    return find_jobs(client, references, patience=_patience(_left(ends_at)))


def _asked(client: Client, *, jobs: Sequence[int], longest: float, ends_at: float) -> dict[str, Any]:
    left = _left(ends_at)
    seconds = min(longest, left)
    return client.wait(jobs, seconds=seconds, patience=_patience(left - seconds))


def _left(ends_at: float) -> float:
    return max(0.0, ends_at - time.monotonic())


def _patience(left: float) -> float | None:
    return None if left == math.inf else left + _LATE


def _named(jobs: Sequence[int]) -> str:
    return f"job {jobs[0]}" if len(jobs) == 1 else f"{len(jobs)} jobs ({one_line(show_ranges(jobs))})"
