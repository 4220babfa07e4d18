"""What the cards of the pool were and used in the last weeks: watched with each reading, kept in the store.

It is written every five minutes and when the daemon ends. After a crash the time since then is unknown.
"""

from collections.abc import Callable, Collection, Iterable
from contextlib import suppress

from dibs.engine.watch.card_use import CardUseSpans, UseSpan, parts_of
from dibs.engine.watch.survey import GpuUse
from dibs.errors import StoreUnusable
from dibs.model.card_history import HOLDS_FOR, HOURS, MINUTES, CardBuckets, CardMoment, CardParts, HistoryBucket
from dibs.model.gpus import CardState, GpuReading, Reading, declared_key
from dibs.store.history import OutsideUse
from dibs.store.store import Store

EVERY = 5.0  # seconds between two looks at the holders of the cards, at least
_TIDY_EVERY = 86_400.0  # seconds


class CardHistory:
    """Collects readings of the cards.

    `look`: the cards of the pool with their holders, for a reading, or for none where the cards cannot be read.
    `folders`: those of the attempts that this queue runs.
    """

    def __init__(
        self,
        store: Store,
        look: Callable[[Reading | None], Iterable[GpuUse]],
        folders: Callable[[], Collection[str]],
        now: float,
    ) -> None:
        self._store = store
        self._look = look
        self._folders = folders
        self._spans = CardUseSpans(store.history.uses)
        self._cards: dict[str, _WatchedCard] = {}
        self._parts: dict[str, CardParts] = {}  # at the last look, of the cards that answered
        self._outside: dict[tuple[int, str], OutsideUse] = {}  # that is not written yet
        self._looked_at = 0.0
        self._write_at = (now // MINUTES + 1) * MINUTES
        self._tidied_at = 0.0

    def add(self, reading: Reading) -> None:
        """Note what the cards are at this reading."""
        with suppress(StoreUnusable):  # it cannot be read now: the time is unknown later
            self._watch(reading.at.timestamp(), reading)

    def watch_unread(self, now: float) -> None:
        """The same for cards that cannot be read: who holds them is known."""
        with suppress(StoreUnusable):
            self._watch(now, None)

    def uses(self, keys: Iterable[str], since: float, until: float) -> list[UseSpan]:
        """What these cards were between two moments, without the times in which they were free or held by jobs."""
        return self._spans.spans(keys, since, until)

    def buckets(self, key: str, step: int, since: float, until: float) -> dict[int, HistoryBucket]:
        """The buckets of a card that begin between two moments, by their begin."""
        found = {one.at: one for one in self._store.history.buckets(key, step, since, until)}
        if (card := self._cards.get(key)) is not None:
            newer = (one for one in card.buckets.unwritten.values() if one.step == step)
            found |= {one.at: one for one in newer if since <= one.at < until}
        return found

    def counted_until(self, key: str, now: float) -> float:
        """The moment until which the buckets of a card tell what it was; now, if it is not watched."""
        card = self._cards.get(key)
        return card.at if card is not None and 0 <= now - card.at <= HOLDS_FOR else now

    def outside(self, since: float, until: float) -> list[OutsideUse]:
        """GPU time that users had outside of the queue, in the hours that overlap this time."""
        newer = [one for one in self._outside.values() if since - HOURS < one.at < until]
        return [*self._store.history.outside(since, until), *newer]

    @property
    def keys(self) -> list[str]:
        """Of all cards with a history."""
        return list(dict.fromkeys([*self._store.history.cards(), *self._cards]))

    def write(self) -> None:
        """Write what is new. What the store refuses, on a full disk, is written the next time."""
        tables = self._store.history
        try:
            with self._store.turn():
                for key, card in self._cards.items():
                    tables.put_buckets(key, card.buckets.unwritten.values())
                tables.put_uses(self._spans.unwritten)
                for key, first, last in self._spans.kept:
                    tables.forget_uses(key, first, last)
                tables.add_outside(self._outside.values())
                if is_tidied := not 0 <= self._looked_at - self._tidied_at < _TIDY_EVERY:
                    tables.forget_old(self._looked_at)
        except StoreUnusable:
            return
        for card in self._cards.values():
            card.buckets.written()
        self._spans.written()
        self._outside.clear()
        if is_tidied:
            self._tidied_at = self._looked_at

    def _watch(self, at: float, reading: Reading | None) -> None:
        if not 0 <= at - self._looked_at < EVERY:
            self._look_at_holders(at, reading)
        seen = _by_key(reading)
        for key, parts in self._parts.items():
            card = seen.get(key)
            if card is None or parts.is_lost:
                self._count(key, at, CardMoment(parts=parts))
            elif card.state is CardState.OK:
                self._count(
                    key, at, CardMoment(parts=parts, load=card.load, memory=card.memory_used, power=card.power)
                )
        if not 0 < self._write_at - at <= MINUTES:
            self._write_at = (at // MINUTES + 1) * MINUTES
            self.write()

    def _look_at_holders(self, at: float, reading: Reading | None) -> None:
        self._looked_at = at
        folders = self._folders()
        # The values of a card that does not answer now are old.
        self._parts = {card.key: parts_of(card, folders) for card in self._look(reading) if card.state != "stale"}
        for key, parts in self._parts.items():
            self._spans.note(key, parts, at)

    def _count(self, key: str, at: float, moment: CardMoment) -> None:
        if (card := self._cards.get(key)) is None:
            card = self._cards[key] = _WatchedCard(self._store.history.buckets_at(key, at))
        seconds = card.buckets.add(at, moment)
        if card.moment is not None and seconds:
            hour = int(card.at // HOURS) * HOURS
            for user, part in card.moment.parts.others.items():
                before = self._outside.get((hour, user), OutsideUse(hour, user, 0.0, 0.0))
                gpu_seconds = part * seconds
                joules = gpu_seconds * (card.moment.power or 0.0)
                self._outside[hour, user] = OutsideUse(
                    hour, user, before.seconds + gpu_seconds, before.joules + joules
                )
        card.at, card.moment = at, moment


class _WatchedCard:
    def __init__(self, begun: Iterable[HistoryBucket]) -> None:
        self.buckets = CardBuckets(begun)
        self.at = 0.0  # of the last moment
        self.moment: CardMoment | None = None


def _by_key(reading: Reading | None) -> dict[str, GpuReading]:
    """The cards of a reading; a card of the pool may have been declared by its number only."""
    gpus = reading.gpus if reading is not None else ()
    whole = {declared_key(one.gpu.index): one for one in gpus if one.gpu.part is None}
    return whole | {one.gpu.key: one for one in gpus}
