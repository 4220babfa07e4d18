"""When cards were used by others, lost, or not watched, in a fixed amount of memory.

The attempts in the store say when a job had a card. This says whether the rest of the time was idle.
"""

from collections import deque
from collections.abc import Callable, Collection, Iterable
from fractions import Fraction
from typing import Literal

from dibs.dataclass import dataclass
from dibs.engine.watch.survey import GpuUse
from dibs.model.card_history import HOLDS_FOR, CardParts
from dibs.store.history import UseRow

_MOST_SPANS = 2_000  # of one card
_LOST = ("lost", "missing")
_UNKNOWN_USER = "(unknown user)"

Use = Literal["others", "lost", "unknown"]


@dataclass(frozen=True, slots=True)
class UseSpan:
    """A time in which a card was used by others, lost, or not watched."""

    key: str  # of the card
    use: Use
    since: float
    until: float


def parts_of(card: GpuUse, folders: Collection[str]) -> CardParts:
    """Who has a card now. `folders`: those of the attempts that this queue runs.

    Processes without a lease use what is left of the card.
    """
    if card.state in _LOST:
        return CardParts(is_lost=True)
    ours = [holder.share for holder in card.holders if holder.folder in folders]
    job = min(Fraction(1), sum(ours, Fraction()))
    left = 1 - job
    others: dict[str, Fraction] = {}
    for holder in card.holders:
        if holder.folder not in folders:
            part = min(left, holder.share)
            left -= part
            others[holder.user] = others.get(holder.user, Fraction()) + part
    strangers = sorted({process.user or _UNKNOWN_USER for process in card.foreign})
    for user in strangers:
        others[user] = others.get(user, Fraction()) + left / len(strangers)
    return CardParts(job=float(job), others={user: float(part) for user, part in others.items()})


class CardUseSpans:
    """Collects what cards are; `spans` tells the rest. `earlier`: what an earlier run has written of a card."""

    def __init__(self, earlier: Callable[[str], Iterable[UseRow]]) -> None:
        self._earlier = earlier
        self._cards: dict[str, deque[_Seen]] = {}
        self._cut: set[str] = set()  # cards of which the store may have spans that are not here any more
        self._changed_since: dict[str, float] = {}  # the begin of the first span that is not written as it is

    def note(self, key: str, parts: CardParts, at: float) -> None:
        """Note what a card is at this moment."""
        use = "lost" if parts.is_lost else "others" if parts.others else ""
        seen = self._seen(key)
        if seen and at < seen[-1].since:
            seen.clear()  # the clock was set back
            self._changed_since.pop(key, None)
            self._cut.add(key)
        if seen and at <= seen[-1].until:
            self._changed_since.setdefault(key, seen[-1].since)
            if seen[-1].use == use:
                seen[-1].until = at + HOLDS_FOR
                return
            seen[-1].until = at
        if len(seen) == _MOST_SPANS:
            self._cut.add(key)
        seen.append(_Seen(use, at, at + HOLDS_FOR))
        self._changed_since.setdefault(key, at)

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
                if seen.use:
                    found.append(UseSpan(key, "lost" if seen.use == "lost" else "others", begin, end))
                known_to = end
            if known_to < until:
                found.append(UseSpan(key, "unknown", known_to, until))
        return found

    @property
    def unwritten(self) -> list[UseRow]:
        """What has changed since `written`."""
        return [
            UseRow(key, seen.since, seen.until, seen.use)
            for key, since in self._changed_since.items()
            for seen in self._cards[key]
            if seen.since >= since
        ]

    @property
    def kept(self) -> list[tuple[str, float, float]]:
        """Cards of which spans were dropped: when the first and the last begin that are left."""
        return [(key, seen[0].since, seen[-1].since) for key in self._cut if (seen := self._cards[key])]

    def written(self) -> None:
        self._changed_since, self._cut = {}, set()

    def _seen(self, key: str) -> "deque[_Seen]":
        if key not in self._cards:
            spans = (_Seen(row.use, row.since, row.until) for row in self._earlier(key))
            self._cards[key] = deque(spans, maxlen=_MOST_SPANS)
        return self._cards[key]


@dataclass(slots=True)
class _Seen:
    use: str  # empty: free, or held by jobs of this queue
    since: float
    until: float
