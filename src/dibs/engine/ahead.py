"""Who comes next, recorded before there is a place for them.

Between two short jobs of one kind nothing takes as long as the commit that records the start of the second. So
where all places are alike, slots of one card, a turn that records starts may record the next ones, too. When a job
has ended well, the next is started at once, and the end is recorded while it runs.

It is for moments only. Whoever was recorded ahead goes back into the line as soon as a plan must be made, and a
plan is made several times a second.
"""

from collections.abc import Callable, Sequence

from dibs.backends.local import LocalBackend
from dibs.engine.cards import Cards
from dibs.engine.hand import Hand, Key, Open
from dibs.engine.keeper import Keeper
from dibs.model.claims import Claim
from dibs.model.events import Event
from dibs.model.jobs import State
from dibs.model.values import changed
from dibs.policy.settle import outcome_of
from dibs.policy.turns import served_after
from dibs.store.store import Store


class Ahead:
    """Those whose start is recorded and who have not been started, in order."""

    def __init__(
        self,
        *,
        hand: Hand,
        store: Store,
        backend: LocalBackend,
        cards: Cards,
        keeper: Keeper,
        launch: Callable[[Sequence[Open], float], None],
        reach: Callable[[str], None],
    ) -> None:
        self.next: list[Open] = []
        self.news: list[Event] = []  # of those who stepped in, to be told after the ends that made room for them
        self._hand = hand
        self._store = store
        self._backend = backend
        self._cards = cards
        self._keeper = keeper
        self._launch = launch
        self._reach = reach

    def step_in(self, done: Sequence[Key], now: float) -> dict[Key, Open]:
        """Start the next ones in the places of these, before their ends are recorded; who took whose.

        Only if all of them ended well: after one that did not, perhaps nothing more is to be started.
        """
        stepped: dict[Key, Open] = {}
        if not all(self._has_succeeded(key) for key in done):
            return stepped
        for key, follower in zip(done, self.next.copy(), strict=False):
            one = changed(follower, attempt=changed(follower.attempt, opened_at=now))
            self._keeper.release(self._hand.open[key].attempt)
            if busy := self._keeper.take(one.job, one.attempt):
                self._cards.taken_by_others(one.attempt.claims, busy)
                break  # the plan that is made now tells what else there is
            self._reach("after-lease")
            del self.next[0]
            stepped[key] = self._hand.open[one.attempt.key] = one
            self._cards.book(one.attempt, one.job)
            self._hand.served = served_after(self._hand.served, one.job)
        told = len(self._hand.events)
        self._launch(list(stepped.values()), now)
        self.news += self._hand.events[told:]
        del self._hand.events[told:]
        return stepped

    def room(self) -> int:
        """How many more may be recorded ahead: one for each place, where these are all alike."""
        places = [one.attempt.claims for one in self._hand.open.values()]
        are_alike = all(place == places[0] for place in places)
        return len(places) - len(self.next) if places and are_alike else 0

    @property
    def place(self) -> tuple[Claim, ...]:
        """What each of them gets."""
        return next(iter(self._hand.open.values())).attempt.claims

    def give_back(self) -> None:
        """Have all of them wait in line again. Inside a turn of the store."""
        for one in self.next:
            self._store.forget_attempt(one.attempt, None)
            number = one.attempt.number - 1
            self._hand.waiting.add(changed(one.job, state=State.QUEUED, attempts=number, tries=one.job.tries - 1))
        self.next = []

    def _has_succeeded(self, key: Key) -> bool:
        one = self._hand.open.get(key)
        facts = None if one is None else self._backend.heard(one.attempt)
        if one is None or facts is None or facts.exit_record is None or one.job.id in self._hand.stopping:
            return False
        return outcome_of(facts.exit_record).cause is None
