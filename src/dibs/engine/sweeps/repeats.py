"""Points that are run several times: their mean is their result, and their mean by step is pruned."""

from collections.abc import Sequence
from dataclasses import replace

from dibs.engine.sweeps.context import SweepContext
from dibs.model.sweeps import SweepId, Trial, TrialState
from dibs.policy.sweeps import Goal, is_whole_point, mean_and_spread
from dibs.sweeps.spec import Spec


def record_means(context: SweepContext, sweep: SweepId, spec: Spec, ended: Sequence[Trial], now: float) -> None:
    """Inside a change: the mean of each point whose repeats have all ended, written down with its first trial."""
    goals: list[Goal] = [metric.goal for metric in spec.metrics]
    for first in sorted({one.repeat_of for one in ended if one.repeat_of is not None}):
        trials = context.table.of_point(sweep, first, spec.repeat)
        if not is_whole_point(trials, spec.repeat):
            continue
        found = mean_and_spread([one.values for one in trials if one.state.has_values and one.values is not None])
        is_pruned = any(one.state is TrialState.PRUNED for one in trials)
        means, spreads = (None, None) if found is None or is_pruned else found
        if (trials[0].means, trials[0].spreads) != (means, spreads):
            context.records.trial(replace(trials[0], means=means, spreads=spreads), goals, now)


class Curves:
    """What repeats of one point reported, by step: a pruner judges their mean."""

    def __init__(self) -> None:
        self._values: dict[int, dict[int, dict[int, float]]] = {}  # by first trial, trial and step
        self._told: dict[int, set[int]] = {}  # steps whose mean was judged, by first trial

    def judged(
        self, trial: Trial, news: Sequence[tuple[int, float]], begun: Sequence[Trial]
    ) -> list[tuple[int, float]]:
        """The steps that can be judged now: all repeats that have begun have reached them, or have ended."""
        if trial.repeat_of is None:
            return list(news)
        values = self._values.setdefault(trial.repeat_of, {})
        for step, value in news:
            values.setdefault(trial.number, {}).setdefault(step, value)
        told = self._told.setdefault(trial.repeat_of, set())
        found = []
        for step in sorted({step for steps in values.values() for step in steps} - told):
            lack = [one for one in begun if step not in values.get(one.number, {})]
            if all(one.state is not TrialState.OPEN for one in lack):
                told.add(step)
                known = [steps[step] for steps in values.values() if step in steps]
                found.append((step, sum(known) / len(known)))
        return found
