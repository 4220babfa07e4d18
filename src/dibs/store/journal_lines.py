"""The lines of the journal: one for each thing that happened to jobs, sweeps, cards and settings."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from dibs.model.jobs import Attempt, Job, JobId, Outcome, State
from dibs.model.records import StagedList, StagedPart
from dibs.model.suspensions import Suspension
from dibs.model.sweeps import Sweep, SweepId, Trial
from dibs.model.units import spans
from dibs.store.codec import encode_claims, encode_request

Line = dict[str, Any]


def added(jobs: Sequence[Job], requests: Sequence[str], *, key: str = "", now: float) -> Line:
    """What one call added: jobs with consecutive numbers, their requests as text, and the key of the call."""
    first = jobs[0]
    line = {"k": "add", "at": now, "first": first.id, "environment": first.environment, "code": first.code}
    return {**line, "key": key, "jobs": list(requests)}


def staged(part: StagedPart, *, now: float) -> Line:
    """Some jobs of a list. They are added by the line that completes it."""
    whole = part.list
    line = {"k": "part", "at": now, "list": [whole.first, whole.last], "key": whole.key, "first": part.first}
    return {**line, "jobs": list(part.requests)}


def completed(whole: StagedList, *, now: float) -> Line:
    """All jobs of a list are there, and are added."""
    line = {"k": "list", "at": now, "first": whole.first, "last": whole.last}
    return {**line, "environment": whole.environment, "code": whole.code, "key": whole.key}


def coded(key: str, content: Mapping[str, Any]) -> Line:
    """What is known about the code of jobs that name this key. Before their `add`."""
    return {"k": "code", "key": key, "content": dict(content)}


def started(attempt: Attempt) -> Line:
    """The intent: from now on it may have run."""
    more = {"backend": attempt.backend} if attempt.backend else {}
    return {
        "k": "start",
        "job": attempt.job,
        "attempt": attempt.number,
        "folder": attempt.folder,
        "claims": encode_claims(attempt.claims),
        "boot": attempt.boot_id,
        "at": attempt.opened_at,
        **more,
    }


def running(attempt: Attempt) -> Line:
    """Another system has started it, there and then."""
    return {
        "k": "run",
        "job": attempt.job,
        "attempt": attempt.number,
        "node": attempt.node,
        "gpus": attempt.node_gpus,
        "at": attempt.opened_at,
    }


def ended(attempt: Attempt, outcome: Outcome, state: State, retry_at: float | None, now: float) -> Line:
    """How it ended, and where its job stands now."""
    return {
        "k": "end",
        "job": attempt.job,
        "attempt": attempt.number,
        "outcome": _outcome(outcome),
        "state": state,
        "retry_at": retry_at,
        "at": now,
    }


def never_ran(attempt: Attempt, retry_at: float | None = None) -> Line:
    """Its job waits again, and the try does not count."""
    return {"k": "never", "job": attempt.job, "attempt": attempt.number, "retry_at": retry_at}


def changed(
    jobs: Iterable[int],
    state: State,
    *,
    now: float,
    why: str = "",
    outcome: Outcome | None = None,
    by: int | None = None,
    is_fresh: bool = False,
    not_before: float | None = None,
) -> Line:
    """They were held, released, cancelled, refused or retried. `is_fresh`: their tries are counted from 0."""
    line: Line = {"k": "set", "jobs": ranges(jobs), "state": state, "at": now}
    if why:
        line["why"] = why
    if outcome is not None:
        line["outcome"] = _outcome(outcome)
    if by is not None:  # the job whose end ended them
        line["by"] = by
    if is_fresh:
        line["fresh"] = True
    if not_before is not None:
        line["not_before"] = not_before
    return line


def stopped(jobs: Iterable[int]) -> Line:
    """The end of running jobs was asked for: they are not tried again."""
    return {"k": "stop", "jobs": ranges(jobs)}


def edited(job: Job) -> Line:
    """It is asked for in another way now, or stands at another place in the queue; its state stays."""
    line: Line = {"k": "edit", "job": job.id, "request": encode_request(job.request), "rank": job.rank}
    return {**line, "not_before": job.not_before}


def suspension(attempt: Attempt, one: Suspension) -> Line:
    """A suspension of an attempt stands like this."""
    return {
        "k": "suspension",
        "job": attempt.job,
        "attempt": attempt.number,
        **asdict(one),
        "held": dict(one.held),
    }


def cleaned(jobs: Iterable[int]) -> Line:
    """They are gone, and so are their attempts."""
    return {"k": "gone", "jobs": ranges(jobs)}


def marked(subject: str, kind: str, why: str, now: float) -> Line:
    """A pause, a drain or a quarantine."""
    return {"k": "mark", "subject": subject, "kind": kind, "why": why, "at": now}


def unmarked(subject: str) -> Line:
    return {"k": "mark", "subject": subject, "kind": ""}


def setting(name: str, value: str) -> Line:
    """Something that was set while it ran."""
    return {"k": "setting", "name": name, "value": value}


def swept(sweep: Sweep) -> Line:
    """A new sweep."""
    return {
        "k": "sweep",
        "id": sweep.id,
        "key": sweep.key,
        "name": sweep.name,
        "request": encode_request(sweep.request),
        "environment": sweep.environment,
        "code": sweep.code,
        "at": sweep.queued_at,
        "spec": dict(sweep.spec),
        **_standing(sweep),
    }


def sweep_changed(sweep: Sweep, *, is_edited: bool = False) -> Line:
    """It stands elsewhere, or is to do something else."""
    line: Line = {"k": "sweep-set", "id": sweep.id, **_standing(sweep)}
    return line | {"spec": dict(sweep.spec)} if is_edited else line


def sweep_told(sweep: Sweep) -> dict[str, Any]:
    """The body of the event that tells of it."""
    return {"sweep": sweep.id, "state": sweep.state, "why": sweep.why}


def sweep_gone(sweep: SweepId) -> Line:
    """It was removed, and its trials with it."""
    return {"k": "sweep-gone", "id": sweep}


def tried(trial: Trial, *, cursor: int | None = None) -> Line:
    """What became of a trial; of a new one, where its sweep goes on after it, and its point.

    Its job is not under `job`: a trial outlives one that was cleaned away.
    """
    line: Line = {"k": "trial", "sweep": trial.sweep, "number": trial.number, "state": trial.state}
    if cursor is not None:
        line |= {"point": dict(trial.point), "command": trial.command, "fingerprint": trial.fingerprint}
        line["cursor"] = cursor
    said = {
        "as_job": trial.job,
        "values": None if trial.values is None else list(trial.values),
        "why": trial.why or None,
        "cause": trial.cause or None,
        "seconds": trial.seconds,
        "reused_from": trial.reused_from,
        "ended_at": trial.ended_at,
        "study": trial.study,
        "pruned_by": trial.pruned_by or None,
        "due": trial.is_due or None,
        "reported": dict(trial.reported) or None,
        "continues": trial.continues,
        "repeat_of": trial.repeat_of,
        "means": None if trial.means is None else list(trial.means),
        "spreads": None if trial.spreads is None else list(trial.spreads),
    }
    return line | {name: value for name, value in said.items() if value is not None}


def going_on_from(number: int, name: str, was: tuple[str, int]) -> Line:
    """The lines before are gone; whatever number was given before is not given again."""
    return {"k": "next", "number": number, "id": name, "was": list(was)}


def ranges(jobs: Iterable[int]) -> list[int | list[int]]:
    """`[[1, 5], 8]`: a hundred thousand numbers in few bytes. They come in order."""
    return [first if first == last else [first, last] for first, last in spans(jobs)]


def numbers(given: Iterable[int | list[int]]) -> Iterator[JobId]:
    """What `ranges` was made of."""
    for one in given:
        if isinstance(one, list):
            yield from map(JobId, range(one[0], one[1] + 1))
        else:
            yield JobId(one)


def next_number(line: Mapping[str, Any]) -> int:
    """The first number that is free as far as this line knows."""
    if line["k"] == "add":
        return int(line["first"] + len(line["jobs"]))
    if line["k"] == "part":
        return int(line["list"][1] + 1)
    return int(line["number"]) if line["k"] == "next" else 1


def without_gone(line: Line, is_kept: Callable[[int], bool]) -> Line | None:
    """The line without what it says about jobs that are gone; None where nothing is left of it."""
    kind = line["k"]
    if kind in ("add", "part"):
        jobs = [text if is_kept(number) else None for number, text in enumerate(line["jobs"], line["first"])]
        return {**line, "jobs": jobs} if any(jobs) else None
    if kind == "list":
        return line if any(map(is_kept, range(line["first"], line["last"] + 1))) else None
    if kind == "set":
        kept = ranges(number for number in numbers(line["jobs"]) if is_kept(number))
        return {**line, "jobs": kept} if kept else None
    if kind in ("gone", "next"):
        return None
    return line if "job" not in line or is_kept(line["job"]) else None


def _outcome(outcome: Outcome) -> Line:
    """Only what is known."""
    said = {
        "exit_code": outcome.exit_code,
        "signal": outcome.signal,
        "cause": outcome.cause,
        "message": outcome.message or None,
        "seconds": outcome.seconds,
        "checkpointed": outcome.checkpointed or None,
        "tried_alone": outcome.tried_alone or None,
    }
    return {name: value for name, value in said.items() if value is not None}


def _standing(sweep: Sweep) -> Line:
    said = {
        "state": sweep.state,
        "why": sweep.why or None,
        "cursor": sweep.cursor or None,
        "counts_from": sweep.counts_from or None,
        "ended_at": sweep.ended_at,
    }
    return {name: value for name, value in said.items() if value is not None}
