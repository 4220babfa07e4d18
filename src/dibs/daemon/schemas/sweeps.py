"""What the API tells of sweeps and their trials."""

from typing import Any, Literal

from typing_extensions import TypedDict  # pydantic reads the one in typing from Python 3.12 only

from dibs.daemon.schemas.requests import Moment


class MetricObject(TypedDict):
    name: str
    goal: Literal["min", "max"]


class TrialObject(TypedDict):
    """One point of a sweep, and what came of it."""

    number: int
    job: int | None
    state: Literal["open", "complete", "pruned", "failed", "reused"]
    point: dict[str, str | None]  # null: the parameter is none, and its flag is left out
    values: list[float] | None  # in the order of the sweep's metrics
    seconds: float | None
    why: str
    reused_from: int | None  # the job that ran the same point before
    ended_at: Moment | None
    command: str


class TrialCounts(TypedDict):
    open: int
    complete: int
    pruned: int
    failed: int
    reused: int


class SweepObject(TypedDict):
    """A search over parameters as everybody sees it."""

    id: int
    name: str
    project: str
    user: str
    state: Literal["running", "held", "finished", "stopped"]
    why: str
    spec: dict[str, Any]
    metrics: list[MetricObject]
    size: int | None  # of all its trials; null: it has no end of its own
    parallel: int  # trials at once
    counts: TrialCounts
    best: list[TrialObject]  # one; of several metrics all that none is better than in everything
    queued_at: Moment
    ended_at: Moment | None
    journal: str  # Optuna's own file, for its dashboard; empty where there is none


class SweepList(TypedDict):
    sweeps: list[SweepObject]
    cursor: int | None  # the next page has those below this number; null: this was the last


class AddedSweep(TypedDict):
    id: int
    is_new: bool
    size: int | None


class CheckedSweep(TypedDict):
    size: int | None
    commands: list[str]  # of the first points
    left_out: int  # points among these that no command stands for


class TrialPage(TypedDict):
    trials: list[TrialObject]
    cursor: str | None


class ImportanceObject(TypedDict):
    name: str
    value: float


class Importance(TypedDict):
    importance: list[ImportanceObject]  # the most important first
    why: str  # a sentence, where nothing can be said yet


class ActedSweep(TypedDict):
    changed: bool
    trials: int  # how many trials that concerned


class RemovedSweep(TypedDict):
    trials: int  # how many it had


class FoundSweep(TypedDict):
    id: int
