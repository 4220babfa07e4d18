"""What became of trials whose jobs are over for good."""

from collections.abc import Sequence
from dataclasses import replace

from dibs.engine.sweeps.advice import Advice
from dibs.engine.sweeps.results import Unreadable
from dibs.engine.sweeps.work import Work
from dibs.model.sweeps import SweepState, Trial, TrialState
from dibs.policy.sweeping import FIRST_TRIALS, die_alike, judged


async def settle(work: Work, advice: Advice) -> None:
    """Read the results of what ended, record them, and tell the adviser."""
    trials = work.table.open(work.id)
    work.jobs = {trial.job for trial in trials if trial.job is not None}
    states = work.parts.engine.store.listing.states(list(work.jobs))
    ended = []
    for trial in trials:
        if trial.job is not None and trial.job not in states:
            why = f"job {trial.job} was cleaned away before its results were read"
            ended.append(replace(trial, state=TrialState.FAILED, why=why))
        elif trial.job is not None and states[trial.job].is_over:
            ended.append(await _read(work, trial))
    await _record(work, advice, ended)
    # Those that wait for another trial of the same point come after it.
    twins = (_as_its_twin(work, trial) for trial in trials if trial.job is None and trial.reused_from is not None)
    await _record(work, advice, [trial for trial in twins if trial is not None])


async def _read(work: Work, trial: Trial) -> Trial:
    """The trial as its job and its results say."""
    assert trial.job is not None
    row = work.parts.engine.store.listing.row(trial.job)
    trial = replace(trial, seconds=row.outcome.seconds if row.outcome else None, ended_at=row.ended_at)
    verdict = judged(trial, row.job, row.outcome)
    if verdict is not None and verdict.state is TrialState.FAILED:
        return replace(trial, state=TrialState.FAILED, why=verdict.why, cause=verdict.cause)
    try:
        values = await work.reader.result(trial, row)
    except Unreadable as problem:
        if verdict is None:
            return replace(trial, state=TrialState.FAILED, why=str(problem), cause=problem.kind)
        values = None
    if verdict is None:
        return replace(trial, state=TrialState.COMPLETE, values=values)
    return replace(trial, state=verdict.state, why=verdict.why, values=values)


def _as_its_twin(work: Work, trial: Trial) -> Trial | None:
    """A trial of a point that another one was running already ends as that one; None while it is open."""
    assert trial.reused_from is not None
    twin = next(iter(work.table.of_jobs([trial.reused_from])), None)
    if twin is None:
        return replace(trial, state=TrialState.FAILED, why=f"job {trial.reused_from}, of the same point, is gone")
    if twin.state is TrialState.OPEN:
        return None
    if twin.state is TrialState.COMPLETE:
        why = f"the same as trial {twin.number} of sweep {twin.sweep}"
        return replace(trial, state=TrialState.REUSED, values=twin.values, seconds=twin.seconds, why=why)
    why = f"trial {twin.number} of the same point has {twin.state}"
    return replace(trial, state=TrialState.FAILED, why=f"{why}: {twin.why}" if twin.why else why)


async def _record(work: Work, advice: Advice, ended: Sequence[Trial]) -> None:
    if not ended:
        return
    done: list[Trial] = []
    with work.parts.engine.change() as change:
        states = work.parts.engine.store.listing.states([one.job for one in ended if one.job is not None])
        for trial in ended:
            if trial.job in states and not states[trial.job].is_over:
                continue  # somebody queued it again while its results were read
            done.append(replace(trial, ended_at=trial.ended_at or change.now))
            work.parts.book.trial(done[-1], work.search.goals, change.now)
    work.parts.reach("sweep-ended")
    for trial in done:
        if trial.job is not None:
            work.jobs.discard(trial.job)
        work.reader.forget(trial)
    await _hold_where_all_die(work)
    await advice.tell(done)
    work.parts.reach("sweep-told")


async def _hold_where_all_die(work: Work) -> None:
    sweep = work.table.sweep(work.id)
    if sweep.state is not SweepState.RUNNING:
        return
    first = work.table.first_ended(work.id, sweep.counts_from, FIRST_TRIALS)
    if why := die_alike(first, is_anew=sweep.counts_from > 0):
        job = first[-1].job
        if job is not None and job in work.parts.engine.store.listing.states([job]):
            if said := await work.reader.last_words(work.parts.engine.store.listing.row(job)):
                why = f"{why}, and its log ends with {said!r}"
            why = f"{why}; `dibs log {job}` shows it"
        work.hold(f"{why}; `dibs sweep release {work.id}` goes on")
