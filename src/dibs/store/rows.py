"""Rows of the store as values, and values as rows."""

import os
from dataclasses import dataclass

from dibs.errors import StoreUnusable
from dibs.model.jobs import Attempt, Cause, Job, JobId, Outcome, State
from dibs.store.codec import decode_claims, decode_request
from dibs.store.file import LEFT_AS_IT_IS

JOB = "id, request, state, attempts, tries, not_before, environment"  # the columns that job_of reads


@dataclass(frozen=True, slots=True)
class JobRow:
    """A job as the tables at the end of a run show it."""

    job: Job
    outcome: Outcome | None
    gpus: tuple[int, ...]
    folder: str  # of the last attempt; empty when there was none


def job_of(row: tuple[int, str, str, int, int, float | None, str]) -> Job:
    number, request, state, attempts, tries, not_before, environment = row
    try:
        wanted, stands = decode_request(request), State(state)
    except (ValueError, KeyError, TypeError) as error:
        raise StoreUnusable(f"cannot read job {number}: its row is damaged", remedy=LEFT_AS_IT_IS) from error
    return Job(
        id=JobId(number),
        request=wanted,
        state=stands,
        attempts=attempts,
        tries=tries,
        not_before=not_before,
        environment=environment,
    )


def attempt_of(row: tuple) -> tuple[Job, Attempt]:  # type: ignore[type-arg]
    return job_of(row[:7]), Attempt(
        job=JobId(row[0]),
        number=row[7],
        boot_id=row[8],
        folder=os.fsdecode(row[9]),
        claims=decode_claims(row[10]),
        opened_at=row[11],
    )


def job_row_of(row: tuple) -> JobRow:  # type: ignore[type-arg]
    job = job_of(row[:7])
    exit_code, signal, cause, message, seconds, claims, folder = row[7:]
    outcome = None
    if job.state.is_over:
        outcome = Outcome(
            exit_code=exit_code,
            signal=signal,
            cause=Cause(cause) if cause else None,
            message=message,
            seconds=seconds,
        )
    return JobRow(
        job, outcome, tuple(claim.index for claim in decode_claims(claims or "[]")), os.fsdecode(folder or "")
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
