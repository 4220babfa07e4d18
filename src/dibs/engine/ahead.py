"""Who comes next, recorded before there is a place for them.

Between two short jobs of one kind nothing takes as long as the commit that records the start of the second. So
where all places are alike, slots of one card, a turn that records starts may record the next ones, too. When a job
has ended well, the next is started at once, and the end is recorded while it runs. Where jobs are very short, the
next ones even wait at their shims (behind.py), and the ends of several are recorded together.

It is for moments only. Whoever was recorded ahead goes back into the line as soon as a plan must be made, and a
plan is made several times a second.
"""

import bisect
from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import Any

from dibs.backends.local import LocalBackend
from dibs.engine.behind import Behind
from dibs.engine.cards import Cards
from dibs.engine.hand import Hand, Key, Open
from dibs.engine.keeper import Keeper
from dibs.engine.launching import Launching
from dibs.model.claims import Claim
from dibs.model.events import Event
from dibs.model.jobs import State
from dibs.model.values import changed
from dibs.policy.settle import outcome_of
from dibs.store.store import Store

_SHORT = 0.02  # seconds
_LATER = 0.005  # seconds within which ends are recorded together
_AHEAD_OF_SHORT = 4  # are recorded for each place where jobs are short
_MOST = 64  # are recorded before there is a place for them


class Ahead:
    """Those whose start is recorded and who have not been started, in order; and what has happened since."""

    def __init__(
        self,
        *,
        hand: Hand,
        store: Store,
        backend: LocalBackend,
        cards: Cards,
        keeper: Keeper,
        launching: Launching,
        reach: Callable[[str], None],
    ) -> None:
        self.next: list[Open] = []
        self.behind = Behind(hand=hand, backend=backend, cards=cards, keeper=keeper, launching=launching)
        self.ended: list[Key] = []  # not recorded yet
        self.stepped: dict[Key, Open] = {}  # who took whose place before that was recorded
        self.may_hurry = True  # shims may have the next ones at hand
        self.is_hurrying = False  # short jobs follow each other
        self._record_by: float | None = None  # the moment by which these ends are to be recorded
        self._well: dict[Key, dict[str, Any]] = {}  # what shims said of those that have just ended well
        self._news: dict[Key, list[Event]] = {}  # to be told after the ends of these
        self._hand = hand
        self._store = store
        self._backend = backend
        self._cards = cards
        self._keeper = keeper
        self._launching = launching
        self._reach = reach

    def note_ends(self, done: Sequence[Key], now: float) -> None:
        """These were let go by their shims, in this order.

        Whoever waited behind one that ended well has taken its place by now. Whoever waited in vain is recorded as
        before, and has not been started.
        """
        self._well = {}
        for key in done:
            if key in self._hand.open:
                self.ended.append(key)
                if (record := self._succeeded(key)) is not None:
                    self._well[key] = record
                    self._move_up(key, self.behind.move_up(key, now))
            elif found := self.behind.let_go(key, now):
                place, one, has_started = found
                if has_started:
                    self.ended.append(key)
                    self._move_up(place, one)
                else:
                    bisect.insort(self.next, one, key=attrgetter("job.order"))
        self.ended = list(dict.fromkeys(self.ended))
        if done:
            all_well = len(self._well) == len(done)
            self.is_hurrying = self.may_hurry and all_well and all(map(_is_short, self._well.values()))

    def step_in(self, done: Sequence[Key], now: float) -> None:
        """Start the next ones in the places of these, before their ends are recorded.

        Only if all of them ended well: after one that did not, perhaps nothing more is to be started.
        """
        if len(self._well) < len(done):
            return
        for key in done:
            if key not in self.stepped and not (self.next and self._step_in(key, now)):
                return  # the plan that is made now tells what else there is

    def can_wait(self, done: Sequence[Key], now: float) -> bool:
        """Whether the ends of these are better recorded a moment later, together with the next ones."""
        if not done or not self.next or not self.is_hurrying or self._hand.events:
            return False
        if not all(key in self.stepped for key in done):
            return False
        if self._record_by is None:
            self._record_by = self._hand.timers["ends"] = now + _LATER
        return now < self._record_by <= now + _LATER  # somebody may have set the clock

    def are_recorded(self) -> None:
        """What ended since the last time is in the store now."""
        self.ended, self.stepped = [], {}
        self._record_by = None
        self._hand.timers.pop("ends", None)

    def news_after(self, key: Key) -> list[Event]:
        """What there is to tell once the end of this one was told."""
        return self._news.pop(key, [])

    def room(self, free: Sequence[tuple[Claim, ...]]) -> int:
        """How many more may be recorded: some for each place, these among them, where all places are alike."""
        places = [*free, *(one.attempt.claims for one in self._hand.open.values())]
        if not places or any(place != places[0] for place in places):
            return 0
        each = _AHEAD_OF_SHORT if self.is_hurrying else 1
        return min(_MOST, len(places) * each) - len(self.next)

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

    def _move_up(self, place: Key, one: Open | None) -> None:
        if one is None:
            return
        if place in self._hand.open:
            self.stepped[place] = one
            self._news[place] = [self._launching.started(one)]
        else:  # its end was told before
            self._hand.events.append(self._launching.started(one))

    def _step_in(self, key: Key, now: float) -> bool:
        one = Open(self.next[0].job, changed(self.next[0].attempt, opened_at=now), is_ours=True)
        self._keeper.release(self._hand.open[key].attempt)
        if busy := self._keeper.take(one.job, one.attempt):
            self._cards.taken_by_others(one.attempt.claims, busy)
            return False
        self._reach("after-lease")
        del self.next[0]
        self.stepped[key] = one
        self._hand.enter(one)
        self._cards.book(one.attempt, one.job)
        told = len(self._hand.events)
        self._launching.launch([one], now)
        self._news[key] = self._hand.events[told:]
        del self._hand.events[told:]
        return True

    def _succeeded(self, key: Key) -> dict[str, Any] | None:
        """What its shim said of one that ended well; None where it did not, or nothing is known of it yet."""
        one = self._hand.open.get(key)
        facts = None if one is None else self._backend.heard(one.attempt)
        if one is None or facts is None or one.job.id in self._hand.stopping:
            return None
        record = facts.exit_record
        return None if record is None or outcome_of(record).cause is not None else record


def _is_short(record: dict[str, Any]) -> bool:
    return bool(record.get("seconds", _SHORT) < _SHORT)
