"""What was seen of jobs of one shape, and what the next one books because of it (`--vram auto`).

The peak of a shape is the largest of its runs: argument values may move it, so an early guess may be too low. Then
a job runs out of memory beside others, is tried again with the card to itself, and the lesson is kept.
"""

import math
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction

from dibs.model.claims import Claim
from dibs.model.jobs import Cause, Outcome, Request, Wishes
from dibs.model.units import show_size
from dibs.model.usage import Lesson, Lessons, Usage
from dibs.policy.snapshot import WHOLE

_LEAST_SECONDS = 2.0  # a card is asked each second: what ended sooner may have held more than anybody saw
_MIB = 1024**2
_MORE = Fraction(11, 10)  # what is booked beyond the peak: the next run is not exactly like the last,
_BESIDE = 256 * _MIB  # and whatever the driver keeps for a process grows with the driver
_STEP = 64 * _MIB
_MAY_GROW = Fraction(5, 4)  # what runs steadily now may not have seen its largest batch yet
_IDLE = 0.25  # of a CPU: who keeps 1.2 of them busy does not need two


def with_margin(peak: int) -> int:
    """Bytes that are booked for a job whose like needed so many at the most."""
    return math.ceil((peak * _MORE + _BESIDE) / _STEP) * _STEP


def learn(lesson: Lesson | None, usage: Usage | None, outcome: Outcome, booked: int = 0) -> Lesson | None:
    """What is known after an attempt for which so many bytes were booked. None: still nothing.

    A run that broke off early tells little: it may raise what is known, but not begin it.
    """
    if outcome.cause is Cause.GPU_OOM:
        if usage is not None and usage.was_alone:
            return lesson  # it is too large for the card: that says nothing about those that are not
        before = lesson or Lesson()
        if booked > with_margin(before.peak_vram):  # an early guess, or its owner's: that much did not suffice
            before = replace(before, peak_vram=math.floor((booked - _BESIDE) / _MORE))
        return replace(before, needs_card=True)
    if usage is None or not usage.peak_vram:
        return lesson
    went_through = outcome.cause is None and usage.seconds >= _LEAST_SECONDS
    if not is_known(lesson) and not (went_through or usage.is_steady):
        return lesson
    before = lesson or Lesson()
    # With the card to itself it needed more than had been booked: that is why one like it ran out of memory.
    is_explained = went_through and usage.was_alone and usage.peak_vram > with_margin(before.peak_vram)
    return Lesson(
        peak_vram=max(before.peak_vram, usage.peak_vram),
        peak_mem=max(before.peak_mem, usage.peak_mem or 0),
        cpus=_mean(before, usage),
        runs=before.runs + 1,
        needs_card=before.needs_card and not is_explained,
    )


def learn_early(lesson: Lesson | None, usage: Usage | None) -> Lesson | None:
    """What is known while an attempt runs, so that the others of a list may join it before it has ended."""
    if usage is None or not usage.peak_vram:
        return lesson
    if is_known(lesson):
        assert lesson is not None
        return replace(lesson, peak_vram=max(lesson.peak_vram, usage.peak_vram))
    if not usage.is_steady or (lesson is not None and lesson.needs_card):
        return lesson
    peak = math.ceil(usage.peak_vram * _MAY_GROW)
    cpus = float(round(usage.mean_cpus or 0.0))  # not up: a start keeps more of them busy than what follows
    return Lesson(peak_vram=peak, peak_mem=usage.peak_mem or 0, cpus=cpus)


def is_known(lesson: Lesson | None) -> bool:
    """Whether anybody has measured a job of this shape."""
    return lesson is not None and lesson.peak_vram > 0


def is_packed(lesson: Lesson) -> bool:
    """Whether the next one of its shape books what its like needed."""
    return is_known(lesson) and not lesson.needs_card


def beside(wishes: Wishes, lessons: Lessons) -> tuple[int, int]:
    """The CPUs and the machine's memory that a job books: what it wants, else what its like were seen to use."""
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


def alone(request: Request) -> Request:
    """The same work with the card to itself."""
    return replace(request, wishes=replace(request.wishes, share=WHOLE))


def is_tried_alone(wishes: Wishes, claims: Sequence[Claim], outcome: Outcome) -> bool:
    """Whether an attempt ran out of memory because of its neighbours, perhaps: once it may have the card alone."""
    return bool(wishes.shape) and outcome.cause is Cause.GPU_OOM and not had_card_alone(claims)


def had_card_alone(claims: Sequence[Claim]) -> bool:
    """Whether an attempt shared none of its cards. What was booked tells: a look may have missed a neighbour."""
    return all(claim.share == WHOLE for claim in claims)


TRIED_ALONE = "it had a part of the card, and is tried again with the card to itself"


def in_words(lesson: Lesson, gpu: str) -> str:
    """`jobs of this shape needed 9.1G on an NVIDIA H200 in 3 runs`."""
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
