"""A shuffled order of 0..n-1 that is computed point by point, however large n is."""

import hashlib

_ROUNDS = 8  # four would do for a large n; small ones look more random with more


class Permutation:
    """A bijection of range(n) chosen by a seed: the same seed gives the same order, everywhere.

    A Feistel network permutes the numbers of 2k bits. One that lands outside of range(n) is sent through
    again until it lands inside; the network has at most 4n numbers, so that takes four turns on average.
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
        # As many bits as a half has: with fewer, a grid beyond 2^1024 points would be shuffled only in part.
        size = (self._half + 7) // 8
        noise = b"".join(
            hashlib.blake2b(b"%d " % part + text, key=self._key).digest() for part in range(size // 64 + 1)
        )
        return int.from_bytes(noise[:size], "big") & self._mask
