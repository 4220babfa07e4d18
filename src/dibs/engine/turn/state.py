"""What an engine knows between two turns, as a value; and the next one while a turn makes it.

An `EngineState` is never changed. A turn copies it into a `NextState`, works on that, and the engine puts the
result in the place of the old one once the store has taken the turn. A refused turn leaves nothing to undo.

`WaitingWindow` is the head of the queue, however long the queue in the store is: jobs with the same wishes have
the same chances, so a plan needs only the first few of each class. A window never reads the store. Where it holds
too little for a decision it raises `NeedsMore`; the engine loads more, and the decision is made again.
"""

import bisect
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import field, replace

from dibs.dataclass import dataclass
from dibs.model.events import Event, Refused, Trouble
from dibs.model.gpus import Claim, is_amd
from dibs.model.jobs import Attempt, AttemptKey, Job, JobId, Reason, Request, State
from dibs.model.records import Consequences, Mark, Record
from dibs.model.suspensions import Suspension, SuspensionPhase, without_hold
from dibs.policy.fitting import UNKNOWN_PART
from dibs.policy.outcomes import Breakers
from dibs.policy.schedule import served_after
from dibs.policy.snapshot import WHOLE, Party

KEPT = 256  # jobs of one class in memory, and of those whose moment has not come
_MOST_CLASSES = 128  # of one project in a plan: with `--vram auto` each script has a class of its own
_LAST_NUMBER = 2**62

ClassOf = Callable[[Request], str]


class NeedsMore(Exception):
    """A decision needs jobs that are only in the store: of a class; without a name, those whose moment came."""

    def __init__(self, name: str | None) -> None:
        super().__init__(name)
        self.name = name


class _Class:
    """The waiting jobs with the same chances: the first ones here, perhaps more in the store."""

    __slots__ = ("has_more", "jobs")

    def __init__(self, jobs: list[Job], has_more: bool) -> None:
        self.jobs = jobs
        self.has_more = has_more


class WaitingWindow:
    """The jobs that wait, in order. `copy` is cheap; only a copy that is not shared is changed."""

    __slots__ = ("_boundary", "_class_of", "_classes", "_delayed", "_has_more_delayed", "_latest", "count")

    def __init__(self, class_of: ClassOf) -> None:
        self._class_of = class_of
        self._classes: dict[str, _Class] = {}
        self._delayed: list[tuple[float, JobId, Job]] = []
        self._has_more_delayed = False
        self._boundary = (0.0, 0)  # every delayed job up to this moment and number has been here
        self._latest = 0.0  # a clock that is set back must not hide a job whose moment has come already
        self.count = 0

    @classmethod
    def over(cls, class_of: ClassOf, classes: Sequence[str], count: int, now: float) -> "WaitingWindow":
        """A window on what the store says is waiting; the moment of the delayed ones comes after `now`."""
        window = cls(class_of)
        window._latest = now
        window._classes = {name: _Class([], True) for name in classes}
        window._boundary = (now, _LAST_NUMBER)
        window._has_more_delayed = True
        window.count = count
        return window

    def copy(self) -> "WaitingWindow":
        new = WaitingWindow(self._class_of)
        new._classes = {name: _Class(kept.jobs.copy(), kept.has_more) for name, kept in self._classes.items()}
        new._delayed = self._delayed.copy()
        new._has_more_delayed = self._has_more_delayed
        new._boundary = self._boundary
        new._latest = self._latest
        new.count = self.count
        return new

    # -- changing a copy -------------------------------------------------------------------------------

    def add(self, job: Job) -> None:
        self.count += 1
        if job.not_before is not None:
            self._delay(job.not_before, job)
            return
        kept = self._classes.setdefault(self._class_of(job.request), _Class([], False))
        if kept.has_more and (not kept.jobs or job.order > kept.jobs[-1].order):
            return  # its turn comes after jobs that are only in the store: it will be read with them
        if kept.jobs and job.order < kept.jobs[-1].order:
            bisect.insort(kept.jobs, job, key=_order)
        else:
            kept.jobs.append(job)
        if len(kept.jobs) > 2 * KEPT:
            del kept.jobs[KEPT:]
            kept.has_more = True

    def remove(self, job: Job) -> None:
        """It is about to start, or does not wait any more."""
        self.count -= 1
        if job.not_before is not None:
            self._delayed = [item for item in self._delayed if item[1] != job.id]
        name = self._class_of(job.request)
        kept = self._classes.get(name)
        if kept is None or not kept.jobs:
            return  # it is only in the store
        if kept.jobs[0].id == job.id:
            del kept.jobs[0]  # nearly always
        else:
            kept.jobs = [other for other in kept.jobs if other.id != job.id]
        if not kept.jobs and not kept.has_more:
            del self._classes[name]

    def drop(self, is_gone: Callable[[Job], bool]) -> None:
        """Take out jobs of which the store holds more: their count is not known here."""
        for name, kept in list(self._classes.items()):
            kept.jobs = [job for job in kept.jobs if not is_gone(job)]
            if not kept.jobs and not kept.has_more:
                del self._classes[name]
        self._delayed = [item for item in self._delayed if not is_gone(item[2])]

    def first(self, each: Callable[[Request], int], now: float) -> list[Job]:
        """The first jobs of each class, together in order. `each` tells how many could start at the most."""
        self._let_in_due(now)
        for name, kept in self._classes.items():
            if not kept.jobs:
                raise NeedsMore(name)
        classes = list(self._classes.items())
        if len(classes) > _MOST_CLASSES:
            classes = _earliest(classes)
        found: list[Job] = []
        for name, kept in classes:
            most = each(kept.jobs[0].request)
            if kept.has_more and len(kept.jobs) < most:
                raise NeedsMore(name)
            found += kept.jobs[:most]
        if len(classes) > 1:
            found.sort(key=_order)
        return found

    def is_for(self, backend: str) -> bool:
        """Whether some of these are to run there."""
        return any(kept.jobs and kept.jobs[0].request.on == backend for kept in self._classes.values())

    def _let_in_due(self, now: float) -> None:
        now = self._latest = max(now, self._latest)
        while (due := self.next_due) is not None and due <= now:
            if not self._delayed:
                raise NeedsMore(None)
            _, _, job = self._delayed.pop(0)
            self.count -= 1
            self.add(replace(job, not_before=None))

    # -- what is loaded --------------------------------------------------------------------------------

    def limit(self, name: str) -> int:
        """How many jobs of a class to load: more than are here now."""
        kept = self._classes.get(name)
        return max(KEPT, 2 * len(kept.jobs)) if kept else KEPT

    def load(self, name: str, jobs: Sequence[Job], limit: int) -> None:
        """Take in the first jobs of a class, as the store has them; fewer than the limit: there are no more."""
        numbers = {job.id for job in jobs}  # some of them may be here among the delayed ones whose moment has come
        self._delayed = [item for item in self._delayed if item[1] not in numbers]
        if jobs:
            self._classes[name] = _Class(list(jobs), len(jobs) >= limit)
        else:
            self._classes.pop(name, None)

    @property
    def delayed_limit(self) -> int:
        """How many delayed jobs to load."""
        return KEPT

    @property
    def boundary(self) -> tuple[float, int]:
        """The moment and number up to which the delayed jobs have been here."""
        return self._boundary

    def load_delayed(self, jobs: Sequence[Job]) -> None:
        """Take in the next delayed jobs after the boundary; fewer than KEPT: there are no more."""
        self._delayed += [(job.not_before or 0.0, job.id, job) for job in jobs]
        self._has_more_delayed = len(jobs) >= KEPT
        if self._delayed:
            self._boundary = _moment(self._delayed[-1])

    # -- questions -------------------------------------------------------------------------------------

    @property
    def next_due(self) -> float | None:
        """When the first delayed job may start, or when those that are only in the store must be looked at."""
        if self._delayed:
            return self._delayed[0][0]
        return self._boundary[0] if self._has_more_delayed else None

    @property
    def latest(self) -> float:
        """The latest moment that was decided at: a class is loaded as it stood then."""
        return self._latest

    @property
    def heads(self) -> list[Request]:
        """What the first job of each class asks for."""
        return [kept.jobs[0].request for kept in self._classes.values() if kept.jobs]

    def _delay(self, when: float, job: Job) -> None:
        if self._has_more_delayed and (when, job.id) > self._boundary:
            return  # others come before it that are only in the store: it will be read with them
        bisect.insort(self._delayed, (when, job.id, job), key=_moment)
        if len(self._delayed) > 2 * KEPT:
            del self._delayed[KEPT:]
            self._boundary, self._has_more_delayed = _moment(self._delayed[-1]), True


def _order(job: Job) -> tuple[int, float]:
    return job.order


def _earliest(classes: list[tuple[str, _Class]]) -> list[tuple[str, _Class]]:
    """Of each project the classes whose first job comes first: a plan looks at each of them."""
    counts: Counter[str] = Counter()
    found = []
    for one in sorted(classes, key=lambda one: one[1].jobs[0].order):
        project = one[1].jobs[0].request.project
        counts[project] += 1
        if counts[project] <= _MOST_CLASSES:
            found.append(one)
    return found


def _moment(item: tuple[float, JobId, Job]) -> tuple[float, int]:
    return item[:2]


Key = AttemptKey  # short: it is everywhere in the engine


@dataclass(frozen=True, slots=True)
class OpenAttempt:
    """An attempt that has not ended, as far as we know."""

    job: Job
    attempt: Attempt
    is_ours: bool = False  # begun by this engine: its start was announced
    suspension: Suspension | None = None  # the last one
    stood_still: float = 0.0  # seconds, in the suspensions before

    @property
    def is_suspended(self) -> bool:
        """Whether it stands still, and nothing has been done yet to end that."""
        return self.suspension is not None and self.suspension.phase is SuspensionPhase.SUSPENDED

    @property
    def is_moving(self) -> bool:
        """Whether it is being suspended or resumed just now."""
        one = self.suspension
        return one is not None and one.phase in (SuspensionPhase.SUSPENDING, SuspensionPhase.RESUMING)

    @property
    def ends_at(self) -> float | None:
        """When it will have ended for sure; None: not known, as while it stands still."""
        limit, one = self.job.request.time_limit, self.suspension
        if limit is None or (one is not None and one.stands_still):
            return None
        opened_at = self.attempt.opened_at
        return opened_at + self.seconds_still(opened_at) + limit + self.job.request.grace

    @property
    def is_on_amd(self) -> bool:
        return any(is_amd(claim.gpu) for claim in self.attempt.claims)

    @property
    def turn_began(self) -> float:
        """When it started, or last went on."""
        one = self.suspension
        is_back = one is not None and one.is_over and one.resuming_at is not None
        return one.ended_at if is_back and one is not None and one.ended_at else self.attempt.opened_at

    @property
    def held_claims(self) -> tuple[Claim, ...]:
        """What it has of its cards now: nothing while a suspension frees them."""
        is_off = self.is_suspended and self.suspension is not None and self.suspension.frees_cards
        return () if is_off else self.attempt.claims

    @property
    def shown_claims(self) -> tuple[Claim, ...]:
        """Its claims as other programs see them in its leases, which stay locked."""
        return self.held_claims or without_hold(self.attempt.claims)

    def seconds_still(self, now: float) -> float:
        """For how long it has stood still since its start."""
        return self.stood_still + (0.0 if self.suspension is None else self.suspension.seconds_until(now))


def memory_to_fill(available: int | None, open_attempts: Iterable[OpenAttempt]) -> int | None:
    """How much of the machine's memory is left for another job's, once those that are being suspended have theirs.

    A part of it may be there already: that counts twice, which errs towards waiting.
    """
    if available is None:
        return None
    found = (one.suspension for one in open_attempts if one.suspension is not None)
    return max(0, available - sum(one.held_bytes for one in found if one.phase is SuspensionPhase.SUSPENDING))


def not_after(now: float, moment: float) -> float:
    """The moment; one long ago where it lies ahead: the clock was set back, and how long it is ago is lost."""
    return moment if moment <= now else 0.0


def may_need_less(one: OpenAttempt) -> bool:
    """Whether it holds so much of a card only because its need was not known at its start."""
    wishes = one.job.request.wishes
    if one.job.state is State.SUSPENDED or not wishes.shape or wishes.share is not None:
        return False
    guess = UNKNOWN_PART if wishes.vram is None else WHOLE
    return any(claim.share >= guess for claim in one.attempt.claims)


def with_suspension(one: OpenAttempt, suspension: Suspension) -> OpenAttempt:
    """The attempt with this as its suspension, whether that is a new one or the last one changed."""
    before, still = one.suspension, one.stood_still
    if before is not None and before.number != suspension.number:
        still += before.seconds_until(before.ended_at or before.began_at)
    state = State.SUSPENDED if suspension.stands_still else State.RUNNING
    return replace(one, job=replace(one.job, state=state), suspension=suspension, stood_still=still)


def next_suspension(
    one: OpenAttempt, why: str, held: Mapping[str, int], now: float, *, resumes: bool
) -> Suspension:
    """The suspension that begins now; `held` are the bytes of its cards, which are to be moved."""
    number = 1 if one.suspension is None else one.suspension.number + 1
    phase = SuspensionPhase.SUSPENDING
    return Suspension(number=number, phase=phase, why=why, resumes=resumes, began_at=now, held=held)


def with_suspensions(one: OpenAttempt, suspensions: Iterable[Suspension]) -> OpenAttempt:
    """The attempt with all of its suspensions, oldest first."""
    for suspension in suspensions:
        one = with_suspension(one, suspension)
    return one


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
    turns_began: Mapping[Party, float] = field(default_factory=dict)  # while a job is suspended
    quiet_at: Mapping[str, float] = field(default_factory=dict)  # of cards that a program without dibs used
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
        self.turns_began = state.turns_began
        self.quiet_at = dict(state.quiet_at)
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
        self.stepped_aside: list[OpenAttempt] = []  # those that were suspended, and hold their leases still
        self.held_groups: set[str] = set()  # of which nothing starts any more

    def freeze(self) -> EngineState:
        return EngineState(
            waiting=self.waiting,
            open=self.open,
            remote=self.remote,
            served=self.served,
            projects=self.projects,
            turns_began=self.turns_began,
            quiet_at=self.quiet_at,
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
    def wants_back(self) -> bool:
        """Whether a suspended attempt waits to go on."""
        return any(one.is_suspended and one.suspension and one.suspension.resumes for one in self.open.values())

    @property
    def left_cards(self) -> set[str]:
        """The cards that attempts left in this turn."""
        return {claim.gpu for one in (*self.left, *self.stepped_aside) for claim in one.attempt.claims}


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
        for claim in one.held_claims:
            found.setdefault(claim.gpu, []).append((one, claim))
    return found


class Change:
    """What a user or a sweep changes inside one transaction: durable at its end, or it never happened."""

    def __init__(self, state: EngineState, record: Callable[[Record, float], Consequences], now: float) -> None:
        self.now = now
        self.next = NextState(state)
        self.touched: list[JobId] = []
        self.retried: list[JobId] = []
        self._record = record

    def record(self, record: Record) -> None:
        """Record it now, with what follows from it."""
        followed = self._record(record, self.now)
        apply_followed(followed, self.next)
        self.touched += followed.touched
        self.retried += followed.retried

    def wait(self, job: Job) -> None:
        """The job is waiting now, unless it is held or blocked."""
        if job.state is State.QUEUED and not job.blockers:
            self.next.waiting.add(job)

    def leave(self, job: Job) -> None:
        """The job, as it was before the change, is not waiting any more."""
        if job.state is State.QUEUED and not job.blockers:
            self.next.waiting.remove(job)


def apply_followed(followed: Consequences, state: NextState) -> None:
    """Add the jobs that a record released, and the events of those it cancelled."""
    for job in followed.released:
        state.waiting.add(job)
    state.events += [Refused(job, outcome) for job, outcome in followed.cancelled]


def extend_followed(followed: Consequences, more: Consequences) -> None:
    for name in ("released", "cancelled", "held", "touched", "retried"):
        getattr(followed, name).extend(getattr(more, name))
