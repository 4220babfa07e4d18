"""The task of one sweep: read the results of ended trials, prune running ones, start new ones.

All state that must survive is in the store, and each step is recorded before the next one. After a crash a new
task continues from the rows.
"""

import asyncio
from collections.abc import Container, Iterable, Sequence
from contextlib import suppress
from dataclasses import replace

from dibs.engine.sweeps.context import SweepContext
from dibs.engine.sweeps.new_trials import TrialStarter
from dibs.engine.sweeps.repeats import record_means
from dibs.engine.sweeps.trial_results import NoResult
from dibs.engine.sweeps.work import LazyAdviser, SweepWork
from dibs.errors import DibsError, StoreUnusable
from dibs.model.jobs import JobId
from dibs.model.sweeps import SweepId, SweepState, Trial, TrialState
from dibs.policy.sweeps import (
    FIRST_TRIALS,
    MOST_LEFT_OUT,
    fail_alike,
    is_over,
    judged,
    reached_by,
)

_LOOK_AT_REPORTS = 1.0  # seconds between two reads of running trials' reports, where a pruner needs them
_AFTER_TROUBLE = 2.0  # seconds until a full disk is tried again
_QUIET = 300.0  # seconds without news after which the adviser process is closed to free its memory


class SweepRun:
    """One sweep until it needs no work. `go` is its only task; other code wakes it."""

    def __init__(self, context: SweepContext, sweep: SweepId) -> None:
        self.work = SweepWork(context, sweep)
        self._context = context
        self._news = asyncio.Event()
        self._adviser = LazyAdviser(self.work)
        self._starter = TrialStarter(self.work, self._adviser, self._news)

    def wake(self) -> None:
        self._news.set()

    def on_touched(self, jobs: Iterable[JobId]) -> None:
        """These jobs have started or ended."""
        if not self.work.jobs.isdisjoint(jobs):
            self.wake()

    @property
    def is_woken(self) -> bool:
        return self._news.is_set()

    async def go(self) -> None:
        """Return when no trial runs and none is to be started."""
        try:
            while await self._turn():
                await self._wait()
        finally:
            await self._adviser.close()

    async def _turn(self) -> bool:
        """Do what can be done now; False where nothing will be left to do."""
        self._news.clear()
        work = self.work
        try:
            work.load()
            await settle(work, self._adviser)
            await prune(work, self._adviser)
            await self._starter.fill()
            self._finish()
            return bool(work.jobs) or work.table.sweep(work.id).state is SweepState.RUNNING
        except StoreUnusable as error:
            self._wait_for_store(error)
            return True
        except DibsError as error:
            await self._adviser.close()
            return self._hold(error)

    def _hold(self, error: DibsError) -> bool:
        try:
            self.work.hold(f"{error.message}; {error.remedy}" if error.remedy else error.message)
        except StoreUnusable as trouble:
            self._wait_for_store(trouble)
            return True
        return bool(self.work.jobs)

    def _wait_for_store(self, error: StoreUnusable) -> None:
        self._context.log(f"sweep {self.work.id} waits: {error.message}")
        asyncio.get_running_loop().call_later(_AFTER_TROUBLE, self.wake)

    async def _wait(self) -> None:
        """Wait until something happens. A sweep whose trials run for days costs nothing meanwhile."""
        if self._looks_at_reports():
            with suppress(TimeoutError):
                async with asyncio.timeout(_LOOK_AT_REPORTS):
                    await self._news.wait()
            return
        if self._adviser.is_open:
            with suppress(TimeoutError):
                async with asyncio.timeout(_QUIET):
                    await self._news.wait()
                return
            await self._adviser.close()
        await self._news.wait()

    def _looks_at_reports(self) -> bool:
        work = self.work
        if not work.is_loaded or not work.search.spec.watches_trials:
            return False
        is_running = work.table.sweep(work.id).state is SweepState.RUNNING
        return is_running and any(key[0] in work.jobs for key in self._context.engine.state.everywhere)

    def _finish(self) -> None:
        work = self.work
        sweep = work.load()
        counts = work.table.counts(work.id)
        reached = reached_by(work.table.best(work.id), work.search.spec.metrics)
        if not is_over(
            sweep,
            open_trials=counts.get(TrialState.OPEN, 0),
            due=0 if reached else len(work.table.due(work.id, 1)),
            made=sum(counts.values()),
            most=work.search.size,
            is_exhausted=bool(reached) or self._starter.is_exhausted(sweep),
        ):
            return
        if not reached and self._starter.left_out >= MOST_LEFT_OUT:
            why = (
                f"its conditions left out {self._starter.left_out:,} points in a row; there may be none that fits"
            )
            self._starter.left_out = 0  # after a release more points are searched
            work.hold(f"{why}; `dibs sweep release {work.id}` looks further")
            return
        with self._context.engine.change() as change:
            work.context.records.changed(
                replace(sweep, state=SweepState.FINISHED, why=reached, ended_at=change.now), change.now
            )


async def settle(work: SweepWork, adviser: LazyAdviser) -> None:
    """Read the results of trials whose jobs have ended, record them, and tell the adviser."""
    trials = work.table.open(work.id)
    work.jobs = {trial.job for trial in trials if trial.job is not None}
    states = work.context.engine.store.listing.states(list(work.jobs))
    ended = []
    for trial in trials:
        if trial.job is not None and trial.job not in states:
            why = f"job {trial.job} was cleaned away before its results were read"
            ended.append(replace(trial, state=TrialState.FAILED, why=why))
        elif trial.job is not None and states[trial.job].is_over:
            ended.append(await _read(work, trial))
    await _record(work, adviser, ended)
    # Then the trials that wait for another trial of the same point.
    twins = (_as_its_twin(work, trial) for trial in trials if trial.job is None and trial.reused_from is not None)
    await _record(work, adviser, [trial for trial in twins if trial is not None])


async def _read(work: SweepWork, trial: Trial) -> Trial:
    """The trial with the outcome of its job and its results."""
    assert trial.job is not None
    row = work.context.engine.store.listing.row(trial.job)
    trial = replace(
        trial,
        seconds=row.outcome.seconds if row.outcome else None,
        ended_at=row.ended_at,
        reported=await work.reader.reported(row),
    )
    verdict = judged(trial, row.job, row.outcome)
    if verdict is not None and verdict.state is TrialState.FAILED:
        return replace(trial, state=TrialState.FAILED, why=verdict.why, cause=verdict.cause)
    try:
        values = await work.reader.result(trial, row)
    except NoResult as problem:
        if verdict is None:
            return replace(trial, state=TrialState.FAILED, why=str(problem), cause=problem.kind)
        values = None
    if verdict is None:
        return replace(trial, state=TrialState.COMPLETE, values=values)
    return replace(trial, state=verdict.state, why=verdict.why, values=values)


def _as_its_twin(work: SweepWork, trial: Trial) -> Trial | None:
    """The trial with the outcome of the other trial of its point; None while that one is open."""
    assert trial.reused_from is not None
    twin = next(iter(work.table.of_jobs([trial.reused_from])), None)
    if twin is None:
        return replace(trial, state=TrialState.FAILED, why=f"job {trial.reused_from}, of the same point, is gone")
    if twin.state is TrialState.OPEN:
        return None
    if twin.state is TrialState.COMPLETE:
        why = f"the same as trial {twin.number} of sweep {twin.sweep}"
        return replace(
            trial,
            state=TrialState.REUSED,
            values=twin.values,
            reported=twin.reported,
            seconds=twin.seconds,
            why=why,
        )
    why = f"trial {twin.number} of the same point has {twin.state}"
    return replace(trial, state=TrialState.FAILED, why=f"{why}: {twin.why}" if twin.why else why)


async def _record(work: SweepWork, adviser: LazyAdviser, ended: Sequence[Trial]) -> None:
    if not ended:
        return
    done: list[Trial] = []
    with work.context.engine.change() as change:
        if not work.is_current:
            return  # its metrics were edited: the results are read again
        states = work.context.engine.store.listing.states([one.job for one in ended if one.job is not None])
        for trial in ended:
            if trial.job in states and not states[trial.job].is_over:
                continue  # it was queued again while its results were read
            done.append(replace(trial, ended_at=trial.ended_at or change.now))
            work.context.records.trial(done[-1], work.search.goals, change.now)
        whole = record_means(work.context, work.id, work.search.spec, done, change.now)
    work.context.reach("sweep-ended")
    for trial in done:
        if trial.job is not None:
            work.jobs.discard(trial.job)
        work.reader.forget(trial)
    for first in whole:
        work.curves.forget(first)
    await _hold_where_all_die(work)
    await adviser.tell(done)
    work.context.reach("sweep-told")
    if done:
        await _end_siblings(work, done)


async def _hold_where_all_die(work: SweepWork) -> None:
    sweep = work.table.sweep(work.id)
    if sweep.state is not SweepState.RUNNING:
        return
    first = work.table.first_ended(work.id, sweep.counts_from, FIRST_TRIALS)
    if why := fail_alike(first, is_anew=sweep.counts_from > 0):
        job = first[-1].job
        if job is not None and job in work.context.engine.store.listing.states([job]):
            if said := await work.reader.last_line(work.context.engine.store.listing.row(job)):
                why = f"{why}, and its log ends with {said!r}"
            why = f"{why}; `dibs log {job}` shows it"
        work.hold(f"{why}; `dibs sweep release {work.id}` goes on")


async def prune(work: SweepWork, adviser: LazyAdviser) -> None:
    """End running trials that the pruner rejects by their new reports, or that report what is not finite."""
    spec = work.search.spec
    if not spec.watches_trials:
        return
    _stop_again(work)
    if work.table.sweep(work.id).state is not SweepState.RUNNING:
        return
    running = {key[0]: one for key, one in work.context.engine.state.everywhere.items() if key[0] in work.jobs}
    for trial in work.table.open(work.id) if running else ():
        if trial.job not in running or trial.pruned_by:
            continue
        news = await work.reader.news(trial, running[trial.job])
        if spec.stop_on_nan and news.not_finite:
            end_early(work, replace(trial, pruned_by=f"stopped: {news.not_finite}", cause="not finite"))
            continue
        if not spec.pruner or trial.study is None:
            continue
        for step, value in work.curves.judged(trial, news.steps, _begun_repeats(work, trial, running)):
            if await adviser.should_prune(trial, step, value):
                _end_pruned(work, trial, step, value)
                break


def _end_pruned(work: SweepWork, trial: Trial, step: int, value: float) -> None:
    metric = work.search.metric_names[0]
    why = f"pruned at step {step}: others had a better {metric} than {value:g} by then"
    end_early(work, replace(trial, pruned_by=why))


def _begun_repeats(work: SweepWork, trial: Trial, running: Container[JobId]) -> list[Trial]:
    """The trials of the same point that have begun."""
    if trial.repeat_of is None:
        return [trial]
    trials = work.table.of_point(work.id, trial.repeat_of, work.search.spec.repeat)
    return [one for one in trials if one.state is not TrialState.OPEN or one.job in running]


async def _end_siblings(work: SweepWork, ended: Sequence[Trial]) -> None:
    """End the other repeats of points that were pruned: one mean was judged, not one trial."""
    for pruned in ended:
        if pruned.state is TrialState.PRUNED and pruned.repeat_of is not None:
            for one in work.table.of_point(work.id, pruned.repeat_of, work.search.spec.repeat):
                if one.state is TrialState.OPEN and not one.pruned_by and one.job is not None:
                    end_early(work, replace(one, pruned_by=pruned.pruned_by))


def end_early(work: SweepWork, trial: Trial) -> None:
    """Record the reason, then kill the job: without the record it would be unknown after a crash."""
    work.record([trial])
    work.context.reach("sweep-gave-up")
    _stop(work, trial)


def _stop_again(work: SweepWork) -> None:
    """Kill pruned trials whose daemon died before it could kill them."""
    running = {key[0] for key in work.context.engine.state.everywhere} - work.context.engine.state.stopping
    for trial in work.table.open(work.id) if running & work.jobs else ():
        if trial.pruned_by and trial.job in running:
            _stop(work, trial)


def _stop(work: SweepWork, trial: Trial) -> None:
    assert trial.job is not None
    work.context.queue.kill([trial.job], why=trial.pruned_by)
