"""Points that are run several times: their mean is their result, and their mean by step is pruned."""

from collections.abc import Sequence
from dataclasses import field, replace

from dibs.dataclass import dataclass
from dibs.engine.sweeps.context import SweepContext
from dibs.model.sweeps import SweepId, Trial, TrialState
from dibs.policy.sweeps import Goal, is_whole_point, mean_and_spread
from dibs.sweeps.spec import Spec


def record_means(
    context: SweepContext, sweep: SweepId, spec: Spec, ended: Sequence[Trial], now: float
) -> list[int]:
    """Inside a change: the mean of each point whose repeats have all ended, written down with its first trial.

    Returns these first trials.
    """
    goals: list[Goal] = [metric.goal for metric in spec.metrics]
    whole = []
    for first in sorted({one.repeat_of for one in ended if one.repeat_of is not None}):
        trials = context.table.of_point(sweep, first, spec.repeat)
        if not is_whole_point(trials, spec.repeat):
            continue
        whole.append(first)
        found = mean_and_spread([one.values for one in trials if one.state.has_values and one.values is not None])
        is_pruned = any(one.state is TrialState.PRUNED for one in trials)
        means, spreads = (None, None) if found is None or is_pruned else found
        if (trials[0].means, trials[0].spreads) != (means, spreads):
            context.records.trial(replace(trials[0], means=means, spreads=spreads), goals, now)
    return whole


@dataclass(slots=True)
class _Curve:
    """One point: a step is judged once, and its values are forgotten then."""

    waiting: dict[int, dict[int, float]] = field(default_factory=dict)  # values by step and trial
    told: set[int] = field(default_factory=set)  # steps
    open: set[int] = field(default_factory=set)  # repeats that ran at the last look


class Curves:
    """What repeats of one point reported, by step: a pruner judges their mean."""

    def __init__(self) -> None:
        self._curves: dict[int, _Curve] = {}  # by first trial

    def judged(
        self, trial: Trial, news: Sequence[tuple[int, float]], begun: Sequence[Trial]
    ) -> list[tuple[int, float]]:
        """The steps that can be judged now: all repeats that have begun have reached them, or have ended."""
        if trial.repeat_of is None:
            return list(news)
        curve = self._curves.setdefault(trial.repeat_of, _Curve())
        new = set()
        for step, value in news:
            if step not in curve.told:
                curve.waiting.setdefault(step, {}).setdefault(trial.number, value)
                new.add(step)
        # Others waited for a repeat that runs, and wait on unless one has ended.
        is_open = {one.number for one in begun if one.state is TrialState.OPEN}
        steps = new if is_open == curve.open else curve.waiting
        curve.open = is_open
        found = []
        for step in sorted(steps):
            known = curve.waiting[step]
            if is_open <= known.keys():
                found.append((step, sum(known.values()) / len(known)))
                curve.told.add(step)
                del curve.waiting[step]
        return found

    def forget(self, first: int) -> None:
        """Drop a point of which nothing more will be known."""
        self._curves.pop(first, None)
