"""The actions on a sweep: stop, hold, release, resume, retry-failed, edit, remove."""

from collections.abc import Callable
from dataclasses import replace

from dibs.dataclass import dataclass
from dibs.engine.sweeps.context import Search, SweepContext
from dibs.engine.sweeps.work import hold_waiting, jobs_in
from dibs.errors import BadInput, Conflict
from dibs.model.jobs import State
from dibs.model.sweeps import Sweep, SweepId, SweepState, TrialState
from dibs.sweeps.spec import read_spec, spec_object

_STOPPED = "stopped with its sweep"


@dataclass(frozen=True, slots=True)
class ActionResult:
    changed: bool
    trials: int = 0  # how many were affected


def act(
    context: SweepContext,
    number: SweepId,
    action: str,
    samples: int | None = None,
    parallel: int | None = None,
    keeps_running: bool = False,
) -> ActionResult:
    """Do it, durably. The caller wakes the task of the sweep afterwards."""
    sweep = context.table.sweep(number)
    if action not in ("resume", "edit") and (samples is not None or parallel is not None):
        raise BadInput(f"`{action}` changes neither samples nor parallel", remedy="`edit` or `resume` does")
    if keeps_running and action != "stop":
        raise BadInput(f"`{action}` ends no trial", remedy="leave out `running`")
    if action == "stop":
        return _stop(context, sweep, keeps_running)
    if action == "hold":
        return _hold(context, sweep)
    if action == "release":
        return _release(context, sweep)
    if action == "resume":
        return _resume(context, sweep, samples, parallel)
    if action == "retry-failed":
        return _retry_failed(context, sweep)
    return _edit(context, sweep, samples, parallel)


def check_removable(context: SweepContext, number: SweepId) -> None:
    """Raise Conflict while the sweep is not over."""
    sweep = context.table.sweep(number)
    if sweep.state in (SweepState.RUNNING, SweepState.HELD):
        raise Conflict(
            f"cannot remove sweep {number}: it is {sweep.state}", remedy=f"`dibs sweep stop {number}` ends it"
        )
    if running := len(context.table.open(number)):
        what = "a trial of it has" if running == 1 else f"{running} trials of it have"
        raise Conflict(
            f"cannot remove sweep {number}: {what} not ended yet",
            remedy=f"`dibs sweep stop {number}` ends what runs, `dibs sweep wait {number}` waits for it",
        )


def remove(context: SweepContext, number: SweepId) -> int:
    """Remove a sweep and its trials, durably; returns the number of trials. Their jobs stay."""
    check_removable(context, number)
    trials = sum(context.table.counts(number).values())
    with context.engine.change() as change:
        context.records.removed(number, change.now)
    return trials


def _stop(context: SweepContext, sweep: Sweep, keeps_running: bool) -> ActionResult:
    """Stop the sweep first, so that no trial starts afterwards. A second stop ends what is left."""
    changed = sweep.state in (SweepState.RUNNING, SweepState.HELD)
    if changed:
        with context.engine.change() as change:
            context.records.changed(
                replace(sweep, state=SweepState.STOPPED, why="", ended_at=change.now), change.now
            )
    begun = (State.SUBMITTED, State.RUNNING) if not keeps_running else ()
    if jobs := jobs_in(context, sweep.id, State.QUEUED, State.HELD, *begun):
        context.queue.kill(jobs, why=_STOPPED)
    return ActionResult(changed or bool(jobs), len(jobs))


def _hold(context: SweepContext, sweep: Sweep) -> ActionResult:
    if sweep.state is not SweepState.RUNNING:
        return ActionResult(False)
    with context.engine.change() as change:
        context.records.changed(replace(sweep, state=SweepState.HELD, why="held by its owner"), change.now)
    return ActionResult(True, hold_waiting(context, sweep.id))


def _release(context: SweepContext, sweep: Sweep) -> ActionResult:
    if sweep.state is not SweepState.HELD:
        return ActionResult(False)
    _run_on(context, sweep)
    return ActionResult(True, _release_jobs(context, sweep.id))


def _resume(context: SweepContext, sweep: Sweep, samples: int | None, parallel: int | None) -> ActionResult:
    """Continue after any state, in the same study. Trials that were stopped with the sweep are retried."""
    edited = _edited(context, sweep, samples, parallel)
    if sweep.state is SweepState.RUNNING and edited == sweep:
        return ActionResult(False)
    if sweep.state is SweepState.FINISHED:
        _refuse_if_done(context, edited)
    due = _mark_due(context, sweep, lambda why: why.endswith(_STOPPED)) if sweep.state is SweepState.STOPPED else 0
    _run_on(context, edited)
    return ActionResult(True, due + _release_jobs(context, sweep.id))


def _refuse_if_done(context: SweepContext, sweep: Sweep) -> None:
    """Raise Conflict where a finished sweep could only finish again."""
    search = Search(sweep.spec)
    made = sum(context.table.counts(sweep.id).values())
    points = None if search.spec.method == "adaptive" else search.points.size
    if points is not None and (made >= points or sweep.cursor >= points):
        why, remedy = "it has tried every point", ""
    elif search.size is not None and made >= search.size:
        why = f"it has all of its {search.size} trials"
        remedy = f"`dibs sweep resume {sweep.id} --samples {made + 1}` or more goes on, "
    else:
        return
    raise Conflict(
        f"cannot resume sweep {sweep.id}: {why}",
        remedy=f"{remedy}`dibs sweep retry-failed {sweep.id}` tries failed ones again",
    )


def _retry_failed(context: SweepContext, sweep: Sweep) -> ActionResult:
    due = _mark_due(context, sweep, lambda why: True)
    if not due:
        return ActionResult(False)
    _run_on(context, sweep)
    _release_jobs(context, sweep.id)
    return ActionResult(True, due)


def _edit(context: SweepContext, sweep: Sweep, samples: int | None, parallel: int | None) -> ActionResult:
    if samples is None and parallel is None:
        raise BadInput("there is nothing to change", remedy="give `samples` or `parallel`")
    edited = _edited(context, sweep, samples, parallel)
    if edited == sweep:
        return ActionResult(False)
    with context.engine.change() as change:
        context.records.changed(edited, change.now, is_edited=True)
    return ActionResult(True)


def _edited(context: SweepContext, sweep: Sweep, samples: int | None, parallel: int | None) -> Sweep:
    if samples is None and parallel is None:
        return sweep
    made = sum(context.table.counts(sweep.id).values())
    if samples is not None and samples < made:
        raise Conflict(f"sweep {sweep.id} has {made} trials already", remedy=f"ask for {made} or more")
    spec = dict(sweep.spec)
    if samples is not None:
        spec["samples"] = samples
    if parallel is not None:
        spec["parallel"] = parallel
    return replace(sweep, spec=spec_object(read_spec(spec)))


def _run_on(context: SweepContext, sweep: Sweep) -> None:
    """Set the sweep running. The count of its first trials, which may all fail alike, starts again."""
    with context.engine.change() as change:
        on = replace(sweep, state=SweepState.RUNNING, why="", ended_at=None, counts_from=change.now)
        context.records.changed(on, change.now, is_edited=True)


def _release_jobs(context: SweepContext, sweep: SweepId) -> int:
    held = jobs_in(context, sweep, State.HELD)
    return len(context.queue.release(held).jobs) if held else 0


def _mark_due(context: SweepContext, sweep: Sweep, is_meant: Callable[[str], bool]) -> int:
    """Mark failed trials to be retried when there is room; returns their number."""
    failed = context.table.all_of(sweep.id, (TrialState.FAILED,))
    found = [trial for trial in failed if not trial.is_due and is_meant(trial.why)]
    if found:
        goals = context.table.goals(sweep.id)
        with context.engine.change() as change:
            for trial in found:
                context.records.trial(replace(trial, is_due=True), goals, change.now)
    return len(found)
