"""Which job starts where. Pure: the same snapshot always gives the same plan."""

import math
from collections.abc import Callable, Sequence
from fractions import Fraction

from dibs.model.claims import Claim
from dibs.model.gpus import Gpu
from dibs.model.jobs import Wishes
from dibs.model.pool import Card, Pool
from dibs.model.reasons import Reason
from dibs.model.units import show_size
from dibs.policy.snapshot import WHOLE, CardView, Placement, Plan, Snapshot

MOST_GPUS = 200  # of one job: their locks are handed over in one message, and the kernel takes 253 descriptors


def schedule(snapshot: Snapshot) -> Plan:
    """Place waiting jobs in order. A job that cannot start keeps later ones off the cards it waits for.

    Without that reservation a stream of small jobs would pass a wide one for ever.
    """
    table = _Table(snapshot)
    plan = Plan()
    stuck: dict[Wishes, Reason] = {}
    for job in snapshot.waiting:
        wishes = job.request.wishes
        if wishes in stuck:  # what does not fit for one does not fit for its twin
            plan.reasons[job.id] = stuck[wishes]
            continue
        claims = table.place(wishes)
        if claims is None:
            stuck[wishes] = plan.reasons[job.id] = table.why_not(wishes)
            table.reserve(wishes)
        else:
            plan.placements.append(Placement(job, claims))
    return plan


def impossible(wishes: Wishes, pool: Pool) -> str:
    """Why no free moment of this pool could ever satisfy the wishes; empty when one could."""
    cards = [card for card in pool.cards if is_allowed(card.gpu, wishes)]
    for gpu_id in wishes.only:
        if not any(_is_named(card.gpu, (gpu_id,)) for card in pool.cards):
            return f"it wants GPU {gpu_id} only, which is not among {_indices(pool)}"
    if wishes.num_gpus > MOST_GPUS:
        return f"it wants {wishes.num_gpus} GPUs, but one job can hold {MOST_GPUS} at the most"
    if pool.groups and wishes.num_gpus:
        return _no_group(wishes, pool)
    if wishes.num_gpus > len(cards):
        return f"it wants {_gpus(wishes.num_gpus)}, but only {len(cards)} may be used ({_indices(pool)})"
    roomy = [card for card in cards if _could_hold(card.gpu, wishes)]
    if len(roomy) < wishes.num_gpus:
        return _no_memory(wishes, len(roomy), [card.gpu for card in cards])
    return ""


def booking(card: Card, wishes: Wishes) -> Fraction:
    """How much of this card a job books."""
    if wishes.share is not None:
        return wishes.share
    total = card.gpu.memory_total
    if wishes.vram is not None and total:
        return min(WHOLE, Fraction(math.ceil(1000 * wishes.vram / total), 1000))  # a number people can read
    return card.slot_share


def is_allowed(gpu: Gpu, wishes: Wishes) -> bool:
    """Whether the job may run on this card at all."""
    return not wishes.only or _is_named(gpu, wishes.only)


class _Table:
    """The cards while a plan is being made: what earlier placements took is gone for later ones."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._cards = snapshot.cards
        self._groups = snapshot.groups
        self._free = {view.card.gpu.key: view.free for view in snapshot.cards}
        self._vram = {view.card.gpu.key: _vram_left(view) for view in snapshot.cards}
        self._reserved: set[str] = set()
        self._room_without_gpu = snapshot.room_without_gpu

    def place(self, wishes: Wishes) -> tuple[Claim, ...] | None:
        if wishes.num_gpus == 0:
            if self._room_without_gpu <= 0:
                return None
            self._room_without_gpu -= 1
            return ()
        chosen = self._choose_group(wishes) if self._groups else self._choose_cards(wishes)
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
        return claims

    def reserve(self, wishes: Wishes) -> None:
        """Keep the cards that this job will get first from those who come after it."""
        if self._groups:
            self._reserved.update(view.card.gpu.key for group in self._usable_groups(wishes) for view in group)
            return
        allowed = [
            view for view in self._allowed(wishes) if not view.blocked and _could_hold(view.card.gpu, wishes)
        ]
        allowed.sort(key=lambda view: (view.card.gpu.key in self._reserved, -self._free[view.card.gpu.key]))
        self._reserved.update(view.card.gpu.key for view in allowed[: wishes.num_gpus])

    def why_not(self, wishes: Wishes) -> Reason:
        if wishes.num_gpus == 0:
            return Reason("no-room", "waits until one of the jobs without a GPU has ended")
        parts = [self._why_not_card(view, wishes) for view in self._allowed(wishes)]
        named = "; ".join(part for part in parts if part) or "no GPU may be used now"
        return Reason("no-gpu", f"waits for {_gpus(wishes.num_gpus)}: {named}")

    def _choose_cards(self, wishes: Wishes) -> list[CardView] | None:
        fitting = [view for view in self._allowed(wishes) if self._fits(view, wishes)]
        if len(fitting) < wishes.num_gpus:
            return None
        # Preferred cards first, then the emptiest, so that a second slot is used only when every card has work.
        if len(fitting) > wishes.num_gpus:
            fitting.sort(key=self._eagerness(wishes))
        return fitting[: wishes.num_gpus]

    def _choose_group(self, wishes: Wishes) -> list[CardView] | None:
        fitting = [
            group for group in self._usable_groups(wishes) if all(self._fits(view, wishes) for view in group)
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
            and all(key in views and _could_hold(views[key].card.gpu, wishes) for key in keys)
        ]

    def _eagerness(self, wishes: Wishes) -> Callable[[CardView], tuple[int, Fraction]]:
        def rank(view: CardView) -> tuple[int, Fraction]:
            gpu = view.card.gpu
            order = next((i for i, one in enumerate(wishes.prefer) if _is_named(gpu, (one,))), 9999)
            return (order, WHOLE - self._free[gpu.key])

        return rank

    def _allowed(self, wishes: Wishes) -> list[CardView]:
        return [view for view in self._cards if is_allowed(view.card.gpu, wishes)]

    def _fits(self, view: CardView, wishes: Wishes) -> bool:
        key = view.card.gpu.key
        if view.blocked or key in self._reserved or self._free[key] < booking(view.card, wishes):
            return False
        left = self._vram[key]
        return wishes.vram is None or left is None or left >= wishes.vram

    def _why_not_card(self, view: CardView, wishes: Wishes) -> str:
        key = view.card.gpu.key
        if view.blocked:
            return f"{view.label} {view.blocked}"
        if self._free[key] < booking(view.card, wishes) and view.holders:
            return f"{view.label} is held by {' and '.join(view.holders)}"
        if self._free[key] < booking(view.card, wishes):
            return f"{view.label} is about to start another job"
        if key in self._reserved:
            return f"{view.label} is kept for an earlier job"
        left = self._vram[key]
        if wishes.vram is not None and left is not None and left < wishes.vram:
            return f"{view.label} has {show_size(max(0, left))} of memory left"
        return ""


def _no_group(wishes: Wishes, pool: Pool) -> str:
    """Why no group could ever satisfy the wishes; empty when one could."""
    sizes = {len(group) for group in pool.groups}
    if wishes.num_gpus > 1 and wishes.num_gpus not in sizes:
        return f"it wants {wishes.num_gpus} GPUs, but the groups have {' or '.join(map(str, sorted(sizes)))}"
    gpus = {card.gpu.key: card.gpu for card in pool.cards if is_allowed(card.gpu, wishes)}
    groups = [
        [gpus[key] for key in group]
        for group in pool.groups
        if wishes.num_gpus in (1, len(group)) and all(key in gpus for key in group)
    ]
    if not groups:
        return f"it wants GPU {' or '.join(wishes.only)} only, but no group lies within that"
    if not any(all(_could_hold(gpu, wishes) for gpu in group) for group in groups):
        return _no_memory(wishes, 0, [gpu for group in groups for gpu in group if not _could_hold(gpu, wishes)])
    return ""


def _no_memory(wishes: Wishes, roomy: int, gpus: Sequence[Gpu]) -> str:
    size = show_size(wishes.vram)
    if roomy:
        return f"it wants {size} of GPU memory on {wishes.num_gpus} GPUs, but only {roomy} has that much"
    most = max((gpu.memory_total or 0 for gpu in gpus), default=0)
    return f"it wants {size} of GPU memory, but the largest card has {show_size(most)}"


def _could_hold(gpu: Gpu, wishes: Wishes) -> bool:
    """Whether the memory would suffice on the empty card. A card that was only declared is believed to have it."""
    return wishes.vram is None or gpu.memory_total is None or gpu.memory_total >= wishes.vram


def _vram_left(view: CardView) -> int | None:
    """Memory that is neither booked nor used: what was booked may not be used yet, so the larger counts."""
    total = view.card.gpu.memory_total
    if total is None:
        return None
    booked_free = total - view.vram_taken
    return booked_free if view.vram_free is None else min(booked_free, view.vram_free)


def _is_named(gpu: Gpu, ids: Sequence[str]) -> bool:
    return any(one == str(gpu.index) or (not one.isdigit() and gpu.key.startswith(one)) for one in ids)


def _gpus(count: int) -> str:
    return "a GPU" if count == 1 else f"{count} GPUs"


def _indices(pool: Pool) -> str:
    return "GPU " + ", ".join(str(card.gpu.index) for card in pool.cards) if pool.cards else "no GPU"
