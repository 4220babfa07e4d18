"""Starts trials: new points, and failed trials that are retried, as many as there is room for."""

import asyncio
import time
from collections.abc import Sequence
from dataclasses import replace

from dibs.dataclass import dataclass
from dibs.engine.sweeps.checkpoints import WAITS, hand_over, hold_without_copy
from dibs.engine.sweeps.context import request_of
from dibs.engine.sweeps.work import LazyAdviser, SweepWork
from dibs.engine.turn.state import Change
from dibs.model.jobs import JobId
from dibs.model.records import JobsHeld
from dibs.model.sweeps import Point, Sweep, SweepState, Trial, TrialState
from dibs.policy.sweeps import MOST_LEFT_OUT, reached_by, room
from dibs.sweeps.population import Member, next_generation

_AT_ONCE = 16  # trials recorded in one turn, which takes some milliseconds
_SLICE = 0.002  # seconds of searching for points, and then as many for other tasks
_LOOKED_AT = 20  # points between two readings of the clock; one takes up to 0.1 ms


@dataclass(frozen=True, slots=True)
class NextPoint:
    """A point to try, the cursor of its sweep after it, and its number in the study if it has one."""

    point: Point
    cursor: int = 0
    study: int | None = None
    continues: int | None = None  # the trial whose checkpoint it takes over
    repeat: int = 0  # from 1 on, where points are repeated


class TrialStarter:
    """Turns points into trials and jobs."""

    def __init__(self, work: SweepWork, adviser: LazyAdviser, news: asyncio.Event) -> None:
        self._work = work
        self._adviser = adviser
        self._news = news  # set when the search for points must be interrupted
        self._drawn_from: object = None
        self._warm_to = 0  # the index up to which points were drawn, which is needed to detect duplicates
        self._first_free: int | None = None  # the trial number after the highest that a job has
        self._tried: set[str] = set()  # the work of each trial; of a sweep whose points were edited
        self._tried_of: object = None
        self.left_out = 0  # consecutive points that the conditions exclude

    async def fill(self) -> None:
        """Add jobs until as many trials are open as allowed, or there are no more points."""
        work = self._work
        self._add_missing_jobs()
        if work.search.spec.method == "population":
            await hand_over(work)
        while (places := min(self._room(), _AT_ONCE)) > 0:
            if due := work.table.due(work.id, places):
                self._try_again(due)
            else:
                points = await self._with_repeats(self._to_look_at(places))
                if not work.is_current:
                    continue  # it was edited, and these points are not of its ranges
                if not points:
                    break
                await self._record(points, places)
            await asyncio.sleep(_SLICE)  # other tasks must not wait for 100,000 points with known results
        if work.search.spec.pruner and self._may_begin(work.load()):
            await self._adviser.enroll()

    def _may_begin(self, sweep: Sweep) -> bool:
        work = self._work
        if sweep.state is not SweepState.RUNNING or work.context.engine.is_draining:
            return False
        metrics = work.search.spec.metrics
        has_target = any(metric.target is not None for metric in metrics)
        return not (has_target and reached_by(work.table.best(work.id), metrics))

    def _room(self) -> int:
        work = self._work
        sweep = work.load()
        if not self._may_begin(sweep):
            return 0
        counts = work.table.counts(work.id)
        parallel = work.search.parallel(work.context, work.wishes(sweep), sweep.request.on)
        # A retry is not a new trial.
        most = None if work.table.due(work.id, 1) else work.search.size
        return room(parallel, counts.get(TrialState.OPEN, 0), sum(counts.values()), most)

    def _to_look_at(self, places: int) -> int:
        """How many points to fetch: more than places where some may have known results and need no place."""
        work = self._work
        if work.search.spec.method == "adaptive":
            return places
        made, most = sum(work.table.counts(work.id).values()), work.search.size
        return _AT_ONCE if most is None else min(_AT_ONCE, most - made)

    # -- points ----------------------------------------------------------------------------------------

    async def _with_repeats(self, count: int) -> list[NextPoint]:
        """At most `count` points; perhaps more where each has all its repeats: some find no place, and wait."""
        spec = self._work.search.spec
        if not spec.over:
            return await self._next_points(count)
        found = self._left_of_last_point()
        if len(found) < count:
            for one in await self._next_points(-(-(count - len(found)) // spec.repeat)):
                found += (self._repeated(one, repeat) for repeat in range(1, spec.repeat + 1))
        return found

    def _left_of_last_point(self) -> list[NextPoint]:
        """The repeats that the last point lacks: the points before it have theirs, or were pruned."""
        work, spec = self._work, self._work.search.spec
        number = work.table.next_number(work.id)
        last = work.table.trial(work.id, number - 1)
        if last is None or last.repeat_of is None:
            return []
        trials = work.table.of_point(work.id, last.repeat_of, spec.repeat)
        if any(one.state is TrialState.PRUNED or one.pruned_by for one in trials):
            return []
        cursor = work.table.sweep(work.id).cursor
        base = NextPoint(last.point, cursor, last.study)
        return [self._repeated(base, repeat) for repeat in range(len(trials) + 1, spec.repeat + 1)]

    def _repeated(self, one: NextPoint, repeat: int) -> NextPoint:
        return replace(one, point={**one.point, self._work.search.spec.over: str(repeat)}, repeat=repeat)

    async def _next_points(self, count: int) -> list[NextPoint]:
        """At most `count` points; none where there are no more, or none for now."""
        if self._work.search.spec.method == "adaptive":
            return [NextPoint(one.point, study=one.number) for one in await self._adviser.ask(count)]
        if self._work.search.spec.method == "population":
            return await self._next_of_population(count)
        return await self._scan(count)

    async def _next_of_population(self, count: int) -> list[NextPoint]:
        """Random points for the first generation; after it successors, when all of the one before have ended."""
        work, spec = self._work, self._work.search.spec
        generation, begun = divmod(sum(work.table.counts(work.id).values()), spec.population)
        if generation == 0:
            return await self._scan(min(count, spec.population - begun))
        before = work.table.generation(work.id, generation - 1, spec.population)
        if any(one.state is TrialState.OPEN or one.is_due for one in before):
            return []
        members = [
            Member(one.number, dict(one.point), one.values[0] if one.state.has_values and one.values else None)
            for one in before
        ]
        cursor = work.table.sweep(work.id).cursor
        found = next_generation(spec, generation, members)[begun : begun + count]
        return [NextPoint(dict(one.point), cursor, continues=one.continues) for one in found]

    async def _scan(self, count: int) -> list[NextPoint]:
        """Search for points that the conditions allow, some milliseconds at a time."""
        work = self._work
        sweep = work.load()
        points, cursor = work.search.points, sweep.cursor
        if points is not self._drawn_from:
            self._drawn_from, self._warm_to = points, 0
        found: list[NextPoint] = []
        tried = self._tried_before(points)
        begin = time.perf_counter()
        while len(found) < count and not self._is_exhausted(cursor):
            if points.size is None and self._warm_to < cursor:
                self._warm_to = min(cursor, self._warm_to + _LOOKED_AT)
                points.at(self._warm_to - 1)
            else:
                before = cursor
                cursor, point = points.next(cursor, _LOOKED_AT)
                self._warm_to = cursor
                if point is not None and tried and self._work_at(point, sweep) in tried:
                    continue
                if point is not None:
                    found.append(NextPoint(point, cursor))
                self.left_out = 0 if point is not None else self.left_out + cursor - before
            if time.perf_counter() - begin > _SLICE:
                if self._news.is_set():
                    break
                await asyncio.sleep(_SLICE)
                begin = time.perf_counter()
        if not found and cursor != sweep.cursor:
            with work.context.engine.change() as change:
                work.context.records.changed(replace(work.table.sweep(work.id), cursor=cursor), change.now)
        return found

    def _tried_before(self, points: object) -> set[str]:
        """The work that an edited sweep has done: it goes through its new points from the first."""
        work = self._work
        if self._tried_of is not points:
            # A population may have equal points, each with a checkpoint of its own.
            is_edited = work.search.spec.revision > 0 and work.search.spec.method != "population"
            self._tried = {_work_of(one.fingerprint) for one in work.table.all_of(work.id)} if is_edited else set()
            self._tried_of = points
        return self._tried

    def _work_at(self, point: Point, sweep: Sweep) -> str:
        over = self._work.search.spec.over
        return _work_of(self._work.search.fingerprint({**point, over: "1"} if over else point, sweep.request))

    def _is_exhausted(self, cursor: int) -> bool:
        return self.left_out >= MOST_LEFT_OUT or self._work.search.points.is_end(cursor)

    def is_exhausted(self, sweep: Sweep) -> bool:
        """Whether there are no more points."""
        return self._work.search.spec.method in ("grid", "random") and self._is_exhausted(sweep.cursor)

    # -- trials ----------------------------------------------------------------------------------------

    async def _record(self, points: Sequence[NextPoint], places: int) -> None:
        """Record trials and their jobs in one turn: no trial lacks its job, and none is recorded twice.

        Points without a place are not recorded, and the cursor of the sweep stays before them.
        """
        work = self._work
        sweep = work.load()
        trials: list[Trial] = []
        is_population = work.search.spec.method == "population"
        for number, one in enumerate(points, self._next_number()):
            trial = self._trial(sweep, number, one)
            places -= trial.state is TrialState.OPEN
            if places < 0:
                break
            # The same point from another checkpoint is other work.
            fingerprint = f"{trial.fingerprint} {number}" if is_population else trial.fingerprint
            trials.append(replace(trial, fingerprint=fingerprint, continues=one.continues))
        points = points[: len(trials)]
        self._check(sweep, trials)
        with work.context.engine.change() as change:
            if not self._may_begin(work.table.sweep(work.id)):
                return  # the sweep was stopped meanwhile; the points are kept for later
            done = self._as_recorded(sweep, trials, change)
            for trial, one in zip(done, points, strict=True):
                work.context.records.new_trial(trial, work.search.goals, one.cursor, change.now)
        work.context.reach("sweep-recorded")
        self._adviser.recorded({one.study for one in points})
        await self._adviser.tell([trial for trial in done if trial.state is TrialState.REUSED])

    def _next_number(self) -> int:
        """A number that no trial has, and no job of a trial whose row was lost."""
        work = self._work
        if self._first_free is None:
            self._first_free = work.context.engine.store.queue.last_trial(work.id) + 1
        return max(self._first_free, work.table.next_number(work.id))

    def _trial(self, sweep: Sweep, number: int, following: NextPoint) -> Trial:
        """The trial of a point: open, or with the values of an earlier trial of the same point."""
        work = self._work
        trial = Trial(
            sweep=work.id,
            number=number,
            point=following.point,
            command=work.search.shown(following.point),
            fingerprint=work.search.fingerprint(following.point, sweep.request),
            study=following.study,
            repeat_of=number - following.repeat + 1 if following.repeat else None,
        )
        before = work.table.done_before(trial.fingerprint, sweep.spec, None if work.search.spec.reuse else work.id)
        if before is None:
            return trial
        return replace(
            trial,
            state=TrialState.REUSED,
            values=before.values,
            reported=before.reported,
            seconds=before.seconds,
            reused_from=before.job,
            why=f"the same as trial {before.number} of sweep {before.sweep}",
        )

    def _as_recorded(self, sweep: Sweep, trials: Sequence[Trial], change: Change) -> list[Trial]:
        """The trials with their jobs, inside a change. One trial of each point runs, and others wait for it."""
        work = self._work
        running = {one.fingerprint: one.job or one.reused_from for one in work.table.open(work.id)}
        to_run: dict[int, Trial] = {}
        for trial in trials:
            if trial.state is TrialState.OPEN and trial.fingerprint not in running:
                to_run[trial.number] = trial
                running[trial.fingerprint] = None
        with_jobs = {one.number: one for one in self._with_jobs(sweep, list(to_run.values()), change)}
        running |= {one.fingerprint: one.job for one in with_jobs.values()}
        done = []
        for trial in trials:
            if trial.state is TrialState.REUSED:
                done.append(replace(trial, ended_at=change.now))
            else:
                waits = replace(trial, reused_from=running.get(trial.fingerprint))
                done.append(with_jobs.get(trial.number, waits))
        return done

    def _with_jobs(self, sweep: Sweep, trials: Sequence[Trial], change: Change) -> list[Trial]:
        """The trials with their job numbers, inside a change. A job that exists under a trial's key is used."""
        work = self._work
        queue = work.context.engine.store.queue
        requests = [request_of(sweep, one, work.search) for one in trials]
        known = {request.once: queue.job_once(request.once) for request in requests}
        waiting = {
            request.once for request, one in zip(requests, trials, strict=True) if one.continues is not None
        }
        new = [
            replace(request, hold=request.once in waiting) for request in requests if known[request.once] is None
        ]
        jobs = work.context.queue.enter(new, sweep.environment, sweep.code, change) if new else []
        known |= {job.request.once: job.id for job in jobs}
        if held := [job.id for job in jobs if job.request.once in waiting]:
            change.record(JobsHeld(held, WAITS))
            self._news.set()  # their checkpoints are to be copied
        if jobs:
            work.shape = jobs[-1].request.wishes.shape
        if len(new) < len(requests):
            self._news.set()  # an existing job may be over already, which is not announced again
        found = [replace(one, job=known[request.once]) for one, request in zip(trials, requests, strict=True)]
        work.jobs |= {one.job for one in found if one.job is not None}
        return found

    def _check(self, sweep: Sweep, trials: Sequence[Trial]) -> None:
        """Raise BadInput for jobs that can never start; the sweep is then held with that reason."""
        self._work.context.queue.check_possible(
            request_of(sweep, one, self._work.search) for one in trials if one.state is TrialState.OPEN
        )

    # -- existing trials -------------------------------------------------------------------------------

    def _add_missing_jobs(self) -> None:
        """Add the missing jobs of open trials, after the store was rebuilt from an incomplete journal."""
        work = self._work
        sweep = work.load()
        trials = [one for one in work.table.open(work.id) if one.job is None and one.reused_from is None]
        if not trials or sweep.state is SweepState.HELD:
            return
        if sweep.state is not SweepState.RUNNING:
            work.record([replace(one, state=TrialState.FAILED, why="it was never begun") for one in trials])
            return
        self._check(sweep, trials)
        with work.context.engine.change() as change:
            for trial in self._with_jobs(sweep, trials, change):
                work.context.records.trial(trial, work.search.goals, change.now)

    def _try_again(self, due: Sequence[Trial]) -> None:
        """Queue the jobs of failed trials again, or add new ones where those were cleaned away."""
        work = self._work
        states = work.context.engine.store.listing.states([one.job for one in due if one.job is not None])
        hindered: dict[JobId, str] = {}
        if again := [job for job, state in states.items() if state.is_over]:
            # A crash right after this is harmless: a failed trial whose job is queued is reopened at the start.
            hindered = dict(work.context.queue.retry(again).unchanged)
            if hold_without_copy(work.context, due):
                self._news.set()
        work.context.reach("sweep-retried")
        kept = [one for one in due if one.job in states]
        lost = [reopened(one, None) for one in due if one.job not in states]
        with work.context.engine.change() as change:
            for trial in self._with_jobs(work.load(), lost, change):
                work.context.records.trial(trial, work.search.goals, change.now)
            for trial in kept:
                if trial.job in hindered:
                    trial = replace(trial, is_due=False, why=f"job {trial.job} cannot: {hindered[trial.job]}")
                else:
                    trial = reopened(trial, trial.job)
                work.context.records.trial(trial, work.search.goals, change.now)
        work.jobs |= {one.job for one in kept if one.job is not None and one.job not in hindered}


def _work_of(fingerprint: str) -> str:
    """A fingerprint without the names of metrics."""
    return fingerprint.partition(" ")[0]


def reopened(trial: Trial, job: JobId | None) -> Trial:
    """A failed trial, open again. It keeps its number in the study."""
    return replace(
        trial,
        state=TrialState.OPEN,
        job=job,
        values=None,
        why="",
        cause="",
        seconds=None,
        reused_from=None,
        ended_at=None,
        pruned_by="",
        means=None,
        spreads=None,
        is_due=False,
        reported={},
    )
