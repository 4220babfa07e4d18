"""Between a sweep's parameters and Optuna's: what may be drawn, and what a point is in a trial."""

from typing import Any

from optuna.distributions import (
    BaseDistribution,
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
)
from optuna.trial import Trial

from dibs.sweeps.points import Activity
from dibs.sweeps.space import Choice, Parameter, Point, Range
from dibs.sweeps.spec import Spec
from dibs.sweeps.where import Condition

_Distribution = CategoricalDistribution | FloatDistribution | IntDistribution


class Suggestions:
    """The space of a sweep in Optuna's terms."""

    def __init__(self, spec: Spec) -> None:
        self._parameters = spec.parameters
        self._distributions = {parameter.name: _distribution(parameter) for parameter in spec.parameters}
        self._activity = Activity(spec.parameters)
        self._where = [Condition(text, spec.names) for text in spec.where]

    def draw(self, trial: Trial) -> Point:
        """Let the trial draw its parameters one after another, and only those that are wanted."""
        point: Point = {}
        for parameter in self._parameters:
            point[parameter.name] = None
            if self._activity.is_wanted(parameter, point):
                drawn = _draw(trial, parameter.name, self._distributions[parameter.name])
                # Optuna keeps what it drew; the command gets the few digits of it that mean something.
                point[parameter.name] = drawn if isinstance(parameter, Choice) else parameter.text(drawn)
        return point

    def put_on_steps(self, point: Point) -> dict[str, Any]:
        """The parameters that a drawn point really has, where they are far from what Optuna drew.

        It knows no steps on a log scale. Told 37 where 40 was run, it would learn what is not so.
        """
        params, _ = self.of(point)
        return {
            each.name: params[each.name]
            for each in self._parameters
            if isinstance(each, Range) and each.scale == "log" and each.step is not None and each.name in params
        }

    def allows(self, point: Point) -> bool:
        return all(condition.holds(point) for condition in self._where)

    def of(self, point: Point) -> tuple[dict[str, Any], dict[str, BaseDistribution]]:
        """A point that Optuna did not draw, as a trial's parameters and their distributions."""
        params: dict[str, Any] = {}
        for parameter in self._parameters:
            text = point.get(parameter.name)
            if not self._activity.is_wanted(parameter, point):
                continue
            if isinstance(parameter, Choice):
                params[parameter.name] = text
            elif text is not None:
                number = min(max(float(text), parameter.low), parameter.high)
                params[parameter.name] = int(number) if parameter.is_integer else number
        return params, {name: self._distributions[name] for name in params}


def _draw(trial: Trial, name: str, of: _Distribution) -> Any:
    """From the same as a point has that was chosen elsewhere, so that both kinds of trials are of one study."""
    if isinstance(of, CategoricalDistribution):
        return trial.suggest_categorical(name, of.choices)
    if isinstance(of, IntDistribution):
        return trial.suggest_int(name, of.low, of.high, step=of.step, log=of.log)
    return trial.suggest_float(name, of.low, of.high, step=of.step, log=of.log)


def _distribution(parameter: Parameter) -> _Distribution:
    if isinstance(parameter, Choice):
        return CategoricalDistribution(parameter.values)
    is_log = parameter.scale == "log"
    step = None if is_log else parameter.step  # Optuna refuses both; `Range.text` puts it on a step
    if parameter.is_integer:
        return IntDistribution(int(parameter.low), int(parameter.high), log=is_log, step=int(step or 1))
    return FloatDistribution(parameter.low, parameter.high, log=is_log, step=step)
