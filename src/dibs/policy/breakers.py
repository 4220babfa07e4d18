"""Stop rules: a group whose jobs fail one after another is held, a GPU on which they do is quarantined."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum

from dibs.model.jobs import AttemptKey, Cause, Outcome
from dibs.model.units import show_duration

_MOST_GROUPS = 256  # those that ended nothing for the longest time are forgotten first
_MOST_REMEMBERED = 64  # ends of one group; older ones count less
_MOST_FAILURES = 64  # of one streak that are told whose fault they were; the last ones
_CHANCE = 1e-6  # so likely may it be that a healthy card had a run of bad luck


@dataclass(frozen=True, kw_only=True, slots=True)
class Limits:
    """When to stop. Zero switches a rule off."""

    quick_failures: int = 5  # of one group in a row: it is held
    quick_seconds: float = 10.0
    gpu_failures: int = 3  # on one GPU in a row, while jobs succeed on others: it is quarantined


@dataclass(frozen=True, kw_only=True, slots=True)
class Over:
    """An attempt that has ended."""

    attempt: AttemptKey
    group: str  # "project vision", "batch 12"; empty: it belongs to nobody
    gpus: tuple[str, ...]  # keys
    outcome: Outcome
    is_last: bool = True  # its job is not tried again; else it tells about the cards only


@dataclass(frozen=True, kw_only=True, slots=True)
class Verdicts:
    """What must be stopped now, each with a sentence."""

    hold: str = ""  # the group of the job that ended
    quarantine: Mapping[str, str] = field(default_factory=dict)  # by the card's key
    failures: Mapping[str, tuple[AttemptKey, ...]] = field(default_factory=dict)  # that led to a quarantine
    # A card under suspicion starts nothing until jobs on others have shown whose fault it is.
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
    others_succeed: bool = False  # since the first of them, on another card
    is_resting: bool = False
    failures: tuple[AttemptKey, ...] = ()  # the attempts that were counted

    def concerns(self, group: str) -> bool:
        """Whether a job of that group is evidence. What one group does wrong, another may do right."""
        return group in self.groups or len(self.groups) > 1


@dataclass(frozen=True, slots=True)
class Breakers:
    """What the rules remember. Bounded, and lost without harm: then they count again from nothing."""

    groups: Mapping[str, _Group] = field(default_factory=dict)  # the one that ended a job last stands last
    streaks: Mapping[str, _Streak] = field(default_factory=dict)  # by the card's key


class _End(Enum):
    """What an end says about the job and about its cards."""

    SUCCESS = "success"
    QUICK = "quick failure"
    OWN = "a failure that is not the card's"  # it counts for the group, and says nothing about its cards
    CARD = "the card's failure"
    SLOW = "failure that took its time"
    SILENT = "somebody else's doing"


def after(
    state: Breakers, over: Over, limits: Limits, running: Collection[tuple[str, str]] = ()
) -> tuple[Breakers, Verdicts]:
    """Take note of an end, and say what must stop.

    `running` are the cards on which jobs run now, each with the group of its job. Where it is given, a card on
    which jobs fail rests until others have ended elsewhere: a broken card gets through its jobs faster than
    healthy ones do, and would have emptied the queue before the first of them succeeds.
    """
    end = _end(over.outcome, limits)
    groups, hold = _count(state.groups, over, end, limits)
    streaks, trust = _follow(state.streaks, over, end)
    judged, verdicts = _judge(streaks, groups, limits, running)
    trust += verdicts.trust
    return Breakers(groups, judged), replace(verdicts, hold=hold, trust=tuple(dict.fromkeys(trust)))


def fresh_for(state: Breakers, gpu: str) -> Breakers:
    """Count anew for a card that somebody, or a test, found good."""
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
    # A full disk, a port that is taken and a full machine are the same on every card.
    return _End.OWN if cause in (Cause.DISK_FULL, Cause.PORT_IN_USE, Cause.HOST_OOM) else _End.QUICK


def _count(
    groups: Mapping[str, _Group], over: Over, end: _End, limits: Limits
) -> tuple[Mapping[str, _Group], str]:
    """Count for the group, and say why it is held where it has failed too often."""
    if end in (_End.SILENT, _End.CARD):
        return groups, ""
    group = groups.get(over.group, _Group())
    in_a_row = group.in_a_row
    if over.is_last:
        in_a_row = in_a_row + 1 if end in (_End.QUICK, _End.OWN) else 0
    hold = ""
    if over.is_last and over.group and 0 < limits.quick_failures <= in_a_row:
        hold = _why_held(in_a_row, over, limits)
        in_a_row = 0  # who lets it go wants it to be tried again
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
    streaks: Mapping[str, _Streak], over: Over, end: _End
) -> tuple[Mapping[str, _Streak], tuple[str, ...]]:
    """The streaks after this end, and the cards that need not rest any longer."""
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
            elif end is _End.QUICK and streak.is_resting:  # they fail elsewhere too: it is not the card
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
) -> tuple[Mapping[str, _Streak], Verdicts]:
    suspects = {gpu for gpu, one in streaks.items() if 0 < limits.gpu_failures <= one.count}
    if not suspects:
        return streaks, Verdicts()
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
                    "another GPU will tell whose fault it is"
                )
                found[gpu] = replace(streak, is_resting=True)
        elif streak.is_resting:  # nobody is left who could tell
            trust.append(gpu)
            del found[gpu]
    failures = {gpu: streaks[gpu].failures for gpu in quarantine}
    return found, Verdicts(quarantine=quarantine, failures=failures, rest=rest, trust=tuple(trust))


def _elsewhere(streak: _Streak, groups: Mapping[str, _Group], suspects: set[str]) -> tuple[int, int, int]:
    """How the same groups fare on cards that are not suspected: successes, failures, and cards with successes.

    Where every third job fails, three failures in a row are no news.
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


def _why_held(count: int, over: Over, limits: Limits) -> str:
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
