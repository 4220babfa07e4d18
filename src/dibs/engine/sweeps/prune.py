"""Trials that run and are not worth going on with."""

from dataclasses import replace

from dibs.engine.sweeps.advice import Advice
from dibs.engine.sweeps.work import Work
from dibs.model.sweeps import SweepState, Trial


async def prune(work: Work, advice: Advice) -> None:
    """Ask of every running trial that has reported something new whether it is to go on, and end it if not."""
    if not work.search.spec.pruner:
        return
    _stop_again(work)
    if work.table.sweep(work.id).state is not SweepState.RUNNING:
        return
    running = {key[0]: one for key, one in work.parts.engine.state.everywhere.items() if key[0] in work.jobs}
    for trial in work.table.open(work.id) if running else ():
        if trial.job not in running or trial.pruned_by or trial.study is None:
            continue
        for step, value in await work.reader.new_reports(trial, running[trial.job]):
            if await advice.is_hopeless(trial, step, value):
                _give_up(work, trial, step, value)
                break


def _give_up(work: Work, trial: Trial, step: int, value: float) -> None:
    """Recorded first: a job that is ended without that would be a failure."""
    metric = work.search.metric_names[0]
    why = f"pruned at step {step}: others had a better {metric} than {value:g} by then"
    trial = replace(trial, pruned_by=why)
    work.record([trial])
    work.parts.reach("sweep-gave-up")
    _stop(work, trial)


def _stop_again(work: Work) -> None:
    """What was given up by a daemon that died before it could say so."""
    running = {key[0] for key in work.parts.engine.state.everywhere} - work.parts.engine.state.stopping
    for trial in work.table.open(work.id) if running & work.jobs else ():
        if trial.pruned_by and trial.job in running:
            _stop(work, trial)


def _stop(work: Work, trial: Trial) -> None:
    assert trial.job is not None
    work.parts.queue.kill([trial.job], why=trial.pruned_by)
