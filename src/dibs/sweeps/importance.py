"""How much each parameter matters, by PED-ANOVA, which needs nothing beside Optuna itself."""

from collections.abc import Iterable
from typing import Any

import optuna
from optuna.importance import PedAnovaImportanceEvaluator, get_param_importances
from optuna.study import StudyDirection
from optuna.trial import TrialState, create_trial

from dibs.sweeps.space import Point
from dibs.sweeps.spec import Spec
from dibs.sweeps.study import directions
from dibs.sweeps.suggest import Suggestions

_FEWEST_TRIALS = 4


def importance_of(spec: Spec, trials: Iterable[tuple[Point, list[float]]]) -> dict[str, Any]:
    """What complete trials say about the first metric: the shares, the largest first; or none, and why."""
    suggestions = Suggestions(spec)
    study = optuna.create_study(directions=directions(spec))
    for point, values in trials:
        params, distributions = suggestions.of(point)
        study.add_trial(create_trial(params=params, distributions=distributions, values=values))
    why = _why_none(study)
    shares = {} if why else _shares(study)
    largest_first = sorted(shares.items(), key=lambda share: (-share[1], share[0]))
    return {"importance": [{"name": name, "value": float(value)} for name, value in largest_first], "why": why}


def _why_none(study: optuna.Study) -> str:
    trials = study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))
    if len(trials) < _FEWEST_TRIALS:
        return f"importance needs {_FEWEST_TRIALS} complete trials, and there are {len(trials)}"
    if len({trial.values[0] for trial in trials}) == 1:
        return "every trial came to the same value, so no parameter matters yet"
    if all(each.single() for trial in trials for each in trial.distributions.values()):
        return "every parameter has one value only"
    return ""


def _shares(study: optuna.Study) -> dict[str, float]:
    # For several metrics Optuna wants to be told which one, and takes less of it for better.
    sign = 1 if study.directions[0] == StudyDirection.MINIMIZE else -1
    return get_param_importances(
        study,
        evaluator=PedAnovaImportanceEvaluator(),
        target=None if len(study.directions) == 1 else lambda trial: sign * trial.values[0],
    )
