"""Going back: what the store would not have, on a full disk or a sick one, never happened."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dibs.engine.cards import Cards
from dibs.engine.hand import Hand, Key, Observer, Open
from dibs.engine.keeper import Keeper
from dibs.engine.waiting import WaitingLine
from dibs.errors import StoreUnusable
from dibs.model.events import Event
from dibs.model.jobs import JobId, State
from dibs.store.store import Store

if TYPE_CHECKING:
    from dibs.engine.away.away import Away


@dataclass(frozen=True, slots=True)
class Before:
    """What comes back when the store would not have a turn."""

    open: dict[Key, Open]
    away: dict[Key, Open]
    events: list[Event]
    false_starts: dict[JobId, tuple[int, float]]
    failures: int
    stopping: set[JobId]
    served: Mapping[str, float]
    observer: Any


class Undoing:
    """Remembers what a turn is about to change, and brings it back."""

    def __init__(
        self,
        *,
        hand: Hand,
        store: Store,
        cards: Cards,
        keeper: Keeper,
        forget_plan: Callable[[], None],
        clock: Callable[[], float],
    ) -> None:
        self.observer: Observer
        self.away: Away | None = None
        self.must_reload = False  # a sick disk could not tell who waits
        self._hand = hand
        self._store = store
        self._cards = cards
        self._keeper = keeper
        self._forget_plan = forget_plan
        self._clock = clock

    def keep(self) -> Before:
        hand = self._hand
        return Before(
            dict(hand.open),
            dict(hand.away),
            hand.events.copy(),
            hand.false_starts.copy(),
            hand.failures,
            hand.stopping.copy(),
            hand.served,
            self.observer.keep(),
        )

    def go_back_to(
        self, before: Before, done: Sequence[Key], now: float, error: StoreUnusable | OSError | None
    ) -> None:
        """The store would not have it. Nothing of it was started or told; the disk's truth is ours again."""
        hand = self._hand
        self._forget_plan()
        for one in hand.open.values():
            self._cards.release(one.attempt)
        self._keeper.keep_only(before.open.keys())
        hand.open = before.open
        for one in before.open.values():
            self._cards.book(one.attempt, one.job)
        hand.away = before.away
        hand.done += done
        hand.unclear.difference_update(done)
        hand.events, hand.false_starts, hand.failures = before.events, before.false_starts, before.failures
        hand.served = before.served
        hand.stopping = before.stopping
        if self.away is not None:
            self.away.go_back()
        self.observer.go_back(before.observer)
        self.reload()
        if error is not None:
            hand.trouble(error.message if isinstance(error, StoreUnusable) else str(error), now)

    def reload(self) -> None:
        """Read again who waits; where the disk is too sick for that, before the next turn."""
        try:
            self.load_waiting()
            self.observer.reload()
            self.must_reload = False
        except StoreUnusable as error:
            self.must_reload = True
            self._hand.trouble(error.message, self._clock())

    def load_waiting(self) -> None:
        store = self._store
        self._hand.waiting = WaitingLine(store.waiting, store.delayed)
        self._hand.waiting.restore(
            store.waiting_classes(),
            store.counts().get(State.QUEUED, 0) - store.listing.blocked(),
            self._clock(),
        )
