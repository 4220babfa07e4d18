"""Faults of GPUs: which card broke, whose fault a failure is, and when a card is tested again."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from dibs.dataclass import dataclass
from dibs.model.gpus import CardState, GpuFault, Reading
from dibs.model.jobs import Cause, Outcome

CARD_IS_BLAMED = 30.0  # seconds after a card broke in which a failure there counts as its fault
PROGRAM_IS_BLAMED = 10.0  # seconds: a program's own fault ends it at once
LONGEST_PAUSE = 86400.0  # seconds between two tests
_MOST_DOUBLINGS = 20
Reasons = Mapping[str, tuple[float, str]]  # by a card's key: when, and why
# How a program may end when its card fails. Other causes name their own reason.
_OPEN = frozenset({Cause.EXIT_CODE, Cause.SIGNAL, Cause.KILLED})
_OF_THE_CARD = {
    46: "it stopped processing",
    48: "its memory has an error that cannot be corrected",
    54: "its power cable is not connected",
    62: "its internal controller has halted",
    64: "a broken row of its memory cannot be replaced",
    74: "its NVLink connection has failed",
    79: "it has fallen off the bus",
    94: "its memory has an error that cannot be corrected, and one program was hit",
    95: "its memory has an error that cannot be corrected, and it is not known which program it hit",
    110: "it reports a security fault",
    119: "its system processor does not answer",
    120: "its system processor has failed",
    136: "its NVLink connection cannot be set up",
    140: "its memory has an error that cannot be corrected",
    143: "it cannot be initialized",
    158: "it does not answer in time",
    167: "its PCIe connection does not answer in time",
    171: "its memory has an error that cannot be corrected",
    172: "its caches have an error that cannot be corrected",
}
_OF_THE_PROGRAM = {
    8: "a kernel of the program was stopped",
    13: "an illegal instruction or an access out of bounds by the program",
    31: "an illegal memory access by the program",
    32: "a broken stream of commands",
    43: "the program was stopped after a fault of its own",
    69: "a command that the card does not know",
    109: "the program kept the card for too long",
    137: "an illegal access by the program to the memory of another card",
}


def broken_cards(before: Reading | None, reading: Reading) -> dict[str, str]:
    """The cards that broke since the last reading, by key, each with the reason in words."""
    found: dict[str, str] = {}
    errors = {} if before is None else {seen.gpu.key: seen.ecc_uncorrected for seen in before.gpus}
    lost = set() if before is None else lost_cards(before)
    for seen in reading.gpus:
        earlier, now = errors.get(seen.gpu.key), seen.ecc_uncorrected
        if earlier is not None and now is not None and now > earlier:
            found[seen.gpu.key] = f"its memory has {_counted(now - earlier, 'new error')} that cannot be corrected"
    found |= dict.fromkeys(sorted(lost_cards(reading) - lost), "it does not answer any more")
    found |= {fault.gpu: why for fault in reading.faults if (why := _of_card(fault))}  # the most detailed reason
    return found


def program_faults(reading: Reading) -> dict[str, str]:
    """The cards for which the driver reports an error of a program, by key, each with the report."""
    found = ((fault.gpu, fault_of_program(fault.xid)) for fault in reading.faults if fault.xid is not None)
    return {gpu: why for gpu, why in found if why}


def lost_cards(reading: Reading) -> set[str]:
    return {seen.gpu.key for seen in reading.gpus if seen.state is CardState.LOST}


def may_be_gpu_fault(outcome: Outcome) -> bool:
    """Whether a failure may be the card's fault: the job itself names no other reason."""
    return outcome.cause in _OPEN


def reason_for(
    reasons: Reasons, cards: Sequence[str], *, since: float, now: float, seconds: float
) -> tuple[str, str] | None:
    """The first of these cards with a reason that explains an end now, and that reason.

    It must lie after the start of the attempt, `since`, and within the last `seconds`.
    """
    for card in cards:
        at, why = reasons.get(card, (0.0, ""))
        if why and at >= since and now - at <= seconds:
            return card, why
    return None


def as_gpu_fault(outcome: Outcome, number: str, why: str) -> Outcome:
    """A failure on a card that had broken: `GPU 1 failed: Xid 79: it has fallen off the bus`."""
    return replace(outcome, cause=Cause.GPU_FAULT, message=f"GPU {number} failed: {why}")


def with_detail(outcome: Outcome, why: str, *, is_shared: bool = False) -> Outcome:
    """A failure of a program with what the driver reported, which does not name the job."""
    detail = f"the driver reported {why}{', or by another job on this card' if is_shared else ''}"
    return replace(outcome, message=f"{outcome.message}; {detail}" if outcome.message else detail)


@dataclass(frozen=True, slots=True)
class CardTests:
    """The recent tests of a card."""

    count: int = 0
    last: float = 0.0  # seconds since the epoch


def next_test(since: float, tried: CardTests, first: float) -> float:
    """When a card that is quarantined since a moment is tested: after `first` seconds, and later each time.

    A card may pass every test and still fail its jobs; then it returns less and less often.
    """
    count = tried.count if since < tried.last + LONGEST_PAUSE else 0  # it worked for long
    return max(since, tried.last if count else 0.0) + _pause(count, first)


def after_test(since: float, tried: CardTests, now: float) -> CardTests:
    return CardTests(tried.count + 1 if since < tried.last + LONGEST_PAUSE else 1, now)


def _pause(count: int, first: float) -> float:
    return min(max(LONGEST_PAUSE, first), first * 2.0 ** min(count, _MOST_DOUBLINGS))


def _of_card(fault: GpuFault) -> str:
    if fault.xid is None:
        return "its memory has an error that cannot be corrected"
    return fault_of_card(fault.xid)


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def fault_of_card(xid: int) -> str:
    """`Xid 79: it has fallen off the bus`; empty where it is not the card's fault."""
    return f"Xid {xid}: {_OF_THE_CARD[xid]}" if xid in _OF_THE_CARD else ""


def fault_of_program(xid: int) -> str:
    """`Xid 31: an illegal memory access by the program`; empty where it is not the program's fault."""
    return f"Xid {xid}: {_OF_THE_PROGRAM[xid]}" if xid in _OF_THE_PROGRAM else ""
