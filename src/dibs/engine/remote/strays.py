"""What another system brought back: attempts that wait or run over there though they are over here.

A controller that crashed goes on with what it had saved, and so with jobs that were cancelled since. The fence
keeps their commands from running, but until they start they have a place in its queue and count against limits.
"""

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from dibs.backends.protocol import Identity
from dibs.engine.remote.keys import key_of
from dibs.errors import NoSuchJob
from dibs.store.listing import Listing

_FIRST_PAUSE, _LONGEST_PAUSE = 60.0, 3600.0  # seconds until the same one is tried again
_LOOKS = 40  # after the last end; a controller saves within seconds, so later it has nothing old to bring back
_SILENT_LOOKS = 6000  # in vain, until nobody is expected to answer any more: about a day
_SHOWN = 5


@dataclass(slots=True)
class Strays:
    """Those of one backend. Nothing here must survive: a new engine looks anew."""

    due: list[Identity] = field(default_factory=list)  # to be taken out with the next round
    _tried: dict[Identity, tuple[float, float]] = field(default_factory=dict)  # when, and the pause since
    _looks: int = 0
    _silent_looks: int = 0

    @property
    def looks_out(self) -> bool:
        """Whether to go on asking though nothing is open there."""
        return self._looks > 0 and self._silent_looks > 0

    def look_out(self) -> None:
        """Something has ended there, or may have done so before our time."""
        self._looks, self._silent_looks = _LOOKS, _SILENT_LOOKS

    def looked(self, *, is_silent: bool) -> None:
        """A look while nothing is open. Who was silent may come back with what is old, so that it counts anew."""
        if is_silent:
            self._looks, self._silent_looks = _LOOKS, self._silent_looks - 1
        else:
            self._looks -= 1

    def stop_looking(self) -> None:
        self._looks = 0

    def consider(
        self, seen: Iterable[Identity], is_over: Callable[[Identity], bool], now: float
    ) -> list[Identity]:
        """Choose those that are to be taken out now. Who is still there then is tried again ever more seldom."""
        there = set(seen)
        self._tried = {one: (at, pause) for one, (at, pause) in self._tried.items() if one in there}
        chosen = []
        for one in sorted(there):
            at, pause = self._tried.get(one, (now, 0.0))
            if 0 <= now - at < pause:
                continue
            if is_over(one):
                chosen.append(one)
                self._tried[one] = (now, min(max(_FIRST_PAUSE, 2 * pause), _LONGEST_PAUSE))
            else:
                self._tried[one] = (now, _FIRST_PAUSE)
        self.due = [*self.due, *chosen]
        return chosen


def is_over(listing: Listing, backend: str, mark: str, stray: Identity) -> bool:
    """Whether our store knows for certain that nobody waits for this attempt any more.

    An attempt is recorded before it is handed over, so one that is not known here is of a job that was cleaned
    away, or of a store that is older than the truth: it is left to the fence.
    """
    key, number = stray
    text = key.removeprefix(f"{mark}-")
    if not re.fullmatch(r"[0-9]{1,18}(_[0-9]{1,18})?", text):
        return False
    try:
        (job,) = listing.find(text)
    except NoSuchJob:
        return False
    row = listing.row(job)
    if key_of(mark, row.job) != key:
        return False
    for one in listing.attempts(job):
        if one.attempt.number == number:
            return one.attempt.backend == backend and one.ended_at is not None
    # Forgotten over there before it started, and then cancelled here: without an attempt, and without a fence.
    return row.job.state.is_over and row.job.request.on == backend and number == row.job.attempts + 1


def sentence(title: str, mark: str, strays: list[Identity]) -> str:
    names = [f"{key.removeprefix(f'{mark}-')}.{number}" for key, number in strays]
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return f"{title} brought back what is over; it is taken out of its queue: {', '.join(names[:_SHOWN])}{more}"
