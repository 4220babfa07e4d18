"""The cards while a plan is being made."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from fractions import Fraction

from dibs.model.claims import Claim
from dibs.model.jobs import Wishes
from dibs.model.reasons import Reason
from dibs.model.units import show_size
from dibs.policy.company import company, needs_care
from dibs.policy.fitting import (
    could_hold,
    cpus_in_words,
    gpus_in_words,
    is_named,
    need,
    no_such_type,
    vram_left,
)
from dibs.policy.lessons import beside, is_known
from dibs.policy.links import Candidate, best_set
from dibs.policy.room import Kept, Room, after_kept, room_at
from dibs.policy.snapshot import WHOLE, CardView, Hold, Snapshot
from dibs.policy.spare import Spare

_MOST_PROMISES = 16  # kinds of waiting jobs in one plan for which the moment of their start is worked out


class Table:
    """The cards while a plan is being made: what earlier placements took is gone for later ones."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._cards = snapshot.cards
        self._groups = snapshot.groups
        self._now = snapshot.now
        self._lessons = snapshot.lessons
        self._needs_care = needs_care(view.card.gpu for view in snapshot.cards)
        self._free = {view.card.gpu.key: view.free for view in snapshot.cards}
        self._vram = {view.card.gpu.key: vram_left(view) for view in snapshot.cards}
        self._ends = _known_ends(snapshot.cards)
        self._kept: dict[str, list[Kept]] = {}  # on each card, for those who wait
        self._kept_beside: list[Kept] = []  # of the machine's CPUs and memory
        self._spare = Spare(snapshot)
        self._left_is_kept = False  # what is left to others is kept for those who wait
        self._links = snapshot.links
        self._promises = 0
        self._room_without_gpu = snapshot.room_without_gpu
        self._cpus = snapshot.cpus_free
        self._mem = snapshot.mem_free

    def place(self, wishes: Wishes, length: float) -> tuple[Claim, ...] | None:
        """Give the job what it wants, for so many seconds at the most; None where it must wait."""
        if self._lacks_beside(wishes, length):
            return None
        if wishes.num_gpus == 0:
            if self._room_without_gpu <= 0:
                return None
            self._room_without_gpu -= 1
            self._book_beside(wishes)
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
        self._spare.take(claim.gpu for claim in claims)
        self._book_beside(wishes)
        return claims

    def _claim(self, view: CardView, wishes: Wishes) -> Claim:
        share, vram = self._need(view, wishes)
        gpu = view.card.gpu
        return Claim(gpu=gpu.key, index=gpu.index, share=share, vram=vram, address=gpu.address, part=gpu.part)

    def wait(self, wishes: Wishes, length: float) -> Reason:
        """Keep for this job what it will get first from those who come after it, and say why it waits."""
        reason = self._why_not(wishes, length)
        cards = self._cards_to_keep(wishes)
        start, until = self._now, math.inf
        opens = dict.fromkeys(self._free, 0.0)
        # Without a known end there is nothing to work out, and that is how it is on most machines.
        if self._ends and cards and self._promises < _MOST_PROMISES:
            self._promises += 1
            opens = self._opening(cards, wishes, length, hopeful=False)
            # When enough cards are untouched, some being left to others, cannot be promised.
            if not self._spare.keeps and not self._lacks_beside(wishes, length):
                until = self._start(cards, wishes, opens)
            start = until
            if until == math.inf:
                # Nothing can be promised: nobody may be in the way of the earliest start one can think of.
                start = self._start(cards, wishes, self._opening(cards, wishes, length, hopeful=True))
            if start == math.inf:  # the pool is too small today; it may have grown by the next plan
                start = self._now
        first = list(self._first_to_open(cards, wishes, opens))
        for view in first:
            kept = Kept(start, until + length, *self._need(view, wishes))
            self._kept.setdefault(view.card.gpu.key, []).append(kept)
        for view in self._left_to_others(first):
            self._kept.setdefault(view.card.gpu.key, []).append(Kept(start, math.inf, WHOLE))
        if wishes.cpus or wishes.mem:
            self._kept_beside.append(Kept(start, until + length, cpus=wishes.cpus or 0, mem=wishes.mem or 0))
        return Reason(reason.code, reason.sentence, until) if self._now < until < math.inf else reason

    # -- which cards -----------------------------------------------------------------------------------

    def _choose(self, wishes: Wishes, length: float) -> list[CardView] | None:
        return self._choose_group(wishes, length) if self._groups else self._choose_cards(wishes, length)

    def _choose_cards(self, wishes: Wishes, length: float) -> list[CardView] | None:
        fitting = [view for view in self._allowed(wishes) if self._fits(view, wishes, length)]
        if len(fitting) < wishes.num_gpus:
            return None
        # Preferred cards first, then the emptiest, so that a second slot is used only when every card has work.
        if len(fitting) > wishes.num_gpus or self._spare.keeps:
            fitting.sort(key=self._eagerness(wishes))
            fitting = list(self._spare.among(fitting, wishes.num_gpus))
            if len(fitting) < wishes.num_gpus:
                return None
            if self._links and len(fitting) > wishes.num_gpus:
                return self._best_connected(fitting, wishes)
        return fitting[: wishes.num_gpus]

    def _best_connected(self, fitting: Sequence[CardView], wishes: Wishes) -> list[CardView]:
        rank = self._eagerness(wishes)
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
            if all(self._fits(view, wishes, length) for view in group) and self._spare.allows(group)
        ]
        if not fitting:
            return None
        rank = self._eagerness(wishes)
        return min(fitting, key=lambda group: rank(group[0]))

    def _usable_groups(self, wishes: Wishes) -> list[list[CardView]]:
        """The groups that this job may get some day. One that asks for one GPU takes a group of any size."""
        views = {view.card.gpu.key: view for view in self._allowed(wishes)}
        return [
            [views[key] for key in keys]
            for keys in self._groups
            if wishes.num_gpus in (1, len(keys))
            and all(key in views and could_hold(views[key].card.gpu, wishes) for key in keys)
        ]

    def _eagerness(self, wishes: Wishes) -> Callable[[CardView], tuple[int, int, Fraction, float]]:
        def rank(view: CardView) -> tuple[int, int, Fraction, float]:
            gpu = view.card.gpu
            order = next((i for i, one in enumerate(wishes.prefer) if is_named(gpu, (one,))), 9999)
            return (order, view.first, WHOLE - self._free[gpu.key], view.then)

        return rank

    def _allowed(self, wishes: Wishes) -> Sequence[CardView]:
        if not wishes.only and not wishes.gpu_type and (wishes.num_gpus < 2 or not self._needs_care):
            return self._cards
        allowed = company((view.card.gpu for view in self._cards), wishes)
        return [view for view in self._cards if view.card.gpu in allowed]

    def _fits(self, view: CardView, wishes: Wishes, length: float) -> bool:
        key = view.card.gpu.key
        share, vram = self._need(view, wishes)
        if view.blocked or self._free[key] < share:
            return False
        left = self._vram[key]
        if vram and left is not None and left < vram:
            return False
        if key in self._kept and not self._leaves_room(key, share, vram, length):
            return False
        return not (wishes.shape and self._would_drown(key, wishes, length))

    def _need(self, view: CardView, wishes: Wishes) -> tuple[Fraction, int]:
        return need(view.card, wishes, self._lessons)

    def _leaves_room(self, key: str, share: Fraction, vram: int, length: float) -> bool:
        """Whether those for whom this card is kept are not delayed by a job of this length."""
        free, left, until = self._free[key], self._vram[key], self._now + length
        for kept in self._kept[key]:
            if kept.start < until:
                share += kept.share
                vram += kept.vram
                if share > free or (left is not None and kept.vram and vram > left):
                    return False
        return True

    # -- what is kept ----------------------------------------------------------------------------------

    def _cards_to_keep(self, wishes: Wishes) -> list[list[CardView]]:
        """The cards of which the job will get some, in groups that are given whole."""
        if not wishes.num_gpus:
            return []
        if self._groups:
            return self._usable_groups(wishes)
        return [[view] for view in self._allowed(wishes) if could_hold(view.card.gpu, wishes)]

    def _first_to_open(
        self, cards: list[list[CardView]], wishes: Wishes, opens: Mapping[str, float]
    ) -> Iterable[CardView]:
        """Those that are kept. Of groups all: which of them is whole first cannot be told."""
        if self._groups:
            return {view.card.gpu.key: view for group in cards for view in group}.values()
        views = [view for (view,) in cards if not view.blocked]

        def rank(view: CardView) -> tuple[float, bool, Fraction]:
            key = view.card.gpu.key
            return (opens[key], key in self._kept, -self._free[key])

        views.sort(key=rank)
        return views[: wishes.num_gpus]

    def _left_to_others(self, first: Sequence[CardView]) -> Sequence[CardView]:
        """What must be untouched beside the cards that a job waits for: the same for all who wait.

        Without it small jobs would fill up the cards in use for ever, and none would come free to be left.
        """
        if not self._spare.keeps or self._left_is_kept or not first:
            return ()
        self._left_is_kept = True
        taken = {view.card.gpu.key for view in first}
        views = [view for view in self._cards if not view.blocked and view.card.gpu.key not in taken]

        def rank(view: CardView) -> tuple[float, Fraction]:
            key = view.card.gpu.key
            free = Room(self._free[key], None)
            ends = self._ends.get(key, ())
            return (room_at(Room(WHOLE, None), free, None, ends, self._now, hopeful=False), -free.share)

        return sorted(views, key=rank)[: self._spare.keeps]

    def _start(self, cards: list[list[CardView]], wishes: Wishes, opens: Mapping[str, float]) -> float:
        """When the job can start if each card opens at that moment."""
        moments = sorted(max(opens[view.card.gpu.key] for view in group) for group in cards)
        needed = 1 if self._groups else wishes.num_gpus
        return moments[needed - 1] if len(moments) >= needed else math.inf

    def _opening(
        self, cards: list[list[CardView]], wishes: Wishes, length: float, *, hopeful: bool
    ) -> dict[str, float]:
        """When each card can take the job: a lower bound to the hopeful, a promise otherwise."""
        return {
            view.card.gpu.key: self._opens(view, wishes, length, hopeful=hopeful)
            for group in cards
            for view in group
        }

    def _opens(self, view: CardView, wishes: Wishes, length: float, *, hopeful: bool) -> float:
        if view.blocked:
            return self._now if hopeful else math.inf
        if self._fits(view, wishes, length):
            return self._now
        key = view.card.gpu.key
        when = room_at(
            Room(*self._need(view, wishes)),
            Room(self._free[key], self._vram[key]),
            view.card.gpu.memory_total,
            self._ends.get(key, ()),
            self._now,
            hopeful=hopeful,
        )
        return after_kept(when, length, self._kept.get(key, ()), hopeful=hopeful)

    # -- CPUs and memory of the machine ----------------------------------------------------------------

    def _lacks_beside(self, wishes: Wishes, length: float) -> bool:
        return self._lacks_cpus(wishes.cpus, length) or self._lacks_mem(wishes.mem, length)

    def _would_drown(self, key: str, wishes: Wishes, length: float) -> bool:
        """Whether the machine has too little for one more on this card, as far as its like tell.

        Only where somebody is there already: what would run alone is never kept waiting by what was learned.
        """
        if self._free[key] >= WHOLE:
            return False
        cpus, mem = beside(wishes, self._lessons)
        return self._lacks_cpus(cpus, length) or self._lacks_mem(mem, length)

    def _lacks_cpus(self, wanted: int | None, length: float) -> bool:
        if not wanted or self._cpus is None:
            return False
        return self._cpus < wanted + sum(one.cpus for one in self._in_the_way_of(length))

    def _lacks_mem(self, wanted: int | None, length: float) -> bool:
        if not wanted or self._mem is None:
            return False
        return self._mem < wanted + sum(one.mem for one in self._in_the_way_of(length))

    def _in_the_way_of(self, length: float) -> list[Kept]:
        return [one for one in self._kept_beside if one.start < self._now + length]

    def _book_beside(self, wishes: Wishes) -> None:
        cpus, mem = (wishes.cpus, wishes.mem) if not wishes.shape else beside(wishes, self._lessons)
        if cpus and self._cpus is not None:
            self._cpus -= cpus
        if mem and self._mem is not None:
            self._mem -= mem

    # -- reasons ---------------------------------------------------------------------------------------

    def _why_not(self, wishes: Wishes, length: float) -> Reason:
        if wishes.num_gpus == 0 and self._room_without_gpu <= 0:
            return Reason("no-room", "waits until one of the jobs without a GPU has ended")
        if wishes.num_gpus == 0 or ((wishes.cpus or wishes.mem) and self._choose(wishes, length) is not None):
            return self._why_not_beside(wishes, length)
        views = self._allowed(wishes)
        if self._spare.keeps and sum(self._fits(view, wishes, length) for view in views) >= wishes.num_gpus:
            return self._spare.reason
        if not views and wishes.gpu_type:
            named = no_such_type([view.card.gpu for view in self._cards])
        else:
            parts = [self._why_not_card(view, wishes, length) for view in views]
            named = "; ".join(part for part in parts if part) or "no GPU may be used now"
        return Reason("no-gpu", f"waits for {gpus_in_words(wishes)}: {named}")

    def _why_not_card(self, view: CardView, wishes: Wishes, length: float) -> str:
        if view.blocked:
            return f"{view.label} {view.blocked}"
        key = view.card.gpu.key
        share, vram = self._need(view, wishes)
        if self._free[key] < share and view.holders:
            return f"{view.label} is held by {' and '.join(view.holders)}{self._shows(view, wishes)}"
        if self._free[key] < share:
            return f"{view.label} is about to start another job"
        if key in self._kept and not self._leaves_room(key, share, vram, length):
            return f"{view.label} is kept for an earlier job"
        left = self._vram[key]
        if left is not None and left < vram:
            return f"{view.label} has {show_size(max(0, left))} of memory left"
        if wishes.shape and self._would_drown(key, wishes, length):
            return f"{view.label} has room, but the machine has too little beside it ({self._left_beside(wishes)})"
        return f"{view.label} is left to others (min_free)" if self._spare.keeps_back(key) else ""

    def _shows(self, view: CardView, wishes: Wishes) -> str:
        """What a holder is good for, to those who wait until somebody knows what they need."""
        is_waited_for = wishes.shape in view.shapes and wishes.shape and wishes.share is None
        if not is_waited_for or is_known(self._lessons.get((wishes.shape, view.card.gpu.name))):
            return ""
        return ", which shows how much memory jobs like this need"

    def _left_beside(self, wishes: Wishes) -> str:
        cpus, mem = beside(wishes, self._lessons)
        parts = []
        if cpus and self._cpus is not None:
            parts.append(f"{max(0, self._cpus) or 'no'} of {cpus_in_words(cpus)}")
        if mem and self._mem is not None:
            parts.append(f"{show_size(max(0, self._mem))} of {show_size(mem)} of memory")
        return ", ".join(parts)

    def _why_not_beside(self, wishes: Wishes, length: float) -> Reason:
        if self._lacks_cpus(wishes.cpus, length):
            wanted, free = wishes.cpus or 0, max(0, self._cpus or 0)
            kept = "" if free < wanted else ", but kept for an earlier job"
            return Reason("no-cpus", f"waits for {cpus_in_words(wanted)}: {free or 'none'} free{kept}")
        wanted, free = wishes.mem or 0, max(0, self._mem or 0)
        kept = "" if free < wanted else ", but kept for an earlier job"
        return Reason("no-mem", f"waits for {show_size(wanted)} of memory: {show_size(free)} free{kept}")


def _known_ends(cards: Iterable[CardView]) -> dict[str, list[Hold]]:
    """Of each card the holders that have a limit, where there are any."""
    found: dict[str, list[Hold]] = {}
    for view in cards:
        if view.ends and (known := [hold for hold in view.ends if hold.ends_at is not None]):
            found[view.card.gpu.key] = known
    return found
