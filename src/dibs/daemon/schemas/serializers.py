"""From what the store knows to the objects of the API (`responses.py`)."""

import math
from collections.abc import Iterable, Mapping
from typing import Any

from dibs.daemon.schemas.responses import NOT_SHOWN
from dibs.engine.sweeps.context import trial_told
from dibs.engine.sweeps.manager import SweepSummary
from dibs.model.field_values import request_json
from dibs.model.jobs import Request, State
from dibs.model.reasons import Reason
from dibs.model.sweeps import Sweep, Trial, TrialState, trial_of
from dibs.model.units import format_moment
from dibs.model.usage import Usage
from dibs.policy.fitting import is_packed, show_lesson, with_margin
from dibs.store.lessons import LessonRow
from dibs.store.rows import AttemptRow, JobRow


def moment(seconds: float | None) -> str | None:
    """RFC 3339 in UTC, to the millisecond."""
    if seconds is None or not math.isfinite(seconds):
        return None
    try:
        return format_moment(seconds, "milliseconds")
    except (ValueError, OverflowError, OSError):
        return None


def job_object(row: JobRow, user: str, usage: Usage | None = None) -> dict[str, Any]:
    """Everybody's view of a job; `usage` is of the attempt that runs."""
    job, outcome = row.job, row.outcome
    return {
        "id": job.id,
        "user": user,
        "state": str(job.state),
        **wishes_object(job.request),
        "shape": job.request.wishes.shape,
        "array": _array(job.request),
        "attempts": job.attempts,
        "gpus": list(row.gpus),
        "gpu_numbers": list(row.gpu_numbers),
        "node": row.node,
        "node_gpus": row.node_gpus,
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
        "usage": usage_object(usage or row.usage),
        "sweep": sweep_of(job.request),
    }


def sweep_of(request: Request) -> dict[str, int] | None:
    """Which trial of which sweep a job is."""
    found = trial_of(request.once)
    return None if found is None else {"id": found[0], "trial": found[1]}


def wishes_object(request: Request) -> dict[str, Any]:
    """What was asked for."""
    wanted = request_json(request)
    for key in NOT_SHOWN:
        del wanted[key]
    return {
        "command": request.command.shown,
        "words": list(request.command.words),
        **wanted,
        "begin_at": moment(request.begin),
    }


def new_job_object(request: Request) -> dict[str, Any]:
    """A request in the words in which it can be sent again."""
    wanted = wishes_object(request)
    if trial_of(request.once) is not None:
        wanted["once"] = ""  # sent again it is a job like any other
    if request.umask is not None:
        wanted["umask"] = request.umask
    if request.array is None:
        del wanted["array"]
    return wanted


def past_object(row: JobRow) -> dict[str, Any]:
    """When a job that is over came and how long it ran: by this an export is a trace for `dibs simulate`."""
    if not row.job.state.is_over:
        return {}
    array = row.job.request.array
    return {
        "queued_at": moment(row.queued_at),
        "started_at": moment(row.started_at),
        "seconds": row.outcome.seconds if row.outcome else None,
        "array_id": None if array is None else array.array,
    }


def sweep_object(
    sweep: Sweep, user: str, about: SweepSummary, counts: Mapping[TrialState, int], best: Iterable[Trial]
) -> dict[str, Any]:
    return {
        "id": sweep.id,
        "name": sweep.name,
        "project": sweep.request.project,
        "user": user,
        "state": str(sweep.state),
        "why": sweep.why,
        "spec": dict(sweep.spec),
        "metrics": [{"name": name, "goal": goal} for name, goal in about.metrics],
        "size": about.size,
        "parallel": about.parallel,
        "counts": {str(state): counts.get(state, 0) for state in TrialState},
        "best": [trial_object(trial) for trial in best],
        "queued_at": moment(sweep.queued_at),
        "ended_at": moment(sweep.ended_at),
        "journal": about.journal,
    }


def trial_object(trial: Trial) -> dict[str, Any]:
    told = trial_told(trial)
    return {**told, "ended_at": moment(told["ended_at"])}


def attempt_object(
    row: AttemptRow, record: Mapping[str, Any], usage: Usage | None = None, backend_job: str = ""
) -> dict[str, Any]:
    """`record` is what its shim wrote; empty where the folder was used again or removed, or cannot be read."""
    attempt, outcome = row.attempt, row.outcome
    return {
        "number": attempt.number,
        "gpus": [claim.index for claim in attempt.claims],
        "gpu_numbers": [claim.number for claim in attempt.claims],
        "share": next((str(claim.share) for claim in attempt.claims), None),
        "vram_bytes": max((claim.vram for claim in attempt.claims), default=0) or None,
        "started_at": moment(attempt.opened_at),
        "ended_at": moment(row.ended_at),
        "seconds": outcome.seconds if outcome else None,
        "exit_code": outcome.exit_code if outcome else None,
        "signal": outcome.signal if outcome else None,
        "cause": str(outcome.cause) if outcome and outcome.cause else None,
        "message": outcome.message if outcome else "",
        "folder": attempt.folder,
        "boot_id": attempt.boot_id,
        "backend": attempt.backend,
        "backend_job": backend_job or str(record.get("number") or "") if attempt.backend else "",
        "node": attempt.node,
        "node_gpus": attempt.node_gpus,
        # Of another machine it would be taken for a process of this one.
        "pid": None if attempt.backend else _whole(record.get("pid")),
        "cpu_seconds": _number(record.get("cpu")),
        "max_rss_bytes": _whole(record.get("maxrss")),
        "usage": usage_object(usage or row.usage),
    }


def lesson_objects(rows: Iterable[LessonRow]) -> list[dict[str, Any]]:
    return [
        {
            "shape": row.shape,
            "gpu": row.gpu,
            "peak_vram_bytes": row.lesson.peak_vram or None,
            "booked_vram_bytes": with_margin(row.lesson.peak_vram) if is_packed(row.lesson) else None,
            "peak_mem_bytes": row.lesson.peak_mem or None,
            "cpus": row.lesson.cpus,
            "runs": row.lesson.runs,
            "needs_card": row.lesson.needs_card,
            "learned_at": moment(row.at),
            "sentence": show_lesson(row.lesson, row.gpu),
        }
        for row in rows
    ]


def usage_object(usage: Usage | None) -> dict[str, Any] | None:
    if usage is None:
        return None
    return {
        "seconds": usage.seconds,
        "peak_vram_bytes": usage.peak_vram,
        "vram_total_bytes": usage.vram_total,
        "mean_load_percent": usage.mean_load,
        "energy_watt_hours": usage.energy,
        "peak_mem_bytes": usage.peak_mem,
        "mean_cpus": usage.mean_cpus,
        "is_steady": usage.is_steady,
        "was_alone": usage.was_alone,
        "astray": list(usage.astray),
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
