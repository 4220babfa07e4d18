"""The cards while a plan is being made."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from fractions import Fraction

from dibs.model.claims import Claim
from dibs.model.jobs import Wishes
from dibs.model.reasons import Reason
from dibs.model.units import show_size
from dibs.policy.fitting import (
    booking,
    could_hold,
    cpus_in_words,
    gpus_in_words,
    is_allowed,
    is_named,
    no_such_type,
    vram_left,
)
from dibs.policy.room import Kept, Room, after_kept, room_at
from dibs.policy.snapshot import WHOLE, CardView, Hold, Snapshot

_MOST_PROMISES = 16  # kinds of waiting jobs in one plan for which the moment of their start is worked out


class Table:
    """The cards while a plan is being made: what earlier placements took is gone for later ones."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._cards = snapshot.cards
        self._groups = snapshot.groups
        self._now = snapshot.now
        self._free = {view.card.gpu.key: view.free for view in snapshot.cards}
        self._vram = {view.card.gpu.key: vram_left(view) for view in snapshot.cards}
        self._ends = _known_ends(snapshot.cards)
        self._kept: dict[str, list[Kept]] = {}  # on each card, for those who wait
        self._kept_beside: list[Kept] = []  # of the machine's CPUs and memory
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
        claims = tuple(
            Claim(
                gpu=view.card.gpu.key,
                index=view.card.gpu.index,
                share=booking(view.card, wishes),
                vram=wishes.vram or 0,
            )
            for view in chosen
        )
        for claim in claims:
            self._free[claim.gpu] -= claim.share
            left = self._vram[claim.gpu]
            if left is not None:
                self._vram[claim.gpu] = left - claim.vram
            if length < math.inf:
                self._ends.setdefault(claim.gpu, []).append(Hold(claim.share, claim.vram, self._now + length))
        self._book_beside(wishes)
        return claims

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
            if not self._lacks_beside(wishes, length):
                until = self._start(cards, wishes, opens)
            start = until
            if until == math.inf:
                # Nothing can be promised: nobody may be in the way of the earliest start one can think of.
                start = self._start(cards, wishes, self._opening(cards, wishes, length, hopeful=True))
            if start == math.inf:  # the pool is too small today; it may have grown by the next plan
                start = self._now
        for view in self._first_to_open(cards, wishes, opens):
            kept = Kept(start, until + length, booking(view.card, wishes), wishes.vram or 0)
            self._kept.setdefault(view.card.gpu.key, []).append(kept)
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
        if len(fitting) > wishes.num_gpus:
            fitting.sort(key=self._eagerness(wishes))
        return fitting[: wishes.num_gpus]

    def _choose_group(self, wishes: Wishes, length: float) -> list[CardView] | None:
        fitting = [
            group
            for group in self._usable_groups(wishes)
            if all(self._fits(view, wishes, length) for view in group)
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

    def _eagerness(self, wishes: Wishes) -> Callable[[CardView], tuple[int, Fraction]]:
        def rank(view: CardView) -> tuple[int, Fraction]:
            gpu = view.card.gpu
            order = next((i for i, one in enumerate(wishes.prefer) if is_named(gpu, (one,))), 9999)
            return (order, WHOLE - self._free[gpu.key])

        return rank

    def _allowed(self, wishes: Wishes) -> Sequence[CardView]:
        if not wishes.only and not wishes.gpu_type:
            return self._cards
        return [view for view in self._cards if is_allowed(view.card.gpu, wishes)]

    def _fits(self, view: CardView, wishes: Wishes, length: float) -> bool:
        key = view.card.gpu.key
        share = booking(view.card, wishes)
        if view.blocked or self._free[key] < share:
            return False
        left = self._vram[key]
        if wishes.vram is not None and left is not None and left < wishes.vram:
            return False
        return key not in self._kept or self._leaves_room(key, share, wishes.vram or 0, length)

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
            Room(booking(view.card, wishes), wishes.vram),
            Room(self._free[key], self._vram[key]),
            view.card.gpu.memory_total,
            self._ends.get(key, ()),
            self._now,
            hopeful=hopeful,
        )
        return after_kept(when, length, self._kept.get(key, ()), hopeful=hopeful)

    # -- CPUs and memory of the machine ----------------------------------------------------------------

    def _lacks_beside(self, wishes: Wishes, length: float) -> bool:
        return self._lacks_cpus(wishes, length) or self._lacks_mem(wishes, length)

    def _lacks_cpus(self, wishes: Wishes, length: float) -> bool:
        if not wishes.cpus or self._cpus is None:
            return False
        return self._cpus < wishes.cpus + sum(one.cpus for one in self._in_the_way_of(length))

    def _lacks_mem(self, wishes: Wishes, length: float) -> bool:
        if not wishes.mem or self._mem is None:
            return False
        return self._mem < wishes.mem + sum(one.mem for one in self._in_the_way_of(length))

    def _in_the_way_of(self, length: float) -> list[Kept]:
        return [one for one in self._kept_beside if one.start < self._now + length]

    def _book_beside(self, wishes: Wishes) -> None:
        if wishes.cpus and self._cpus is not None:
            self._cpus -= wishes.cpus
        if wishes.mem and self._mem is not None:
            self._mem -= wishes.mem

    # -- reasons ---------------------------------------------------------------------------------------

    def _why_not(self, wishes: Wishes, length: float) -> Reason:
        if wishes.num_gpus == 0 and self._room_without_gpu <= 0:
            return Reason("no-room", "waits until one of the jobs without a GPU has ended")
        if wishes.num_gpus == 0 or ((wishes.cpus or wishes.mem) and self._choose(wishes, length) is not None):
            return self._why_not_beside(wishes, length)
        views = self._allowed(wishes)
        if not views and wishes.gpu_type:
            named = no_such_type([view.card.gpu for view in self._cards])
        else:
            parts = [self._why_not_card(view, wishes, length) for view in views]
            named = "; ".join(part for part in parts if part) or "no GPU may be used now"
        return Reason("no-gpu", f"waits for {gpus_in_words(wishes)}: {named}")

    def _why_not_card(self, view: CardView, wishes: Wishes, length: float) -> str:
        if view.blocked:
            return f"{view.label} {view.blocked}"
        key, share, vram = view.card.gpu.key, booking(view.card, wishes), wishes.vram or 0
        if self._free[key] < share and view.holders:
            return f"{view.label} is held by {' and '.join(view.holders)}"
        if self._free[key] < share:
            return f"{view.label} is about to start another job"
        if key in self._kept and not self._leaves_room(key, share, vram, length):
            return f"{view.label} is kept for an earlier job"
        left = self._vram[key]
        if left is not None and left < vram:
            return f"{view.label} has {show_size(max(0, left))} of memory left"
        return ""

    def _why_not_beside(self, wishes: Wishes, length: float) -> Reason:
        if self._lacks_cpus(wishes, length):
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
