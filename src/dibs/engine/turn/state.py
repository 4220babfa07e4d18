"""What an engine knows between two turns, as a value; and the next one while a turn makes it.

An `EngineState` is never changed. A turn copies it into a `NextState`, works on that, and the engine puts the
result in the place of the old one once the store has taken the turn. A refused turn leaves nothing to undo.
"""

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field

from dibs.engine.turn.waiting import WaitingWindow
from dibs.model.claims import Claim
from dibs.model.events import Event, Trouble
from dibs.model.jobs import Attempt, AttemptKey, Job, JobId
from dibs.model.reasons import Reason
from dibs.model.records import Mark
from dibs.policy.failures import Breakers
from dibs.policy.schedule import served_after

Key = AttemptKey  # short: it is everywhere in the engine


@dataclass(frozen=True, slots=True)
class OpenAttempt:
    """An attempt that has not ended, as far as we know."""

    job: Job
    attempt: Attempt
    is_ours: bool = False  # begun by this engine: its start was announced


@dataclass(frozen=True, slots=True)
class CachedPlan:
    """The last plan, for the moment in which it still holds (plan_cache.py)."""

    kind: Hashable = None  # of the jobs that wait; None: a plan must be made before anything starts
    at: float = 0.0  # when the plan was made
    surroundings: tuple[object, ...] = ()  # whatever else a plan looks at
    placed: frozenset[Key] = frozenset()  # attempts that were given their places in these surroundings


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineState:
    """Everything that is decided from, beside what is seen of the cards and of other systems."""

    waiting: WaitingWindow
    open: Mapping[Key, OpenAttempt] = field(default_factory=dict)  # on this machine
    remote: Mapping[Key, OpenAttempt] = field(default_factory=dict)  # with other systems
    served: Mapping[str, float] = field(default_factory=dict)  # what each project was given, for taking turns
    projects: frozenset[str] = frozenset()  # of which jobs wait or run
    false_starts: Mapping[JobId, tuple[int, float]] = field(default_factory=dict)  # how many, and since when
    last_good_start: float = 0.0  # when it last turned out that something had been started
    failures: int = 0
    stopping: frozenset[JobId] = frozenset()  # their end was asked for: they are not tried again
    why_stopped: Mapping[JobId, str] = field(default_factory=dict)  # what such a job says of its end
    marks: Mapping[str, Mark] = field(default_factory=dict)  # pauses, drains and quarantines, by subject
    breakers: Breakers = field(default_factory=Breakers)
    resting: Mapping[str, str] = field(default_factory=dict)  # cards under suspicion, and why
    rest_ends: float | None = None  # when they are tried again if no other end has told
    plan: CachedPlan = CachedPlan()
    told_reason: tuple[JobId, Reason] | None = None  # the last reason that was announced

    @property
    def everywhere(self) -> Mapping[Key, OpenAttempt]:
        """What is open, wherever it runs."""
        return {**self.open, **self.remote} if self.remote else self.open

    @property
    def paused(self) -> dict[str, str]:
        return paused_by(self.marks)


class NextState:
    """The state after the turn at hand, while it is being made. Only the turn that made it has it."""

    def __init__(self, state: EngineState) -> None:
        self.waiting = state.waiting.copy()
        self.open = dict(state.open)
        self.remote = dict(state.remote)
        self.served = state.served
        self.projects = state.projects
        self.false_starts = dict(state.false_starts)
        self.last_good_start = state.last_good_start
        self.failures = state.failures
        self.stopping = set(state.stopping)
        self.why_stopped = dict(state.why_stopped)
        self.marks = state.marks
        self.breakers = state.breakers
        self.resting = state.resting
        self.rest_ends = state.rest_ends
        self.plan = state.plan
        self.told_reason = state.told_reason
        self.events: list[Event] = []  # to be announced once the turn is recorded
        self.left: list[OpenAttempt] = []  # attempts whose places became free in this turn
        self.held_groups: set[str] = set()  # of which nothing starts any more

    def freeze(self) -> EngineState:
        return EngineState(
            waiting=self.waiting,
            open=self.open,
            remote=self.remote,
            served=self.served,
            projects=self.projects,
            false_starts=self.false_starts,
            last_good_start=self.last_good_start,
            failures=self.failures,
            stopping=frozenset(self.stopping),
            why_stopped=self.why_stopped,
            marks=self.marks,
            breakers=self.breakers,
            resting=self.resting,
            rest_ends=self.rest_ends,
            plan=self.plan,
            told_reason=self.told_reason,
        )

    def enter(self, one: OpenAttempt) -> None:
        """It has its place on this machine, and its project has been served."""
        self.open[one.attempt.key] = one
        self.served = served_after(self.served, one.job)

    def close(self, one: OpenAttempt) -> None:
        """It has left its place."""
        if one.attempt.backend:
            del self.remote[one.attempt.key]
        else:
            del self.open[one.attempt.key]
            self.left.append(one)

    def trouble(self, sentence: str) -> None:
        self.events.append(Trouble(sentence))

    def set_mark(self, mark: Mark) -> None:
        self.marks = {**self.marks, mark.subject: mark}

    def clear_mark(self, subject: str) -> None:
        self.marks = {name: mark for name, mark in self.marks.items() if name != subject}

    @property
    def left_cards(self) -> set[str]:
        """The cards that attempts left in this turn."""
        return {claim.gpu for one in self.left for claim in one.attempt.claims}


def paused_by(marks: Mapping[str, Mark]) -> dict[str, str]:
    """Why nothing of a project is started; under the empty name why nothing at all is."""
    subjects = ((subject.partition(" "), mark) for subject, mark in marks.items())
    return {name: mark.why for (kind, _, name), mark in subjects if kind != "gpu"}


def card_marks(marks: Mapping[str, Mark], resting: Mapping[str, str]) -> dict[str, str]:
    """By a card's key, why nothing is started there: `is drained`."""
    found = {key: f"rests ({why})" for key, why in resting.items()}
    for subject, mark in marks.items():
        kind, _, name = subject.partition(" ")
        if kind == "gpu":
            found[name] = f"is {mark.kind}{f' ({mark.why})' if mark.why else ''}"
    return found


def claims_on(open_attempts: Mapping[Key, OpenAttempt]) -> dict[str, list[tuple[OpenAttempt, Claim]]]:
    """What our attempts hold of each card, by its key."""
    found: dict[str, list[tuple[OpenAttempt, Claim]]] = {}
    for one in open_attempts.values():
        for claim in one.attempt.claims:
            found.setdefault(claim.gpu, []).append((one, claim))
    return found
