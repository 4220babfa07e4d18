"""What an attempt used of its cards and of the machine, and what was learned from it for jobs like it."""

from collections.abc import Mapping

from dibs.dataclass import dataclass
from dibs.model.suspensions import Obstacle


@dataclass(frozen=True, kw_only=True, slots=True)
class Usage:
    """What was measured of one attempt. What could not be measured is None."""

    seconds: float = 0.0  # over which it was measured
    peak_vram: int | None = None  # bytes on one card, the most that its processes held there
    vram_total: int | None = None  # bytes that this card has
    mean_load: float | None = None  # percent of its cards, its part where it shared them
    energy: float | None = None  # watt-hours of its cards, its part where it shared them
    peak_mem: int | None = None  # bytes of the machine's memory
    mean_cpus: float | None = None  # processors it kept busy
    is_steady: bool = False  # its memory on the card has not grown for a while
    was_alone: bool = True  # no other job held a part of its cards
    astray: tuple[str, ...] = ()  # keys of cards that it used without having been given them


@dataclass(frozen=True, kw_only=True, slots=True)
class Lesson:
    """What jobs of one shape need on cards of one model."""

    peak_vram: int = 0  # bytes; 0: not measured yet
    peak_mem: int = 0
    cpus: float = 0.0
    runs: int = 0
    needs_card: bool = False  # one ran out of memory beside others: it gets the card to itself from now on
    obstacle: Obstacle | None = None  # why one could not be suspended: no other is chosen for an urgent job


Lessons = Mapping[tuple[str, str], Lesson]  # by shape and by the name of the card
