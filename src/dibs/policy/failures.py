"""Stop rules: hold a group whose jobs fail one after another, quarantine a GPU that fails, and test it again."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum

from dibs.model.gpus import CardState, GpuFault, Reading
from dibs.model.jobs import AttemptKey, Cause, Outcome
from dibs.model.units import show_duration

_MOST_GROUPS = 256  # those without an end for the longest time are forgotten first
_MOST_REMEMBERED = 64  # ends of one group; older ones count less
_MOST_FAILURES = 64  # of one streak that are remembered: the last ones
_CHANCE = 1e-6  # accepted probability that a working card is quarantined by coincidence
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


@dataclass(frozen=True, kw_only=True, slots=True)
class Limits:
    """When to stop. Zero switches a rule off."""

    quick_failures: int = 5  # of one group in a row: it is held
    quick_seconds: float = 10.0
    gpu_failures: int = 3  # on one GPU in a row, while jobs succeed on others: it is quarantined


@dataclass(frozen=True, kw_only=True, slots=True)
class EndedAttempt:
    """An attempt that has ended."""

    attempt: AttemptKey
    group: str  # "project vision", "batch 12"; empty: no group
    gpus: tuple[str, ...]  # keys
    outcome: Outcome
    is_last: bool = True  # its job is not tried again; otherwise it counts for the cards only


@dataclass(frozen=True, kw_only=True, slots=True)
class StopDecision:
    """What must be stopped now, each with a sentence."""

    hold: str = ""  # the group of the job that ended
    quarantine: Mapping[str, str] = field(default_factory=dict)  # by the card's key
    failures: Mapping[str, tuple[AttemptKey, ...]] = field(default_factory=dict)  # that led to a quarantine
    # A suspected card starts nothing until jobs on others have shown whether it is the cause.
    rest: Mapping[str, str] = field(default_factory=dict)
    trust: tuple[str, ...] = ()  # cards whose rest is over


@dataclass(frozen=True, slots=True)
class _Group:
    """How the last jobs of a group ended: in a row, and on each card as (succeeded, failed)."""

    in_a_row: int = 0
    on: Mapping[str, tuple[int, int]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Streak:
    """Quick failures one after another on one card."""

    count: int = 0
    groups: frozenset[str] = frozenset()
    others_succeed: bool = False  # on another card, since the first failure
    is_resting: bool = False
    failures: tuple[AttemptKey, ...] = ()  # the attempts that were counted

    def concerns(self, group: str) -> bool:
        """Whether a job of that group is evidence: only jobs of the groups that failed here are."""
        return group in self.groups or len(self.groups) > 1


@dataclass(frozen=True, slots=True)
class Breakers:
    """What the rules remember. Bounded; if it is lost, counting starts again."""

    groups: Mapping[str, _Group] = field(default_factory=dict)  # in the order of their last end
    streaks: Mapping[str, _Streak] = field(default_factory=dict)  # by the card's key


class _End(Enum):
    """What an end says about the job and its cards."""

    SUCCESS = "success"
    QUICK = "quick failure"
    OWN = "a failure that is not the card's"  # it counts for the group only
    CARD = "the card's failure"
    SLOW = "failure that took its time"
    SILENT = "not caused by job or card"


def judge_end(
    state: Breakers, over: EndedAttempt, limits: Limits, running: Collection[tuple[str, str]] = ()
) -> tuple[Breakers, StopDecision]:
    """Count an ended attempt, and decide what must stop.

    `running` are the cards on which jobs run now, each with the group of its job. Where it is given, a card on
    which jobs fail rests until others have ended elsewhere: a broken card fails its jobs faster than the others
    complete theirs, and would empty the queue before the first of them succeeds.
    """
    end = _end(over.outcome, limits)
    groups, hold = _count(state.groups, over, end, limits)
    streaks, trust = _follow(state.streaks, over, end)
    judged, verdicts = _judge(streaks, groups, limits, running)
    trust += verdicts.trust
    return Breakers(groups, judged), replace(verdicts, hold=hold, trust=tuple(dict.fromkeys(trust)))


def without_gpu(state: Breakers, gpu: str) -> Breakers:
    """Forget the failures on a card that was tested or released."""
    groups = {
        name: replace(group, on={key: counts for key, counts in group.on.items() if key != gpu})
        for name, group in state.groups.items()
    }
    return Breakers(groups, {key: streak for key, streak in state.streaks.items() if key != gpu})


def _end(outcome: Outcome, limits: Limits) -> _End:
    cause = outcome.cause
    if cause is None:
        return _End.SUCCESS
    if cause in (Cause.STOPPED, Cause.REFUSED, Cause.DEPENDENCY, Cause.LOST):
        return _End.SILENT
    if cause is Cause.GPU_FAULT:
        return _End.CARD
    if cause in (Cause.START_ERROR, Cause.IMPORT_ERROR, Cause.SYNTAX_ERROR):
        return _End.OWN
    is_quick = (outcome.seconds or 0.0) <= limits.quick_seconds
    if cause is Cause.KILLED:
        return _End.OWN if is_quick else _End.SILENT
    if cause is Cause.TIME_LIMIT or not is_quick:
        return _End.SLOW
    # A full disk, a port in use and a full machine are the same on every card.
    return _End.OWN if cause in (Cause.DISK_FULL, Cause.PORT_IN_USE, Cause.HOST_OOM) else _End.QUICK


def _count(
    groups: Mapping[str, _Group], over: EndedAttempt, end: _End, limits: Limits
) -> tuple[Mapping[str, _Group], str]:
    """Count for the group, and say why it is held if it failed too often."""
    if end in (_End.SILENT, _End.CARD):
        return groups, ""
    group = groups.get(over.group, _Group())
    in_a_row = group.in_a_row
    if over.is_last:
        in_a_row = in_a_row + 1 if end in (_End.QUICK, _End.OWN) else 0
    hold = ""
    if over.is_last and over.group and 0 < limits.quick_failures <= in_a_row:
        hold = _why_held(in_a_row, over, limits)
        in_a_row = 0  # releasing it means trying again
    on = dict(group.on)
    for gpu in () if end is _End.OWN else over.gpus:
        succeeded, failed = on.get(gpu, (0, 0))
        on[gpu] = (succeeded + (end is _End.SUCCESS), failed + (end is _End.QUICK))
    if sum(map(sum, on.values())) > _MOST_REMEMBERED:
        on = {gpu: (succeeded // 2, failed // 2) for gpu, (succeeded, failed) in on.items()}
    found = {name: one for name, one in groups.items() if name != over.group}
    if len(found) >= _MOST_GROUPS:
        del found[next(iter(found))]
    found[over.group] = _Group(in_a_row, on)
    return found, hold


def _follow(
    streaks: Mapping[str, _Streak], over: EndedAttempt, end: _End
) -> tuple[Mapping[str, _Streak], tuple[str, ...]]:
    """The streaks after this end, and the cards whose rest is over."""
    if end in (_End.SILENT, _End.OWN) or not (streaks or end in (_End.QUICK, _End.CARD)):
        return streaks, ()
    found = dict(streaks)
    forgiven = []
    for gpu, streak in streaks.items():
        if gpu in over.gpus:
            if end in (_End.SUCCESS, _End.SLOW):
                forgiven.append(gpu)
        elif streak.concerns(over.group):
            if end is _End.SUCCESS:
                found[gpu] = replace(streak, others_succeed=True)
            elif end is _End.QUICK and streak.is_resting:  # jobs fail elsewhere too: it is not the card
                forgiven.append(gpu)
    for gpu in forgiven:
        del found[gpu]
    if end in (_End.QUICK, _End.CARD):
        for gpu in over.gpus:
            streak = found.get(gpu, _Streak())
            found[gpu] = replace(
                streak,
                count=streak.count + 1,
                groups=streak.groups | {over.group},
                failures=(*streak.failures, over.attempt)[-_MOST_FAILURES:],
            )
    return found, tuple(gpu for gpu in forgiven if streaks[gpu].is_resting)


def _judge(
    streaks: Mapping[str, _Streak],
    groups: Mapping[str, _Group],
    limits: Limits,
    running: Collection[tuple[str, str]],
) -> tuple[Mapping[str, _Streak], StopDecision]:
    suspects = {gpu for gpu, one in streaks.items() if 0 < limits.gpu_failures <= one.count}
    if not suspects:
        return streaks, StopDecision()
    found = dict(streaks)
    quarantine: dict[str, str] = {}
    rest: dict[str, str] = {}
    trust: list[str] = []
    for gpu in sorted(suspects):
        streak = streaks[gpu]
        succeeded, failed, healthy = _elsewhere(streak, groups, suspects)
        is_unlikely = not failed or (failed / (succeeded + failed)) ** streak.count <= _CHANCE
        if streak.others_succeed and is_unlikely and len(suspects) <= healthy:
            quarantine[gpu] = (
                f"{streak.count} jobs failed there one after another{_within(limits)}, while others succeeded "
                "elsewhere"
            )
            del found[gpu]
        elif any(other not in suspects and streak.concerns(group) for other, group in running):
            if is_unlikely and not streak.is_resting and not streak.others_succeed:
                rest[gpu] = (
                    f"{streak.count} jobs failed there one after another{_within(limits)}; the next end on "
                    "another GPU will show whether it is the GPU"
                )
                found[gpu] = replace(streak, is_resting=True)
        elif streak.is_resting:  # no running job is left that could show it
            trust.append(gpu)
            del found[gpu]
    failures = {gpu: streaks[gpu].failures for gpu in quarantine}
    return found, StopDecision(quarantine=quarantine, failures=failures, rest=rest, trust=tuple(trust))


def _elsewhere(streak: _Streak, groups: Mapping[str, _Group], suspects: set[str]) -> tuple[int, int, int]:
    """The ends of the same groups on cards that are not suspected: successes, failures, and cards with successes.

    Where every third job fails, three failures in a row mean little.
    """
    succeeded, failed = 0, 0
    healthy: set[str] = set()
    for name, group in groups.items():
        if streak.concerns(name):
            for gpu, (well, badly) in group.on.items():
                if gpu not in suspects:
                    succeeded += well
                    failed += badly
                    healthy |= {gpu} if well else set()
    return succeeded, failed, len(healthy)


def _why_held(count: int, over: EndedAttempt, limits: Limits) -> str:
    kind, _, name = over.group.partition(" ")
    option = f" --project {name}" if kind == "project" else ""
    return (
        f"{count} jobs of {over.group} failed one after another{_within(limits)}, the last with "
        f"{_how(over.outcome)}; `dibs release{option}` lets the others go on, "
        f"`dibs retry --failed{option}` repeats them"
    )


def _how(outcome: Outcome) -> str:
    if outcome.cause is Cause.EXIT_CODE:
        return f"exit code {outcome.exit_code}"
    if outcome.cause is Cause.SIGNAL:
        return f"signal {outcome.signal}"
    return f"{outcome.cause}{f' ({outcome.message})' if outcome.message else ''}"


def _within(limits: Limits) -> str:
    return f" within {show_duration(limits.quick_seconds)} each"


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
