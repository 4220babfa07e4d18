"""Sweeps and trials: a search over parameters, and the points of it."""

import re
from collections.abc import Mapping
from dataclasses import field
from enum import StrEnum
from typing import Any, NewType

from dibs.dataclass import dataclass
from dibs.model.jobs import JobId, Request

SweepId = NewType("SweepId", int)
Point = Mapping[str, str | None]  # what goes into the command; None: the parameter is none, its flag is left out

# W&B's variable with the path of a trial's parameters. In a request it has their text, which becomes a file.
WANDB_PARAMETERS = "WANDB_SWEEP_PARAM_PATH"
_TRIAL_KEY = re.compile(r"sweep ([1-9][0-9]{0,14}) trial ([1-9][0-9]{0,14})", re.ASCII)


class SweepState(StrEnum):
    """Where a sweep stands."""

    RUNNING = "running"
    HELD = "held"  # no new trial is begun until it is released
    FINISHED = "finished"
    STOPPED = "stopped"


class TrialState(StrEnum):
    """Where a trial stands."""

    OPEN = "open"  # its job waits, runs or is about to be added
    COMPLETE = "complete"
    PRUNED = "pruned"  # ended early: others were better after as many steps
    FAILED = "failed"
    REUSED = "reused"  # the same point was run before

    @property
    def has_values(self) -> bool:
        """Whether it is one of those that are compared."""
        return self in (TrialState.COMPLETE, TrialState.REUSED)


@dataclass(frozen=True, kw_only=True, slots=True)
class Sweep:
    """A search with a number and a state. Its trials are jobs of the queue."""

    id: SweepId
    key: str  # of the call that added it: a repeated call gets the same number
    name: str
    spec: Mapping[str, Any]  # in the words of the API (sweeps/spec.py reads it)
    request: Request  # what each of its jobs asks for, beside the command
    environment: str  # the key of the captured environment
    code: str = ""  # the key of what is known about the code
    state: SweepState = SweepState.RUNNING
    why: str = ""  # a sentence, where it is held, or finished otherwise than one would expect
    cursor: int = 0  # of a grid or a random search: the next point to look at
    counts_from: float = 0.0  # trials that ended before this moment are not counted as the first
    queued_at: float = 0.0  # seconds since the epoch
    ended_at: float | None = None

    @property
    def label(self) -> str:
        """The beginning of its jobs' names."""
        return self.name or f"sweep-{self.id}"


@dataclass(frozen=True, kw_only=True, slots=True)
class Trial:
    """One point of a sweep, and what came of it."""

    sweep: SweepId
    number: int  # counted from 1 in each sweep
    point: Point
    command: str  # as it is shown to people
    fingerprint: str  # the same for the same work, also in another sweep
    state: TrialState = TrialState.OPEN
    job: JobId | None = None
    values: tuple[float, ...] | None = None  # in the order of the sweep's metrics
    why: str = ""  # a sentence, where it failed or was pruned
    cause: str = ""  # the kind of failure: trials that fail alike have the same
    seconds: float | None = None
    reused_from: JobId | None = None
    ended_at: float | None = None
    study: int | None = None  # its number in the adviser's study
    pruned_by: str = ""  # the sentence with which its end was asked for
    is_due: bool = False  # it failed, and is tried again as soon as there is room
    # The last of every number that it reported, also of the metrics; None: it is not finite.
    reported: Mapping[str, float | None] = field(default_factory=dict)
    continues: int | None = None  # the trial whose checkpoint it takes over
    repeat_of: int | None = None  # of a sweep with repeats: the number of the first trial of the same point
    # Only of that first one, when all of them have ended: the mean and the standard deviation of each metric.
    means: tuple[float, ...] | None = None
    spreads: tuple[float, ...] | None = None

    @property
    def judged_values(self) -> tuple[float, ...] | None:
        """By which trials are compared: those of a point's repeats count once, with their mean."""
        return self.values if self.repeat_of is None else self.means


def trial_key(sweep: SweepId, number: int) -> str:
    """By this key there is one job for each trial, whatever is killed when."""
    return f"sweep {sweep} trial {number}"


def trial_of(once: str) -> tuple[SweepId, int] | None:
    """What `trial_key` was made of, where that is one."""
    found = _TRIAL_KEY.fullmatch(once) if once.startswith("sweep ") else None
    return None if found is None else (SweepId(int(found[1])), int(found[2]))
