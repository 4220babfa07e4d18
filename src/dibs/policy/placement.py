"""Places jobs on GPUs while a plan is made: which GPUs, what is reserved for earlier jobs, why a job waits."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from fractions import Fraction

from dibs.dataclass import dataclass
from dibs.model.gpus import Claim, Pool
from dibs.model.jobs import Reason, Wishes
from dibs.model.suspensions import room_for
from dibs.model.units import show_size
from dibs.policy.fitting import (
    could_hold,
    has_mixed_cards,
    host_needs,
    is_known,
    is_named,
    need,
    need_beside_unknown,
    no_such_type,
    show_cpus,
    show_gpus,
    usable_together,
    vram_left,
)
from dibs.policy.links import Candidate, best_set
from dibs.policy.snapshot import QUIET, WHOLE, CardView, Hold, PreemptibleJob, Snapshot, SuspendedJob

_NEED = "how much memory jobs like this need"
_MOST_FORECASTS = 16  # kinds of waiting jobs in one plan whose start is computed


@dataclass(frozen=True, slots=True)
class Reservation:
    """What a waiting job will take of a card, or of the machine, from `start` on."""

    start: float
    ends: float  # at the latest; inf: unknown
    share: Fraction = Fraction(0)
    vram: int = 0
    cpus: int = 0
    mem: int = 0
    yields_to: float = math.inf  # on cards where turns are taken, jobs of this precedence or a higher one may pass


@dataclass(frozen=True, slots=True)
class Capacity:
    """What is free on one card, or needed. The memory of a declared card is unknown."""

    share: Fraction
    vram: int | None

    def holds(self, share: Fraction, vram: int) -> bool:
        return self.share >= share and (self.vram is None or not vram or self.vram >= vram)


@dataclass(frozen=True, slots=True)
class _Departure:
    """What a job that is being suspended leaves of a card."""

    share: Fraction
    vram: int
    held: int  # bytes


class Placer:
    """The GPUs while a plan is made: what a placement takes is not free for later ones."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._cards = snapshot.cards
        self._groups = snapshot.groups
        self._now = snapshot.now
        self._lessons = snapshot.lessons
        self._has_mixed_cards = has_mixed_cards(view.card.gpu for view in snapshot.cards)
        self._views = {view.card.gpu.key: view for view in snapshot.cards}
        self._free = {view.card.gpu.key: view.free for view in snapshot.cards}
        self._vram = {view.card.gpu.key: vram_left(view) for view in snapshot.cards}
        self._ends = _known_ends(snapshot.cards)
        self._reservations: dict[str, list[Reservation]] = {}  # on each card, for jobs that wait
        self._host_reservations: list[Reservation] = []  # of the machine's CPUs and memory
        self._min_free = MinFree(snapshot)
        self._min_free_is_reserved = False
        self._links = snapshot.links
        self._forecasts = 0
        self._room_without_gpu = snapshot.room_without_gpu
        self._cpus = snapshot.cpus_free
        self._mem = snapshot.mem_free
        self._departing: dict[str, list[_Departure]] = {}  # of each card, what is about to become free of it
        self._promised: dict[str, tuple[Fraction, int]] = {}  # of that, what is kept for others
        self._restored: dict[str, int] = {}  # bytes that resumed jobs need beyond what they book
        self._resuming: dict[str, str] = {}  # who is about to resume on a card
        self._turn_cards: set[str] = set()  # where turns are taken: some reservations may be passed
        if snapshot.turns is not None:
            self._turn_cards = {claim.gpu for one in snapshot.suspended for claim in one.claims}
        self._passes = -math.inf  # the precedence of who is placed, where it may pass

    def let_pass(self, precedence: float) -> None:
        """What is placed or resumed next has this precedence."""
        self._passes = precedence

    def place(self, wishes: Wishes, length: float) -> tuple[Claim, ...] | None:
        """Claims for the job, for at most `length` seconds; None where it must wait."""
        if self._lacks_host(wishes, length):
            return None
        if wishes.num_gpus == 0:
            if self._room_without_gpu <= 0:
                return None
            self._room_without_gpu -= 1
            self._book_host(wishes)
            return ()
        chosen = self._choose(wishes, length)
        if chosen is None:
            return None
        claims = tuple(self._claim(view, wishes) for view in chosen)
        for claim in claims:
            self._free[claim.gpu] -= claim.share
            left = self._vram[claim.gpu]
            if left is not None:
                self._vram[claim.gpu] = left - claim.vram
            if length < math.inf:
                self._ends.setdefault(claim.gpu, []).append(Hold(claim.share, claim.vram, self._now + length))
        self._min_free.take(claim.gpu for claim in claims)
        self._book_host(wishes)
        return claims

    def _claim(self, view: CardView, wishes: Wishes) -> Claim:
        share, vram = self._need(view, wishes)
        gpu = view.card.gpu
        return Claim(gpu=gpu.key, index=gpu.index, share=share, vram=vram, address=gpu.address, part=gpu.part)

    def wait(self, wishes: Wishes, length: float, yields_to: float = math.inf) -> Reason:
        """Reserve for this job, against later ones, the GPUs that it will get first, and say why it waits.

        Jobs of the precedence `yields_to` may go on taking turns there.
        """
        reason = self._why_not(wishes, length)
        cards = self._candidates(wishes)
        start, until = self._now, math.inf
        opens = dict.fromkeys(self._free, 0.0)
        # Without a known end, the usual case, there is nothing to compute.
        if self._ends and cards and self._forecasts < _MOST_FORECASTS:
            self._forecasts += 1
            opens = self._opening(cards, wishes, length, optimistic=False)
            # With min_free it is not known when enough cards are unused.
            if not self._min_free.keeps and not self._lacks_host(wishes, length):
                until = self._start(cards, wishes, opens)
            start = until
            if until == math.inf:
                # No start is certain: later jobs may not delay the earliest possible one.
                start = self._start(cards, wishes, self._opening(cards, wishes, length, optimistic=True))
            if start == math.inf:  # the pool is too small today; it may have grown by the next plan
                start = self._now
        first = list(self._first_to_open(cards, wishes, opens))
        for view in first:
            kept = Reservation(start, until + length, *self._need(view, wishes), yields_to=yields_to)
            self._reservations.setdefault(view.card.gpu.key, []).append(kept)
        for view in self._cards_for_min_free(first):
            self._reservations.setdefault(view.card.gpu.key, []).append(Reservation(start, math.inf, WHOLE))
        if wishes.cpus or wishes.mem:
            self._host_reservations.append(
                Reservation(start, until + length, cpus=wishes.cpus or 0, mem=wishes.mem or 0)
            )
        return Reason(reason.code, reason.sentence, until) if self._now < until < math.inf else reason

    # -- cards that are about to become free -----------------------------------------------------------

    def leave(self, one: PreemptibleJob) -> None:
        """What this job holds becomes free soon. Until then only `after` counts on it."""
        for claim in one.claims:
            part = _Departure(claim.share, claim.vram, one.held // len(one.claims))
            self._departing.setdefault(claim.gpu, []).append(part)

    def copy(self) -> "Placer":
        """The same cards, on which a placement can be tried."""
        new = object.__new__(Placer)
        vars(new).update(vars(self))  # what a placement changes is copied below
        new._departing = {key: parts.copy() for key, parts in self._departing.items()}
        new._restored, new._resuming = dict(self._restored), dict(self._resuming)
        new._free, new._vram = dict(self._free), dict(self._vram)
        new._ends = {key: holds.copy() for key, holds in self._ends.items()}
        new._min_free = self._min_free.copy()
        return new

    def after(self, more: Iterable[PreemptibleJob] = (), passes: float = -math.inf) -> "Placer":
        """The GPUs as they are once everything that leaves has left, and these too.

        `passes`: the precedence of who takes its turn there.
        """
        new = self.copy()
        for one in more:
            new.leave(one)
        new._passes, new._turn_cards = passes, self._turn_cards | new._departing.keys()
        for key in new._departing.keys() & new._free.keys():
            share, vram = new._coming(key)
            new._free[key] += share
            left = new._vram[key]
            if left is not None:
                new._vram[key] = left + vram
            # What counts for a resumption is what the card reports, and that is without all that leaves.
            gained = sum(part.held for part in new._departing[key]) - (0 if left is None else vram)
            new._restored[key] = new._restored.get(key, 0) - gained
        return new

    def promise(self, wishes: Wishes | None, claims: Iterable[Claim]) -> None:
        """Keep these for a job: of what is about to become free, and of what is free now the rest.

        Without wishes it has booked already what it has of the machine.
        """
        for claim in claims:
            key = claim.gpu
            coming, vram_coming = self._coming(key)
            share, vram = self._promised.get(key, (Fraction(0), 0))
            later = self._free[key] + coming - claim.share
            free = min(self._free[key], later)
            share += coming - (later - free)
            self._free[key] = free
            left = self._vram[key]
            if left is not None:
                vram_later = left + vram_coming - claim.vram
                self._vram[key] = min(left, vram_later)
                vram += vram_coming - (vram_later - min(left, vram_later))
            self._promised[key] = (share, vram)
        self._min_free.take(claim.gpu for claim in claims)
        if wishes is not None:
            self._book_host(wishes)

    def _coming(self, key: str) -> tuple[Fraction, int]:
        """What is about to become free of a card, without what is promised of it."""
        parts = self._departing.get(key)
        view = self._views.get(key)
        if not parts or view is None or view.has_others:
            return Fraction(0), 0
        share, vram = self._promised.get(key, (Fraction(0), 0))
        return sum((part.share for part in parts), Fraction(0)) - share, _vram_gained(view, parts) - vram

    # -- jobs that resume ------------------------------------------------------------------------------

    def resume(self, one: SuspendedJob, length: float) -> bool:
        """Whether it can go on now: on its own cards, with what it had. If so, they are taken.

        Its memory is booked while it is suspended; its CPUs are not.
        """
        wishes = one.job.request.wishes
        if one.not_yet or self._lacks_cpus(wishes.cpus, length):
            return False
        if wishes.num_gpus == 0 and self._room_without_gpu <= 0:
            return False
        if any(self._why_not_resumed(one, claim, length) for claim in one.claims):
            return False
        if self._cpus is not None:
            self._cpus -= wishes.cpus or 0
        if wishes.num_gpus == 0:
            self._room_without_gpu -= 1
        for claim in one.claims:
            key = claim.gpu
            self._free[key] -= claim.share
            left = self._vram[key]
            if left is not None:
                self._vram[key] = left - claim.vram
            restored = _restores(one, claim, self._views[key])
            self._restored[key] = self._restored.get(key, 0) + max(0, restored - claim.vram)
            self._resuming[key] = one.job.label
            if length < math.inf:
                self._ends.setdefault(key, []).append(Hold(claim.share, claim.vram, self._now + length))
        self._min_free.take(claim.gpu for claim in one.claims)
        return True

    def wait_to_resume(self, one: SuspendedJob, length: float, yields_to: float = math.inf) -> Reason:
        """Reserve its cards for it, against later ones, and say why it waits; `yields_to` as for `wait`."""
        wishes = one.job.request.wishes
        whys = [(claim.number, self._why_not_resumed(one, claim, length)) for claim in one.claims]
        numbers = ", ".join(number for number, _ in whys)
        stuck = [(number, why) for number, why in whys if why]
        named = "; ".join(
            why.removeprefix("is ") if len(whys) == 1 else f"GPU {number} {why}" for number, why in stuck
        )
        if not named:
            named = one.not_yet or self._why_not_beside_gpus(wishes, length)
        here = [claim for claim in one.claims if claim.gpu in self._views]
        start, until = self._now, math.inf
        if self._ends and self._forecasts < _MOST_FORECASTS:
            self._forecasts += 1
            until = max((self._reopens(one, claim, length, optimistic=False) for claim in here), default=math.inf)
            start = until
            if until == math.inf:
                start = max(
                    (self._reopens(one, claim, length, optimistic=True) for claim in here), default=self._now
                )
            if start == math.inf:
                start = self._now
        for claim in here:
            wanted = claim.vram and max(claim.vram, self._room_to_resume(one, claim))
            kept = Reservation(start, until + length, claim.share, wanted, yields_to=yields_to)
            self._reservations.setdefault(claim.gpu, []).append(kept)
        if wishes.cpus:
            self._host_reservations.append(Reservation(start, until + length, cpus=wishes.cpus))
        if noisy := [claim for claim in here if self._views[claim.gpu].quiet_at > self._now]:
            return self._waits_for_quiet(noisy)
        where = f" on GPU {numbers}" if numbers else ""
        return Reason(
            "resume", f"waits to resume{where}: {named}", until if self._now < until < math.inf else None
        )

    def _why_not_beside_gpus(self, wishes: Wishes, length: float) -> str:
        if wishes.num_gpus == 0 and self._room_without_gpu <= 0:
            return "one of the jobs without a GPU must end first"
        return self._why_not_host(wishes, length).sentence.removeprefix("waits for ")

    def _waits_for_quiet(self, noisy: Sequence[Claim]) -> Reason:
        at = max(self._views[claim.gpu].quiet_at for claim in noisy)
        cards = ", ".join(claim.number for claim in noisy)
        sentence = f"goes on when GPU {cards} has been quiet for {QUIET:.0f}s"
        return Reason("resume", sentence, at if at < math.inf else None)

    def _reopens(self, one: SuspendedJob, claim: Claim, length: float, *, optimistic: bool) -> float:
        """When a card has room for a suspended job: a lower bound if `optimistic`, otherwise certain."""
        key, view = claim.gpu, self._views[claim.gpu]
        if not self._why_not_resumed(one, claim, length):
            return self._now
        if view.blocked:
            return self._now if optimistic else math.inf
        room = Capacity(claim.share, claim.vram)
        free = Capacity(self._free[key], self._vram[key])
        if free.holds(claim.share, claim.vram) and key not in self._reservations:
            return self._now if optimistic else math.inf  # its memory is in use: until when is not known
        total, ends = view.card.gpu.memory_total, self._ends.get(key, ())
        when = free_at(room, free, total, ends, self._now, optimistic=optimistic)
        return after_reservations(when, length, self._reservations.get(key, ()), optimistic=optimistic)

    def _why_not_resumed(self, one: SuspendedJob, claim: Claim, length: float) -> str:
        """Why a suspended job cannot have its part of this card now; empty where it can."""
        key = claim.gpu
        view = self._views.get(key)
        if view is None:
            return "is not among the GPUs of the queue"
        if view.quiet_at > self._now:
            return "is not quiet yet"
        if view.blocked:
            return view.blocked
        left = self._vram[key]
        lacks_vram = left is not None and bool(claim.vram) and left < claim.vram
        if self._free[key] < claim.share or lacks_vram:
            if key in self._resuming:
                return f"is about to resume job {self._resuming[key]}"
            return f"is held by {' and '.join(view.holders)}" if view.holders else "is kept for an earlier job"
        if key in self._reservations and not self._leaves_room(key, claim.share, claim.vram, length):
            return "is kept for an earlier job"
        wanted = self._room_to_resume(one, claim)
        if not wanted:
            return ""
        if view.memory_free is None:
            return "does not tell how much of its memory is free"
        given = 0 if left is None else (vram_left(view) or 0) - left
        free = view.memory_free - given - self._restored.get(key, 0)
        if free < wanted:
            return f"has {show_size(max(0, free))} of free memory, and {show_size(wanted)} is needed"
        return ""

    def _room_to_resume(self, one: SuspendedJob, claim: Claim) -> int:
        """Bytes that must be free on its card; 0 where nothing was moved away."""
        wanted = _restores(one, claim, self._views[claim.gpu])
        return wanted and wanted + one.beside.get(claim.gpu, 0)

    # -- which cards -----------------------------------------------------------------------------------

    def _choose(self, wishes: Wishes, length: float) -> list[CardView] | None:
        return self._choose_group(wishes, length) if self._groups else self._choose_cards(wishes, length)

    def _choose_cards(self, wishes: Wishes, length: float) -> list[CardView] | None:
        fitting = [view for view in self._allowed(wishes) if self._fits(view, wishes, length)]
        if len(fitting) < wishes.num_gpus:
            return None
        # Preferred cards first, then the emptiest, so that a second slot is used only when every card has work.
        if len(fitting) > wishes.num_gpus or self._min_free.keeps:
            fitting.sort(key=self._ranking(wishes))
            fitting = list(self._min_free.among(fitting, wishes.num_gpus))
            if len(fitting) < wishes.num_gpus:
                return None
            if self._links and len(fitting) > wishes.num_gpus:
                return self._best_connected(fitting, wishes)
        return fitting[: wishes.num_gpus]

    def _best_connected(self, fitting: Sequence[CardView], wishes: Wishes) -> list[CardView]:
        rank = self._ranking(wishes)
        views = {view.card.gpu.key: view for view in fitting}
        candidates = []
        for key in [view.card.gpu.key for view in self._cards if view.card.gpu.key in views]:
            prefer, first, used, then = rank(views[key])
            candidates.append(Candidate(key, (prefer, first), used, then))
        return [views[one.key] for one in best_set(candidates, wishes.num_gpus, self._links)]

    def _choose_group(self, wishes: Wishes, length: float) -> list[CardView] | None:
        fitting = [
            group
            for group in self._usable_groups(wishes)
            if all(self._fits(view, wishes, length) for view in group) and self._min_free.allows(group)
        ]
        if not fitting:
            return None
        rank = self._ranking(wishes)
        return min(fitting, key=lambda group: rank(group[0]))

    def _usable_groups(self, wishes: Wishes) -> list[list[CardView]]:
        """The groups that this job could get. A job for one GPU takes a group of any size."""
        views = {view.card.gpu.key: view for view in self._allowed(wishes)}
        return [
            [views[key] for key in keys]
            for keys in self._groups
            if wishes.num_gpus in (1, len(keys))
            and all(key in views and could_hold(views[key].card.gpu, wishes) for key in keys)
        ]

    def _ranking(self, wishes: Wishes) -> Callable[[CardView], tuple[int, int, Fraction, float]]:
        def rank(view: CardView) -> tuple[int, int, Fraction, float]:
            gpu = view.card.gpu
            order = next((i for i, one in enumerate(wishes.prefer) if is_named(gpu, (one,))), 9999)
            return (order, view.first, WHOLE - self._free[gpu.key], view.then)

        return rank

    def allowed(self, wishes: Wishes) -> set[str]:
        """The keys of the cards that a job with these wishes may use."""
        return {view.card.gpu.key for view in self._allowed(wishes)}

    def _allowed(self, wishes: Wishes) -> Sequence[CardView]:
        if not wishes.only and not wishes.gpu_type and (wishes.num_gpus < 2 or not self._has_mixed_cards):
            return self._cards
        allowed = usable_together((view.card.gpu for view in self._cards), wishes)
        return [view for view in self._cards if view.card.gpu in allowed]

    def _fits(self, view: CardView, wishes: Wishes, length: float) -> bool:
        key = view.card.gpu.key
        share, vram = self._need(view, wishes)
        if view.blocked or self._free[key] < share:
            return False
        left = self._vram[key]
        if vram and left is not None and left < vram:
            return False
        if key in self._reservations and not self._leaves_room(key, share, vram, length):
            return False
        return not (wishes.shape and self._host_is_full(key, wishes, length))

    def _need(self, view: CardView, wishes: Wishes) -> tuple[Fraction, int]:
        return (need_beside_unknown if view.is_relieved else need)(view.card, wishes, self._lessons)

    def _leaves_room(self, key: str, share: Fraction, vram: int, length: float) -> bool:
        """Whether a job of this length does not delay those that this card is reserved for."""
        free, left, until = self._free[key], self._vram[key], self._now + length
        for one in self._reservations[key]:
            if key in self._turn_cards and one.yields_to <= self._passes:
                continue
            if one.start < until:
                share += one.share
                vram += one.vram
                if share > free or (left is not None and one.vram and vram > left):
                    return False
        return True

    # -- reservations ----------------------------------------------------------------------------------

    def _candidates(self, wishes: Wishes) -> list[list[CardView]]:
        """The cards that the job could get, in groups that are used whole."""
        if not wishes.num_gpus:
            return []
        if self._groups:
            return self._usable_groups(wishes)
        return [[view] for view in self._allowed(wishes) if could_hold(view.card.gpu, wishes)]

    def _first_to_open(
        self, cards: list[list[CardView]], wishes: Wishes, opens: Mapping[str, float]
    ) -> Iterable[CardView]:
        """The cards to reserve. Of groups all: it is not known which of them will be free first."""
        if self._groups:
            return {view.card.gpu.key: view for group in cards for view in group}.values()
        views = [view for (view,) in cards if not view.blocked]

        def rank(view: CardView) -> tuple[float, bool, Fraction]:
            key = view.card.gpu.key
            return (opens[key], key in self._reservations, -self._free[key])

        views.sort(key=rank)
        return views[: wishes.num_gpus]

    def _cards_for_min_free(self, first: Sequence[CardView]) -> Sequence[CardView]:
        """The cards that must become unused for `min_free`, the same for all waiting jobs.

        Without reserving them, small jobs would fill the used cards for ever, and none would become unused.
        """
        if not self._min_free.keeps or self._min_free_is_reserved or not first:
            return ()
        self._min_free_is_reserved = True
        taken = {view.card.gpu.key for view in first}
        views = [view for view in self._cards if not view.blocked and view.card.gpu.key not in taken]

        def rank(view: CardView) -> tuple[float, Fraction]:
            key = view.card.gpu.key
            free = Capacity(self._free[key], None)
            ends = self._ends.get(key, ())
            return (free_at(Capacity(WHOLE, None), free, None, ends, self._now, optimistic=False), -free.share)

        return sorted(views, key=rank)[: self._min_free.keeps]

    def _start(self, cards: list[list[CardView]], wishes: Wishes, opens: Mapping[str, float]) -> float:
        """When the job can start if each card has room at that moment."""
        moments = sorted(max(opens[view.card.gpu.key] for view in group) for group in cards)
        needed = 1 if self._groups else wishes.num_gpus
        return moments[needed - 1] if len(moments) >= needed else math.inf

    def _opening(
        self, cards: list[list[CardView]], wishes: Wishes, length: float, *, optimistic: bool
    ) -> dict[str, float]:
        """When each card has room for the job: a lower bound if `optimistic`, otherwise certain."""
        return {
            view.card.gpu.key: self._opens(view, wishes, length, optimistic=optimistic)
            for group in cards
            for view in group
        }

    def _opens(self, view: CardView, wishes: Wishes, length: float, *, optimistic: bool) -> float:
        if view.blocked:
            return self._now if optimistic else math.inf
        if self._fits(view, wishes, length):
            return self._now
        key = view.card.gpu.key
        when = free_at(
            Capacity(*self._need(view, wishes)),
            Capacity(self._free[key], self._vram[key]),
            view.card.gpu.memory_total,
            self._ends.get(key, ()),
            self._now,
            optimistic=optimistic,
        )
        return after_reservations(when, length, self._reservations.get(key, ()), optimistic=optimistic)

    # -- CPUs and memory of the machine ----------------------------------------------------------------

    def _lacks_host(self, wishes: Wishes, length: float) -> bool:
        return self._lacks_cpus(wishes.cpus, length) or self._lacks_mem(wishes.mem, length)

    def _host_is_full(self, key: str, wishes: Wishes, length: float) -> bool:
        """Whether the machine has too few CPUs or too little memory for one more, judging by similar jobs.

        Only on a card in use: a job that would run alone never waits because of what was learned.
        """
        if self._free[key] >= WHOLE:
            return False
        cpus, mem = host_needs(wishes, self._lessons)
        return self._lacks_cpus(cpus, length) or self._lacks_mem(mem, length)

    def _lacks_cpus(self, wanted: int | None, length: float) -> bool:
        if not wanted or self._cpus is None:
            return False
        return self._cpus < wanted + sum(one.cpus for one in self._reserved_during(length))

    def _lacks_mem(self, wanted: int | None, length: float) -> bool:
        if not wanted or self._mem is None:
            return False
        return self._mem < wanted + sum(one.mem for one in self._reserved_during(length))

    def _reserved_during(self, length: float) -> list[Reservation]:
        return [one for one in self._host_reservations if one.start < self._now + length]

    def _book_host(self, wishes: Wishes) -> None:
        cpus, mem = (wishes.cpus, wishes.mem) if not wishes.shape else host_needs(wishes, self._lessons)
        if cpus and self._cpus is not None:
            self._cpus -= cpus
        if mem and self._mem is not None:
            self._mem -= mem

    # -- reasons ---------------------------------------------------------------------------------------

    def _why_not(self, wishes: Wishes, length: float) -> Reason:
        if wishes.num_gpus == 0 and self._room_without_gpu <= 0:
            return Reason("no-room", "waits until one of the jobs without a GPU has ended")
        if wishes.num_gpus == 0 or ((wishes.cpus or wishes.mem) and self._choose(wishes, length) is not None):
            return self._why_not_host(wishes, length)
        views = self._allowed(wishes)
        if self._min_free.keeps and sum(self._fits(view, wishes, length) for view in views) >= wishes.num_gpus:
            return self._min_free.reason
        if not views and wishes.gpu_type:
            named = no_such_type([view.card.gpu for view in self._cards])
        else:
            parts = [self._why_not_card(view, wishes, length) for view in views]
            remedies = dict.fromkeys(view.remedy for view in views if view.remedy)
            named = "; ".join([*_merged([part for part in parts if part]), *remedies]) or "no GPU may be used now"
        return Reason("no-gpu", f"waits for {show_gpus(wishes)}: {named}")

    def _why_not_card(self, view: CardView, wishes: Wishes, length: float) -> str:
        if view.blocked:
            return f"{view.label} {view.blocked}"
        key = view.card.gpu.key
        share, vram = self._need(view, wishes)
        if self._free[key] < share and view.holders:
            return f"{view.label} is held by {' and '.join(view.holders)}{self._shows(view, wishes)}"
        if self._free[key] < share and key in self._resuming:
            return f"{view.label} is about to resume job {self._resuming[key]}"
        if self._free[key] < share:
            return f"{view.label} is about to start another job"
        if key in self._reservations and not self._leaves_room(key, share, vram, length):
            return f"{view.label} is kept for an earlier job"
        left = self._vram[key]
        if left is not None and left < vram:
            return f"{view.label} has {show_size(max(0, left))} of memory left"
        if wishes.shape and self._host_is_full(key, wishes, length):
            return f"{view.label} has room, but the machine has too little beside it ({self._host_left(wishes)})"
        return f"{view.label} is left to others (min_free)" if self._min_free.withholds(key) else ""

    def _shows(self, view: CardView, wishes: Wishes) -> str:
        """The note that a holder will show how much memory jobs like this one need, while that is not known."""
        is_first = wishes.shape in view.shapes and wishes.shape and wishes.share is None
        if not is_first or is_known(self._lessons.get((wishes.shape, view.card.gpu.name))):
            return ""
        return f", which shows {_NEED}"

    def _host_left(self, wishes: Wishes) -> str:
        cpus, mem = host_needs(wishes, self._lessons)
        parts = []
        if cpus and self._cpus is not None:
            parts.append(f"{max(0, self._cpus) or 'no'} of {show_cpus(cpus)}")
        if mem and self._mem is not None:
            parts.append(f"{show_size(max(0, self._mem))} of {show_size(mem)} of memory")
        return ", ".join(parts)

    def _why_not_host(self, wishes: Wishes, length: float) -> Reason:
        if self._lacks_cpus(wishes.cpus, length):
            wanted, free = wishes.cpus or 0, max(0, self._cpus or 0)
            kept = "" if free < wanted else ", but kept for an earlier job"
            return Reason("no-cpus", f"waits for {show_cpus(wanted)}: {free or 'none'} free{kept}")
        wanted, free = wishes.mem or 0, max(0, self._mem or 0)
        kept = "" if free < wanted else ", but kept for an earlier job"
        return Reason("no-mem", f"waits for {show_size(wanted)} of memory: {show_size(free)} free{kept}")


def _merged(parts: list[str]) -> list[str]:
    """The parts, with one note at the end for all cards whose holders show what jobs like this need."""
    shows = f", which shows {_NEED}"
    showing = [part.removesuffix(shows) for part in parts if part.endswith(shows)]
    if len(showing) < 2:
        return parts
    others = [part for part in parts if not part.endswith(shows)]
    return [*others, *showing[:-1], f"{showing[-1]}, which show {_NEED}"]


def _vram_gained(view: CardView, parts: Sequence[_Departure]) -> int:
    """How much more memory of a card is left once these have gone."""
    total, before = view.card.gpu.memory_total, vram_left(view)
    if total is None or before is None:
        return 0
    left = total - max(0, view.vram_taken - sum(part.vram for part in parts))
    is_empty = view.taken <= sum(part.share for part in parts)
    if view.vram_free is not None and not is_empty:  # alone, a job may have what it booked
        left = min(left, view.vram_free + sum(part.held for part in parts))
    return left - before


def _restores(one: SuspendedJob, claim: Claim, view: CardView) -> int:
    """The bytes of this card that must be free before a job is restored; 0 where nothing was moved away."""
    if not one.held:
        return 0
    held = one.held_on.get(claim.gpu)
    if held is None:
        held = max(math.ceil(one.held / len(one.claims)), claim.vram if len(one.claims) > 1 else 0)
    return room_for(held, view.card.gpu.memory_total)


def _known_ends(cards: Iterable[CardView]) -> dict[str, list[Hold]]:
    """For each card the holders that have a time limit, where there are any."""
    found: dict[str, list[Hold]] = {}
    for view in cards:
        if view.ends and (known := [hold for hold in view.ends if hold.ends_at is not None]):
            found[view.card.gpu.key] = known
    return found


class MinFree:
    """How many unused cards may still be taken, while a plan is made: `min_free` of them stay free for others.

    A card is unused while no part of it is held and it is not blocked. Cards with a job of ours may be filled.
    """

    def __init__(self, snapshot: Snapshot) -> None:
        self.keeps = snapshot.keep_free
        self._unused: set[str] = set()
        if self.keeps:
            self._unused = {
                view.card.gpu.key
                for view in snapshot.cards
                if not view.taken and not view.blocked and view.card.gpu.key not in snapshot.in_use
            }

    def copy(self) -> "MinFree":
        new = object.__new__(MinFree)
        new.keeps, new._unused = self.keeps, set(self._unused)
        return new

    @property
    def left(self) -> int:
        """How many unused cards the next job may take."""
        return max(0, len(self._unused) - self.keeps)

    def allows(self, cards: Iterable[CardView]) -> bool:
        """Whether a job may have all of these cards."""
        unused = sum(view.card.gpu.key in self._unused for view in cards)
        return not unused or unused <= self.left

    def among(self, cards: Sequence[CardView], wanted: int) -> Sequence[CardView]:
        """The cards, best first, with no more unused ones than may be taken."""
        if not self.keeps or wanted <= (left := self.left):
            return cards
        found = []
        for view in cards:
            if view.card.gpu.key in self._unused:
                if left == 0:
                    continue
                left -= 1
            found.append(view)
        return found

    def take(self, keys: Iterable[str]) -> None:
        self._unused.difference_update(keys)

    def withholds(self, key: str) -> bool:
        """Whether this card must stay free for others."""
        return key in self._unused and not self.left

    @property
    def reason(self) -> Reason:
        gpus = "1 GPU is" if self.keeps == 1 else f"{self.keeps} GPUs are"
        return Reason("min-free", f"waits: {gpus} left to others (min_free)")


def exceeds_min_free(num_gpus: int, pool: Pool, keep_free: int) -> str:
    """Why a job for so many GPUs could never start, given min_free; empty when it could."""
    if not keep_free or not num_gpus or not pool.cards:
        return ""
    needed = num_gpus
    if pool.groups:  # a job for one GPU takes a group of any size
        needed = min((len(group) for group in pool.groups if num_gpus in (1, len(group))), default=num_gpus)
    if needed + keep_free <= len(pool.cards):
        return ""
    wanted = "a GPU" if num_gpus == 1 else f"{num_gpus} GPUs"
    left = f"{keep_free} of {len(pool.cards)}" if keep_free < len(pool.cards) else "all"
    return f"it wants {wanted}, but {left} {'is' if left.startswith('1 ') else 'are'} left to others (min_free)"


def free_at(
    need: Capacity, free: Capacity, total: int | None, ends: Sequence[Hold], now: float, *, optimistic: bool
) -> float:
    """When the card has this much room, from the time limits of its holders.

    Holders without a limit never end; if `optimistic`, they end at once.
    """
    vram = need.vram or 0
    if free.holds(need.share, vram):
        return now
    limited = sorted(ends, key=_end)
    if optimistic:
        share = WHOLE - sum((hold.share for hold in limited), Fraction(0))
        free = Capacity(share, None if total is None else total - sum(hold.vram for hold in limited))
        if free.holds(need.share, vram):
            return now
    for hold in limited:
        share = free.share + hold.share
        left = None if free.vram is None else free.vram + hold.vram
        # The card is empty: memory that holders used beyond their booking is free too.
        free = Capacity(share, total if share >= WHOLE else left)
        if free.holds(need.share, vram):
            return max(now, _end(hold))
    return math.inf


def after_reservations(when: float, length: float, kept: Iterable[Reservation], *, optimistic: bool) -> float:
    """When a job of this length can run on a card: before or after the jobs that the card is reserved for.

    If `optimistic`, those jobs end as soon as they start.
    """
    for one in sorted(kept, key=lambda one: one.start):
        if when + length <= one.start:
            break
        when = max(when, one.start if optimistic else one.ends)
    return when


def _end(hold: Hold) -> float:
    return math.inf if hold.ends_at is None else hold.ends_at
