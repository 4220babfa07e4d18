"""In the job: one trial of a study."""

from collections.abc import Callable, Sequence

import optuna

from dibs.dataclass import dataclass

Objective = Callable[[optuna.Trial], float | Sequence[float]]


@dataclass(frozen=True, slots=True)
class TrialCall:
    """Returns the value of the objective, or why the trial was pruned, which is not a failure."""

    func: Objective

    def __call__(self, trial: optuna.Trial) -> tuple[float | Sequence[float] | None, str | None]:
        trial.study.sampler.reseed_rng()  # every job has a copy of one sampler, and would draw the same values
        try:
            return self.func(trial), None
        except optuna.TrialPruned as pruned:
            return None, str(pruned)
