"""Whether a card is broken, whose fault a failure on it was, and when a card that was taken out is tested."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from dibs.model.gpus import CardState, GpuFault, Reading
from dibs.model.jobs import Cause, Outcome
from dibs.policy.xids import fault_of_card, fault_of_program

CARD_IS_BLAMED = 30.0  # seconds after it broke, in which what ends there ends of it
PROGRAM_IS_BLAMED = 10.0  # seconds: what a program did wrong ends it at once
LONGEST_PAUSE = 86400.0  # seconds between two tests
_MOST_DOUBLINGS = 20
Reasons = Mapping[str, tuple[float, str]]  # by a card's key: when, and why
# How a program ends that was thrown out of its card. What names its own reason ended of that.
_OPEN = frozenset({Cause.EXIT_CODE, Cause.SIGNAL, Cause.KILLED})


def broken_cards(before: Reading | None, reading: Reading) -> dict[str, str]:
    """The cards that have broken since the reading before, by their key, each with the reason in words."""
    found: dict[str, str] = {}
    errors = {} if before is None else {seen.gpu.key: seen.ecc_uncorrected for seen in before.gpus}
    lost = set() if before is None else lost_cards(before)
    for seen in reading.gpus:
        earlier, now = errors.get(seen.gpu.key), seen.ecc_uncorrected
        if earlier is not None and now is not None and now > earlier:
            found[seen.gpu.key] = f"its memory has {_count(now - earlier, 'new error')} that cannot be corrected"
    found |= dict.fromkeys(sorted(lost_cards(reading) - lost), "it does not answer any more")
    found |= {fault.gpu: why for fault in reading.faults if (why := _of_card(fault))}  # they say the most
    return found


def wrong_programs(reading: Reading) -> dict[str, str]:
    """The cards on which a program has done something wrong, by their key, each with what the driver says."""
    told = ((fault.gpu, fault_of_program(fault.xid)) for fault in reading.faults if fault.xid is not None)
    return {gpu: why for gpu, why in told if why}


def lost_cards(reading: Reading) -> set[str]:
    return {seen.gpu.key for seen in reading.gpus if seen.state is CardState.LOST}


def may_be_the_cards(outcome: Outcome) -> bool:
    """Whether a failure may have been the card's fault, as far as the job itself could tell."""
    return outcome.cause in _OPEN


def reason_for(
    reasons: Reasons, cards: Sequence[str], *, since: float, now: float, seconds: float
) -> tuple[str, str] | None:
    """The first of these cards to which something happened that explains an end now, and what.

    Not before the attempt began, at `since`, and not longer ago than so many seconds.
    """
    for card in cards:
        at, why = reasons.get(card, (0.0, ""))
        if why and at >= since and now - at <= seconds:
            return card, why
    return None


def blamed_on_card(outcome: Outcome, number: str, why: str) -> Outcome:
    """A failure on a card that had broken: `GPU 1 failed: Xid 79: it has fallen off the bus`."""
    return replace(outcome, cause=Cause.GPU_FAULT, message=f"GPU {number} failed: {why}")


def with_detail(outcome: Outcome, why: str, *, is_shared: bool = False) -> Outcome:
    """A failure of a program about which the driver has said something. It does not say which job it means."""
    told = f"the driver reported {why}{', or by another job on this card' if is_shared else ''}"
    return replace(outcome, message=f"{outcome.message}; {told}" if outcome.message else told)


@dataclass(frozen=True, slots=True)
class Tried:
    """The tests that a card has had of late."""

    count: int = 0
    last: float = 0.0  # seconds since the epoch


def next_test(since: float, tried: Tried, first: float) -> float:
    """When a card that is quarantined since a moment is tested: after `first` seconds, and later each time.

    A card may pass every test and fail its jobs all the same; then it comes back less and less often.
    """
    count = tried.count if since < tried.last + LONGEST_PAUSE else 0  # it was good for long: that is forgotten
    return max(since, tried.last if count else 0.0) + _pause(count, first)


def after_test(since: float, tried: Tried, now: float) -> Tried:
    return Tried(tried.count + 1 if since < tried.last + LONGEST_PAUSE else 1, now)


def _pause(count: int, first: float) -> float:
    return min(max(LONGEST_PAUSE, first), first * 2.0 ** min(count, _MOST_DOUBLINGS))


def _of_card(fault: GpuFault) -> str:
    if fault.xid is None:
        return "its memory has an error that cannot be corrected"
    return fault_of_card(fault.xid)


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"
