"""The books on the cards: what our attempts hold, what others hold, and what the cards themselves say."""

import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction

from dibs.engine.manners import POLITE, Manners
from dibs.gpus.foreign import foreign_processes
from dibs.leases.leases import Busy
from dibs.leases.records import Holder
from dibs.model.claims import Claim
from dibs.model.gpus import CardState, GpuProcess, GpuReading, Links, Reading
from dibs.model.jobs import Attempt, AttemptKey, Job, Wishes
from dibs.model.pool import Pool
from dibs.policy.fitting import most_at_once
from dibs.policy.snapshot import CardView, Hold

_NOTHING = Fraction(0)
_MOST_KINDS = 1000  # of wishes for which it is remembered how many fit
_NO_ANSWER = {CardState.STALE: "does not answer", CardState.LOST: "is lost: it does not answer any more"}


@dataclass(frozen=True, slots=True)
class _Booking:
    """What one of our attempts holds of a card."""

    claim: Claim
    label: str  # its job's
    ends_at: float | None  # when it will have ended for sure
    folder: str  # the attempt's, by which its processes are known
    shape: str = ""  # where its job wants `--vram auto`


@dataclass(slots=True)
class _Books:
    """One card's page."""

    ours: dict[AttemptKey, _Booking] = field(default_factory=dict)  # by attempt
    others: Busy | None = None  # who was in the way when we last tried
    is_awaited: bool = False  # somebody was in the way here, or on a card that was wanted with this one
    seen: GpuReading | None = None
    unsettled: bool = False  # something left it and the card has not been asked since
    is_gone: bool = False  # the driver does not show it any more


class Cards:
    """Knows for each card of the pool what may start there.

    `is_ours` tells the processes of jobs of dibs. `folder_of` tells of this engine's own processes their attempt,
    and None of all others: one whose attempt has no claim here has outlived it, or sits where it should not.
    """

    def __init__(
        self,
        pool: Pool,
        *,
        is_ours: Callable[[int], bool],
        is_alive: Callable[[int], bool | None],
        folder_of: Callable[[int], str | None] = lambda pid: None,
        respect_processes: bool = True,
        manners: Manners = POLITE,
    ) -> None:
        self.pool = pool
        self.manners = manners
        self.links: Links = {}  # how well cards are connected, as last seen
        self.may_grow = False  # somebody may put more GPUs into the pool while we run
        self.news = 0  # how often something was heard about the cards from others than our own attempts
        self.peak_of: Callable[[AttemptKey], int] = lambda attempt: 0  # bytes that one was seen to hold
        self.marks: Mapping[str, str] = {}  # by a card's key, why nothing is started there: "is drained"
        self._is_ours = is_ours
        self._is_alive = is_alive
        self._folder_of = folder_of
        self._respect_processes = respect_processes
        self._books: dict[str, _Books] = {}
        self._most: dict[Wishes, int] = {}  # how many jobs of each kind could start, in the pool below
        self._most_in: Pool | None = None
        self._silent = ""  # why the cards cannot be asked, where that is so

    def book(self, attempt: Attempt, job: Job) -> None:
        limit = job.request.time_limit
        ends_at = None if limit is None else attempt.opened_at + limit + job.request.grace
        for claim in attempt.claims:
            booking = _Booking(claim, job.label, ends_at, attempt.folder, job.request.wishes.shape)
            self._page(claim.gpu).ours[attempt.key] = booking

    def release(self, attempt: Attempt) -> None:
        for claim in attempt.claims:
            page = self._page(claim.gpu)
            page.ours.pop(attempt.key, None)
            page.unsettled = page.seen is not None

    def taken_by_others(self, claims: Iterable[Claim], busy: Busy) -> None:
        """Somebody else was first: leave their cards alone until we look again, and wait for all of these."""
        self.news += 1
        is_known = bool(busy.holders or busy.waiting)
        for claim in claims:
            page = self._page(claim.gpu)
            page.is_awaited = True
            here = busy.on(claim.gpu)
            if here.holders or here.waiting or not is_known:
                page.others = here

    def look_again(self) -> None:
        """Forget what others held: the next try tells."""
        self.news += 1
        for page in self._books.values():
            page.others = None
            page.is_awaited = False

    @property
    def awaited(self) -> list[str]:
        """The cards that others hold or wait for, and those that are wanted together with them."""
        return [key for key, page in self._books.items() if page.is_awaited]

    def saw(self, reading: Reading | None, failure: str = "") -> None:
        """Take in what the cards say. Without an answer nothing new may start on them."""
        self.news += 1
        self._silent = failure if reading is None else ""
        if reading is None:
            return
        self.links = reading.links
        shown = {seen.gpu.key: seen for seen in reading.gpus}
        for key in shown.keys() | {card.gpu.key for card in self.pool.cards}:
            page = self._page(key)
            page.seen = shown.get(key)
            page.is_gone = page.seen is None
            page.unsettled = False

    def look_at(self, keys: Iterable[str]) -> None:
        """Ask these cards again, before anything starts there."""
        for key in keys:
            self._page(key).unsettled = True

    @property
    def are_unsettled(self) -> bool:
        """Whether a card that was left wants to be asked before it is given away again."""
        return self._respect_processes and any(page.unsettled for page in self._books.values())

    def views(self) -> tuple[CardView, ...]:
        return tuple(self._view(card.gpu.key) for card in self.pool.cards)

    def cpus_near(self, claims: Iterable[Claim]) -> tuple[int, ...]:
        """The CPUs near any of these cards; none where they are not known of each."""
        found: set[int] = set()
        for claim in claims:
            card = self.pool.card(claim.gpu)
            if card is None or not card.gpu.cpus:
                return ()
            found.update(card.gpu.cpus)
        return tuple(sorted(found))

    def most_at_once(self, wishes: Wishes) -> int:
        """How many jobs with these wishes could start at the most."""
        if self._most_in is not self.pool:
            self._most_in, self._most = self.pool, {}
        most = self._most.get(wishes)
        if most is None:
            if len(self._most) >= _MOST_KINDS:
                self._most.clear()
            most = self._most[wishes] = most_at_once(self.pool.cards, wishes)
        return most

    def _view(self, key: str) -> CardView:
        page = self._page(key)
        card = self.pool.card(key)
        assert card is not None
        taken, vram = _NOTHING, 0
        for attempt, booked in page.ours.items():
            taken += booked.claim.share
            if booked.claim.vram:  # it may not use yet what it booked, or may use more
                vram += max(booked.claim.vram, self.peak_of(attempt))
        holders = [f"job {booked.label}" for booked in page.ours.values()]
        ends = [Hold(booked.claim.share, booked.claim.vram, booked.ends_at) for booked in page.ours.values()]
        blocked = self.marks.get(key) or self._blocked(page)
        if page.others is not None:
            taken = Fraction(1)
            ends = [Hold(taken, 0, None)]  # nobody knows when others let go
            holders += [in_words(holder) for holder in page.others.holders]
            if not holders:
                blocked = blocked or _why_not_ours(page.others)
        return CardView(
            card=card,
            taken=taken,
            vram_taken=vram,
            vram_free=self._measured_free(page) if page.ours else None,
            blocked=blocked,
            holders=tuple(holders),
            ends=tuple(ends),
            shapes=tuple(booked.shape for booked in page.ours.values() if booked.shape),
            first=self.manners.order.first(card.gpu),
            then=self.manners.order.then(card.gpu, page.seen.temperature if page.seen else None),
        )

    def _blocked(self, page: _Books) -> str:
        if page.seen is not None and page.seen.state is not CardState.OK:
            return _NO_ANSWER[page.seen.state]
        if not self._respect_processes:
            return ""
        if self._silent:
            return f"does not answer ({self._silent})"
        if page.is_gone:
            return "is not shown by the driver any more"
        if page.seen is None:
            return ""
        if page.unsettled:
            return "is being looked at"
        foreign = foreign_processes(
            page.seen, lambda pid: self._has_claim(page, pid), self._is_alive, self.manners.busy
        )
        if not foreign:
            return ""
        return f"is busy ({'; '.join(map(self._shown, foreign[:3]))})"

    def _has_claim(self, page: _Books, pid: int) -> bool:
        folder = self._folder_of(pid)
        if folder is None:
            return self._is_ours(pid)
        return any(booked.folder == folder for booked in page.ours.values())

    def _shown(self, process: GpuProcess) -> str:
        """`ann, pid 4711, 3G`, and the job where it is one of ours."""
        folder = self._folder_of(process.pid)
        if folder is None:
            return process.shown
        runs = any(booked.folder == folder for page in self._books.values() for booked in page.ours.values())
        job = os.path.basename(folder).partition(".")[0]  # an attempt's folder is called 17.1
        return f"{process.shown}, {'of' if runs else 'left by'} job {job}"

    def _measured_free(self, page: _Books) -> int | None:
        """Only while others of ours use the card: alone, a job may have what it booked."""
        if page.seen is None or page.seen.memory_used is None or page.seen.gpu.memory_total is None:
            return None
        return page.seen.gpu.memory_total - page.seen.memory_used

    def _page(self, key: str) -> _Books:
        page = self._books.get(key)
        if page is None:
            page = self._books[key] = _Books()
        return page


def _why_not_ours(busy: Busy) -> str:
    """Why a card that nobody holds is not for us now."""
    if busy.guarded_by:
        return f"cannot be looked at ({busy.guarded_by})"
    return f"is kept for {' and '.join(in_words(holder) for holder in busy.waiting)}, who came first"


def in_words(holder: Holder) -> str:
    """Who it is, for a sentence."""
    return f"job {holder.job or '?'} of {holder.user} (pid {holder.pid or '?'})"
