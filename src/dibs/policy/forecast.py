"""When waiting jobs will start if each runs as long as expected: the scheduler on a simulated clock."""

import math
from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from fractions import Fraction

from dibs.dataclass import dataclass
from dibs.model.jobs import Job, JobId
from dibs.policy.fitting import host_needs
from dibs.policy.schedule import kind_of, longest, schedule
from dibs.policy.snapshot import CardView, Hold, Placement, Snapshot

MOST_JOBS = 500  # further back a forecast says little
_AT_ONCE = 8  # jobs of one kind that start on a card at one moment; more come in the next plan
_ASSUMED = 3600.0  # seconds of a job whose length is unknown, where only the order of the starts is asked for


@dataclass(frozen=True, slots=True)
class Prospect:
    """When and where a job will start."""

    starts_at: float | None = None  # None: unknown
    gpus: tuple[int, ...] = ()  # indices
    unknown: str = ""  # why the moment is unknown


@dataclass(frozen=True, kw_only=True, slots=True)
class Line:
    """Everything that waits, and what is known of the time that it takes."""

    snapshot: Snapshot  # its waiting jobs are all of the queue, not only those that could start now
    durations: Callable[[Job], float | None]  # how many seconds a job will run; None: unknown
    needs: Mapping[JobId, Collection[JobId]] = field(default_factory=dict)  # the jobs that must end before
    ends: Mapping[JobId, float] = field(default_factory=dict)  # when those of them end that run
    unadded: Collection[JobId] = ()  # of which is only asked: their numbers are known to no user


def forecast(line: Line, jobs: Collection[JobId]) -> dict[JobId, Prospect]:
    """The prospects of these jobs, which wait in the line.

    A job of unknown length ends at its time limit, and jobs that wait for one without a limit have no known start.
    Present holders end at their limits.
    """
    found: dict[JobId, Prospect] = {}
    unknown = set(jobs)
    endless: list[JobId] = []
    for at, placement, seconds in _starts(line):
        number = placement.job.id
        if seconds == math.inf:
            endless.append(number)
        if number in unknown:
            found[number] = Prospect(at, tuple(claim.index for claim in placement.claims))
            unknown.discard(number)
            if not unknown:
                break
    if unknown:
        waiting = {job.id: job for job in line.snapshot.waiting[:MOST_JOBS]}
        for number in unknown:
            found[number] = Prospect(unknown=_why_unknown(waiting.get(number), line, found, endless))
    return {job: found[job] for job in jobs}


def starting_order(line: Line) -> list[JobId]:
    """The first jobs of the line in the order in which they will start; those without a known start come last."""
    durations, snapshot = line.durations, line.snapshot
    assumed = replace(
        line,
        snapshot=replace(
            snapshot,
            cards=tuple(_ending(view, snapshot.now + _ASSUMED) for view in snapshot.cards),
            room_without_gpu=max(1, snapshot.room_without_gpu),
        ),
        durations=lambda job: _ASSUMED if (known := durations(job)) is None else known,
    )
    order = [placement.job.id for _, placement, _ in _starts(assumed)]
    begun = set(order)
    return [*order, *(job.id for job in snapshot.waiting[:MOST_JOBS] if job.id not in begun)]


def _why_unknown(job: Job | None, line: Line, found: Mapping[JobId, Prospect], endless: Sequence[JobId]) -> str:
    """Why a job has no known start: what comes first has no known end."""
    if job is None:
        return f"more than {MOST_JOBS} jobs go first"
    if job.request.on:
        return f"{job.request.on.capitalize()} decides that"
    if line.snapshot.paused.keys() & {"", job.request.project}:
        return "it is not known when the pause ends"
    for needed in line.needs.get(job.id, ()):
        end = line.ends.get(needed)  # of one that runs
        if end == math.inf or (end is None and (needed not in found or needed in endless)):
            return f"it is not known when job {needed} ends"
    if endless:
        who = "another job of this list" if endless[0] in line.unadded else f"job {endless[0]}"
        return f"{who}, which goes first, has no time limit"
    holders = [holder for view in line.snapshot.cards if _has_endless(view) for holder in view.holders]
    names = list(dict.fromkeys(holders))
    if len(names) == 1:
        return f"it is not known when {names[0]} ends"
    return "what holds the GPUs has no time limit" if names else "it is not known when what it waits for ends"


def _ending(view: CardView, at: float) -> CardView:
    """The same card, where the holders end at this moment whose end is unknown."""
    known = [hold for hold in view.ends if hold.ends_at is not None]
    share = view.taken - sum((hold.share for hold in known), Fraction(0))
    if share <= 0:
        return view
    vram = max(0, view.vram_taken - sum(hold.vram for hold in known))
    return replace(view, ends=(*known, Hold(share, vram, at)))


def _has_endless(view: CardView) -> bool:
    """Whether a card has a holder whose end is unknown."""
    return view.taken > sum((hold.share for hold in view.ends if hold.ends_at is not None), Fraction(0))


@dataclass(frozen=True, slots=True)
class _Run:
    """A run that ends at a known moment, and what it holds."""

    ends_at: float
    holds: tuple[tuple[str, Hold], ...]  # by the card's key
    job: Job | None = None  # None for a present holder


class _World:
    """A machine whose jobs end when they are expected to."""

    def __init__(self, snapshot: Snapshot) -> None:
        self.now = snapshot.now
        self._views = {view.card.gpu.key: view for view in snapshot.cards}
        self._runs = [
            _Run(hold.ends_at, ((key, hold),))
            for key, view in self._views.items()
            for hold in view.ends
            if hold.ends_at is not None
        ]
        self._snapshot = snapshot
        self._room = snapshot.room_without_gpu
        self._cpus, self._mem = snapshot.cpus_free, snapshot.mem_free
        self._arrays = dict(snapshot.array_running)

    @property
    def next_end(self) -> float:
        return min((run.ends_at for run in self._runs), default=math.inf)

    def place(self, waiting: list[Job]) -> list[Placement]:
        """What starts now."""
        snapshot = replace(
            self._snapshot,
            cards=tuple(self._views.values()),
            waiting=waiting,
            room_without_gpu=self._room,
            now=self.now,
            cpus_free=self._cpus,
            mem_free=self._mem,
            array_running=self._arrays,
            preemptible=(),  # suspended in no forecast: how long an urgent job runs decides when they go on
            suspended=(),
            turns=None,
        )
        return schedule(snapshot).placements

    def begin(self, placement: Placement, seconds: float) -> None:
        job = placement.job
        # The scheduler will know its limit, not how long it is expected to run.
        limit = longest(job)
        ends_at = None if limit == math.inf else self.now + limit
        holds = tuple((claim.gpu, Hold(claim.share, claim.vram, ends_at)) for claim in placement.claims)
        for key, hold in holds:
            self._views[key] = _with(self._views[key], hold)
        self._count(job, 1)
        if seconds < math.inf:
            self._runs.append(_Run(self.now + seconds, holds, job))

    def advance(self, now: float) -> None:
        """Set the clock, and release what has ended by then."""
        self.now = now
        for run in [run for run in self._runs if run.ends_at <= now]:
            self._runs.remove(run)
            for key, hold in run.holds:
                self._views[key] = _without(self._views[key], hold)
            if run.job is not None:
                self._count(run.job, -1)

    def _count(self, job: Job, by: int) -> None:
        """Book what a job takes of the host, or release it."""
        wishes = job.request.wishes
        cpus, mem = host_needs(wishes, self._snapshot.lessons)
        self._room -= by * (wishes.num_gpus == 0)
        if self._cpus is not None:
            self._cpus -= by * cpus
        if self._mem is not None:
            self._mem -= by * mem
        if array := job.request.array:
            self._arrays[array.array] = self._arrays.get(array.array, 0) + by


def _starts(line: Line) -> Iterator[tuple[float, Placement, float]]:
    """The starts in their order: when, where, and how many seconds it will run; infinity if that is unknown."""
    world = _World(line.snapshot)
    ends = dict(line.ends)
    # When another system starts its jobs is not known here.
    ready = [job for job in line.snapshot.waiting[:MOST_JOBS] if not job.request.on]
    place = {job.id: number for number, job in enumerate(ready)}
    numbers: dict[Hashable, int] = {}  # comparing kinds takes long
    kinds = {job.id: numbers.setdefault(kind_of(job.request), len(numbers)) for job in ready}

    def ready_at(job: Job) -> float:
        needed = line.needs.get(job.id, ())
        return max([_due(job), *(ends.get(number, math.inf) for number in needed)])

    apart = [job for job in ready if ready_at(job) > world.now]
    ready = [job for job in ready if ready_at(job) <= world.now]
    while ready or apart:
        world.advance(world.now)
        most = _AT_ONCE * len(line.snapshot.cards) + line.snapshot.room_without_gpu
        heads, is_cut = _heads(ready, kinds, max(1, most))  # without a card and room there is a first one, too
        placements = world.place(heads)
        for placement in placements:
            expected, limit = line.durations(placement.job), longest(placement.job)
            seconds = limit if expected is None else min(max(0.0, expected), limit)
            yield world.now, placement, seconds
            world.begin(placement, seconds)
            ends[placement.job.id] = world.now + seconds
        begun = {placement.job.id for placement in placements}
        ready = [job for job in ready if job.id not in begun]
        if is_cut and len(begun) == len(heads):
            continue  # there may be room for more
        moments = [world.next_end, *map(ready_at, apart)]
        if min(moments) == math.inf:
            return
        world.advance(max(world.now, min(moments)))
        if due := [job for job in apart if ready_at(job) <= world.now]:
            apart = [job for job in apart if ready_at(job) > world.now]
            ready = sorted([*ready, *due], key=lambda job: place[job.id])


def _heads(ready: Sequence[Job], kinds: Mapping[JobId, int], most: int) -> tuple[list[Job], bool]:
    """The first of each kind: a plan treats the others alike. And whether any was left out."""
    counts: Counter[int] = Counter()
    found = []
    for job in ready:
        kind = kinds[job.id]
        counts[kind] += 1
        if counts[kind] <= most:
            found.append(job)
    return found, len(found) < len(ready)


def _due(job: Job) -> float:
    """The moment before which it must not start."""
    return max(job.not_before or 0.0, job.request.begin or 0.0)


def _with(view: CardView, hold: Hold) -> CardView:
    free = view.vram_free
    return replace(
        view,
        taken=view.taken + hold.share,
        vram_taken=view.vram_taken + hold.vram,
        vram_free=None if free is None else free - hold.vram,
        ends=(*view.ends, hold),
    )


def _without(view: CardView, hold: Hold) -> CardView:
    ends = list(view.ends)
    ends.remove(hold)
    taken = max(Fraction(0), view.taken - hold.share)
    free = view.vram_free
    return replace(
        view,
        taken=taken,
        vram_taken=max(0, view.vram_taken - hold.vram),
        vram_free=None if free is None or not taken else free + hold.vram,  # an empty card has all its memory
        ends=tuple(ends),
    )
