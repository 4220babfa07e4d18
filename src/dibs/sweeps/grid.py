"""All combinations of named values, counted and indexed but never written out."""

import math
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from dibs.errors import BadInput
from dibs.sweeps.permutation import Permutation

# A name may have a hyphen, as options do: `--batch-size {batch-size}`.
NAME = r"[^\W\d][\w-]*"
_MOST_PARAMETERS = 1000


@dataclass(frozen=True, slots=True)
class Grid:
    """The points of a sweep, in the order of nested loops: the last parameter changes fastest."""

    names: tuple[str, ...]
    values: tuple[tuple[str, ...], ...]

    @classmethod
    def of(cls, parameters: Iterable[tuple[str, Sequence[str]]]) -> "Grid":
        """Check the parameters, in the order given; what cannot be meant raises BadInput."""
        named: dict[str, tuple[str, ...]] = {}
        for name, values in parameters:
            if not re.fullmatch(NAME, name):
                raise BadInput(f"cannot use {name!r} as a parameter's name", remedy="letters, digits, _ and -")
            if name in named:
                raise BadInput(f"the parameter {name} is given twice", remedy="give all its values at once")
            if not values:
                raise BadInput(f"the parameter {name} has no values", remedy=f"write -p {name} 1 2 3")
            if any("\0" in value for value in values):
                raise BadInput(f"a value of {name} contains a NUL byte", remedy="no program can be given one")
            named[name] = tuple(values)
        if not named:
            raise BadInput("there is no parameter", remedy="write -p NAME VALUE VALUE")
        if len(named) > _MOST_PARAMETERS:
            raise BadInput(f"a sweep has at most {_MOST_PARAMETERS} parameters", remedy="split it")
        return cls(tuple(named), tuple(named.values()))

    @property
    def size(self) -> int:
        """How many points there are. Not `len()`, which fails beyond 2^63."""
        return math.prod(len(values) for values in self.values)

    def point(self, index: int) -> dict[str, str]:
        """The index-th combination."""
        if not 0 <= index < self.size:
            raise IndexError(index)
        chosen = []
        for values in reversed(self.values):
            index, place = divmod(index, len(values))
            chosen.append(values[place])
        return dict(zip(self.names, reversed(chosen), strict=True))

    def points(self, *, seed: int | None = None, samples: int | None = None) -> Iterator[dict[str, str]]:
        """The points in order, or shuffled by a seed; of these the first `samples`, or all."""
        if samples is not None and samples < 1:
            raise BadInput(f"cannot draw {samples} samples", remedy="it is a whole number from 1")
        wanted = range(self.size if samples is None else min(samples, self.size))
        if seed is None:
            return (self.point(index) for index in wanted)
        shuffled = Permutation(self.size, seed)
        return (self.point(shuffled[index]) for index in wanted)
