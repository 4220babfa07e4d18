"""How an attempt ended (the table of the launch protocol), and what follows: another try, and the stop rules.

The stop rules hold a group whose jobs fail one after another, and quarantine a GPU that fails.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import field, replace
from enum import Enum
from typing import Any

from dibs.dataclass import dataclass
from dibs.model.jobs import NOT_RETRIED, AttemptKey, Cause, Job, Outcome, retry_name
from dibs.model.units import show_duration

_FIRST_PAUSE = 1.0  # seconds
_LONGEST_PAUSE = 60.0
_MOST_RESTARTS = 100  # of a job that is lost each time: it may crash its machine or its supervisor
_MOST_GROUPS = 256  # those without an end for the longest time are forgotten first
_MOST_REMEMBERED = 64  # ends of one group; older ones count less
_MOST_FAILURES = 64  # of one streak that are remembered: the last ones
_CHANCE = 1e-6  # accepted probability that a working card is quarantined by coincidence


class Verdict(Enum):
    RUNNING = "running"  # its shim lives: adopt it
    OVER = "over"  # its exit record is whole
    KEPT = "kept"  # its end will not be seen, but a process of it lives, and may have the GPU
    LOST = "lost"
    NEVER_RAN = "never ran"  # nothing was started: it may be queued again


def settle(*, is_locked: bool, has_record: bool, has_started: bool, is_alive: bool, same_boot: bool) -> Verdict:
    """Lock first, leases and processes second, records last: a record counts only once its writer has ended.

    A shim writes the record before it has ended the processes that its command left behind. If it is killed in
    between, the outcome is known, but the GPU is not free.
    """
    if is_locked:
        return Verdict.RUNNING
    if is_alive:
        return Verdict.KEPT
    if has_record:
        return Verdict.OVER
    if not same_boot or has_started:
        # After a power cut `started` may be missing though the command ran: it was never synced.
        return Verdict.LOST
    return Verdict.NEVER_RAN


def outcome_of(record: Mapping[str, Any]) -> Outcome:
    """How the attempt ended, from its exit record."""
    code, signal, by = record.get("code"), record.get("signal"), record.get("by", "")
    message = str(record.get("message", ""))
    # It saved its work and ended, or was ended at its limit. If it failed on the signal, it did not save.
    checkpointed = record.get("checkpointed") is True and (by == "time" or code == 0)
    cause: Cause | None
    if by == "start":
        cause = Cause.START_ERROR
        code = code if code is not None else 127
    elif by == "time" or checkpointed:
        cause = Cause.TIME_LIMIT
        message = message or ("checkpointed" if checkpointed else "")
    elif by == "stop":
        cause = Cause.STOPPED
    elif code == 0:
        cause = None
    elif code is None and signal is None and record.get("cause") == Cause.LOST:
        cause = Cause.LOST  # a container's engine failed, and its shim did not see how the command ended
    elif (seen := record.get("cause")) in _SEEN:
        cause = Cause(seen)
    else:
        cause = Cause.EXIT_CODE if signal is None else Cause.SIGNAL
    return Outcome(
        exit_code=code,
        signal=signal,
        cause=cause,
        message=message,
        seconds=record.get("seconds"),
        checkpointed=checkpointed,
    )


# The causes that a shim may record. A newer shim may record others: then the exit code or signal counts.
_SEEN = frozenset(
    {
        Cause.GPU_OOM,
        Cause.GPU_FAULT,
        Cause.HOST_OOM,
        Cause.IMPORT_ERROR,
        Cause.SYNTAX_ERROR,
        Cause.PORT_IN_USE,
        Cause.DISK_FULL,
        Cause.KILLED,
    }
)
LOST = Outcome(cause=Cause.LOST, message="its end was not seen: its supervisor was killed or the machine stopped")


def lost(why: str) -> Outcome:
    """The outcome of an attempt whose end was not seen; `why` is a clause."""
    return replace(LOST, message=f"its end was not seen: {why}")


def retry_after(job: Job, outcome: Outcome) -> float | None:
    """Seconds to wait before the next attempt, doubling each time; None when there is none.

    A lost job may have run to its end, so it is started again only if it was declared restartable.
    """
    cause = outcome.cause
    if cause is None or cause in NOT_RETRIED:
        return None
    if cause is Cause.LOST and job.request.restartable and job.tries <= _MOST_RESTARTS:
        return 0.0 if job.tries <= 1 else _pause(job.tries - 1)  # at once after a reboot
    if job.tries > job.request.retries or not _is_wanted(cause, job.request.retry_on):
        return None
    return _pause(job.tries)


def _is_wanted(cause: Cause, wanted: Sequence[str]) -> bool:
    """Whether a retry is wanted after this cause; no names mean all causes."""
    names = set(map(retry_name, wanted))
    # A kill counted as a signal before it had a name of its own, and still does.
    return not names or retry_name(cause) in names or (cause is Cause.KILLED and "signal" in names)


def _pause(tries: int) -> float:
    doublings = min(max(0, tries - 1), 10)  # a float overflows at 1,024 of them
    return min(_LONGEST_PAUSE, _FIRST_PAUSE * 2.0**doublings)


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
    whose, option, release = over.group, f" --project {name}", f"`dibs release --project {name}`"
    if kind == "batch":
        whose, option, release = f"the list that begins with job {name}", "", "`dibs release` with their numbers"
    return (
        f"{count} jobs of {whose} failed one after another{_within(limits)}, the last with {_how(over.outcome)}; "
        f"{release} lets the others go on, `dibs retry --failed{option}` repeats them"
    )


def _how(outcome: Outcome) -> str:
    if outcome.cause is Cause.EXIT_CODE:
        return f"exit code {outcome.exit_code}"
    if outcome.cause is Cause.SIGNAL:
        return f"signal {outcome.signal}"
    return f"{outcome.cause}{f' ({outcome.message})' if outcome.message else ''}"


def _within(limits: Limits) -> str:
    return f" within {show_duration(limits.quick_seconds)} each"
