"""From Hydra's overrides to the distributions of an Optuna study."""

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from hydra.core.override_parser.types import IntervalSweep, Override, RangeSweep
from hydra.errors import CompactHydraException

if TYPE_CHECKING:
    from optuna.distributions import BaseDistribution


def split_overrides(overrides: Iterable[Override]) -> "tuple[dict[str, BaseDistribution], list[str]]":
    """What is searched, by the key of its override, and the overrides that are the same in every trial."""
    space: dict[str, BaseDistribution] = {}
    fixed = []
    for override in overrides:
        if override.is_hydra_override():
            continue  # they are in the config
        if override.is_sweep_override():
            space[override.get_key_element()] = _distribution(override)
        else:
            fixed.append(f"{override.get_key_element()}={override.get_value_element_as_str()}")
    return space, fixed


def chosen_overrides(space: Mapping[str, Any], point: Mapping[str, Any]) -> list[str]:
    """The overrides of a trial, in the order of the space."""
    return [f"{key}={point[key]}" for key in space]


def _distribution(override: Override) -> "BaseDistribution":
    from optuna.distributions import CategoricalDistribution

    sweep = override.value()
    try:
        if isinstance(sweep, IntervalSweep):
            return _interval(sweep)
        if isinstance(sweep, RangeSweep) and (found := _range(sweep)) is not None:
            return found
        # The options of a config group, too: model=choice(small,large), or model=glob(*).
        return CategoricalDistribution(list(dict.fromkeys(override.sweep_string_iterator())))
    except ValueError as error:
        raise CompactHydraException(f"cannot search {override.input_line}: {error}") from None


def _interval(sweep: IntervalSweep) -> "BaseDistribution":
    from optuna.distributions import FloatDistribution, IntDistribution

    assert sweep.start is not None and sweep.end is not None
    if "int" in sweep.tags:
        return IntDistribution(int(sweep.start), int(sweep.end), log="log" in sweep.tags)
    return FloatDistribution(float(sweep.start), float(sweep.end), log="log" in sweep.tags)


def _range(sweep: RangeSweep) -> "BaseDistribution | None":
    """Without its end, as everywhere in Hydra. None: one that goes down, whose values are just listed."""
    from optuna.distributions import FloatDistribution, IntDistribution

    values = list(sweep.range())
    if not values or sweep.step <= 0:
        return None
    if all(isinstance(value, int) for value in values):
        if "log" in sweep.tags:  # Optuna's have no step
            return IntDistribution(values[0], values[-1], log=True)
        return IntDistribution(values[0], values[-1], step=int(sweep.step))
    return FloatDistribution(values[0], values[-1], step=float(sweep.step))
