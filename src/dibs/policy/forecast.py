"""When waiting jobs will start if each runs as long as expected: the scheduler on a simulated clock."""

import math
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, replace
from fractions import Fraction

from dibs.model.jobs import Job, JobId
from dibs.policy.fitting import host_needs
from dibs.policy.schedule import longest, schedule
from dibs.policy.snapshot import CardView, Hold, Placement, Snapshot

_MOST_JOBS = 500  # further back a forecast says little


@dataclass(frozen=True, slots=True)
class Prospect:
    """When and where a job will start; None and no GPUs if unknown."""

    starts_at: float | None = None
    gpus: tuple[int, ...] = ()  # indices


def forecast(
    snapshot: Snapshot, jobs: Collection[JobId], durations: Callable[[Job], float | None]
) -> dict[JobId, Prospect]:
    """The prospects of these jobs, which wait in the snapshot.

    `durations` says how many seconds a job will run, None if unknown: then its time limit counts, and jobs that
    wait for one without a limit have no known start. Present holders end at their limits.
    """
    found = {job: Prospect() for job in jobs}
    unknown = set(found)
    for at, placement in _starts(snapshot, durations):
        if placement.job.id in unknown:
            found[placement.job.id] = Prospect(at, tuple(claim.index for claim in placement.claims))
            unknown.discard(placement.job.id)
            if not unknown:
                break
    return found


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


def _starts(snapshot: Snapshot, durations: Callable[[Job], float | None]) -> Iterator[tuple[float, Placement]]:
    world = _World(snapshot)
    # When another system starts its jobs is not known here.
    line = [job for job in snapshot.waiting[:_MOST_JOBS] if not job.request.on]
    while line:
        world.advance(world.now)
        placements = world.place([job for job in line if _due(job) <= world.now])
        for placement in placements:
            yield world.now, placement
            expected = durations(placement.job)
            limit = longest(placement.job)
            world.begin(placement, limit if expected is None else min(max(0.0, expected), limit))
        begun = {placement.job.id for placement in placements}
        line = [job for job in line if job.id not in begun]
        moments = [world.next_end, *(_due(job) for job in line if _due(job) > world.now)]
        if min(moments) == math.inf:
            return
        world.advance(max(world.now, min(moments)))


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
