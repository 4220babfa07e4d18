"""What one card is to a job: whether it may run there, whether it would fit, and how much it books."""

import math
from collections.abc import Sequence
from fractions import Fraction

from dibs.model.gpus import Gpu
from dibs.model.jobs import Wishes
from dibs.model.pool import Card
from dibs.policy.snapshot import WHOLE, CardView


def booking(card: Card, wishes: Wishes) -> Fraction:
    """How much of this card a job books."""
    if wishes.share is not None:
        return wishes.share
    total = card.gpu.memory_total
    if wishes.vram is not None and total:
        return min(WHOLE, Fraction(math.ceil(1000 * wishes.vram / total), 1000))  # a number people can read
    return WHOLE if card.slots == 1 else card.slot_share  # asked for every card of every plan


def is_allowed(gpu: Gpu, wishes: Wishes) -> bool:
    """Whether the job may run on this card at all."""
    return (not wishes.only or is_named(gpu, wishes.only)) and is_of_type(gpu, wishes)


def could_hold(gpu: Gpu, wishes: Wishes) -> bool:
    """Whether the memory would suffice on the empty card. A card that was only declared is believed to have it."""
    return wishes.vram is None or gpu.memory_total is None or gpu.memory_total >= wishes.vram


def vram_left(view: CardView) -> int | None:
    """Memory that is neither booked nor used: what was booked may not be used yet, so the larger counts."""
    total = view.card.gpu.memory_total
    if total is None:
        return None
    booked_free = total - view.vram_taken
    return booked_free if view.vram_free is None else min(booked_free, view.vram_free)


def is_named(gpu: Gpu, ids: Sequence[str]) -> bool:
    return any(one == str(gpu.index) or (not one.isdigit() and gpu.key.startswith(one)) for one in ids)


def is_of_type(gpu: Gpu, wishes: Wishes) -> bool:
    """A card that was only declared has no name, and is of no type that anybody could ask for."""
    return not wishes.gpu_type or wishes.gpu_type.casefold() in gpu.name.casefold()


def no_such_type(gpus: Sequence[Gpu]) -> str:
    """Why none of these cards is of the type that was asked for."""
    names = sorted({gpu.name for gpu in gpus if gpu.name})
    if names:
        return f"there is only {' and '.join(names)}"
    if gpus:
        return "the GPUs here were only declared, and nobody knows their type"
    return "there is no GPU"


def gpus_in_words(wishes: Wishes) -> str:
    """`a GPU`, `2 GPUs of type h200`."""
    gpus = "a GPU" if wishes.num_gpus == 1 else f"{wishes.num_gpus} GPUs"
    return f"{gpus} of type {wishes.gpu_type}" if wishes.gpu_type else gpus


def cpus_in_words(count: int) -> str:
    return "a CPU" if count == 1 else f"{count} CPUs"
