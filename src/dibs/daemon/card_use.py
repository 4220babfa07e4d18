"""When cards were used by others, lost, or not watched: since the daemon's start, in a fixed amount of memory.

The attempts in the store say when a job had a card. This says whether the rest of the time was idle.
"""

import math
from collections import deque
from collections.abc import Callable, Collection, Iterable
from typing import Literal

from dibs.dataclass import dataclass
from dibs.engine.watch.survey import GpuUse
from dibs.model.gpus import Reading

EVERY = 5.0  # seconds between two looks, at least
_HOLDS_FOR = 40.0  # seconds that a look holds; an idle daemon reads the GPUs every half minute
_MOST_SPANS = 2_000  # of one card
_LOST = ("lost", "missing")

Use = Literal["others", "lost", "unknown"]


@dataclass(frozen=True, slots=True)
class UseSpan:
    """A time in which a card was used by others, lost, or not watched."""

    key: str  # of the card
    use: Use
    since: float
    until: float


class CardUseHistory:
    """Collects readings; `spans` tells the rest.

    `look`: all cards with their holders, for a reading. `folders`: those of the attempts that this queue runs.
    `is_read`: whether the cards can be read; where they cannot, a card is watched from `started_at` on.
    """

    def __init__(
        self,
        look: Callable[[Reading], Iterable[GpuUse]],
        folders: Callable[[], Collection[str]],
        is_read: Callable[[], bool],
        started_at: float,
    ) -> None:
        self._look = look
        self._folders = folders
        self._is_read = is_read
        self._started_at = started_at
        self._cards: dict[str, deque[_Seen]] = {}
        self._looked_at = 0.0

    def add(self, reading: Reading) -> None:
        """Note what the cards are at this moment."""
        at = reading.at.timestamp()
        if 0 <= at - self._looked_at < EVERY:
            return
        self._looked_at = at
        folders = self._folders()
        for card in self._look(reading):
            if card.state == "stale":
                continue  # its values are old
            self._note(card.key, _use(card, folders), at)

    def spans(self, keys: Iterable[str], since: float, until: float) -> list[UseSpan]:
        """What these cards were between two moments, without the times in which they were free or held by jobs."""
        found = []
        for key in keys:
            known_to = since
            for seen in self._seen(key):
                begin, end = max(since, seen.since), min(until, seen.until)
                if begin >= end:
                    continue
                if begin > known_to:
                    found.append(UseSpan(key, "unknown", known_to, begin))
                if seen.use is not None:
                    found.append(UseSpan(key, seen.use, begin, end))
                known_to = end
            if known_to < until:
                found.append(UseSpan(key, "unknown", known_to, until))
        return found

    def _seen(self, key: str) -> Iterable["_Seen"]:
        if not self._is_read():
            return [_Seen(None, self._started_at, math.inf)]
        return self._cards.get(key, ())

    def _note(self, key: str, use: Use | None, at: float) -> None:
        seen = self._cards.setdefault(key, deque(maxlen=_MOST_SPANS))
        if seen and at < seen[-1].since:
            seen.clear()  # the clock was set back
        if seen and at <= seen[-1].until:
            if seen[-1].use == use:
                seen[-1].until = at + _HOLDS_FOR
                return
            seen[-1].until = at
        seen.append(_Seen(use, at, at + _HOLDS_FOR))


def _use(card: GpuUse, folders: Collection[str]) -> Use | None:
    if card.state in _LOST:
        return "lost"
    is_others = bool(card.foreign) or any(holder.folder not in folders for holder in card.holders)
    return "others" if is_others else None


@dataclass(slots=True)
class _Seen:
    use: Use | None  # None: free, or held by jobs of this queue
    since: float
    until: float
