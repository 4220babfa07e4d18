"""The points of a grid or random sweep by their index, however many there are."""

import hashlib
from collections.abc import Sequence
from typing import TYPE_CHECKING

from dibs.errors import BadInput
from dibs.sweeps.grid import Grid
from dibs.sweeps.permutation import Permutation
from dibs.sweeps.space import Parameter, Point, Range
from dibs.sweeps.where import Condition

if TYPE_CHECKING:
    from dibs.sweeps.spec import Spec


class Points:
    """What is tried as number 0, 1, 2 and so on: the same for the same spec and seed, everywhere.

    Only values are made, and only when asked for. A shuffled grid and a random search through counted values
    are the same thing, without repetitions; dense ranges, and logarithmic ones, are drawn from.
    """

    def __init__(self, spec: "Spec") -> None:
        self._parameters = spec.parameters
        self._activity = Activity(spec.parameters)
        self._where = [Condition(text, spec.names) for text in spec.where]
        self._seed = spec.seed
        counts = [parameter.count for parameter in spec.parameters]
        self._grid: Grid[int] | None = None  # of places, because a range need not be written out to be counted
        if None not in counts and (spec.method == "grid" or not _has_counted_logs(spec.parameters)):
            self._grid = Grid(spec.names, tuple(range(count or 0) for count in counts))
        self._order: Permutation | None = None
        if self._grid and (spec.is_shuffled or spec.method != "grid"):
            self._order = Permutation(self._grid.size, spec.seed)
        self._drawn: dict[bytes, int] = {}  # the first index of each point that was drawn so far
        self._drawn_to = 0

    @property
    def size(self) -> int | None:
        """How many indexes there are, with those that give no point; None where there is no end."""
        return self._grid.size if self._grid else None

    def at(self, index: int) -> Point | None:
        """The index-th point; None where `where` leaves it out or an earlier index has the same one."""
        if self._grid:
            place = self._order[index] if self._order else index
            return self._of_grid(self._grid.point(place))
        if index < 0:
            raise IndexError(index)
        return self._of_draw(index)

    def next(self, index: int, most: int = 10_000) -> tuple[int, Point | None]:
        """The first point from this index on: where to go on after it, and the point.

        After `most` indexes without one it gives up for now, and there is no point; and so at the end, where
        the index returned is the size.
        """
        end = index + most if self.size is None else min(self.size, index + most)
        while index < end:
            point = self.at(index)
            index += 1
            if point is not None:
                return index, point
        return index, None

    def count(self, most: int = 10_000) -> int | None:
        """How many points there really are; None where there are too many indexes to look at each."""
        if self.size is None or self.size > most:
            return None
        return sum(self.at(index) is not None for index in range(self.size))

    def _of_grid(self, places: dict[str, int]) -> Point | None:
        point: Point = {}
        for parameter in self._parameters:
            if self._activity.is_wanted(parameter, point):
                point[parameter.name] = parameter.value_at(places[parameter.name])
            elif places[parameter.name]:
                return None  # the first value of a parameter that is not wanted stands for all of them
            else:
                point[parameter.name] = None
        return point if self._is_allowed(point) else None

    def _of_draw(self, index: int) -> Point | None:
        # Nothing but a look at the earlier ones tells whether a point was drawn before. A search takes few.
        for earlier in range(self._drawn_to, index):
            self._drawn.setdefault(_key(self._draw(earlier)), earlier)
        self._drawn_to = max(self._drawn_to, index)
        point = self._draw(index)
        is_new = self._drawn.setdefault(_key(point), index) == index
        return point if is_new and self._is_allowed(point) else None

    def _draw(self, index: int) -> Point:
        point: Point = {}
        for parameter in self._parameters:
            is_wanted = self._activity.is_wanted(parameter, point)
            share = _share(self._seed, index, parameter.name)
            point[parameter.name] = parameter.value_of(share) if is_wanted else None
        return point

    def _is_allowed(self, point: Point) -> bool:
        return all(condition.holds(point) for condition in self._where)


class Activity:
    """Which parameters are wanted, given the values of those before them."""

    def __init__(self, parameters: Sequence[Parameter]) -> None:
        """Raise BadInput where a condition names a parameter that does not come before."""
        self._conditions: dict[str, Condition] = {}
        names = [parameter.name for parameter in parameters]
        for place, parameter in enumerate(parameters):
            if not parameter.when:
                continue
            condition = Condition(parameter.when, names)
            if early := sorted(condition.uses.difference(names[:place])):
                raise BadInput(
                    f"{parameter.name} depends on {early[0]}, which does not come before it",
                    remedy=f"give {early[0]} first; a parameter cannot depend on itself, nor two on each other",
                )
            self._conditions[parameter.name] = condition

    def is_wanted(self, parameter: Parameter, point: Point) -> bool:
        """Whether it has a value at this point, which has those of the parameters before it."""
        condition = self._conditions.get(parameter.name)
        return condition is None or condition.holds(point)


def _has_counted_logs(parameters: Sequence[Parameter]) -> bool:
    """Whether some values come up more often than others, so that a shuffle would be wrong."""
    return any(isinstance(parameter, Range) and parameter.scale == "log" for parameter in parameters)


def _share(seed: int, index: int, name: str) -> float:
    """A number from 0 up to 1, not included, that looks random; a parameter's own, whatever else there is."""
    noise = hashlib.blake2b(f"{seed} {index} {name}".encode(), digest_size=8).digest()
    return (int.from_bytes(noise, "big") >> 11) / 2**53


def _key(point: Point) -> bytes:
    return hashlib.blake2b(repr(sorted(point.items())).encode(), digest_size=16).digest()
