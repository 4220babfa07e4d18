"""Why a job waits, and when it may start: the policy's own answer, for any job of the queue."""

import heapq
import time
from collections.abc import Callable, Collection, Hashable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from itertools import chain, islice, takewhile

from dibs.backends.local import Leftovers
from dibs.dataclass import dataclass
from dibs.engine.engine import Engine
from dibs.engine.launch.settlement import named
from dibs.engine.local_time import clock_time
from dibs.engine.queue.nested import in_the_way, parent_of, reason_of
from dibs.model.gpus import Card
from dibs.model.jobs import After, Job, JobId, Reason, Request, State
from dibs.model.suspensions import Suspension, SuspensionPhase
from dibs.model.units import show_size
from dibs.policy.fitting import may_meet
from dibs.policy.forecast import MOST_JOBS, Line, Prospect, forecast, starting_order
from dibs.policy.preemption import time_to_move
from dibs.policy.schedule import fair_order, longest, schedule, waits_for_turn
from dibs.policy.snapshot import Plan, Snapshot
from dibs.store.listing import Filter

_PORTION = 64  # jobs of a class that are read at once
_STALE_AFTER = 5  # times as long as an outlook took to make, so that a busy queue is not simulated all the time
_ROOM = frozenset({"no-gpu", "no-room", "no-cpus", "no-mem", "min-free"})  # reasons that any job ahead may cause
_CHILDREN = 2_000  # queued jobs of which is asked who added them
_KEPT_FOR = 1.0  # seconds, also where nothing has happened: the estimates move on with the clock


@dataclass(frozen=True, slots=True)
class WaitExplanation:
    """Why it waits and when it may start; of a job that runs, what is wrong with it. Otherwise both empty."""

    reason: Reason | None = None
    starts_at: float | None = None
    unknown: str = ""  # of a job that waits, why its start cannot be estimated


@dataclass(frozen=True, slots=True)
class SharedReason:
    """A reason, and the jobs that it is true of, in the order in which they will start."""

    reason: Reason
    jobs: list[JobId]


@dataclass(frozen=True, slots=True)
class SharedExplanation:
    """What several jobs of one state wait for."""

    state: State
    answer: WaitExplanation
    jobs: list[JobId]


Alike = dict[Hashable, SharedExplanation]  # by what makes the answers the same


@dataclass(frozen=True, slots=True)
class JobProspect:
    """Where and when a job would start, and why not at once. No GPUs: not known."""

    gpus: tuple[int, ...]
    starts_at: float | None
    reason: Reason | None
    shape: str = ""  # with `--vram auto`
    unknown: str = ""  # why its start cannot be estimated


@dataclass(frozen=True, slots=True)
class _Outlook:
    """A forecast of the whole queue, for the moment in which it still holds."""

    prospects: dict[JobId, Prospect]
    order: list[JobId]
    jobs: Mapping[JobId, Job]  # of this order
    reasons: Mapping[JobId, Reason]  # of those that wait in line
    after: int  # the last event that it includes
    made_at: float
    took: float  # seconds

    def ahead_of(self, job: Job, cards: Sequence[Card]) -> int | None:
        """How many jobs that may take its room will start before it; None where it is too far behind."""
        if job.id not in self.jobs:
            return None
        before = (self.jobs[number] for number in takewhile(lambda number: number != job.id, self.order))
        return sum(may_meet(other.request, job.request, cards) for other in before)


class Explain:
    """Asks the policy what it would do. Starts nothing."""

    def __init__(self, engine: Engine, clock: Callable[[], float]) -> None:
        self._engine = engine
        self._listing = engine.store.listing
        self._clock = clock
        self._kept: _Outlook | None = None

    def why(self, number: JobId) -> WaitExplanation:
        job = self._listing.row(number).job
        if job.state is State.HELD:
            return WaitExplanation(_is_held(job, str(number)), unknown="it is held")
        if job.state is State.SUBMITTED and self._engine.remote is not None:
            reason_there, starts_at = self._engine.remote.waiting(job)
            who = "it is held" if job.is_held_there else f"{job.request.on.capitalize()} decides that"
            return WaitExplanation(reason_there, starts_at, "" if starts_at else who)
        if job.state is State.RUNNING and job.request.on and self._engine.remote is not None:
            return WaitExplanation(self._engine.remote.remark(job))
        if job.state is State.RUNNING and (left := self._engine.left_behind(job)) is not None:
            return WaitExplanation(_orphaned(job, left))
        if job.state is State.RUNNING and (overbooked := self._overbooked(job)):
            return WaitExplanation(Reason("overbooked", "; ".join(overbooked)))
        if (suspended := self._suspended(job, self._plan)) is not None:
            return suspended
        if job.state is State.RUNNING and (stays := self._stays(job)):
            return WaitExplanation(Reason("not-suspended", stays))
        if job.state is not State.QUEUED:
            return WaitExplanation()
        now = self._clock()
        prospect = self._prospect(number, now)
        reason = self._before_line(job, now) or self._in_line(job, now)
        if reason.code == "paused":
            return WaitExplanation(reason, unknown=prospect.unknown)
        if reason.code in _BY_SUSPENDING:  # the forecast knows nothing of suspensions
            return WaitExplanation(reason, reason.until, "" if reason.until else _TAKES_LONGER)
        return WaitExplanation(reason, prospect.starts_at, prospect.unknown)

    def why_alike(self, numbers: Sequence[JobId], known: Alike | None = None) -> Alike:
        """Why these wait, for many: those of one array or call that wait alike get the answer of the first.

        Of jobs that run, or are over, it has the state only. `known` is the answer about others, to go on with.
        """
        found: Alike = known or {}
        for job in self._engine.store.queue.find(numbers):
            request, array = job.request, job.request.array
            key: tuple[Hashable, ...] = (job.state,)
            if job.state is State.SUBMITTED and self._engine.remote is not None:
                key += self._engine.remote.waiting(job)
            elif job.state in (State.QUEUED, State.HELD):
                which = (job.batch or job.id) if array is None else array.array
                follows = request.after if job.blockers else ()
                key += (
                    which,
                    job.not_before,
                    follows,
                    job.why_held,
                    request.precedence,
                    request.wishes,
                    request.on,
                )
            if key in found:
                found[key].jobs.append(job.id)
            else:
                answer = WaitExplanation()
                if job.state is State.HELD:
                    answer = WaitExplanation(_is_held(job), unknown="it is held")
                elif job.state in (State.QUEUED, State.SUBMITTED):
                    answer = self.why(job.id)
                found[key] = SharedExplanation(job.state, answer, [job.id])
        return found

    def reasons(self, most: int) -> list[SharedReason]:
        """Why jobs wait or stand still, each reason once: of each such state so many jobs.

        A job that waits for its turn has the reason of the first of its kind.
        """
        now = self._clock()
        outlook = self._outlook(now)
        groups: dict[Reason, SharedReason] = {}

        def add(job: Job, reason: Reason) -> None:
            groups.setdefault(reason, SharedReason(reason, [])).jobs.append(job.id)

        first, starting = outlook.order[:most], self._starting()
        queued = {job.id: job for job in self._engine.store.queue.find(first) if job.state is State.QUEUED}
        for number in first:
            if job := queued.get(number):  # it has not started since
                add(job, self._before_line(job, now) or outlook.reasons.get(number, starting))
        if self._engine.remote is not None:
            for job in self._newest(State.SUBMITTED, most):
                add(job, self._engine.remote.waiting(job)[0])
        for job in self._newest(State.HELD, most):
            add(job, _is_held(job))
        plan = cache(self._plan)
        for job in self._newest(State.SUSPENDED, most):
            if (found := self._suspended(job, plan)) is not None and found.reason is not None:
                add(job, found.reason)
        return list(groups.values())

    def starting_order(self) -> Sequence[JobId]:
        """The first some hundred queued jobs in the order in which they will start."""
        return self._outlook(self._clock()).order

    def check(self, requests: Sequence[Request]) -> list[JobProspect]:
        """What would become of jobs if they were added now."""
        now = self._clock()
        following = JobId(self._engine.store.queue.next_number())
        jobs = [
            Job(id=JobId(number), request=request, not_before=request.begin)
            for number, request in enumerate(requests[:MOST_JOBS], following)
        ]
        apart = {job.id: self._waits_apart(job.request, now) for job in jobs}
        ready = [job for job in jobs if not job.request.hold]
        line = self._line(now, ready)
        prospects = forecast(line, [job.id for job in ready])
        in_line = [job for job in line.snapshot.waiting if apart.get(job.id) is None]
        plan = schedule(replace(line.snapshot, waiting=in_line))
        promises = {one.job.id: tuple(claim.index for claim in one.claims) for one in plan.promises}
        found = []
        for job in jobs:
            prospect = prospects.get(job.id, Prospect(unknown="it is held"))
            reason = apart[job.id] or plan.reasons.get(job.id)
            if reason is not None and (gpus := promises.get(job.id)):
                prospect = Prospect(reason.until, gpus, "" if reason.until else _TAKES_LONGER)
            shape = job.request.wishes.shape
            found.append(JobProspect(prospect.gpus, prospect.starts_at, reason, shape, prospect.unknown))
        late = Reason("turn", "waits for its turn")
        unknown = f"more than {MOST_JOBS} jobs go first"
        return found + [
            JobProspect((), None, late, request.wishes.shape, unknown) for request in requests[MOST_JOBS:]
        ]

    def _waits_apart(self, request: Request, now: float) -> Reason | None:
        """What a job waits for before it stands in line at all; None where it does so at once."""
        if request.hold:
            return Reason("held", "waits until it is released")
        for needed in request.after:
            state = self._listing.states([needed.job]).get(needed.job)
            if state is not None and not state.is_over:
                return Reason(
                    "dependency", f"waits for job {needed.job} {_WANTED[needed.kind]} (it {state.phrase})"
                )
        if request.begin is not None and request.begin > now:
            return Reason("begin", "waits for its time", until=request.begin)
        if request.on:
            return Reason("backend", f"is handed to {request.on}, which decides when it starts")
        return None

    def _plan(self) -> Plan:
        """What would start now."""
        return schedule(self._engine.snapshot(self._clock()))

    def _suspended(self, job: Job, plan: Callable[[], Plan]) -> WaitExplanation | None:
        """Why a job stands still, or is about to; or why it runs on though it was to be suspended."""
        one = self._engine.state.open.get((job.id, job.attempts))
        if one is None or (suspension := one.suspension) is None:
            return None
        if suspension.is_over and not suspension.why_not:
            return None
        now = self._clock()
        if suspension.is_saving(job.request.checkpoint, now):
            why = f"saves a checkpoint and ends, to be suspended {suspension.why}: {suspension.why_not}"
            return WaitExplanation(Reason("not-suspended", why))
        if suspension.is_over:
            at = clock_time(suspension.began_at, now)
            what = "resumed" if suspension.was_lost else f"suspended {suspension.why} at {at}"
            why = f"it could not be {what}: {suspension.why_not}"
            return WaitExplanation(Reason("not-suspended", why))
        since = clock_time(suspension.suspended_at or suspension.began_at, now)
        if not one.is_suspended:
            resumes = suspension.phase is SuspensionPhase.RESUMING
            time = time_to_move(suspension.held_bytes, self._engine.move_speed(), resumes=resumes)
            why = f"it is being suspended {suspension.why}, {time}"
            if resumes:
                why = f"is being resumed, {time}; it was suspended {suspension.why} at {since}"
            return WaitExplanation(Reason(suspension.phase, why))
        why = f"is suspended {suspension.why} since {since}{_where(suspension, bool(one.attempt.claims))}"
        if not suspension.resumes:
            return WaitExplanation(Reason("suspended", f"{why}; `dibs resume {job.reference}` lets it go on"))
        waits = plan().reasons.get(job.id)
        if suspension.why_not and suspension.frees_cards:
            why = f"{why}; it was not resumed at the last try: {suspension.why_not}"
        return WaitExplanation(Reason("suspended", f"{why}; {waits.sentence if waits else 'is about to go on'}"))

    def _stays(self, job: Job) -> str:
        """Why a job does not make way for those who work on its GPU without dibs, though it should."""
        engine = self._engine
        strangers = engine.cards.board().strangers() if engine.limits.suspend_rules.yields_to_others else {}
        if not strangers:
            return ""
        from dibs.policy.neighbours import why_it_stays

        running = engine.snapshot(self._clock()).preemptible
        return next((why_it_stays(one, strangers) for one in running if one.job.id == job.id), "")

    def _overbooked(self, job: Job) -> list[str]:
        """What is wrong with the GPUs of a job that runs here."""
        one = self._engine.state.open.get((job.id, job.attempts))
        return [] if one is None else self._engine.cards.overbooked(one.attempt.claims)

    def _newest(self, state: State, most: int) -> list[Job]:
        return [row.job for row in self._listing.page(Filter(states=(state,)), "newest", None, most).rows]

    def _before_line(self, job: Job, now: float) -> Reason | None:
        """What a queued job waits for before it stands in line; None for one that needs only room."""
        if job.blockers:
            return self._for_others(job)
        if "" in (paused := self._engine.state.paused):
            why = paused[""]
            return Reason("paused", f"waits: the queue is paused{f' ({why})' if why else ''}")
        if job.not_before is not None and job.not_before > now:
            what = "to be tried again" if job.attempts else "for its time"
            return Reason("begin", f"waits {what}", until=job.not_before)
        return None

    def _starting(self) -> Reason:
        """Nothing of the queue keeps it from starting."""
        if trouble := self._engine.trouble:
            return Reason("starting", f"is about to start, but nothing starts at the moment: {trouble}")
        return Reason("starting", "is about to start")

    def _in_line(self, job: Job, now: float) -> Reason:
        """Why a job waits that may start as soon as there is room for it."""
        snapshot = self._engine.snapshot(now, [job])
        if all(other.id != job.id for other in snapshot.waiting):
            waiting = fair_order([*snapshot.waiting, job], self._engine.state.served)
            snapshot = replace(snapshot, waiting=waiting)
        reason = schedule(snapshot).reasons.get(job.id)
        if reason is None:
            return self._starting()
        if nested := self._nested(job, snapshot, reason):
            return nested
        ahead = self._outlook(now).ahead_of(job, self._engine.cards.pool.cards) if reason.code in _ROOM else None
        if ahead is None:
            ahead = self._listing.ahead_of(job.id, now)
        return waits_for_turn(ahead, reason) if ahead else reason

    def _nested(self, job: Job, snapshot: Snapshot, reason: Reason) -> Reason | None:
        """The reason of a job that needs what its own parent holds, or other jobs that wait for theirs."""
        running = list(self._engine.state.open.values())
        parent = parent_of(self._listing.environment(job.environment), running)
        if parent is None:
            return None
        parents = {
            one.job.id: one
            for environment in self._listing.environments_of_queued(_CHILDREN)
            if (one := parent_of(environment, running)) is not None
        }
        holders = in_the_way(job, snapshot, parents.values(), running)
        return reason_of(job, parent, holders, reason) if holders else None

    def _prospect(self, number: JobId, now: float) -> Prospect:
        known = self._outlook(now).prospects.get(number)
        return known or Prospect(unknown=f"more than {MOST_JOBS} jobs go first")

    def _outlook(self, now: float) -> _Outlook:
        kept, last = self._kept, self._engine.store.events.last_id
        since = time.monotonic()
        if kept is not None:
            age = since - kept.made_at
            if age < max(kept.took * _STALE_AFTER, _KEPT_FOR if kept.after == last else 0.0):
                return kept
        line = self._line(now)
        order = starting_order(line)
        prospects = forecast(line, order)
        in_line = [job for job in line.snapshot.waiting if not job.blockers and (job.not_before or 0.0) <= now]
        reasons = schedule(replace(line.snapshot, waiting=in_line)).reasons
        until = time.monotonic()
        jobs = {job.id: job for job in line.snapshot.waiting}
        self._kept = _Outlook(prospects, order, jobs, reasons, last, until, until - since)
        return self._kept

    def _line(self, now: float, more: Sequence[Job] = ()) -> Line:
        """The queue with these jobs in it, and what is known of its times."""
        waits = self._listing.needs(MOST_JOBS)
        waiting = [
            *self._ready(now),
            *self._engine.store.delayed((now, 0), MOST_JOBS),
            *self._blocked(waits),
            *more,
        ]
        needs = waits | {job.id: self._unfinished(job.request) for job in more if job.request.after}
        snapshot = self._engine.snapshot(now, waiting)
        waiting = fair_order(waiting, self._engine.state.served)
        return Line(
            snapshot=replace(snapshot, waiting=waiting),
            durations=self._usual_seconds(),
            needs=needs,
            ends=self._ends(needs),
            unadded={job.id for job in more},
        )

    def _unfinished(self, request: Request) -> list[JobId]:
        """The jobs that it follows and that are not over."""
        states = self._listing.states([needed.job for needed in request.after])
        return [number for number, state in states.items() if not state.is_over]

    def _ready(self, now: float) -> list[Job]:
        """The first of each project that may start as soon as there is room."""
        store = self._engine.store

        def of_class(name: str) -> Iterator[Job]:
            skipped = 0
            while some := store.waiting(name, now, _PORTION, skipped):
                yield from some
                skipped += len(some)

        projects: dict[str, list[Iterator[Job]]] = {}
        for name in store.waiting_classes():
            jobs = of_class(name)
            if first := next(jobs, None):
                projects.setdefault(first.request.project, []).append(chain([first], jobs))
        # Projects take turns: of many, each has only a few among the first.
        most = MOST_JOBS if len(projects) < 8 else MOST_JOBS * 8 // len(projects) + 1
        lines = (islice(heapq.merge(*classes, key=_place), most) for classes in projects.values())
        return [job for line in lines for job in line]

    def _blocked(self, waits: Mapping[JobId, Collection[JobId]]) -> list[Job]:
        return [job for job in self._engine.store.queue.find(waits) if job.state is State.QUEUED]

    def _ends(self, needs: Mapping[JobId, Collection[JobId]]) -> dict[JobId, float]:
        """When the running jobs end that others wait for, as far as that is known."""
        needed = {number for numbers in needs.values() for number in numbers}
        usual = self._usual_seconds()
        found = {}
        for one in self._engine.state.open.values():
            if one.job.id in needed:
                expected = usual(one.job)
                seconds = longest(one.job) if expected is None else min(expected, longest(one.job))
                found[one.job.id] = one.attempt.opened_at + seconds
        return found

    def _for_others(self, job: Job) -> Reason:
        needed = self._listing.blockers(job.id)
        parts = [
            f"job {number} {_WANTED[After(kind)]}{f' (it {state.phrase})' if state else ''}"
            for number, kind, state in needed[:3]
        ]
        more = f" and {len(needed) - 3} more" if len(needed) > 3 else ""
        return Reason("dependency", f"waits for {', '.join(parts)}{more}")

    def _usual_seconds(self) -> Callable[[Job], float | None]:
        """Tells how long a job runs at the most, or how long the last one of its name did."""
        known: dict[tuple[str, str], float | None] = {}

        def usual(job: Job) -> float | None:
            key = (job.request.project, job.request.name)
            if key not in known:
                known[key] = self._listing.seconds_of(*key)
            return job.request.time_limit if known[key] is None else known[key]

        return usual


_BY_SUSPENDING = frozenset({"suspending", "slice"})  # reasons of jobs that others are suspended for, now or later
_TAKES_LONGER = "that takes longer than it did before"


def _is_held(job: Job, which: str = "") -> Reason:
    """Why a job is held; `which` names it in the command that lets it go."""
    release = f"dibs release {which}".strip()
    return Reason("held", f"is held: {job.why_held or 'held'}; `{release}` lets it go")


def _orphaned(job: Job, left: Leftovers) -> Reason:
    """Why a job still runs whose supervisor was killed."""
    if not left.processes:
        who = "a process that dibs cannot see, perhaps of another user, still holds its GPU"
        return Reason("orphaned", f"its supervisor was killed, and {who}; `dibs gpus` shows the GPU's processes")
    number = len(left.processes)
    text = f"its supervisor was killed, and {named(left.processes)} still {'runs' if number == 1 else 'run'}"
    if foreign := [one for one in left.processes if not one.is_ours]:
        text += f"; dibs cannot end {named(foreign)}, of another user"
    elif not left.ended_by:
        text += f"; `dibs kill {job.id}` ends {'it' if number == 1 else 'them'}"
    return Reason("orphaned", text)


def _where(suspension: Suspension, has_cards: bool) -> str:
    """Where its memory is now."""
    size = show_size(suspension.held_bytes) if suspension.held_bytes else ""
    if not has_cards:
        return ", by a signal; its memory stays as it is"
    if suspension.frees_cards:
        return f", with {size} in the machine's memory" if size else ""
    stays = f"its {size} are still" if size else "what it has there stays"
    return f", by a signal, and {stays} on its GPU: {suspension.why_not}"


_WANTED = {After.OK: "to succeed", After.ANY: "to end", After.FAIL: "to fail"}


def _place(job: Job) -> tuple[int, float, int]:
    return (*job.order, job.id)
