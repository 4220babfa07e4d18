"""The machine and the head of the queue, as the policy looks at them."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from dibs.engine.cards import Cards
from dibs.engine.hand import Hand
from dibs.engine.keeper import Keeper
from dibs.engine.machine import Machine
from dibs.engine.packing import Packing
from dibs.model.jobs import Job, JobId, Request
from dibs.policy.schedule import impossible
from dibs.policy.snapshot import Snapshot
from dibs.policy.turns import in_turn, joined, trimmed

if TYPE_CHECKING:
    from dibs.engine.away.away import Away

_LOOK_COUNTS = 0.1  # seconds for which a look at who else holds cards is good


class Outlook:
    """Gathers what a plan is made from."""

    def __init__(
        self,
        *,
        hand: Hand,
        cards: Cards,
        keeper: Keeper,
        packing: Packing,
        machine: Machine,
        most_without_gpu: int,
        ticks: Callable[[], float],
    ) -> None:
        self.away: Away | None = None
        self._hand = hand
        self._cards = cards
        self._keeper = keeper
        self._packing = packing
        self._machine = machine
        self._most_without_gpu = most_without_gpu
        self._ticks = ticks
        self._active: set[str] = set()  # projects of which jobs wait or run
        self._seen_others: tuple[float, frozenset[str]] | None = None  # when, and the cards they use

    def snapshot(self, now: float, paused: Mapping[str, str], others: Sequence[Job] = ()) -> Snapshot:
        """What the policy decides from; it knows what `others` need, too."""
        hand, cards = self._hand, self._cards
        room_away = {} if self.away is None else self.away.room()

        def most_at_once(request: Request) -> int:
            # At least one, so that somebody can be told why it waits.
            return max(1, room_away.get(request.on, 0)) if request.on else cards.most_at_once(request.wishes)

        waiting = hand.waiting.first(most_at_once, now)
        self._let_join({job.request.project for job in waiting})
        if len(self._active) > 1:
            waiting = in_turn(waiting, hand.served)
        lessons = self._packing.lessons([*waiting, *others])
        left = self._machine.left(self._packing.wishes(lessons))
        return Snapshot(
            cards=cards.views(),
            groups=cards.pool.groups,
            waiting=waiting,
            room_without_gpu=self._most_without_gpu - sum(not one.attempt.claims for one in hand.open.values()),
            room_away=room_away,
            now=now,
            cpus_free=left.cpus,
            mem_free=left.memory,
            array_running=self._array_running(),
            lessons=lessons,
            links=cards.links,
            keep_free=cards.manners.min_free,
            in_use=self._used_by_others(),
            paused=paused,
        )

    def why_never(self, request: Request) -> str:
        """Why a job could never run here; empty where it could, and where the pool may yet grow."""
        if request.on:
            return "" if self.away is not None and self.away.knows(request.on) else _nowhere(request.on)
        if self._cards.may_grow:
            return ""
        machine, manners = self._machine, self._cards.manners
        return impossible(request.wishes, self._cards.pool, machine.cpus, machine.memory, manners.min_free)

    def _used_by_others(self) -> frozenset[str]:
        """Asked only where cards are left to others: a try tells too, but only of the card that is tried.

        A look takes milliseconds, so the last one counts for a moment.
        """
        if not self._cards.manners.min_free:
            return frozenset()
        if self._seen_others is not None:
            seen_at, used = self._seen_others
            if seen_at <= self._ticks() < seen_at + _LOOK_COUNTS:
                return used
        used = self._keeper.used_by_others({one.attempt.folder for one in self._hand.open.values()})
        self._seen_others = (self._ticks(), used)
        return used

    def _let_join(self, waiting: set[str]) -> None:
        """A project that comes new, or back, stands where the others stand: turns cannot be saved up."""
        hand = self._hand
        active = waiting | {one.job.request.project for one in hand.everywhere.values()}
        if active != self._active:
            for project in active - self._active:
                hand.served = joined(hand.served, project, self._active)
            hand.served = trimmed(hand.served, active)
            self._active = active

    def _array_running(self) -> Counter[JobId]:
        arrays = (one.job.request.array for one in self._hand.open.values())
        return Counter(array.array for array in arrays if array is not None and array.most is not None)


def _nowhere(on: str) -> str:
    return f"dibs knows no backend {on!r} here"
