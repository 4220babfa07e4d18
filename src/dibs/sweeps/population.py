"""Population-based training: which points the next generation runs, and whose checkpoint each takes over.

All members of a generation train for the same time. Then each of the worst takes over the checkpoint of one of the
best, with that one's parameters a little changed; all others go on as they are. (Jaderberg et al., 2017; Optuna
has no such search.)
"""

import random
from collections.abc import Sequence

from dibs.dataclass import dataclass
from dibs.errors import DibsError
from dibs.sweeps.conditions import Constraints
from dibs.sweeps.space import Choice, Curve, Parameter, Point, Range
from dibs.sweeps.spec import Spec

_WORST = 4  # one of so many takes over from as many of the best
_RESAMPLED = 0.25  # how often a changed parameter is drawn anew
_FACTORS = (0.8, 1.2)
_MOST_DRAWS = 100


@dataclass(frozen=True, slots=True)
class Member:
    """A trial of a generation that is over."""

    number: int
    point: Point
    value: float | None  # of the metric; None: it failed


@dataclass(frozen=True, slots=True)
class Successor:
    """A trial of the next generation."""

    point: Point
    continues: int  # the trial whose checkpoint it takes over


class NothingToContinue(DibsError):
    """No trial of a generation has a result."""


def next_generation(spec: Spec, generation: int, members: Sequence[Member]) -> list[Successor]:
    """Of each member its successor, in their order. The same for the same results."""
    ranked = sorted((one for one in members if one.value is not None), key=lambda one: one.value or 0.0)
    if spec.metrics[0].goal == "max":
        ranked.reverse()
    if not ranked:
        raise NothingToContinue(
            f"no trial of generation {generation} has a result, so none can be continued",
            remedy="`dibs sweep retry-failed` tries them again",
        )
    few = max(1, len(members) // _WORST)
    best = ranked[:few]
    worst = {one.number for one in ranked[few:][-few:]} | {one.number for one in members if one.value is None}
    successors = []
    for member in members:
        chance = random.Random(f"{spec.seed} {generation} {members.index(member)}")
        if member.number in worst:
            better = chance.choice(best)
            successors.append(Successor(_changed(spec, better.point, chance), better.number))
        else:
            successors.append(Successor(member.point, member.number))
    return successors


def _changed(spec: Spec, point: Point, chance: random.Random) -> Point:
    """A point near this one that fulfils the conditions; the same point where none is found."""
    constraints = Constraints(spec.parameters, spec.where)
    for _ in range(_MOST_DRAWS):
        found: Point = {}
        for parameter in spec.parameters:
            is_active = constraints.is_active(parameter, found)
            before = point.get(parameter.name)
            found[parameter.name] = _value(parameter, before, chance) if is_active else None
        if constraints.allow(found):
            return found
    return point


def _value(parameter: Parameter, before: str | None, chance: random.Random) -> str | None:
    # The better one may have no value, by the conditions, or one that an edit has removed.
    is_known = before in parameter.values if isinstance(parameter, Choice) else before is not None
    if chance.random() < _RESAMPLED or not is_known:
        return parameter.value_of(chance.random())
    if isinstance(parameter, Choice):
        place = parameter.values.index(before) + chance.choice((-1, 1))
        return parameter.values[min(max(place, 0), len(parameter.values) - 1)]
    assert before is not None
    if isinstance(parameter, Curve):
        return parameter.value_of(min(max(parameter.share_of(before) + chance.choice((-0.1, 0.1)), 0.0), 1.0))
    return _moved(parameter, before, chance.choice(_FACTORS))


def _moved(parameter: Range, before: str, factor: float) -> str:
    """The number times the factor, but at least one step away where the range has steps."""
    number = float(before)
    text = parameter.text(number * factor)
    step = parameter.step or (1.0 if parameter.is_integer else 0.0)
    return text if text != before or not step else parameter.text(number + (step if factor > 1 else -step))
