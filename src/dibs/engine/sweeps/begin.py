"""New trials, and failed ones that are tried again: as many as there is room for."""

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

from dibs.engine.change import Change
from dibs.engine.sweeps.advice import Advice
from dibs.engine.sweeps.parts import request_of
from dibs.engine.sweeps.work import Work
from dibs.model.jobs import JobId
from dibs.model.sweeps import Point, Sweep, SweepState, Trial, TrialState
from dibs.policy.sweeping import MOST_LEFT_OUT, room

_AT_ONCE = 16  # trials that are recorded in one go, some milliseconds
_SLICE = 0.002  # seconds of looking for points, and then as many for others
_LOOKED_AT = 20  # points between two looks at the clock; one takes up to a tenth of a millisecond


@dataclass(frozen=True, slots=True)
class Next:
    """A point to try: where its sweep goes on after it, and its number in the study if it has one."""

    point: Point
    cursor: int = 0
    study: int | None = None


class Begin:
    """Turns points into trials and jobs."""

    def __init__(self, work: Work, advice: Advice, news: asyncio.Event) -> None:
        self._work = work
        self._advice = advice
        self._news = news  # something happened, so there is no time to look for points any longer
        self._drawn_from: object = None
        self._warm_to = 0  # how far these points were drawn; only then it is known which of them come twice
        self._first_free: int | None = None  # number of a trial, as far as the jobs know
        self.left_out = 0  # points in a row that the conditions did not allow

    async def fill(self) -> None:
        """Add jobs until as many trials are open as may be, or there are no more."""
        work = self._work
        self._add_missing_jobs()
        while (places := min(self._room(), _AT_ONCE)) > 0:
            if due := work.table.due(work.id, places):
                self._try_again(due)
            elif points := await self._next_points(self._to_look_at(places)):
                await self._record(points, places)
            else:
                break
            await asyncio.sleep(_SLICE)  # a hundred thousand points that were run before hold nobody up
        if work.search.spec.pruner and self._may_begin(work.load()):
            await self._advice.enroll()

    def _may_begin(self, sweep: Sweep) -> bool:
        return sweep.state is SweepState.RUNNING and not self._work.parts.engine.is_draining

    def _room(self) -> int:
        work = self._work
        sweep = work.load()
        if not self._may_begin(sweep):
            return 0
        counts = work.table.counts(work.id)
        parallel = work.search.parallel(work.parts, work.wishes(sweep), sweep.request.on)
        # What is tried again is a trial already.
        most = None if work.table.due(work.id, 1) else work.search.size
        return room(parallel, counts.get(TrialState.OPEN, 0), sum(counts.values()), most)

    def _to_look_at(self, places: int) -> int:
        """How many points: more than there are places, where some may have been run before and take none."""
        work = self._work
        if work.search.spec.rerun or work.search.spec.method == "adaptive":
            return places
        made, most = sum(work.table.counts(work.id).values()), work.search.size
        return _AT_ONCE if most is None else min(_AT_ONCE, most - made)

    # -- points ----------------------------------------------------------------------------------------

    async def _next_points(self, count: int) -> list[Next]:
        """At most so many; none where there are no more, or none for now."""
        if self._work.search.spec.method == "adaptive":
            return [Next(one.point, study=one.number) for one in await self._advice.ask(count)]
        return await self._scan(count)

    async def _scan(self, count: int) -> list[Next]:
        """Look for points that the conditions allow, some milliseconds at a time."""
        work = self._work
        sweep = work.load()
        points, cursor = work.search.points, sweep.cursor
        if points is not self._drawn_from:
            self._drawn_from, self._warm_to = points, 0
        found: list[Next] = []
        begin = time.perf_counter()
        while len(found) < count and not self._is_exhausted(cursor):
            if points.size is None and self._warm_to < cursor:
                self._warm_to = min(cursor, self._warm_to + _LOOKED_AT)
                points.at(self._warm_to - 1)
            else:
                before = cursor
                cursor, point = points.next(cursor, _LOOKED_AT)
                self._warm_to = cursor
                if point is not None:
                    found.append(Next(point, cursor))
                self.left_out = 0 if point is not None else self.left_out + cursor - before
            if time.perf_counter() - begin > _SLICE:
                if self._news.is_set():
                    break
                await asyncio.sleep(_SLICE)
                begin = time.perf_counter()
        if not found and cursor != sweep.cursor:
            with work.parts.engine.change() as change:
                work.parts.book.changed(replace(work.table.sweep(work.id), cursor=cursor), change.now)
        return found

    def _is_exhausted(self, cursor: int) -> bool:
        size = self._work.search.points.size
        return self.left_out >= MOST_LEFT_OUT or (size is not None and cursor >= size)

    def is_exhausted(self, sweep: Sweep) -> bool:
        """Whether there is no other point."""
        return self._work.search.spec.method != "adaptive" and self._is_exhausted(sweep.cursor)

    # -- trials ----------------------------------------------------------------------------------------

    async def _record(self, points: Sequence[Next], places: int) -> None:
        """Write the trials and their jobs down in one turn: there is none without its job, and none twice.

        What there is no place for is left where it is: its sweep has not gone past it yet.
        """
        work = self._work
        sweep = work.load()
        trials: list[Trial] = []
        for number, one in enumerate(points, self._next_number()):
            trial = self._trial(sweep, number, one)
            places -= trial.state is TrialState.OPEN
            if places < 0:
                break
            trials.append(trial)
        points = points[: len(trials)]
        self._check(sweep, trials)
        with work.parts.engine.change() as change:
            if not self._may_begin(work.table.sweep(work.id)):
                return  # somebody stopped it meanwhile; what was asked for is kept for later
            done = self._as_recorded(sweep, trials, change)
            for trial, one in zip(done, points, strict=True):
                work.parts.book.new_trial(trial, work.search.goals, one.cursor, change.now)
        work.parts.reach("sweep-recorded")
        self._advice.taken({one.study for one in points})
        await self._advice.tell([trial for trial in done if trial.state is TrialState.REUSED])

    def _next_number(self) -> int:
        """One that no trial has, and none had whose row is lost: its job has another point than the next one."""
        work = self._work
        if self._first_free is None:
            self._first_free = work.parts.engine.store.queue.last_trial(work.id) + 1
        return max(self._first_free, work.table.next_number(work.id))

    def _trial(self, sweep: Sweep, number: int, following: Next) -> Trial:
        """The trial of a point: open, or with the values of the same point where that was run before."""
        work = self._work
        trial = Trial(
            sweep=work.id,
            number=number,
            point=following.point,
            command=work.search.command(following.point).shown,
            fingerprint=work.search.fingerprint(following.point, sweep.request),
            study=following.study,
        )
        before = None if work.search.spec.rerun else work.table.done_before(trial.fingerprint)
        if before is None:
            return trial
        return replace(
            trial,
            state=TrialState.REUSED,
            values=before.values,
            seconds=before.seconds,
            reused_from=before.job,
            why=f"the same as trial {before.number} of sweep {before.sweep}",
        )

    def _as_recorded(self, sweep: Sweep, trials: Sequence[Trial], change: Change) -> list[Trial]:
        """The trials with their jobs, inside a change. Of the same point one runs, and the others wait for it."""
        work = self._work
        running: dict[str, JobId | None] = {}
        if not work.search.spec.rerun:
            running = {one.fingerprint: one.job or one.reused_from for one in work.table.open(work.id)}
        to_run: dict[int, Trial] = {}
        for trial in trials:
            if trial.state is TrialState.OPEN and trial.fingerprint not in running:
                to_run[trial.number] = trial
                if not work.search.spec.rerun:
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
        """The trials with the numbers of their jobs, inside a change. One that has a job by its key keeps it."""
        work = self._work
        queue = work.parts.engine.store.queue
        requests = [request_of(sweep, one.number, work.search.command(one.point)) for one in trials]
        known = {request.once: queue.job_once(request.once) for request in requests}
        new = [request for request in requests if known[request.once] is None]
        jobs = work.parts.queue.enter(new, sweep.environment, sweep.code, change) if new else []
        known |= {job.request.once: job.id for job in jobs}
        if jobs:
            work.shape = jobs[-1].request.wishes.shape
        if len(new) < len(requests):
            self._news.set()  # a job that is there already may be over, and nobody will tell of it
        found = [replace(one, job=known[request.once]) for one, request in zip(trials, requests, strict=True)]
        work.jobs |= {one.job for one in found if one.job is not None}
        return found

    def _check(self, sweep: Sweep, trials: Sequence[Trial]) -> None:
        """Raise BadInput for what could never start, so that the sweep is held with that."""
        self._work.parts.queue.check_possible(
            request_of(sweep, one.number, self._work.search.command(one.point))
            for one in trials
            if one.state is TrialState.OPEN
        )

    # -- those that are there already ------------------------------------------------------------------

    def _add_missing_jobs(self) -> None:
        """Of open trials whose jobs the store does not know: a journal with a hole was made a store again."""
        work = self._work
        sweep = work.load()
        trials = [one for one in work.table.open(work.id) if one.job is None and one.reused_from is None]
        if not trials or sweep.state is SweepState.HELD:
            return
        if sweep.state is not SweepState.RUNNING:
            work.record([replace(one, state=TrialState.FAILED, why="it was never begun") for one in trials])
            return
        self._check(sweep, trials)
        with work.parts.engine.change() as change:
            for trial in self._with_jobs(sweep, trials, change):
                work.parts.book.trial(trial, work.search.goals, change.now)

    def _try_again(self, due: Sequence[Trial]) -> None:
        """Queue the jobs of failed trials again, or add new ones where they were cleaned away."""
        work = self._work
        states = work.parts.engine.store.listing.states([one.job for one in due if one.job is not None])
        hindered: dict[JobId, str] = {}
        if again := [job for job, state in states.items() if state.is_over]:
            # A crash right after this does no harm: a failed trial whose job is queued is open again.
            hindered = dict(work.parts.queue.retry(again).unchanged)
        work.parts.reach("sweep-retried")
        kept = [one for one in due if one.job in states]
        lost = [reopened(one, None) for one in due if one.job not in states]
        with work.parts.engine.change() as change:
            for trial in self._with_jobs(work.load(), lost, change):
                work.parts.book.trial(trial, work.search.goals, change.now)
            for trial in kept:
                if trial.job in hindered:
                    trial = replace(trial, is_due=False, why=f"job {trial.job} cannot: {hindered[trial.job]}")
                else:
                    trial = reopened(trial, trial.job)
                work.parts.book.trial(trial, work.search.goals, change.now)
        work.jobs |= {one.job for one in kept if one.job is not None and one.job not in hindered}


def reopened(trial: Trial, job: JobId | None) -> Trial:
    """A failed trial that is tried again. It keeps its number in the study, which knows that it is done over."""
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
        is_due=False,
    )
