"""When a card will have room, as far as the limits of its holders tell, and what is kept for earlier jobs."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction

from dibs.policy.snapshot import WHOLE, Hold


@dataclass(frozen=True, slots=True)
class Kept:
    """What a job that waits will take of a card, or of the machine: nothing may lie in its way from `start` on."""

    start: float
    ends: float  # at the latest; inf where nobody knows
    share: Fraction = Fraction(0)
    vram: int = 0
    cpus: int = 0
    mem: int = 0


@dataclass(frozen=True, slots=True)
class Room:
    """What is free of one card, or needed. A card that was only declared has no known memory."""

    share: Fraction
    vram: int | None

    def holds(self, share: Fraction, vram: int) -> bool:
        return self.share >= share and (self.vram is None or not vram or self.vram >= vram)


def room_at(
    need: Room, free: Room, total: int | None, ends: Sequence[Hold], now: float, *, hopeful: bool
) -> float:
    """When the card has this much room, from the ends of those holders that have a limit.

    The others never leave; to the hopeful they leave at once.
    """
    vram = need.vram or 0
    if free.holds(need.share, vram):
        return now
    limited = sorted(ends, key=_end)
    if hopeful:
        share = WHOLE - sum((hold.share for hold in limited), Fraction(0))
        free = Room(share, None if total is None else total - sum(hold.vram for hold in limited))
        if free.holds(need.share, vram):
            return now
    for hold in limited:
        share = free.share + hold.share
        left = None if free.vram is None else free.vram + hold.vram
        # Nobody is left on it: whatever they used beyond their booking is free too.
        free = Room(share, total if share >= WHOLE else left)
        if free.holds(need.share, vram):
            return max(now, _end(hold))
    return math.inf


def after_kept(when: float, length: float, kept: Iterable[Kept], *, hopeful: bool) -> float:
    """When a job of this length has its turn on a card: before or after those for whom the card is kept.

    To the hopeful those jobs end as soon as they have begun.
    """
    for one in sorted(kept, key=lambda one: one.start):
        if when + length <= one.start:
            break
        when = max(when, one.start if hopeful else one.ends)
    return when


def _end(hold: Hold) -> float:
    return math.inf if hold.ends_at is None else hold.ends_at
