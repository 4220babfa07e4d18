"""Which GPUs a job may use, how much of one it books, and what is learned from its runs (`--vram auto`).

The peak of a shape is the largest of its runs: argument values may change it, so an early estimate may be too low.
Then a job runs out of memory beside others, is tried again with the card to itself, and the lesson is kept.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from fractions import Fraction

from dibs.model.gpus import Card, Claim, Gpu, Pool, declared_key
from dibs.model.jobs import Cause, Outcome, Request, Wishes
from dibs.model.suspensions import Obstacle
from dibs.model.units import show_size
from dibs.model.usage import Lesson, Lessons, Usage
from dibs.policy.snapshot import WHOLE, CardView

_NOTHING_LEARNED: Lessons = {}
_MOST = 256  # of one kind in one plan
_MOST_ON_A_CARD = 32
_LEAST_SECONDS = 2.0  # a card is read each second: a shorter run may have used more than was seen
_MIB = 1024**2
_MORE = Fraction(11, 10)  # booked beyond the peak: the next run differs a little,
_BESIDE = 256 * _MIB  # and the driver's own memory for a process may grow
_STEP = 64 * _MIB
_MAY_GROW = Fraction(5, 4)  # a steady run may not have reached its largest batch yet
_UNKNOWN_AT_ONCE = 8  # jobs that share a card before it is known what they need; of 8G or more
UNKNOWN_PART = Fraction(1, _UNKNOWN_AT_ONCE) - Fraction(1, 100)  # about what each of them books, or more
_IDLE = 0.25  # of a CPU: a job that uses 1.2 CPUs does not need two


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
    return (WHOLE if card.slots == 1 else card.slot_share), vram  # computed for every card of every plan


def _need_like_others(card: Card, wishes: Wishes, lessons: Lessons) -> tuple[Fraction, int]:
    """With `--vram auto`: what similar jobs needed; if unknown, the job's own estimate or the whole card."""
    total = card.gpu.memory_total
    share, size = wishes.share, wishes.vram
    if not total:  # a declared card: nothing can be measured
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
    """How many jobs with these wishes could start at most, if every card were empty."""
    if not wishes.num_gpus:
        return max(1, len(cards))
    places = sum(_most_learned(card) if wishes.shape else math.floor(1 / booking(card, wishes)) for card in cards)
    return max(1, min(_MOST, places // wishes.num_gpus))


def _most_learned(card: Card) -> int:
    """With `--vram auto` it is unknown before the first has run; a declared card has its slots."""
    return _MOST_ON_A_CARD if card.gpu.memory_total else card.slots


def _part(vram: int, total: int) -> Fraction:
    return Fraction(math.ceil(1000 * vram / total), 1000)  # a readable number


def is_allowed(gpu: Gpu, wishes: Wishes) -> bool:
    """Whether the job may run on this card at all."""
    return (not wishes.only or is_named(gpu, wishes.only)) and is_of_type(gpu, wishes)


def may_meet(one: Request, other: Request, cards: Sequence[Card]) -> bool:
    """Whether two jobs may need the same room of this machine: one of these cards, or none of them."""
    if one.on or other.on:
        return False
    if not (one.wishes.num_gpus and other.wishes.num_gpus):
        return one.wishes.num_gpus == other.wishes.num_gpus
    return any(is_allowed(card.gpu, one.wishes) and is_allowed(card.gpu, other.wishes) for card in cards)


def could_hold(gpu: Gpu, wishes: Wishes) -> bool:
    """Whether the memory would suffice on the empty card, which is assumed of a declared card.

    With `--vram auto` the need is an estimate and never a reason to refuse a job: it may have the whole card.
    """
    if wishes.shape or wishes.vram is None:
        return True
    return gpu.memory_total is None or gpu.memory_total >= wishes.vram


def vram_left(view: CardView) -> int | None:
    """Memory that is neither booked nor used. Booked memory may not be used yet, so the larger of both counts."""
    total = view.card.gpu.memory_total
    if total is None:
        return None
    booked_free = total - view.vram_taken
    return booked_free if view.vram_free is None else min(booked_free, view.vram_free)


def is_named(gpu: Gpu, ids: Sequence[str]) -> bool:
    return any(gpu.is_called(one) for one in ids)


def is_of_type(gpu: Gpu, wishes: Wishes) -> bool:
    """A declared card has no name, and so matches no type."""
    return not wishes.gpu_type or wishes.gpu_type.casefold() in gpu.name.casefold()


def no_such_type(gpus: Sequence[Gpu]) -> str:
    """Why none of these cards is of the wanted type."""
    names = sorted({gpu.name for gpu in gpus if gpu.name})
    if names:
        return f"there is only {' and '.join(names)}"
    if gpus:
        return "the GPUs here were only declared, and their type is unknown"
    return "there is no GPU"


def show_numbers(gpus: Sequence[Gpu]) -> str:
    """`GPU 0, 1`, `no GPU`."""
    return f"GPU {', '.join(gpu.number for gpu in gpus)}" if gpus else "no GPU"


def show_gpus(wishes: Wishes) -> str:
    """`a GPU`, `2 GPUs of type h200`."""
    gpus = "a GPU" if wishes.num_gpus == 1 else f"{wishes.num_gpus} GPUs"
    if wants_card_alone(wishes):
        gpus += " to itself"
    return f"{gpus} of type {wishes.gpu_type}" if wishes.gpu_type else gpus


def show_cpus(count: int) -> str:
    return "a CPU" if count == 1 else f"{count} CPUs"


def usable_together(gpus: Iterable[Gpu], wishes: Wishes) -> list[Gpu]:
    """The GPUs that one job may use. Several are whole cards of one maker: no program can use others together.

    Of two makers it is the one with more cards.
    """
    allowed = [gpu for gpu in gpus if is_allowed(gpu, wishes)]
    if wishes.num_gpus < 2:
        return allowed
    amd = [gpu for gpu in allowed if gpu.is_amd]
    others = [gpu for gpu in allowed if not gpu.is_amd and gpu.part is None]
    return amd if len(amd) > len(others) else others


def has_mixed_cards(gpus: Iterable[Gpu]) -> bool:
    """Whether some cards cannot be used together with all others. Few machines have such cards."""
    return any(gpu.part is not None or gpu.is_amd for gpu in gpus)


def too_few(wishes: Wishes, allowed: Sequence[Gpu], pool: Sequence[Gpu]) -> str:
    """Why these are too few for the job."""
    if wishes.only:
        pool = [gpu for gpu in pool if is_named(gpu, wishes.only)]
    found = f"only {len(allowed)} may" if allowed else "none may"
    sentence = f"it wants {show_gpus(wishes)}, but {found} be used ({show_numbers(pool)})"
    left_out = [gpu for gpu in pool if is_allowed(gpu, wishes) and gpu not in allowed]
    if any(gpu.part is not None for gpu in left_out):
        return f"{sentence}: a program can use one part of a divided card, and nothing beside it"
    return f"{sentence}: a program can use cards of one maker only" if left_out else sentence


def with_margin(peak: int) -> int:
    """Bytes that are booked for a job when similar jobs needed at most `peak`."""
    return math.ceil((peak * _MORE + _BESIDE) / _STEP) * _STEP


def learn(lesson: Lesson | None, usage: Usage | None, outcome: Outcome, booked: int = 0) -> Lesson | None:
    """The lesson after an attempt for which `booked` bytes were booked; None: still unknown.

    A run that ended early may raise a known peak, but is not enough for a first one.
    """
    if outcome.cause is Cause.GPU_OOM:
        if usage is not None and usage.was_alone:
            return lesson  # too large for the card: that says nothing about smaller ones
        before = lesson or Lesson()
        if booked > with_margin(before.peak_vram):  # an early estimate, or the owner's: it did not suffice
            before = replace(before, peak_vram=math.floor((booked - _BESIDE) / _MORE))
        return replace(before, needs_card=True)
    if usage is None or not usage.peak_vram:
        return lesson
    went_through = outcome.cause is None and usage.seconds >= _LEAST_SECONDS
    if not is_known(lesson) and not (went_through or usage.is_steady):
        return lesson
    before = lesson or Lesson()
    # Alone on the card it needed more than was booked: that explains why an earlier one ran out of memory.
    is_explained = went_through and usage.was_alone and usage.peak_vram > with_margin(before.peak_vram)
    return replace(
        before,
        peak_vram=max(before.peak_vram, usage.peak_vram),
        peak_mem=max(before.peak_mem, usage.peak_mem or 0),
        cpus=_mean(before, usage),
        runs=before.runs + 1,
        needs_card=before.needs_card and not is_explained,
    )


def learn_early(lesson: Lesson | None, usage: Usage | None) -> Lesson | None:
    """The lesson while an attempt runs, so that similar jobs may join it before it has ended."""
    if usage is None or not usage.peak_vram:
        return lesson
    if is_known(lesson):
        assert lesson is not None
        return replace(lesson, peak_vram=max(lesson.peak_vram, usage.peak_vram))
    if not usage.is_steady or (lesson is not None and lesson.needs_card):
        return lesson
    peak = math.ceil(usage.peak_vram * _MAY_GROW)
    cpus = float(round(usage.mean_cpus or 0.0))  # not up: a job uses more CPUs at its start
    return replace(lesson or Lesson(), peak_vram=peak, peak_mem=usage.peak_mem or 0, cpus=cpus)


def need_beside_unknown(card: Card, wishes: Wishes, lessons: Lessons) -> tuple[Fraction, int]:
    """The same as `need`, on a card that is relieved in time: jobs of which nothing is known may join there."""
    total = card.gpu.memory_total
    is_known = (wishes.shape, card.gpu.name) in lessons or wishes.share is not None or wishes.vram is not None
    if not wishes.shape or not total or is_known or wishes.num_gpus != 1:
        return need(card, wishes, lessons)
    return _part(_unknown(total), total), _unknown(total)


def _unknown(total: int) -> int:
    """Bytes that are booked of a card for a job of which nothing is known, where some share the card."""
    return math.floor(total / _UNKNOWN_AT_ONCE / _STEP) * _STEP


def first_lesson(lesson: Lesson | None, peaks: Iterable[int], total: int) -> Lesson | None:
    """The lesson while the first ones still grow, where a card that runs short of memory is relieved in time.

    `peaks` are what they were seen to hold of a card with `total` bytes; nothing is learned before one begins to.
    """
    most = max(peaks, default=0)
    if not most or is_known(lesson) or (lesson is not None and (lesson.needs_card or lesson.obstacle)):
        return lesson
    least = math.floor((_unknown(total) - _BESIDE) / _MORE)
    return replace(lesson or Lesson(), peak_vram=max(math.ceil(most * _MAY_GROW), least))


def is_known(lesson: Lesson | None) -> bool:
    """Whether a job of this shape was measured."""
    return lesson is not None and lesson.peak_vram > 0


def is_packed(lesson: Lesson) -> bool:
    """Whether the next job of this shape books what similar jobs needed."""
    return is_known(lesson) and not lesson.needs_card


def host_needs(wishes: Wishes, lessons: Lessons) -> tuple[int, int]:
    """The CPUs and host memory that a job books: what it wants, otherwise what similar jobs used."""
    cpus, mem = wishes.cpus, wishes.mem
    if wishes.shape and (cpus is None or mem is None):
        known = [lesson for (shape, _), lesson in lessons.items() if shape == wishes.shape]
        if cpus is None:
            cpus = max((math.ceil(one.cpus - _IDLE) for one in known), default=0)
        if mem is None:
            mem = max((one.peak_mem for one in known), default=0)
    return max(0, cpus or 0), mem or 0


def wants_card_alone(wishes: Wishes) -> bool:
    """Whether it wants the card to itself: it ran out of memory beside others, or its owner said `--share 1`."""
    return bool(wishes.shape) and wishes.share == WHOLE


def with_whole_card(request: Request) -> Request:
    """The same work with the card to itself."""
    return replace(request, wishes=replace(request.wishes, share=WHOLE))


def retries_alone(wishes: Wishes, claims: Sequence[Claim], outcome: Outcome) -> bool:
    """Whether to try again alone on the card: other jobs on it may be why the attempt ran out of memory."""
    return bool(wishes.shape) and outcome.cause is Cause.GPU_OOM and not had_card_alone(claims)


def had_card_alone(claims: Sequence[Claim]) -> bool:
    """Whether an attempt shared none of its cards, by what was booked: a reading may miss another process."""
    return all(claim.share == WHOLE for claim in claims)


TRIED_ALONE = "it had a part of the card, and is tried again with the card to itself"


def obstacle_of(request: Request, shape: str, lessons: Lessons) -> Obstacle | None:
    """What is known of jobs of this shape that will keep the driver from suspending this one."""
    found = (one.obstacle for (name, _), one in lessons.items() if name == shape)
    return next((one for one in found if one and one.hinders(no_cuda_ipc=request.no_cuda_ipc)), None)


def show_lesson(lesson: Lesson, gpu: str) -> str:
    """`jobs of this shape needed 9.1G on an NVIDIA H200 in 3 runs`."""
    if lesson.obstacle is None:
        return _show_need(lesson, gpu)
    stays = f"jobs of this shape {lesson.obstacle.phrase}: none is suspended for an urgent job"
    has_need = is_known(lesson) or lesson.needs_card
    return f"{_show_need(lesson, gpu)}; {stays}" if has_need else stays


def _show_need(lesson: Lesson, gpu: str) -> str:
    runs = {0: "so far", 1: "in 1 run"}.get(lesson.runs, f"in {lesson.runs} runs")
    needed = f"jobs of this shape needed {show_size(lesson.peak_vram)} on {gpu or 'a card'} {runs}"
    if not is_known(lesson):
        return (
            f"a job of this shape ran out of memory beside others on {gpu or 'a card'}: the next has it to itself"
        )
    if lesson.needs_card:
        return f"{needed}, but one ran out of memory beside others: the next has the card to itself"
    return f"{needed}; {show_size(with_margin(lesson.peak_vram))} is booked for the next"


def _mean(before: Lesson, usage: Usage) -> float:
    if usage.mean_cpus is None:
        return before.cpus
    return (before.cpus * before.runs + usage.mean_cpus) / (before.runs + 1)


def by_uuid(requests: Sequence[Request], pool: Pool) -> Sequence[Request]:
    """The same, with the UUIDs of cards instead of numbers: after a reboot a number may mean another card.

    Jobs of one list share their wishes still. A card that was only declared has nothing but its number.
    """
    if not any(request.wishes.only or request.wishes.prefer for request in requests):
        return requests
    known: dict[Wishes, Wishes] = {}
    found = []
    for request in requests:
        wishes = request.wishes
        if wishes not in known:
            known[wishes] = replace(wishes, only=_keys(wishes.only, pool), prefer=_keys(wishes.prefer, pool))
        found.append(replace(request, wishes=known[wishes]))
    return found


def _keys(ids: Iterable[str], pool: Pool) -> tuple[str, ...]:
    keys = (key for one in ids for key in _keys_of_one(one, pool))
    return tuple(dict.fromkeys(keys))


def _keys_of_one(gpu_id: str, pool: Pool) -> list[str]:
    """What it means in this pool; as it is where it means nothing yet: the pool may grow."""
    if not gpu_id[:1].isdigit():
        return [gpu_id]
    gpus = [card.gpu for card in pool.cards if card.gpu.is_called(gpu_id)]
    return [gpu.number if gpu.key == declared_key(gpu.index) else gpu.key for gpu in gpus] or [gpu_id]
