"""From what the store knows to the objects of the API (`objects.py`)."""

import math
from datetime import UTC, datetime
from typing import Any

from dibs.model.jobs import Request, State
from dibs.model.reasons import Reason
from dibs.store.rows import AttemptRow, JobRow
from dibs.supervise.folder import record_of


def moment(seconds: float | None) -> str | None:
    """RFC 3339 in UTC, to the millisecond."""
    if seconds is None or not math.isfinite(seconds):
        return None
    try:
        return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    except (ValueError, OverflowError, OSError):
        return None


def job_object(row: JobRow, user: str) -> dict[str, Any]:
    """Everybody's view of a job."""
    job, outcome = row.job, row.outcome
    return {
        "id": job.id,
        "user": user,
        "state": str(job.state),
        **wishes_object(job.request),
        "array": _array(job.request),
        "attempts": job.attempts,
        "gpus": list(row.gpus),
        "queued_at": moment(row.queued_at),
        "started_at": moment(row.started_at),
        "ended_at": moment(row.ended_at),
        "seconds": outcome.seconds if outcome else None,
        "exit_code": outcome.exit_code if outcome else None,
        "signal": outcome.signal if outcome else None,
        "cause": str(outcome.cause) if outcome and outcome.cause else None,
        "message": outcome.message if outcome else "",
        "why_held": job.why_held,
        "folder": row.folder,
    }


def wishes_object(request: Request) -> dict[str, Any]:
    """What was asked for."""
    wishes = request.wishes
    return {
        "name": request.name,
        "project": request.project,
        "command": request.command.shown,
        "words": list(request.command.words),
        "workdir": request.workdir,
        "env": dict(request.env),
        "num_gpus": wishes.num_gpus,
        "share": None if wishes.share is None else str(wishes.share),
        "vram_bytes": wishes.vram,
        "gpu_type": wishes.gpu_type,
        "cpus": wishes.cpus,
        "mem_bytes": wishes.mem,
        "only": list(wishes.only),
        "prefer": list(wishes.prefer),
        "time_limit_seconds": request.time_limit,
        "grace_seconds": request.grace,
        "priority": request.priority,
        "retries": request.retries,
        "retry_on": list(request.retry_on),
        "restartable": request.restartable,
        "tags": list(request.tags),
        "after": [{"job": one.job, "kind": str(one.kind)} for one in request.after],
        "begin_at": moment(request.begin),
        "once": request.once,
        "notify": request.notify,
        "checkpoint": (
            {"signal": request.checkpoint.signal, "seconds": request.checkpoint.seconds}
            if request.checkpoint
            else None
        ),
        "output": request.output,
    }


def new_job_object(request: Request) -> dict[str, Any]:
    """A request in the words in which it can be sent again."""
    wanted = wishes_object(request)
    if request.umask is not None:
        wanted["umask"] = request.umask
    if request.array is not None:
        wanted["array"] = {"task": request.array.task, "most": request.array.most}
    return wanted


def attempt_object(row: AttemptRow) -> dict[str, Any]:
    attempt, outcome = row.attempt, row.outcome
    # What the shim wrote beside the exit code; gone where the folder was used again or removed.
    record = record_of(attempt.folder) or {}
    return {
        "number": attempt.number,
        "gpus": [claim.index for claim in attempt.claims],
        "started_at": moment(attempt.opened_at),
        "ended_at": moment(row.ended_at),
        "seconds": outcome.seconds if outcome else None,
        "exit_code": outcome.exit_code if outcome else None,
        "signal": outcome.signal if outcome else None,
        "cause": str(outcome.cause) if outcome and outcome.cause else None,
        "message": outcome.message if outcome else "",
        "folder": attempt.folder,
        "boot_id": attempt.boot_id,
        "pid": _whole(record.get("pid")),
        "cpu_seconds": _number(record.get("cpu")),
        "max_rss_bytes": _whole(record.get("maxrss")),
    }


def reason_object(reason: Reason | None) -> dict[str, Any] | None:
    if reason is None:
        return None
    return {"code": reason.code, "sentence": reason.sentence, "until_at": moment(reason.until)}


def counts_object(counts: dict[State, int]) -> dict[str, int]:
    """Every state, also those that no job is in."""
    return {str(state): counts.get(state, 0) for state in State}


def _array(request: Request) -> dict[str, Any] | None:
    task = request.array
    return None if task is None else {"id": task.array, "task": task.task, "most": task.most}


def _whole(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None
