"""Rows of the store as values, and values as rows."""

import os
from dataclasses import dataclass

from dibs.errors import StoreUnusable
from dibs.model.jobs import Attempt, Cause, Job, JobId, Outcome, State
from dibs.model.usage import Usage
from dibs.store.codec import decode_claims, decode_request, decode_usage
from dibs.store.file import LEFT_UNCHANGED

# The columns that job_of reads.
JOB = (
    "id, request, state, attempts, tries, not_before, environment, rank, blockers, why_held, code, is_stopping,"
    " batch"
)
_OF_JOB = 13


@dataclass(frozen=True, slots=True)
class JobRow:
    """A job as tables show it: with its outcome and its last attempt."""

    job: Job
    outcome: Outcome | None
    gpus: tuple[int, ...]
    folder: str  # of the last attempt; empty when there was none
    queued_at: float
    started_at: float | None
    ended_at: float | None
    usage: Usage | None = None  # of the last attempt, once it has ended
    gpu_numbers: tuple[str, ...] = ()  # the same as `gpus`, and which part where a card is divided
    node: str = ""  # the machine of the last attempt, where another system ran it
    node_gpus: str = ""  # its cards there


@dataclass(frozen=True, slots=True)
class AttemptRow:
    """An attempt and, once it has ended, how."""

    attempt: Attempt
    ended_at: float | None
    outcome: Outcome | None
    usage: Usage | None = None


# What job_row_of reads.
JOB_ROW = (
    f"{JOB}, exit_code, signal, cause, message, seconds, queued_at, started_at, ended_at,"
    " (select claims from attempts where job = jobs.id and number = jobs.attempts),"
    " (select folder from attempts where job = jobs.id and number = jobs.attempts),"
    " (select usage from attempts where job = jobs.id and number = jobs.attempts),"
    " (select node from attempts where job = jobs.id and number = jobs.attempts),"
    " (select node_gpus from attempts where job = jobs.id and number = jobs.attempts)"
)
# What _attempt reads.
ATTEMPT = "number, boot_id, folder, claims, opened_at, backend, node, node_gpus"
_OF_ATTEMPT = 9  # with its job
# What attempt_row_of reads.
ATTEMPT_ROW = f"job, {ATTEMPT}, ended_at, exit_code, signal, cause, message, seconds, usage"


def job_of(row: tuple) -> Job:  # type: ignore[type-arg]
    number, request, state, attempts, tries, not_before, environment, *more = row
    rank, blockers, why_held, code, is_stopping, batch = more
    try:
        wanted, stands = decode_request(request), State(state)
    except (ValueError, KeyError, TypeError) as error:
        raise StoreUnusable(f"cannot read job {number}: its row is damaged", remedy=LEFT_UNCHANGED) from error
    return Job(
        id=JobId(number),
        request=wanted,
        state=stands,
        attempts=attempts,
        tries=tries,
        not_before=not_before,
        environment=environment,
        rank=rank,
        blockers=blockers,
        why_held=why_held,
        code=code,
        is_stopping=bool(is_stopping),
        batch=None if batch is None else JobId(batch),
    )


def attempt_of(row: tuple) -> tuple[Job, Attempt]:  # type: ignore[type-arg]
    return job_of(row[:_OF_JOB]), _attempt(row[0], *row[_OF_JOB:])


def attempt_row_of(row: tuple) -> AttemptRow:  # type: ignore[type-arg]
    ended_at, *ended, usage = row[_OF_ATTEMPT:]
    outcome = None if ended_at is None else _outcome(*ended)
    return AttemptRow(_attempt(*row[:_OF_ATTEMPT]), ended_at, outcome, _usage(usage))


def job_row_of(row: tuple) -> JobRow:  # type: ignore[type-arg]
    job = job_of(row[:_OF_JOB])
    *ended, queued_at, started_at, ended_at, claims, folder, usage, node, node_gpus = row[_OF_JOB:]
    held = decode_claims(claims or "[]")
    return JobRow(
        job=job,
        outcome=_outcome(*ended) if job.state.is_over else None,
        gpus=tuple(claim.index for claim in held),
        folder=os.fsdecode(folder or ""),
        queued_at=queued_at,
        started_at=started_at,
        ended_at=ended_at,
        usage=_usage(usage),
        gpu_numbers=tuple(claim.number for claim in held),
        node=node or "",
        node_gpus=node_gpus or "",
    )


def _usage(text: str | None) -> Usage | None:
    """What was measured is worth no trouble: what cannot be read was not measured."""
    try:
        return decode_usage(text or "")
    except (ValueError, TypeError, AttributeError):
        return None


def _attempt(
    job: int,
    number: int,
    boot_id: str,
    folder: str | bytes,
    claims: str,
    opened_at: float,
    backend: str,
    node: str,
    node_gpus: str,
) -> Attempt:
    return Attempt(
        job=JobId(job),
        number=number,
        boot_id=boot_id,
        folder=os.fsdecode(folder),
        claims=decode_claims(claims),
        opened_at=opened_at,
        backend=backend,
        node=node,
        node_gpus=node_gpus,
    )


def _outcome(
    exit_code: int | None, signal: int | None, cause: str | None, message: str, seconds: float | None
) -> Outcome:
    return Outcome(
        exit_code=exit_code,
        signal=signal,
        cause=Cause(cause) if cause else None,
        message=message,
        seconds=seconds,
    )


def path_value(path: str) -> str | bytes:
    """A folder's name may be no UTF-8; SQLite keeps that as bytes."""
    try:
        path.encode()
    except UnicodeEncodeError:
        return os.fsencode(path)
    return path


def text_value(text: str) -> str:
    """Messages may name files whose names are no UTF-8; SQLite wants text."""
    return text.encode("utf-8", "backslashreplace").decode()
