"""`dibs suspend` and `resume`: running jobs stand still, and go on where they stopped."""

import os
import time
from collections.abc import Sequence
from typing import Any

import click

from dibs.cli.output import one_line, say, say_first, show_json
from dibs.cli.references import OF_PROJECT, Reference, find_jobs
from dibs.client.client import Client, connect
from dibs.errors import BadInput
from dibs.model.units import show_size

_PAUSE = 0.1  # seconds between two looks at a job that is being moved, at first;
_LONGEST_PAUSE = 2.0  # later
_PATIENCE = 3.0  # seconds for which `resume` waits for a card that is not free

_ALL = click.option("--all", "every", is_flag=True, help="All jobs that it fits.")
_NO_WAIT = click.option("--no-wait", is_flag=True, help="Do not wait for what comes of it.")
_JSON = click.option("--json", "as_json", is_flag=True, help="Print a list of jobs, each with its suspension.")


@click.command(
    epilog="""\b
Examples:
  dibs suspend 17           job 17 stands still, and its card is free for others
  dibs suspend --all        everything that runs
  dibs resume 17            it goes on where it stopped, on the same card
"""
)
@click.argument("references", nargs=-1, type=Reference("running"), metavar="[REF...]")
@_ALL
@OF_PROJECT
@_NO_WAIT
@_JSON
def suspend(references: Sequence[str], every: bool, project: str | None, no_wait: bool, as_json: bool) -> int:
    """Have running jobs stand still, and free their cards. They keep all their work.

    The driver moves what they hold on a card into the machine's memory; the programs need not know.
    """
    client = connect(os.environ)
    jobs, answer = _act(client, "suspend", references, every, project)
    found = [_settled(client, number, no_wait) for number in jobs]
    return _report(found, answer, as_json, no_wait)


@click.command(
    epilog="""\b
Examples:
  dibs resume 17
  dibs resume --project a
"""
)
@click.argument("references", nargs=-1, type=Reference("suspended"), metavar="[REF...]")
@_ALL
@OF_PROJECT
@_NO_WAIT
@_JSON
def resume(references: Sequence[str], every: bool, project: str | None, no_wait: bool, as_json: bool) -> int:
    """Let suspended jobs go on, as soon as their cards have room for them."""
    client = connect(os.environ)
    jobs, answer = _act(client, "resume", references, every, project)
    found = [_settled(client, number, no_wait) for number in jobs]
    return _report(found, answer, as_json, no_wait)


def _act(
    client: Client, action: str, references: Sequence[str], every: bool, project: str | None
) -> tuple[list[int], dict[str, list[Any]]]:
    """The jobs that the daemon has begun with, and its answer."""
    if bool(references) + every + (project is not None) != 1:
        raise BadInput(
            f"cannot tell which jobs to {action}",
            remedy=f"dibs {action} 17, dibs {action} --project NAME, or dibs {action} --all",
        )
    if references:
        answer = client.act(action, find_jobs(client, references))
    else:
        answer = client.act(action, chosen={} if project is None else {"project": project})
    if not answer["changed"] and not answer["unchanged"]:
        say(f"dibs: there is no job to {action}")
    return [int(number) for number in answer["changed"]], answer


def _settled(client: Client, number: int, no_wait: bool) -> dict[str, Any]:
    """The job, once it has been moved; a suspended one that waits for its card is not waited for long."""
    began, pause = time.monotonic(), _PAUSE
    while True:
        job = client.job(number)
        suspension = job["suspension"] or {"phase": "over"}
        waits = suspension["phase"] == "suspended" and suspension["resumes"]
        if no_wait or (suspension["phase"] in ("over", "suspended") and not waits):
            return job
        if waits and time.monotonic() - began > _PATIENCE:
            return job
        time.sleep(pause)
        pause = min(_LONGEST_PAUSE, 1.5 * pause)


def _report(jobs: Sequence[dict[str, Any]], answer: dict[str, list[Any]], as_json: bool, no_wait: bool) -> int:
    failed = [job for job in jobs if _why_not(job)]
    if as_json:
        show_json([{"id": job["id"], "state": job["state"], "suspension": job["suspension"]} for job in jobs])
    else:
        for job in jobs:
            say(_sentence(job, no_wait))
        say_first([f"job {one['id']} was left as it is: {one['why']}" for one in answer["unchanged"]])
    is_nothing = bool(answer["unchanged"]) and not jobs
    return 1 if failed or is_nothing else 0


def _why_not(job: dict[str, Any]) -> str:
    """Why a job runs on that was to be suspended."""
    suspension = job["suspension"]
    is_refused = suspension and suspension["phase"] == "over" and not suspension["suspended_at"]
    return one_line(suspension["why_not"], 500) if is_refused and suspension["rung"] != "checkpoint" else ""


def _sentence(job: dict[str, Any], no_wait: bool) -> str:
    number, suspension = job["id"], job["suspension"]
    if suspension is None:
        if job["state"] == "held":
            return f"job {number} has saved its work and is held; `dibs release {number}` starts it again"
        return f"job {number} is over" if job["state"] != "running" else f"job {number} runs"
    if why_not := _why_not(job):
        return f"job {number} runs on: {why_not}"
    if suspension["rung"] == "checkpoint" and suspension["phase"] == "over":
        return f"job {number} saves its work and ends, and is held then: {one_line(suspension['why_not'], 500)}"
    if suspension["phase"] == "over":
        return f"job {number} goes on"
    if suspension["phase"] != "suspended":
        return f"job {number} is {suspension['phase']}"
    if suspension["resumes"]:
        reason = (job.get("reason") or {}).get("sentence", "is suspended")
        return f"job {number} goes on when its GPU has room: it {one_line(reason, 500)}"
    return f"job {number} is suspended{_moved(suspension)}; `dibs resume {number}` lets it go on"


def _moved(suspension: dict[str, Any]) -> str:
    """`: 20G moved`, or that it is stopped only."""
    size = show_size(suspension["held_bytes"]) if suspension["held_bytes"] else ""
    if suspension["frees_cards"]:
        return f": {size} moved" if size else ""
    stays = f"its {size} stay" if size else "what it has there stays"
    return f" by a signal, and {stays} on its GPU: {one_line(suspension['why_not'], 500)}"
