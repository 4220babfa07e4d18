"""What one card is to a job: whether it may run there, whether it would fit, and how much it books."""

import math
from collections.abc import Sequence
from fractions import Fraction

from dibs.model.gpus import Gpu
from dibs.model.jobs import Wishes
from dibs.model.pool import Card
from dibs.model.usage import Lessons
from dibs.policy.lessons import is_packed, wants_card_alone, with_margin
from dibs.policy.snapshot import WHOLE, CardView

_NOTHING_LEARNED: Lessons = {}
_MOST = 256  # of one kind in one plan
_MOST_ON_A_CARD = 32


def booking(card: Card, wishes: Wishes, lessons: Lessons = _NOTHING_LEARNED) -> Fraction:
    """How much of this card a job books."""
    return need(card, wishes, lessons)[0]


def need(card: Card, wishes: Wishes, lessons: Lessons = _NOTHING_LEARNED) -> tuple[Fraction, int]:
    """The share of this card that a job books, and the bytes of its memory."""
    if wishes.shape:
        return _need_like_others(card, wishes, lessons)
    vram = wishes.vram or 0
    if wishes.share is not None:
        return wishes.share, vram
    total = card.gpu.memory_total
    if vram and total:
        return min(WHOLE, _part(vram, total)), vram
    return (WHOLE if card.slots == 1 else card.slot_share), vram  # asked for every card of every plan


def _need_like_others(card: Card, wishes: Wishes, lessons: Lessons) -> tuple[Fraction, int]:
    """With `--vram auto`: what its like needed; before anybody knows its own guess, or the whole card."""
    total = card.gpu.memory_total
    share, size = wishes.share, wishes.vram
    if not total:  # it was only declared: nobody will ever know more about it
        return card.slot_share if share is None else share, size or 0
    lesson = lessons.get((wishes.shape, card.gpu.name))
    if lesson is not None and lesson.needs_card:
        return WHOLE, 0
    if lesson is not None and is_packed(lesson):
        size = with_margin(lesson.peak_vram)
    if share is None:
        share = WHOLE if size is None else _part(size, total)
    return (share, min(size or 0, total)) if share < WHOLE else (WHOLE, 0)


def most_at_once(cards: Sequence[Card], wishes: Wishes) -> int:
    """How many jobs with these wishes could start at the most, if every card were empty."""
    if not wishes.num_gpus:
        return max(1, len(cards))
    places = sum(_most_learned(card) if wishes.shape else math.floor(1 / booking(card, wishes)) for card in cards)
    return max(1, min(_MOST, places // wishes.num_gpus))


def _most_learned(card: Card) -> int:
    """With `--vram auto` nobody knows before the first has run; a declared card has its slots."""
    return _MOST_ON_A_CARD if card.gpu.memory_total else card.slots


def _part(vram: int, total: int) -> Fraction:
    return Fraction(math.ceil(1000 * vram / total), 1000)  # a number people can read


def is_allowed(gpu: Gpu, wishes: Wishes) -> bool:
    """Whether the job may run on this card at all."""
    return (not wishes.only or is_named(gpu, wishes.only)) and is_of_type(gpu, wishes)


def could_hold(gpu: Gpu, wishes: Wishes) -> bool:
    """Whether the memory would suffice on the empty card. A card that was only declared is believed to have it.

    What a job with `--vram auto` needs is a guess, and never a reason to refuse it: it may have the whole card.
    """
    if wishes.shape or wishes.vram is None:
        return True
    return gpu.memory_total is None or gpu.memory_total >= wishes.vram


def vram_left(view: CardView) -> int | None:
    """Memory that is neither booked nor used: what was booked may not be used yet, so the larger counts."""
    total = view.card.gpu.memory_total
    if total is None:
        return None
    booked_free = total - view.vram_taken
    return booked_free if view.vram_free is None else min(booked_free, view.vram_free)


def is_named(gpu: Gpu, ids: Sequence[str]) -> bool:
    return any(gpu.is_called(one) for one in ids)


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


def numbers_in_words(gpus: Sequence[Gpu]) -> str:
    """`GPU 0, 1`, `no GPU`."""
    return f"GPU {', '.join(gpu.number for gpu in gpus)}" if gpus else "no GPU"


def gpus_in_words(wishes: Wishes) -> str:
    """`a GPU`, `2 GPUs of type h200`."""
    gpus = "a GPU" if wishes.num_gpus == 1 else f"{wishes.num_gpus} GPUs"
    if wants_card_alone(wishes):
        gpus += " to itself"
    return f"{gpus} of type {wishes.gpu_type}" if wishes.gpu_type else gpus


def cpus_in_words(count: int) -> str:
    return "a CPU" if count == 1 else f"{count} CPUs"
