"""All combinations of named values, counted and indexed but never written out."""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from dibs.errors import BadInput
from dibs.sweeps.names import check_names, check_values
from dibs.sweeps.permutation import Permutation

_Value = TypeVar("_Value")


@dataclass(frozen=True, slots=True)
class Grid(Generic[_Value]):
    """The points of a sweep, in the order of nested loops: the last parameter changes fastest."""

    names: tuple[str, ...]
    values: tuple[Sequence[_Value], ...]

    @classmethod
    def of(cls, parameters: Iterable[tuple[str, Sequence[str]]]) -> "Grid[str]":
        """Check the parameters, in the order given; what cannot be meant raises BadInput."""
        given = list(parameters)
        check_names([name for name, _ in given])
        for name, values in given:
            check_values(name, values)
        return Grid(tuple(name for name, _ in given), tuple(tuple(values) for _, values in given))

    @property
    def size(self) -> int:
        """How many points there are. Not `len()`, which fails beyond 2^63."""
        return math.prod(len(values) for values in self.values)

    def point(self, index: int) -> dict[str, _Value]:
        """The index-th combination."""
        if not 0 <= index < self.size:
            raise IndexError(index)
        chosen = []
        for values in reversed(self.values):
            index, place = divmod(index, len(values))
            chosen.append(values[place])
        return dict(zip(self.names, reversed(chosen), strict=True))

    def points(self, *, seed: int | None = None, samples: int | None = None) -> Iterator[dict[str, _Value]]:
        """The points in order, or shuffled by a seed; of these the first `samples`, or all."""
        if samples is not None and samples < 1:
            raise BadInput(f"cannot draw {samples} samples", remedy="it is a whole number from 1")
        wanted = range(self.size if samples is None else min(samples, self.size))
        if seed is None:
            return (self.point(index) for index in wanted)
        shuffled = Permutation(self.size, seed)
        return (self.point(shuffled[index]) for index in wanted)
