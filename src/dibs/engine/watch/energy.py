"""The energy that one card takes, divided among those who hold it."""

from collections.abc import Mapping

from dibs.engine.turn.state import Key

_LEAST, _MOST = 0.5, 2.0  # how far the counter and our sum may differ; beyond that one of them is mad
_LONGEST_PAUSE = 120.0  # seconds between two looks
_FIRST = 2.0  # seconds before the first look for which its power is believed


class Joules:
    """Adds power up over time; the card's own counter, asked rarely, sets right what was added since the last."""

    def __init__(self) -> None:
        self._at: float | None = None
        self._power: float | None = None
        self._counter: float | None = None
        self._total = 0.0  # since the counter was read
        self._parts: dict[Key, float] = {}  # of it

    def add(
        self, now: float, power: float | None, counter: float | None, since: Mapping[Key, float]
    ) -> dict[Key, float]:
        """What each holder has used since the last look; `since` tells from when on each held the card.

        It may be less than nothing, where the counter says that too much was counted before.
        """
        used = self._integrate(now, power, since)
        if counter is not None and counter != self._counter:
            for key, more in self._correct(counter).items():
                used[key] = used.get(key, 0.0) + more
        return used

    def _integrate(self, now: float, power: float | None, since: Mapping[Key, float]) -> dict[Key, float]:
        at, before, self._at, self._power = self._at, self._power, now, power
        if power is None:
            self._at = self._counter = None  # the next answer is a beginning
            return {}
        if at is None or now - at > _LONGEST_PAUSE:
            at, before, self._counter = now - _FIRST, None, None
        mean = power if before is None else (before + power) / 2
        self._total += mean * (now - at)
        used = {key: mean * max(0.0, now - max(at, begun)) / len(since) for key, begun in since.items()}
        # Of those who hold it still: not every card has a counter that would end the sum.
        self._parts = {key: self._parts.get(key, 0.0) + joules for key, joules in used.items()}
        return used

    def _correct(self, counter: float) -> dict[Key, float]:
        before, self._counter = self._counter, counter
        total, self._total = self._total, 0.0
        parts, self._parts = self._parts, {}
        if before is None or total <= 0 or not _LEAST <= (counter - before) / total <= _MOST:
            return {}
        factor = (counter - before) / total
        return {key: joules * (factor - 1) for key, joules in parts.items()}
