"""What comes back from the API. `serializers.py` makes it; here it is described, and a test holds it to that."""

from typing import TYPE_CHECKING, Any, Literal

from typing_extensions import TypedDict  # pydantic reads the one in typing from Python 3.12 only

from dibs.daemon.schemas.requests import Moment, StateName
from dibs.model import fields
from dibs.model.fields import Kind

Counts = dict[StateName, int]


class ErrorObject(TypedDict):
    code: str
    message: str
    remedy: str


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


class UsageObject(TypedDict):
    """What an attempt used. What nobody could tell is null."""

    seconds: float  # over which it was measured
    peak_vram_bytes: int | None  # on one card
    vram_total_bytes: int | None  # that this card has
    mean_load_percent: float | None
    energy_watt_hours: float | None
    peak_mem_bytes: int | None
    mean_cpus: float | None
    is_steady: bool
    was_alone: bool
    astray: list[str]  # keys of GPUs that it used without having been given them


def _shown(field: fields.Field) -> Any:
    """What is shown under the key of a field."""
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
    **dict.fromkeys((Kind.GPU_IDS, Kind.NAMES, Kind.MODULES, Kind.CAUSES), list[str]),
}
NOT_SHOWN = ("hold", "umask")  # the state says the first, and the second is for the start alone
if TYPE_CHECKING:

    class _Asked(TypedDict):
        """What was asked for."""
else:
    _Asked = TypedDict(
        "_Asked", {key: _shown(field) for key, field in fields.BY_KEY.items() if key not in NOT_SHOWN}
    )


class JobObject(_Asked):
    """A job as everybody sees it."""

    id: int
    user: str
    state: StateName
    command: str
    words: list[str]
    shape: str  # its script and the names of its arguments, with `vram: auto`
    attempts: int
    gpus: list[int]
    gpu_numbers: list[str]  # as people write them: `0`, or `0:1` for a part of a card
    node: str  # the machine of its last attempt, where another system ran it
    node_gpus: str  # the cards that it had there, as that machine counts them: `0,1`
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
    sweep: SweepTrial | None  # null: it is no trial of a sweep


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
    backend_job: str  # its number there: `4711`, or `4711_3` in an array; empty: not known
    node: str  # the machine over there; empty: not known yet
    node_gpus: str  # its cards there, as that machine counts them: `0,1`
    pid: int | None  # on this machine
    cpu_seconds: float | None
    max_rss_bytes: int | None
    usage: UsageObject | None


class SeriesObject(TypedDict):
    """One number in each list for each step; of bytes the most, of the others the mean."""

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
    usage: UsageObject | None  # null: nobody looked
    series: SeriesObject | None
    advice: list[str]


class LessonObject(TypedDict):
    """What jobs of one shape were seen to need on cards of one model."""

    shape: str
    gpu: str  # the card's name
    peak_vram_bytes: int | None
    booked_vram_bytes: int | None  # of the next one; null: the whole card
    peak_mem_bytes: int | None
    cpus: float
    runs: int
    needs_card: bool  # one ran out of memory beside others
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


class BackendStanding(TypedDict):
    """Another system that has jobs of ours."""

    name: str
    attempts: int  # that it has
    trouble: str  # why nobody there can be asked; empty: somebody can
    remedy: str
    silent_since_at: Moment | None


class WarmProcess(TypedDict):
    """A process from which jobs with `warm` are forked."""

    modules: list[str]
    pid: int | None  # null: it imports them


class Status(TypedDict):
    version: str
    api: int
    pid: int
    started_at: Moment
    user: str
    state_folder: str
    paused: bool
    paused_projects: list[str]
    counts: Counts
    gpus: str
    driver: str
    default_backend: str  # where jobs run that do not say so: `local` or `slurm`
    backends: list[BackendStanding]
    warm: list[WarmProcess]


class AddedBody(TypedDict):
    first: int
    last: int
    is_new: bool
    notes: list[str]  # what may hold them up, one sentence each


class ProspectObject(TypedDict):
    lessons: list[LessonObject]  # of its shape, with `vram: auto`
    gpus: list[int] | None
    starts_at: Moment | None
    reason: ReasonObject | None


class Prospects(TypedDict):
    prospects: list[ProspectObject]


class JobPage(TypedDict):
    jobs: list[JobObject]
    cursor: str | None
    total: int | None  # of all pages; null where nobody has counted: ask with `offset`
    is_partial: bool  # there are too many to be sorted: the oldest are left out
    counts: Counts


class Waited(TypedDict):
    jobs: list[JobObject]
    waiting: list[int]


class EnvironmentBody(TypedDict):
    environment: dict[str, str]


class Why(TypedDict):
    job: int
    state: StateName
    reason: ReasonObject | None
    starts_at: Moment | None


class FoundIds(TypedDict):
    ids: list[int]


class UnchangedObject(TypedDict):
    id: int
    why: str


class ChangedJobs(TypedDict):
    changed: list[int]
    unchanged: list[UnchangedObject]


class ChangedFlag(TypedDict):
    changed: bool


class ChangedGpus(TypedDict):
    changed: list[str]


class LogLines(TypedDict):
    """Output as people read it: progress bars folded, long lines cut, holes named."""

    job: int
    attempt: int  # 0: it has had none
    state: StateName
    first: int | None  # the number of the first line here, from 0; null while the lines are being counted
    lines: list[str]
    total: int | None  # lines; null while they are being counted: ask again
    is_complete: bool  # all lines are here that were asked for, as far as there are that many
    is_open: bool  # the last line has no newline yet: more of it may come
    size: int  # bytes of the file
    cut: str  # `FIRST-END`: bytes that were cut out of its middle


class LogMatch(TypedDict):
    line: int  # its number, from 0
    text: str  # what stands around it, without colours


class LogMatches(TypedDict):
    matches: list[LogMatch]
    next: int | None  # the line from which to go on; null: that was all
    is_over: bool  # the file was looked through to its end


class SpanObject(TypedDict):
    """One attempt, as a bar on a time line."""

    job: int
    attempt: int
    name: str
    project: str
    user: str
    gpus: list[int]
    node: str  # the machine, where another system ran it
    node_gpus: str  # its cards there: `0,1`
    started_at: Moment
    ended_at: Moment | None
    state: StateName
    cause: str | None


class Timeline(TypedDict):
    since_at: Moment | None
    until_at: Moment | None
    attempts: list[SpanObject]
    is_partial: bool  # there were more: the oldest are left out


class ProjectObject(TypedDict):
    name: str
    paused: bool
    why: str
    counts: Counts


class Projects(TypedDict):
    projects: list[ProjectObject]


class Removed(TypedDict):
    removed: int


class StoppingBody(TypedDict):
    stopping: bool


class PageEntry(TypedDict):
    address: str
    code: str
    expires_at: Moment
