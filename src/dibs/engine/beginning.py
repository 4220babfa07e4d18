"""Beginning attempts: decide who is next, take the cards, record the intent."""

from collections.abc import Callable, Mapping, Sequence

from dibs.engine.cards import Cards
from dibs.engine.following import Following, kind_of
from dibs.engine.hand import Hand, Observer, Open
from dibs.engine.keeper import Keeper
from dibs.engine.outlook import Outlook
from dibs.engine.place import Place
from dibs.model.claims import Claim
from dibs.model.events import Waits
from dibs.model.jobs import Attempt, Job, JobId, State
from dibs.model.reasons import Reason
from dibs.model.usage import Lessons
from dibs.model.values import changed
from dibs.policy.fitting import is_allowed, need
from dibs.policy.schedule import schedule
from dibs.policy.snapshot import Plan, Snapshot
from dibs.store.store import Store

_LOOK_AT_OTHERS = 0.1  # seconds between two looks at cards that other programs hold
_LOOK_AT_FREE = 1.0  # seconds between two looks at who else holds cards, where some are left to others


class Beginning:
    """Turns waiting jobs into attempts. Everything here happens inside a turn of the store."""

    def __init__(
        self,
        *,
        hand: Hand,
        store: Store,
        cards: Cards,
        keeper: Keeper,
        place: Place,
        outlook: Outlook,
        reach: Callable[[str], None],
    ) -> None:
        self.observer: Observer
        self._hand = hand
        self._store = store
        self._cards = cards
        self._keeper = keeper
        self._place = place
        self._outlook = outlook
        self._reach = reach
        self._following = Following(hand, cards)
        self._last_reason: tuple[JobId, Reason] | None = None

    def forget_plan(self) -> None:
        """Make a plan before anything else starts."""
        self._following.forget()

    def begin(
        self,
        left: Sequence[Open],
        paused: Mapping[str, str],
        now: float,
        *,
        may_begin: bool,
    ) -> list[Open]:
        """Decide, take the leases, record the intents. Others may be faster: then decide again without them."""
        begun: list[Open] = []
        if may_begin and self._go_on(left, paused, now, begun):
            return begun
        self._following.forget()
        if not may_begin or not self._hand.waiting.count:
            return begun
        while True:
            snapshot = self._outlook.snapshot(now, paused)
            plan = schedule(snapshot)
            beaten = False
            for placement in plan.placements:
                one = self._take(placement.job, placement.claims, now)
                if one is None:
                    beaten = True
                    break
                begun.append(one)
            if not beaten and (not self._hand.waiting.count or _each_kind_waits(snapshot, plan)):
                break
        self._following.keep(plan, snapshot, begun)
        # Whoever waits for another system does not stand in line for our cards.
        stuck = next((job for job in snapshot.waiting if job.id in plan.reasons and not job.request.on), None)
        if stuck is None:
            self._keeper.stop_waiting()
        else:
            self._wait_with(stuck, plan.reasons[stuck.id], snapshot.lessons, now)
        return begun

    def _go_on(
        self,
        left: Sequence[Open],
        paused: Mapping[str, str],
        now: float,
        begun: list[Open],
    ) -> bool:
        """Give the places of those that left to the next of their kind; False where a plan must be made."""
        followers = self._following.followers(left, paused, now)
        for job, claims in followers:
            one = self._take(job, claims, now)
            if one is None:
                return False
            begun.append(one)
        self._following.go_on(begun)
        return bool(followers)

    def _take(self, job: Job, claims: tuple[Claim, ...], now: float) -> Open | None:
        """Lease the cards and record the intent; None when somebody else was faster."""
        if job.request.on:
            return self._take_away(job, job.attempts + 1, now)
        number = job.attempts + 1
        attempt = Attempt(
            job=job.id,
            number=number,
            claims=claims,
            boot_id=self._place.boot_id,
            opened_at=now,
            folder=self._place.attempt_folder(job.id, number),
        )
        if busy := self._keeper.take(job, attempt):
            self._cards.taken_by_others(claims, busy)
            return None
        self._reach("after-lease")
        self._store.open_attempt(attempt)
        self._hand.waiting.remove(job)
        running = changed(job, state=State.RUNNING, attempts=number, tries=job.tries + 1)
        one = Open(running, attempt, is_ours=True)
        self._hand.enter(one)
        self._cards.book(attempt, job)
        self.observer.started(running, attempt)
        return one

    def _take_away(self, job: Job, number: int, now: float) -> Open:
        """Record that it is handed to another system. The cards are that one's to give."""
        assert self._outlook.away is not None
        attempt = Attempt(
            job=job.id,
            number=number,
            claims=(),
            boot_id="",
            opened_at=now,
            folder=self._outlook.away.attempt_folder(job.request.on, job.id, number),
            backend=job.request.on,
        )
        self._store.open_attempt(attempt)
        self._hand.waiting.remove(job)
        submitted = changed(job, state=State.SUBMITTED, attempts=number, tries=job.tries + 1)
        one = self._hand.away[attempt.key] = Open(submitted, attempt, is_ours=True)
        self.observer.started(submitted, attempt)
        return one

    def _wait_with(self, job: Job, reason: Reason, lessons: Lessons, now: float) -> None:
        """Say why the head of the queue waits, and stand in line for cards that others hold."""
        if (job.id, reason) != self._last_reason:
            self._last_reason = (job.id, reason)
            self._hand.events.append(Waits(job, reason))
        wishes = job.request.wishes
        cards = [self._cards.pool.card(key) for key in self._cards.awaited]
        claims = [
            Claim(gpu=card.gpu.key, index=card.gpu.index, share=share, vram=vram)
            for card in cards
            if card is not None and is_allowed(card.gpu, wishes)
            for share, vram in [need(card, wishes, lessons)]
        ]
        self._keeper.wait_for(claims, job, now)
        if claims:
            self._hand.timers["others"] = now + _LOOK_AT_OTHERS
        elif self._cards.manners.min_free:
            self._hand.timers["others"] = now + _LOOK_AT_FREE


def _each_kind_waits(snapshot: Snapshot, plan: Plan) -> bool:
    """Whether of each kind of job one was left over. Where none was, more of that kind may fit."""
    waiting = {kind_of(job.request) for job in snapshot.waiting if job.id in plan.reasons}
    return all(kind_of(job.request) in waiting for job in snapshot.waiting)
