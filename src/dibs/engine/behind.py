"""Short jobs that wait at a shim while the one before them still runs there.

The way from the end of a command through the engine to the start of the next takes as long as a command of a
millisecond. Where such jobs follow each other, their shims have the next ones at hand and go on by themselves: a
shim starts one only after one that ended well, and turns away whoever would wait for longer than a moment
(supervise/channel.py).

As long as it is not known that the one before has ended, whoever waits here has been recorded and not started
(ahead.py), and has no card of its own.
"""

from collections.abc import Sequence

from dibs.backends.local import LocalBackend
from dibs.engine.cards import Cards
from dibs.engine.hand import Hand, Key, Open
from dibs.engine.keeper import Keeper
from dibs.engine.launching import Launching
from dibs.model.jobs import Attempt
from dibs.model.values import changed

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
        line = self._lines.get(key)
        return self._take_place(key, line[0], now) if line else None

    def let_go(self, key: Key, now: float) -> tuple[Key, Open, bool] | None:
        """This one was let go by its shim: in whose place it waited, and whether it was started there after all.

        None where it waited for nobody. Mostly the one before took too long, or failed; or the shim was killed.
        """
        place = self._place_of(key)
        if place is None:
            return None
        one = next(one for one in self._lines[place] if one.attempt.key == key)
        try:
            facts = self._backend.observe(one.attempt)
            has_started = facts.is_locked or facts.has_started
        except OSError:
            has_started = True  # nobody can tell yet: whoever settles it looks again
        if has_started:
            return place, self._take_place(place, one, now), True
        if rest := self._others(place, one):
            self._lines[place] = rest
        self._backend.clear(one.attempt)
        return place, one, False

    def _take_place(self, place: Key, waiting: Open, now: float) -> Open:
        one = Open(waiting.job, changed(waiting.attempt, opened_at=now), is_ours=True)
        if rest := self._others(place, waiting):
            self._lines[one.attempt.key] = rest
        if (before := self._hand.open.get(place)) is not None:
            self._keeper.pass_down(before.attempt, one.job, one.attempt)
        self._hand.enter(one)
        self._cards.book(one.attempt, one.job)
        return one

    def _others(self, place: Key, one: Open) -> list[Open]:
        """Who else waited there. They wait nowhere now."""
        return [other for other in self._lines.pop(place) if other is not one]

    def _place_of(self, key: Key) -> Key | None:
        lines = self._lines.items()
        return next((place for place, line in lines if any(one.attempt.key == key for one in line)), None)
