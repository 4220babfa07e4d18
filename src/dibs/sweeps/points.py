"""The points of a grid or random sweep by their index, computed one at a time."""

import hashlib
import math

from dibs.sweeps.conditions import Constraints
from dibs.sweeps.grid import Grid, Permutation
from dibs.sweeps.space import Choice, Parameter, Point
from dibs.sweeps.spec import Spec

_EQUAL_FROM = 1000  # draws, after which there are hardly other points


class Points:
    """The points number 0, 1, 2 and so on: the same for the same spec and seed, everywhere.

    A random search through values that are drawn alike is a shuffled grid, so it has no repetitions. All others,
    such as continuous and logarithmic ranges, are sampled.
    """

    def __init__(self, spec: Spec) -> None:
        self._parameters = spec.parameters
        self._constraints = Constraints(spec.parameters, spec.where)
        self._seed = spec.seed
        counts = [parameter.count for parameter in spec.parameters]
        self._grid: Grid[int] | None = None  # of indexes into each parameter's values
        is_even = all(parameter.is_even for parameter in spec.parameters)
        if None not in counts and (spec.method == "grid" or (is_even and spec.method != "population")):
            self._grid = Grid(spec.names, tuple(range(count or 0) for count in counts))
        self._order: Permutation | None = None
        if self._grid and (spec.is_shuffled or spec.method != "grid"):
            self._order = Permutation(self._grid.size, spec.seed)
        self._drawn: dict[bytes, int] = {}  # the first index of each point that was drawn so far
        self._drawn_to = 0
        self._has_equals = spec.method == "population"  # its members with equal points differ in their checkpoints
        has_end = None not in counts and not self._has_equals
        self._most = math.prod(map(_drawable, spec.parameters)) if has_end else None  # different draws
        self._last: int | None = None  # the index of the last point that differs from all before

    @property
    def size(self) -> int | None:
        """The number of indexes, including those that give no point; None where there is no end."""
        return self._grid.size if self._grid else None

    def is_end(self, index: int) -> bool:
        """Whether it is known that there is no point from this index on."""
        end = self.size if self._last is None else self._last + 1
        return end is not None and index >= end

    def at(self, index: int) -> Point | None:
        """The index-th point; None where `where` excludes it or an earlier index has the same point."""
        if self._grid:
            place = self._order[index] if self._order else index
            return self._of_grid(self._grid.point(place))
        if index < 0:
            raise IndexError(index)
        return self._of_draw(index)

    def next(self, index: int, most: int = 10_000) -> tuple[int, Point | None]:
        """The first point from this index on, and the index after it.

        Without a point among the next `most` indexes, or before the end, the point is None.
        """
        end = index + most if self.size is None else min(self.size, index + most)
        while index < end:
            point = self.at(index)
            index += 1
            if point is not None:
                return index, point
        return index, None

    def count(self, most: int = 10_000) -> int | None:
        """The exact number of points; None where there are too many indexes to check each."""
        if self.size is None or self.size > most:
            return None
        return sum(self.at(index) is not None for index in range(self.size))

    def _of_grid(self, places: dict[str, int]) -> Point | None:
        point: Point = {}
        for parameter in self._parameters:
            if self._constraints.is_active(parameter, point):
                point[parameter.name] = parameter.value_at(places[parameter.name])
            elif places[parameter.name]:
                return None  # an inactive parameter has one point, at its first value
            else:
                point[parameter.name] = None
        return point if self._constraints.allow(point) else None

    def _of_draw(self, index: int) -> Point | None:
        point = self._draw(index)
        is_wanted = self._is_new(point, index) or (self._has_equals and index >= _EQUAL_FROM)
        return point if is_wanted and self._constraints.allow(point) else None

    def _is_new(self, point: Point, index: int) -> bool:
        # Only the earlier draws tell whether a point was drawn before; a search makes few of them.
        for earlier in range(self._drawn_to, index):
            self._drawn.setdefault(_key(self._draw(earlier)), earlier)
        self._drawn_to = max(self._drawn_to, index)
        is_new = self._drawn.setdefault(_key(point), index) == index
        if self._last is None and len(self._drawn) == self._most:
            self._last = max(self._drawn.values())
        return is_new

    def _draw(self, index: int) -> Point:
        point: Point = {}
        for parameter in self._parameters:
            is_active = self._constraints.is_active(parameter, point)
            share = _share(self._seed, index, parameter.name)
            point[parameter.name] = parameter.value_of(share) if is_active else None
        return point


def _drawable(parameter: Parameter) -> int:
    """How many different values are drawn."""
    if isinstance(parameter, Choice) and parameter.weights:
        return sum(weight > 0 for weight in parameter.weights)
    return parameter.count or 1


def _share(seed: int, index: int, name: str) -> float:
    """A pseudo-random number in [0, 1) that depends only on the seed, the index and the parameter's name."""
    noise = hashlib.blake2b(f"{seed} {index} {name}".encode(), digest_size=8).digest()
    return (int.from_bytes(noise, "big") >> 11) / 2**53


def _key(point: Point) -> bytes:
    return hashlib.blake2b(repr(sorted(point.items())).encode(), digest_size=16).digest()
