"""Rules of a sweep: how many trials to start, when it is over, which is best, whether all fail alike."""

import math
from collections.abc import Sequence
from typing import Literal, Protocol

from dibs.dataclass import dataclass
from dibs.model.gpus import Card
from dibs.model.jobs import Cause, Job, Outcome, State, Wishes
from dibs.model.sweeps import Sweep, SweepState, Trial, TrialState
from dibs.model.usage import Lessons
from dibs.policy.fitting import booking, is_allowed

Goal = Literal["min", "max"]

FIRST_TRIALS = 3  # failing alike: something is wrong with all of them
MOST_LEFT_OUT = 1_000_000  # points in a row that the conditions exclude: there may be none at all
_MOST_ON_A_CARD = 32
_ELSEWHERE, _ELSEWHERE_ADAPTIVE = 100, 16  # jobs at another system at once


# -- how many ----------------------------------------------------------------------------------------------


def planned(size: int | None, samples: int | None) -> int | None:
    """How many trials a sweep has in the end, unless conditions leave some out; None: it has no end of its own."""
    if size is None or samples is None:
        return samples if size is None else size
    return min(size, samples)


def room(parallel: int, open_trials: int, made: int, most: int | None) -> int:
    """How many new trials may be begun now."""
    left = parallel - open_trials
    return max(0, left if most is None else min(left, most - made))


def places(cards: Sequence[Card], wishes: Wishes, lessons: Lessons, cpus: int) -> int:
    """How many such jobs could run at once on an idle machine; at least one."""
    if not wishes.num_gpus:
        return max(1, cpus // (wishes.cpus or 1))
    fitting = [card for card in cards if is_allowed(card.gpu, wishes)]
    found = sum(min(_MOST_ON_A_CARD, math.floor(1 / booking(card, wishes, lessons))) for card in fitting)
    return max(1, found // wishes.num_gpus)


def places_elsewhere(is_adaptive: bool) -> int:
    """How many jobs another system gets at once: it has its own queue, but a search must learn from results."""
    return _ELSEWHERE_ADAPTIVE if is_adaptive else _ELSEWHERE


# -- which is best -----------------------------------------------------------------------------------------


def score(values: Sequence[float] | None, goals: Sequence[Goal]) -> float | None:
    """The first value, so that less is better."""
    if not values or not goals:
        return None
    return -values[0] if goals[0] == "max" else values[0]


def front(found: Sequence[tuple[int, Sequence[float]]], goals: Sequence[Goal]) -> list[int]:
    """Those that no other is better than in everything, by the first value. Of equal ones the first counts."""
    scored = sorted(
        (tuple(-value if goal == "max" else value for value, goal in zip(values, goals, strict=True)), number)
        for number, values in found
    )
    kept: list[tuple[tuple[float, ...], int]] = []
    for scores, number in scored:
        # A better one has no larger first value, and so came before.
        if not any(_is_as_good(other, scores) for other, _ in reversed(kept)):
            kept.append((scores, number))
    return [number for _, number in kept]


def _is_as_good(one: Sequence[float], other: Sequence[float]) -> bool:
    return all(mine <= its for mine, its in zip(one, other, strict=True))


def is_whole_point(trials: Sequence[Trial], repeats: int) -> bool:
    """Whether nothing more will be known of a point with these trials."""
    is_pruned = any(one.state is TrialState.PRUNED for one in trials)
    has_all = is_pruned or len(trials) == repeats
    return has_all and all(one.state is not TrialState.OPEN for one in trials)


def mean_and_spread(
    values: Sequence[Sequence[float]],
) -> tuple[tuple[float, ...], tuple[float, ...]] | None:
    """Of each metric over the repeats of a point, the deviation with n - 1; None where there is no value."""
    if not values:
        return None
    columns = list(zip(*values, strict=True))
    means = tuple(math.fsum(column) / len(column) for column in columns)
    squares = (math.fsum((one - mean) ** 2 for one in column) for column, mean in zip(columns, means, strict=True))
    return means, tuple(math.sqrt(square / max(1, len(values) - 1)) for square in squares)


# -- what became of a trial --------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class SweepVerdict:
    """What a job that is over for good says about its trial. None: ask for its results."""

    state: TrialState
    why: str = ""
    cause: str = ""


def judged(trial: Trial, job: Job, outcome: Outcome | None) -> SweepVerdict | None:
    """What became of a trial whose job is over."""
    if job.state is State.SUCCEEDED:
        return None  # also if it was cancelled in that moment: it has ended by itself
    said = f": {outcome.message}" if outcome is not None and outcome.message else ""
    if job.state is State.CANCELLED and trial.pruned_by:
        state = TrialState.FAILED if trial.cause else TrialState.PRUNED
        return SweepVerdict(state, trial.pruned_by, trial.cause)
    if job.state is State.CANCELLED:
        return SweepVerdict(TrialState.FAILED, f"job {job.id} was cancelled{said}")
    if job.state is State.LOST:
        return SweepVerdict(TrialState.FAILED, f"job {job.id} was lost{said}")
    assert outcome is not None
    kind = _kind(outcome)
    return SweepVerdict(TrialState.FAILED, f"job {job.id} failed with {kind}{said}", kind)


def _kind(outcome: Outcome) -> str:
    if outcome.cause is Cause.EXIT_CODE:
        return f"exit code {outcome.exit_code}"
    if outcome.cause is Cause.SIGNAL:
        return f"signal {outcome.signal}"
    return str(outcome.cause)


def fail_alike(first: Sequence[Trial], *, is_anew: bool = False) -> str:
    """Why a sweep is held whose first trials, these, all failed in the same way; empty where they did not.

    A cancelled or lost trial has no kind of failure, and says nothing about the others.
    """
    causes = {trial.cause for trial in first}
    if (
        len(first) < FIRST_TRIALS
        or len(causes) > 1
        or any(trial.state is not TrialState.FAILED for trial in first)
    ):
        return ""
    if not first[0].cause:
        return ""
    last = first[-1]
    since = " since it was let go on" if is_anew else ""
    return f"its first {len(first)} trials{since} failed alike; the last one: {last.why}"


# -- when it is over ---------------------------------------------------------------------------------------


class Aim(Protocol):
    """A metric, and the value of it that is enough."""

    @property
    def name(self) -> str: ...

    @property
    def goal(self) -> Goal: ...

    @property
    def target(self) -> float | None: ...


def reached_by(best: Sequence[Trial], metrics: Sequence[Aim]) -> str:
    """Which of the best trials has reached every target, as a sentence; empty where none has."""
    aims = [(place, metric) for place, metric in enumerate(metrics) if metric.target is not None]
    for trial in best if aims else ():
        values = trial.judged_values or ()
        if len(values) == len(metrics) and all(_is_reached(values[place], metric) for place, metric in aims):
            told = " and ".join(f"{metric.name} {values[place]:g}" for place, metric in aims)
            return f"trial {trial.number} has reached the target: {told}"
    return ""


def _is_reached(value: float, metric: Aim) -> bool:
    assert metric.target is not None
    return value >= metric.target if metric.goal == "max" else value <= metric.target


def is_over(sweep: Sweep, *, open_trials: int, due: int, made: int, most: int | None, is_exhausted: bool) -> bool:
    """Whether a running sweep has nothing more to do."""
    if sweep.state is not SweepState.RUNNING or open_trials or due:
        return False
    return is_exhausted or (most is not None and made >= most)
