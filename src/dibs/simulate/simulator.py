"""Runs a trace on a simulated machine and clock; every plan comes from the policy itself.

The order of steps is that of the engine: at each moment the ends, then the arrivals, then plans until nothing more
starts. The policy gets the same snapshot as in the engine.
"""

import bisect
import functools
import heapq
import math
from collections import Counter
from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from dataclasses import field, replace
from fractions import Fraction

from dibs.dataclass import dataclass
from dibs.model.gpus import Claim
from dibs.model.jobs import Job, JobId, Request, Wishes
from dibs.policy.fitting import booking, most_at_once
from dibs.policy.schedule import (
    fair_order,
    impossible,
    kind_of,
    longest,
    schedule,
    served_after,
    with_project,
    without_idle,
)
from dibs.policy.snapshot import CardView, Hold, Placement, Snapshot
from dibs.simulate.machine import Arrival, Rules, SimulatedMachine


@dataclass(frozen=True, slots=True)
class SimulatedRun:
    """A job that ran, once, to its end."""

    arrival: Arrival
    ready_at: float  # when it was queued, its start time had passed, and its dependencies were over
    started_at: float
    ended_at: float
    claims: tuple[Claim, ...]

    @property
    def waited(self) -> float:
        return self.started_at - self.ready_at

    @property
    def held(self) -> float:
        """GPUs; half a card is 0.5."""
        return float(sum((claim.share for claim in self.claims), Fraction(0)))


@dataclass(frozen=True, slots=True)
class ImpossibleJob:
    """A job that could not run, and why."""

    arrival: Arrival
    why: str


@dataclass(slots=True)
class History:
    """The outcome of every job of a trace."""

    runs: list[SimulatedRun] = field(default_factory=list)  # in the order of their ends
    never: list[ImpossibleJob] = field(default_factory=list)


def simulate(trace: Sequence[Arrival], machine: SimulatedMachine, rules: Rules | None = None) -> History:
    """Run the trace to its end."""
    return _Simulator(trace, machine, Rules() if rules is None else rules).play()


class _Simulator:
    """A machine, its queue, and a clock."""

    def __init__(self, trace: Sequence[Arrival], machine: SimulatedMachine, rules: Rules) -> None:
        machine = rules.machine(machine)
        self._arrivals = {one.job.id: one for one in trace}
        self._jobs = {one.job.id: rules.job(one.job) for one in trace}
        self._books = _Books(machine)
        self._turns = _Turns()
        self._line = _WaitingJobs()
        self._history = History()
        self._due: list[tuple[float, JobId]] = []  # jobs that will be ready
        self._ends: list[tuple[float, JobId]] = []
        self._ready_at: dict[JobId, float] = {}
        self._running: dict[JobId, tuple[float, Placement]] = {}  # with their start times
        self._blockers: dict[JobId, set[JobId]] = {}
        self._followers: dict[JobId, list[JobId]] = {}
        self._now = 0.0
        self._let_in(machine)

    def play(self) -> History:
        while self._due or self._ends:
            self._now = min(heap[0][0] for heap in (self._due, self._ends) if heap)
            while self._ends and self._ends[0][0] <= self._now:
                self._end(heapq.heappop(self._ends)[1])
            while self._due and self._due[0][0] <= self._now:
                self._line.add(self._jobs[heapq.heappop(self._due)[1]])
            self._begin()
        self._give_up()
        return self._history

    def _let_in(self, machine: SimulatedMachine) -> None:
        """Refuse jobs that could never run, as the queue does, and schedule the arrival of the others."""
        answers: dict[Wishes, str] = {}
        pool = machine.pool
        for number, job in self._jobs.items():
            wishes = job.request.wishes
            if wishes not in answers:
                answers[wishes] = impossible(wishes, pool, machine.cpus, machine.mem)
            if answers[wishes]:
                self._history.never.append(ImpossibleJob(self._arrivals[number], answers[wishes]))
                continue
            blockers = {one.job for one in job.request.after}
            if blockers:
                self._blockers[number] = blockers
                for one in blockers:
                    self._followers.setdefault(one, []).append(number)
            else:
                self._expect(number, self._arrivals[number].queued_at)

    def _expect(self, number: JobId, at: float) -> None:
        """Let the job be ready from this moment on, or from its own start time."""
        ready_at = max(at, self._arrivals[number].queued_at, self._jobs[number].request.begin or 0.0)
        self._ready_at[number] = ready_at
        heapq.heappush(self._due, (ready_at, number))

    def _end(self, number: JobId) -> None:
        started_at, placement = self._running.pop(number)
        self._books.release(placement)
        self._turns.ended(placement.job)
        self._history.runs.append(
            SimulatedRun(self._arrivals[number], self._ready_at[number], started_at, self._now, placement.claims)
        )
        for follower in self._followers.pop(number, ()):
            self._blockers[follower].discard(number)
            if not self._blockers[follower]:
                self._expect(follower, self._now)

    def _begin(self) -> None:
        """Start what may start now. A plan sees only the first jobs of each kind, so it may need several plans."""
        while self._line:
            self._turns.let_join(self._line.projects)
            if not self._books.may_fit(self._line.wishes):
                return
            waiting = self._turns.ordered(self._line.first(self._books.most_at_once))
            plan = schedule(self._books.snapshot(waiting, self._now))
            for placement in plan.placements:
                self._start(placement)
            if self._line.each_kind_waits(waiting, plan.reasons):
                return

    def _start(self, placement: Placement) -> None:
        job = placement.job
        self._line.remove(job)
        self._books.book(placement, self._now)
        self._turns.started(job)
        self._running[job.id] = (self._now, placement)
        heapq.heappush(self._ends, (self._now + self._arrivals[job.id].runs, job.id))

    def _give_up(self) -> None:
        """Record the jobs that are left: they can never run."""
        stuck = schedule(self._books.snapshot(self._line.jobs, self._now)).reasons
        for number, reason in stuck.items():
            self._history.never.append(ImpossibleJob(self._arrivals[number], f"it {reason.sentence}"))
        for number, blockers in self._blockers.items():
            if blockers:
                self._history.never.append(
                    ImpossibleJob(self._arrivals[number], "it follows a job that never ran")
                )


class _Books:
    """What is in use of each card and of the machine."""

    def __init__(self, machine: SimulatedMachine) -> None:
        self._views = {card.gpu.key: CardView(card=card) for card in machine.pool.cards}
        self._cpus, self._mem = machine.cpus, machine.mem
        self._room = machine.room_without_gpu
        self._arrays: Counter[JobId] = Counter()
        self._holds: dict[JobId, list[tuple[str, Hold]]] = {}
        self._open = set(self._views)  # cards that are not fully taken
        self.most_at_once = functools.cache(functools.partial(most_at_once, machine.pool.cards))

    def snapshot(self, waiting: Sequence[Job], now: float) -> Snapshot:
        return Snapshot(
            cards=tuple(self._views.values()),
            waiting=waiting,
            room_without_gpu=self._room,
            now=now,
            cpus_free=self._cpus,
            mem_free=self._mem,
            array_running=self._arrays,
        )

    def may_fit(self, wishes: Collection[Wishes]) -> bool:
        """Whether the cards have room for any of these. On a busy machine most arrivals need no plan."""
        return any(self._fits(one) for one in wishes)

    def _fits(self, wishes: Wishes) -> bool:
        if not wishes.num_gpus:
            return self._room > 0
        views = [self._views[key] for key in self._open]
        return sum(view.free >= booking(view.card, wishes) for view in views) >= wishes.num_gpus

    def book(self, placement: Placement, now: float) -> None:
        length = longest(placement.job)
        ends_at = None if length == math.inf else now + length
        holds = [(claim.gpu, Hold(claim.share, claim.vram, ends_at)) for claim in placement.claims]
        self._holds[placement.job.id] = holds
        for key, hold in holds:
            view = self._views[key]
            self._views[key] = replace(
                view,
                taken=view.taken + hold.share,
                vram_taken=view.vram_taken + hold.vram,
                ends=(*view.ends, hold),
            )
            if self._views[key].free <= 0:
                self._open.discard(key)
        self._count(placement.job, 1)

    def release(self, placement: Placement) -> None:
        for key, hold in self._holds.pop(placement.job.id):
            view = self._views[key]
            self._open.add(key)
            ends = list(view.ends)
            ends.remove(hold)
            self._views[key] = replace(
                view,
                taken=view.taken - hold.share,
                vram_taken=view.vram_taken - hold.vram,
                ends=tuple(ends),
            )
        self._count(placement.job, -1)

    def _count(self, job: Job, by: int) -> None:
        """Book what a job uses besides its cards, or return it."""
        wishes = job.request.wishes
        self._room -= by * (wishes.num_gpus == 0)
        if self._cpus is not None:
            self._cpus -= by * (wishes.cpus or 0)
        if self._mem is not None:
            self._mem -= by * (wishes.mem or 0)
        if array := job.request.array:
            self._arrays[array.array] += by


class _Turns:
    """The order between projects, counted as in the engine."""

    def __init__(self) -> None:
        self._served: Mapping[str, float] = {}
        self._active: set[str] = set()
        self._running: Counter[str] = Counter()

    def let_join(self, waiting: set[str]) -> None:
        active = waiting | {project for project, count in self._running.items() if count}
        if active != self._active:
            for project in sorted(active - self._active):
                self._served = with_project(self._served, project, self._active)
            self._served = without_idle(self._served, active)
            self._active = active

    def ordered(self, waiting: list[Job]) -> list[Job]:
        return fair_order(waiting, self._served) if len(self._active) > 1 else waiting

    def started(self, job: Job) -> None:
        self._served = served_after(self._served, job)
        self._running[job.request.project] += 1

    def ended(self, job: Job) -> None:
        self._running[job.request.project] -= 1


class _Kind:
    """The waiting jobs of one scheduling class, each with its order."""

    def __init__(self, request: Request) -> None:
        self.wishes = request.wishes
        self.project = request.project
        self.places: list[tuple[tuple[int, float], Job]] = []


class _WaitingJobs:
    """The waiting jobs by kind. As in the engine, a plan needs only the first few of each."""

    def __init__(self) -> None:
        self._kinds: dict[Hashable, _Kind] = {}
        self._kind_of: dict[JobId, _Kind] = {}

    def __bool__(self) -> bool:
        return bool(self._kinds)

    def add(self, job: Job) -> None:
        name = kind_of(job.request)
        kind = self._kinds.get(name)
        if kind is None:
            kind = self._kinds[name] = _Kind(job.request)
        self._kind_of[job.id] = kind
        bisect.insort(kind.places, (job.order, job), key=_order)

    def remove(self, job: Job) -> None:
        kind = self._kind_of[job.id]
        del kind.places[bisect.bisect_left(kind.places, job.order, key=_order)]
        if not kind.places:
            del self._kinds[kind_of(job.request)]

    def first(self, each: Callable[[Wishes], int]) -> list[Job]:
        """The first jobs of each kind, together in order. `each` returns how many could start at most."""
        found = [place for kind in self._kinds.values() for place in kind.places[: each(kind.wishes)]]
        if len(self._kinds) > 1:
            found.sort(key=_order)
        return [job for _, job in found]

    @property
    def jobs(self) -> list[Job]:
        return [job for kind in self._kinds.values() for _, job in kind.places]

    @property
    def projects(self) -> set[str]:
        return {kind.project for kind in self._kinds.values()}

    @property
    def wishes(self) -> set[Wishes]:
        return {kind.wishes for kind in self._kinds.values()}

    def each_kind_waits(self, seen: Collection[Job], waiting: Collection[JobId]) -> bool:
        """Whether a job of each kind in `seen` still waits; otherwise more jobs of that kind may fit."""
        left = {self._kind_of[number] for number in waiting}
        return all(self._kind_of[job.id] in left for job in seen)


def _order(place: tuple[tuple[int, float], Job]) -> tuple[int, float]:
    return place[0]
