"""Short jobs that wait at a shim while the one before them still runs there.

The way from the end of a command through the engine to the start of the next takes as long as a command of a
millisecond. Where such jobs follow each other, their shims have the next ones at hand and go on by themselves: a
shim starts one only after one that ended well, and turns away whoever would wait for longer than a moment
(supervise/channel.py).

As long as it is not known that the one before has ended, whoever waits here has been recorded and not started
(ahead.py), and has no card of its own.
"""

from collections.abc import Iterable, Sequence

from dibs.backends.local import LocalBackend
from dibs.engine.cards import Cards
from dibs.engine.hand import Hand, Key, Open
from dibs.engine.keeper import Keeper
from dibs.engine.launching import Launching
from dibs.model.jobs import Attempt
from dibs.model.values import changed
from dibs.policy.turns import served_after

_MOST = 2  # wait in one place


class Behind:
    """Who waits in which place, in order."""

    def __init__(
        self, *, hand: Hand, backend: LocalBackend, cards: Cards, keeper: Keeper, launching: Launching
    ) -> None:
        self._lines: dict[Key, list[Open]] = {}  # by the attempt that runs there, as far as we know
        self._hand = hand
        self._backend = backend
        self._cards = cards
        self._keeper = keeper
        self._launching = launching

    def __len__(self) -> int:
        return sum(map(len, self._lines.values()))

    @property
    def keys(self) -> list[Key]:
        return [one.attempt.key for line in self._lines.values() for one in line]

    def fill(self, places: Sequence[Attempt], following: list[Open]) -> None:
        """Have the next ones wait in these places: each place gets one before any gets two."""
        if not following or not places or not self._keeper.may_follow(following[0].attempt):
            return
        for most in range(1, _MOST + 1):
            for first in places:
                line = self._lines.get(first.key, [])
                if len(line) >= most or not following:
                    continue
                if not self._launching.launch_behind(first, following[0]):
                    return
                self._lines[first.key] = [*line, following.pop(0)]

    def move_up(self, key: Key, now: float) -> Open | None:
        """This one has ended well: the first of those who waited behind it runs in its place, if there was one."""
        line = self._lines.pop(key, None)
        if line is None:
            return None
        one = Open(line[0].job, changed(line[0].attempt, opened_at=now), is_ours=True)
        if line[1:]:
            self._lines[one.attempt.key] = line[1:]
        self._keeper.pass_down(self._hand.open[key].attempt, one.job, one.attempt)
        self._open(one)
        return one

    def turned_away(self, done: Iterable[Key]) -> list[Open]:
        """Those of these that were let go without a start: the one before took too long, or failed."""
        found = []
        for key in done:
            place = None if key in self._hand.open else self._place_of(key)
            if place is None:
                continue
            line = self._lines.pop(place)
            one = next(one for one in line if one.attempt.key == key)
            if rest := [other for other in line if other is not one]:
                self._lines[place] = rest
            facts = self._backend.observe(one.attempt)
            if facts.is_locked or facts.has_started:
                self._open(one)  # a bug, or a shim that was killed: it is settled like everybody else
            else:
                self._backend.clear(one.attempt)
                found.append(one)
        return found

    def _place_of(self, key: Key) -> Key | None:
        lines = self._lines.items()
        return next((place for place, line in lines if any(one.attempt.key == key for one in line)), None)

    def _open(self, one: Open) -> None:
        self._hand.open[one.attempt.key] = one
        self._cards.book(one.attempt, one.job)
        self._hand.served = served_after(self._hand.served, one.job)
