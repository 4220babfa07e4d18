"""All combinations of named values, counted and indexed without being written out, in order or shuffled."""

import hashlib
import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Generic, TypeVar

from dibs.dataclass import dataclass
from dibs.errors import BadInput
from dibs.sweeps.params import check_names, check_values

_ROUNDS = 8  # four are enough for a large n; a small n looks more random with more


class Permutation:
    """A bijection of range(n) chosen by a seed, computed per index: the same seed gives the same order everywhere.

    A Feistel network permutes the numbers of 2k bits. A result outside of range(n) is permuted again until it
    is inside; the network has at most 4n numbers, so that takes at most four rounds on average.
    """

    def __init__(self, n: int, seed: int) -> None:
        self._n = n
        self._half = max(1, ((n - 1).bit_length() + 1) // 2)  # bits
        self._mask = (1 << self._half) - 1
        self._key = hashlib.blake2b(str(seed).encode(), digest_size=32).digest()

    def __getitem__(self, index: int) -> int:
        if not 0 <= index < self._n:
            raise IndexError(index)
        index = self._turn(index)
        while index >= self._n:
            index = self._turn(index)
        return index

    def _turn(self, number: int) -> int:
        left, right = number >> self._half, number & self._mask
        for step in range(_ROUNDS):
            left, right = right, left ^ self._noise(step, right)
        return left << self._half | right

    def _noise(self, step: int, number: int) -> int:
        text = b"%d %d" % (step, number)
        # As many bits as a half has: with fewer, only a part of a grid beyond 2^1024 points would be shuffled.
        size = (self._half + 7) // 8
        noise = b"".join(
            hashlib.blake2b(b"%d " % part + text, key=self._key).digest() for part in range(size // 64 + 1)
        )
        return int.from_bytes(noise[:size], "big") & self._mask


_Value = TypeVar("_Value")


@dataclass(frozen=True, slots=True)
class Grid(Generic[_Value]):
    """The points of a sweep, in the order of nested loops: the last parameter changes fastest."""

    names: tuple[str, ...]
    values: tuple[Sequence[_Value], ...]

    @classmethod
    def of(cls, parameters: Iterable[tuple[str, Sequence[str]]]) -> "Grid[str]":
        """A grid of these parameters, in the order given; BadInput for invalid ones."""
        given = list(parameters)
        check_names([name for name, _ in given])
        for name, values in given:
            check_values(name, values)
        return Grid(tuple(name for name, _ in given), tuple(tuple(values) for _, values in given))

    @property
    def size(self) -> int:
        """The number of points. Not `len()`, which fails beyond 2^63."""
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
        """The first `samples` points, or all of them, in order or shuffled by a seed."""
        if samples is not None and samples < 1:
            raise BadInput(f"cannot draw {samples} samples", remedy="it is a whole number from 1")
        wanted = range(self.size if samples is None else min(samples, self.size))
        if seed is None:
            return (self.point(index) for index in wanted)
        shuffled = Permutation(self.size, seed)
        return (self.point(shuffled[index]) for index in wanted)
