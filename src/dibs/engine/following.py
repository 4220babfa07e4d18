"""What the last plan found, for the moment in which it still holds.

While jobs of one kind fill the machine, a new plan after each of many short ones finds the same again: the next
takes the place of the one that ended. So it does, for a moment, without a plan; whatever else happens ends that.
"""

from collections.abc import Hashable, Iterable, Mapping, Sequence

from dibs.engine.cards import Cards
from dibs.engine.hand import Hand, Key, Open
from dibs.model.claims import Claim
from dibs.model.jobs import Job
from dibs.policy.schedule import kind_of
from dibs.policy.snapshot import Plan, Snapshot

__all__ = ["Following", "kind_of"]

_HOLDS = 0.1  # seconds; then people are told again why the next one waits


class Following:
    """Knows whether the next job of a kind may simply follow the last."""

    def __init__(self, hand: Hand, cards: Cards) -> None:
        self._hand = hand
        self._cards = cards
        self._kind: Hashable = None  # of the jobs that wait; None: a plan must be made
        self._at = 0.0  # when the plan was made
        self._surroundings: tuple[object, ...] = ()
        self._begun: set[Key] = set()  # attempts that were given their places in these surroundings

    def forget(self) -> None:
        """Make a plan before anything else starts."""
        self._kind = None

    def keep(self, plan: Plan, snapshot: Snapshot, begun: Sequence[Open]) -> None:
        """Remember a plan that filled the machine with jobs of one kind, of which more wait."""
        surroundings = self._look_around(snapshot.paused)
        if surroundings != self._surroundings:
            self._surroundings = surroundings
            self._begun.clear()
        self._begun.intersection_update(self._hand.open)
        self.go_on(begun)
        kinds = {kind_of(job.request) for job in snapshot.waiting}
        # What goes to another system takes nobody's place here.
        is_away = any(job.request.on for job in snapshot.waiting)
        is_like_that = len(kinds) == 1 and plan.reasons and not is_away and not _looks_further(snapshot)
        self._kind = kinds.pop() if is_like_that else None
        self._at = snapshot.now

    def go_on(self, begun: Sequence[Open]) -> None:
        self._begun.update(one.attempt.key for one in begun)

    def holds(self, paused: Mapping[str, str], now: float) -> bool:
        """Whether a plan made now would find the same as the last one."""
        return (
            self._kind is not None
            and self._at <= now < self._at + _HOLDS
            and self._look_around(paused) == self._surroundings
            and not self._cards.are_unsettled
        )

    def followers(
        self, left: Sequence[Open], paused: Mapping[str, str], now: float
    ) -> list[tuple[Job, tuple[Claim, ...]]]:
        """Who takes the places of those that have left in this turn; nobody where a plan must tell."""
        keys = {one.attempt.key for one in left}
        # What was given in other surroundings may be no place any more: its card was drained, or has other slots.
        are_ours = keys <= self._begun
        self._begun -= keys
        if not left or not are_ours or not self.holds(paused, now) or not self._are_alike(one.job for one in left):
            return []
        first = self._hand.waiting.first(lambda _: len(left) + 1, now)
        # Somebody must be left over: only then is the machine full again.
        if len(first) <= len(left) or not self._are_alike(first):
            return []
        self._hand.timers.setdefault("plan", self._at + _HOLDS)
        return [(job, one.attempt.claims) for job, one in zip(first, left, strict=False)]

    def _are_alike(self, jobs: Iterable[Job]) -> bool:
        return all(kind_of(job.request) == self._kind for job in jobs)

    def _look_around(self, paused: Mapping[str, str]) -> tuple[object, ...]:
        """Whatever else a plan looks at. Each is replaced as a whole where it changes."""
        return (self._cards.pool, self._cards.marks, self._cards.news, paused)


def _looks_further(snapshot: Snapshot) -> bool:
    """Whether a plan asks what the books on our attempts do not tell, and may find otherwise at any moment.

    That is how much memory is left or needed, and, where cards are left to others, how many of them are in use.
    """
    return bool(
        snapshot.keep_free
        or any(job.request.wishes.shape or job.request.wishes.vram for job in snapshot.waiting)
        or any(view.shapes for view in snapshot.cards)
    )
