"""What comes back from the API. `shown.py` makes it; here it is described, and a test holds it to that."""

from typing import Any, Literal

from typing_extensions import TypedDict  # pydantic reads the one in typing from Python 3.12 only

from dibs.daemon.models import Moment, StateName

Counts = dict[StateName, int]


class Problem(TypedDict):
    code: str
    message: str
    remedy: str


class ErrorBody(TypedDict):
    """Every error has this shape."""

    error: Problem


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


class JobObject(TypedDict):
    """A job as everybody sees it."""

    id: int
    name: str
    project: str
    user: str
    state: StateName
    command: str
    words: list[str]
    workdir: str
    env: dict[str, str]
    num_gpus: int
    share: str | None
    vram_bytes: int | None
    gpu_type: str
    cpus: int | None
    mem_bytes: int | None
    only: list[str]
    prefer: list[str]
    time_limit_seconds: float | None
    grace_seconds: float
    priority: int
    retries: int
    retry_on: list[str]
    restartable: bool
    tags: list[str]
    after: list[DependencyObject]
    begin_at: Moment | None
    array: ArrayObject | None
    once: str
    notify: str
    checkpoint: CheckpointObject | None
    output: str
    attempts: int
    gpus: list[int]
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


class ReasonObject(TypedDict):
    code: str
    sentence: str
    until_at: Moment | None  # about when it passes, where that is known


class AttemptObject(TypedDict):
    number: int
    gpus: list[int]
    started_at: Moment
    ended_at: Moment | None
    seconds: float | None
    exit_code: int | None
    signal: int | None
    cause: str | None
    message: str
    folder: str
    boot_id: str
    pid: int | None
    cpu_seconds: float | None
    max_rss_bytes: int | None


class WholeJob(JobObject):
    """Everything about one job."""

    attempts_list: list[AttemptObject]
    reason: ReasonObject | None
    code: dict[str, Any] | None
    stdout: str
    stderr: str


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


class AddedBody(TypedDict):
    first: int
    last: int
    is_new: bool


class ProspectObject(TypedDict):
    gpus: list[int] | None
    starts_at: Moment | None
    reason: ReasonObject | None


class Prospects(TypedDict):
    prospects: list[ProspectObject]


class JobPage(TypedDict):
    jobs: list[JobObject]
    cursor: str | None
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


class HolderObject(TypedDict):
    user: str
    job: str
    pid: int | None
    share: str
    since_at: Moment | None


class ProcessObject(TypedDict):
    user: str | None
    pid: int
    memory_bytes: int | None
    name: str


class GpuObject(TypedDict):
    index: int | None
    key: str
    name: str
    memory_total_bytes: int | None
    memory_used_bytes: int | None
    load_percent: float | None
    temperature_celsius: float | None
    power_watts: float | None
    slots: int
    state: Literal["free", "held", "busy", "drained", "quarantined", "silent"]
    why: str
    holders: list[HolderObject]
    processes: list[ProcessObject]


class Gpus(TypedDict):
    gpus: list[GpuObject]
    pool: str


class ProjectObject(TypedDict):
    name: str
    paused: bool
    why: str
    counts: Counts


class Projects(TypedDict):
    projects: list[ProjectObject]


class Removed(TypedDict):
    removed: int


class Stopping(TypedDict):
    stopping: bool
