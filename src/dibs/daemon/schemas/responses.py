"""The JSON that the API returns: its description, and the functions that make it. A test compares the two."""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, NotRequired

from typing_extensions import TypedDict  # pydantic reads the one in typing from Python 3.12 only

from dibs.daemon.schemas.requests import Moment, StateName
from dibs.metrics.progress import JobReport
from dibs.model import fields
from dibs.model.fields import Kind
from dibs.model.jobs import Outcome, Reason, Request, State, request_json
from dibs.model.suspensions import Suspension
from dibs.model.sweeps import trial_of
from dibs.model.units import format_moment
from dibs.model.usage import Usage
from dibs.policy.fitting import is_packed, show_lesson, with_margin
from dibs.store.codec import AttemptRow, JobRow
from dibs.store.lessons import LessonRow

Counts = dict[StateName, int]


class ErrorObject(TypedDict):
    code: str
    message: str
    remedy: str
    field: NotRequired[str]  # the part of a request that is meant, where it is known


class ErrorBody(TypedDict):
    """Every error has this shape."""

    error: ErrorObject


class DependencyObject(TypedDict):
    job: int
    kind: str


class ArrayObject(TypedDict):
    id: int
    task: int
    most: int | None


class CheckpointObject(TypedDict):
    signal: int
    seconds: float


class SweepTrial(TypedDict):
    """Which trial of which sweep a job is."""

    id: int
    trial: int
    point: dict[str, str | None]  # null: the parameter is none; empty: the sweep was removed
    results: dict[str, float]  # by the names of the metrics; empty: it has none yet


class UsageObject(TypedDict):
    """The resources that an attempt used. Unknown values are null."""

    seconds: float  # over which it was measured
    peak_vram_bytes: int | None  # on one card
    vram_total_bytes: int | None  # of this card
    mean_load_percent: float | None
    energy_watt_hours: float | None
    peak_mem_bytes: int | None
    mean_cpus: float | None
    is_steady: bool
    was_alone: bool
    astray: list[str]  # keys of GPUs that it used without having been given them


def _shown(field: fields.Field) -> Any:
    """The type of a field's value in a response."""
    kind = _KINDS.get(field.kind, str)
    return kind | None if field.default is None or field.kind is Kind.SHAPE else kind


_KINDS: dict[Kind, Any] = {  # all others are text
    Kind.COUNT: int,
    Kind.SIZE: int,
    Kind.VRAM: int,
    Kind.SHAPE: Literal["auto"],
    Kind.FLAG: bool,
    Kind.DURATION: float,
    Kind.MOMENT: Moment,
    Kind.VARIABLES: dict[str, str],
    Kind.SYSTEM_OPTIONS: dict[str, str],
    Kind.CHECKPOINT: CheckpointObject,
    Kind.DEPENDENCIES: list[DependencyObject],
    Kind.ARRAY: ArrayObject,
    **dict.fromkeys((Kind.GPU_IDS, Kind.NAMES, Kind.MODULES, Kind.CAUSES, Kind.MOUNTS, Kind.PATTERNS), list[str]),
}
_SECRET = tuple(key for key, field in fields.BY_KEY.items() if field.is_secret)
HIDDEN = "***"
NOT_SHOWN = ("hold", "umask")  # `state` shows the first; the second is needed only when a job starts
if TYPE_CHECKING:

    class _Asked(TypedDict):
        """What was asked for."""
else:
    _Asked = TypedDict(
        "_Asked", {key: _shown(field) for key, field in fields.BY_KEY.items() if key not in NOT_SHOWN}
    )


class SuspensionObject(TypedDict):
    """A time in which an attempt stands still, or was to."""

    phase: Literal["suspending", "suspended", "resuming", "over"]
    why: str  # `by you`, `for job 31`
    resumes: bool  # by itself, as soon as its cards have room
    rung: Literal["cuda", "checkpoint", "stop"] | None  # by the driver, its own signal, or SIGSTOP; null: not yet
    held_bytes: int  # of its cards' memory
    frees_cards: bool
    began_at: Moment
    suspended_at: Moment | None  # null: not yet, or it could not be suspended
    ended_at: Moment | None
    why_not: str  # why it (with `stop`: the driver) could not be suspended; or why it was not resumed


class JobObject(_Asked):
    """A job."""

    id: int
    user: str
    state: StateName
    is_ending: bool  # it runs, or waits at another system, and its end was asked for
    remark: str  # of what runs at another system: why it makes no progress; empty: it does
    suspension: SuspensionObject | None  # the last one of its open attempt
    suspended_seconds: float | None  # for which its open attempt has stood still; null: none is open
    ran_seconds: float | None  # for which it has run beside that; null: none is open
    orphans: list[int] | None  # pids of what still runs although its supervisor was killed; null: it was not
    command: str
    words: list[str]
    shape: str  # its script and the names of its arguments, with `vram: auto`
    attempts: int
    gpus: list[int]
    gpu_numbers: list[str]  # as people write them: `0`, or `0:1` for a part of a card
    node: str  # the machine of its last attempt, where another system ran it
    node_gpus: str  # the cards that it had there, as that machine counts them: `0,1`; `+6`: more on other nodes
    queued_at: Moment
    started_at: Moment | None
    ended_at: Moment | None
    seconds: float | None
    exit_code: int | None
    signal: int | None
    cause: str | None
    message: str
    why_held: str
    folder: str
    usage: UsageObject | None  # of its last attempt
    progress: float | None  # 0 to 1, as it reports itself while it runs; null: it does not
    ends_at: Moment | None  # estimated from its progress
    last_metrics: dict[str, float | None]  # the last number under each name; null: it is not finite
    sweep: SweepTrial | None  # null: it is not a trial of a sweep


class ReasonObject(TypedDict):
    code: str
    sentence: str
    until_at: Moment | None  # about when it passes, where that is known


class AttemptObject(TypedDict):
    number: int
    gpus: list[int]
    gpu_numbers: list[str]  # as people write them: `0`, or `0:1` for a part of a card
    share: str | None  # booked of each card; null: it had none
    vram_bytes: int | None  # booked on each card; null: none in particular
    started_at: Moment
    ended_at: Moment | None
    seconds: float | None
    exit_code: int | None
    signal: int | None
    cause: str | None
    message: str
    folder: str
    boot_id: str
    backend: str  # the system that it was handed to; empty: this machine
    suspensions: list[SuspensionObject]
    backend_job: str  # its number there: `4711`, or `4711_3` in an array; empty: not known
    node: str  # the machine over there; empty: not known yet
    node_gpus: str  # its cards there, as that machine counts them: `0,1`; `+6`: so many more on other nodes
    pid: int | None  # on this machine
    cpu_seconds: float | None
    max_rss_bytes: int | None
    usage: UsageObject | None


class SeriesObject(TypedDict):
    """Each list has one number for each step: the maximum of bytes, the mean of the others."""

    step_seconds: float
    at_seconds: list[float]  # after the attempt's start
    memory_bytes: list[int | None]  # on the fullest of its cards
    load_percent: list[float | None]
    power_watts: list[float | None]
    cpus: list[float | None]
    mem_bytes: list[int | None]


class UsageReport(TypedDict):
    job: int
    attempt: int | None  # null: it has had none
    usage: UsageObject | None  # null: nothing was measured
    series: SeriesObject | None
    advice: list[str]


class LessonObject(TypedDict):
    """The measured needs of jobs of one shape on GPUs of one model."""

    shape: str
    gpu: str  # the card's name
    peak_vram_bytes: int | None
    booked_vram_bytes: int | None  # of the next one; null: the whole card
    peak_mem_bytes: int | None
    cpus: float
    runs: int
    needs_card: bool  # one ran out of memory beside others
    obstacle: str | None  # why the driver could not suspend one: managed-memory, cuda-ipc, several-processes
    learned_at: Moment | None
    sentence: str


class LessonList(TypedDict):
    lessons: list[LessonObject]


class WholeJob(JobObject):
    """Everything about one job."""

    lessons: list[LessonObject]  # of its shape
    attempts_list: list[AttemptObject]
    reason: ReasonObject | None
    explanation: str  # why it failed and what helps, as far as that is known
    code: dict[str, Any] | None
    stdout: str
    stderr: str


class AddedBody(TypedDict):
    first: int
    last: int
    is_new: bool
    missing: int  # jobs of the list that have not arrived; before that none of it is added
    notes: list[str]  # what may delay them, one sentence each


class ProspectObject(TypedDict):
    lessons: list[LessonObject]  # of its shape, with `vram: auto`
    gpus: list[int] | None
    starts_at: Moment | None  # estimated
    no_estimate: str  # why its start cannot be estimated; empty where it can
    reason: ReasonObject | None


class Prospects(TypedDict):
    prospects: list[ProspectObject]


class JobPage(TypedDict):
    jobs: list[JobObject]
    cursor: str | None
    total: int | None  # of all pages; null: not counted; they are counted if `offset` is given
    is_partial: bool  # there are too many to sort: the oldest are left out
    counts: Counts
    trouble: str  # as in the status of the daemon


class Waited(TypedDict):
    jobs: list[JobObject]
    waiting: list[int]
    trouble: str  # as in the status of the daemon


class EnvironmentBody(TypedDict):
    environment: dict[str, str]


class Why(TypedDict):
    job: int
    state: StateName
    reason: ReasonObject | None
    starts_at: Moment | None  # estimated
    no_estimate: str  # why its start cannot be estimated; empty where it can, and where it does not wait


class SharedWhy(TypedDict):
    state: StateName
    reason: ReasonObject | None
    starts_at: Moment | None
    no_estimate: str
    jobs: list[int]


class WhyMany(TypedDict):
    answers: list[SharedWhy]


class SharedReasonObject(TypedDict):
    code: str
    sentence: str
    until_at: Moment | None
    jobs: list[int]  # in the order in which they will start


class Reasons(TypedDict):
    reasons: list[SharedReasonObject]
    is_partial: bool  # more jobs wait than these


class FoundIds(TypedDict):
    ids: list[int]


class UnchangedObject(TypedDict):
    id: int
    why: str


class ChangedJobs(TypedDict):
    changed: list[int]
    cancelled: list[int]  # those of them that had not started, and are over now
    unchanged: list[UnchangedObject]
    left_out: Counts  # of a filter without states: jobs that match in states that the action is not for


class ChangedFlag(TypedDict):
    changed: bool


class Removed(TypedDict):
    removed: int


class CleanedJobs(TypedDict):
    """`kept` has the copies of code in which something that jobs wrote is left."""

    removed: int
    kept: list[str]


class CleanPreview(TypedDict):
    jobs: int


class StoppingBody(TypedDict):
    stopping: bool


def moment(seconds: float | None) -> str | None:
    """RFC 3339 in UTC, to the millisecond."""
    if seconds is None or not math.isfinite(seconds):
        return None
    try:
        return format_moment(seconds, "milliseconds")
    except (ValueError, OverflowError, OSError):
        return None


def job_object(
    row: JobRow,
    user: str,
    usage: Usage | None = None,
    orphans: Sequence[int] | None = None,
    remark: str = "",
    report: JobReport | None = None,
    suspension: Suspension | None = None,
    suspended_seconds: float | None = None,
    ran_seconds: float | None = None,
    *,
    hide_secrets: bool,
) -> dict[str, Any]:
    """A job as the API shows it. `usage`, `orphans` and `report` are those of the running attempt."""
    job = row.job
    progress = report.progress if report else None
    return {
        "id": job.id,
        "user": user,
        "state": str(job.state),
        "is_ending": job.is_stopping and (job.state.has_begun or job.state is State.SUBMITTED),
        "suspension": None if suspension is None else suspension_object(suspension),
        "suspended_seconds": None if suspended_seconds is None else round(suspended_seconds, 3),
        "ran_seconds": None if ran_seconds is None else round(ran_seconds, 3),
        "orphans": None if orphans is None else list(orphans),
        "remark": remark,
        **wishes_object(job.request, hide_secrets=hide_secrets),
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
        **_outcome_object(row.outcome),
        "why_held": job.why_held,
        "folder": row.folder,
        "usage": usage_object(usage or row.usage),
        "progress": None if progress is None else round(progress.part, 4),
        "ends_at": None if progress is None or job.state is State.SUSPENDED else moment(progress.ends_at),
        "last_metrics": {**row.metrics, **(report.numbers if report else {})},
        "sweep": _sweep(row),
    }


def suspension_object(one: Suspension) -> dict[str, Any]:
    return {
        "phase": str(one.phase),
        "why": one.why,
        "resumes": one.resumes,
        "rung": None if one.rung is None else str(one.rung),
        "held_bytes": one.held_bytes,
        "frees_cards": one.frees_cards,
        "began_at": moment(one.began_at),
        "suspended_at": moment(one.suspended_at),
        "ended_at": moment(one.ended_at),
        "why_not": one.why_not,
    }


def wishes_object(request: Request, *, hide_secrets: bool) -> dict[str, Any]:
    """The fields that a job was added with; of secret variables the names alone, if secrets are hidden."""
    wanted = request_json(request)
    if hide_secrets:
        wanted |= {key: dict.fromkeys(wanted[key], HIDDEN) for key in _SECRET}
    for key in NOT_SHOWN:
        del wanted[key]
    return {
        "command": request.command.shown,
        "words": list(request.command.words),
        **wanted,
        "begin_at": moment(request.begin),
    }


def new_job_object(request: Request, *, hide_secrets: bool) -> dict[str, Any]:
    """A request with the keys with which it can be added again."""
    wanted = wishes_object(request, hide_secrets=hide_secrets)
    if trial_of(request.once) is not None:
        wanted["once"] = ""  # added again, it is not a trial
    if request.umask is not None:
        wanted["umask"] = request.umask
    if request.array is None:
        del wanted["array"]
    return wanted


def past_object(row: JobRow) -> dict[str, Any]:
    """When a job that is over was added and how long it ran, so that `dibs simulate` can read an export."""
    if not row.job.state.is_over:
        return {}
    array = row.job.request.array
    return {
        "queued_at": moment(row.queued_at),
        "started_at": moment(row.started_at),
        "seconds": row.outcome.seconds if row.outcome else None,
        "array_id": None if array is None else array.array,
    }


def attempt_object(
    row: AttemptRow,
    record: Mapping[str, Any],
    usage: Usage | None = None,
    backend_job: str = "",
    suspensions: Sequence[Suspension] = (),
) -> dict[str, Any]:
    """`record` is what its shim wrote; empty where the folder was used again or removed, or cannot be read."""
    attempt = row.attempt
    return {
        "number": attempt.number,
        "gpus": [claim.index for claim in attempt.claims],
        "gpu_numbers": [claim.number for claim in attempt.claims],
        "share": next((str(claim.share) for claim in attempt.claims), None),
        "vram_bytes": max((claim.vram for claim in attempt.claims), default=0) or None,
        "started_at": moment(attempt.opened_at),
        "ended_at": moment(row.ended_at),
        **_outcome_object(row.outcome),
        "folder": attempt.folder,
        "boot_id": attempt.boot_id,
        "backend": attempt.backend,
        "backend_job": backend_job or str(record.get("number") or "") if attempt.backend else "",
        "node": attempt.node,
        "node_gpus": attempt.node_gpus,
        # The pid on another machine would be taken for one of this machine.
        "pid": None if attempt.backend else _whole(record.get("pid")),
        "cpu_seconds": _number(record.get("cpu")),
        "max_rss_bytes": _whole(record.get("maxrss")),
        "usage": usage_object(usage or row.usage),
        "suspensions": [suspension_object(one) for one in suspensions],
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
            "obstacle": row.lesson.obstacle,
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


def _outcome_object(outcome: Outcome | None) -> dict[str, Any]:
    return {
        "seconds": outcome.seconds if outcome else None,
        "exit_code": outcome.exit_code if outcome else None,
        "signal": outcome.signal if outcome else None,
        "cause": str(outcome.cause) if outcome and outcome.cause else None,
        "message": outcome.message if outcome else "",
    }


def _array(request: Request) -> dict[str, Any] | None:
    task = request.array
    return None if task is None else {"id": task.array, "task": task.task, "most": task.most}


def _sweep(row: JobRow) -> dict[str, Any] | None:
    """Which trial of which sweep a job is."""
    once, trial = row.job.request.once, row.trial
    found = trial_of(once) if once else None
    if found is None:
        return None
    point, results = (dict(trial.point), dict(trial.results)) if trial else ({}, {})
    return {"id": found[0], "trial": found[1], "point": point, "results": results}


def _whole(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None
