"""What people do to a sweep: stop, hold, release, resume, retry-failed, edit, remove."""

from collections.abc import Callable
from dataclasses import dataclass, replace

from dibs.engine.sweeps.parts import Parts, Search
from dibs.engine.sweeps.work import hold_waiting, jobs_in
from dibs.errors import BadInput, Conflict
from dibs.model.jobs import State
from dibs.model.sweeps import Sweep, SweepId, SweepState, TrialState

_STOPPED = "stopped with its sweep"


@dataclass(frozen=True, slots=True)
class Acted:
    changed: bool
    trials: int = 0  # how many that concerned


def act(
    parts: Parts,
    number: SweepId,
    action: str,
    samples: int | None = None,
    parallel: int | None = None,
    keeps_running: bool = False,
) -> Acted:
    """Do it, durably. Whoever looks after the sweep is to be woken afterwards."""
    sweep = parts.table.sweep(number)
    if action not in ("resume", "edit") and (samples is not None or parallel is not None):
        raise BadInput(f"`{action}` changes neither samples nor parallel", remedy="`edit` or `resume` does")
    if keeps_running and action != "stop":
        raise BadInput(f"`{action}` ends no trial", remedy="leave out `running`")
    if action == "stop":
        return _stop(parts, sweep, keeps_running)
    if action == "hold":
        return _hold(parts, sweep)
    if action == "release":
        return _release(parts, sweep)
    if action == "resume":
        return _resume(parts, sweep, samples, parallel)
    if action == "retry-failed":
        return _retry_failed(parts, sweep)
    return _edit(parts, sweep, samples, parallel)


def check_removable(parts: Parts, number: SweepId) -> None:
    """Raise Conflict while there is something left to do for it."""
    sweep = parts.table.sweep(number)
    if sweep.state in (SweepState.RUNNING, SweepState.HELD):
        raise Conflict(
            f"cannot remove sweep {number}: it is {sweep.state}", remedy=f"`dibs sweep stop {number}` ends it"
        )
    if running := len(parts.table.open(number)):
        what = "a trial of it has" if running == 1 else f"{running} trials of it have"
        raise Conflict(
            f"cannot remove sweep {number}: {what} not ended yet",
            remedy=f"`dibs sweep stop {number}` ends what runs, `dibs sweep wait {number}` waits for it",
        )


def remove(parts: Parts, number: SweepId) -> int:
    """Forget a sweep and its trials, durably; how many those were. Their jobs stay until they are cleaned away."""
    check_removable(parts, number)
    trials = sum(parts.table.counts(number).values())
    with parts.engine.change() as change:
        parts.book.removed(number, change.now)
    return trials


def _stop(parts: Parts, sweep: Sweep, keeps_running: bool) -> Acted:
    """The sweep first: then nothing new begins, whatever happens. Said again, it ends what is left."""
    changed = sweep.state in (SweepState.RUNNING, SweepState.HELD)
    if changed:
        with parts.engine.change() as change:
            parts.book.changed(replace(sweep, state=SweepState.STOPPED, why="", ended_at=change.now), change.now)
    begun = (State.SUBMITTED, State.RUNNING, State.SUSPENDED) if not keeps_running else ()
    if jobs := jobs_in(parts, sweep.id, State.QUEUED, State.HELD, *begun):
        parts.queue.kill(jobs, why=_STOPPED)
    return Acted(changed or bool(jobs), len(jobs))


def _hold(parts: Parts, sweep: Sweep) -> Acted:
    if sweep.state is not SweepState.RUNNING:
        return Acted(False)
    with parts.engine.change() as change:
        parts.book.changed(replace(sweep, state=SweepState.HELD, why="held by its owner"), change.now)
    return Acted(True, hold_waiting(parts, sweep.id))


def _release(parts: Parts, sweep: Sweep) -> Acted:
    if sweep.state is not SweepState.HELD:
        return Acted(False)
    _run_on(parts, sweep)
    return Acted(True, _release_jobs(parts, sweep.id))


def _resume(parts: Parts, sweep: Sweep, samples: int | None, parallel: int | None) -> Acted:
    """Go on after anything, in the same study. What was ended with the sweep is tried again."""
    edited = _edited(parts, sweep, samples, parallel)
    if sweep.state is SweepState.RUNNING and edited == sweep:
        return Acted(False)
    if sweep.state is SweepState.FINISHED:
        _refuse_if_done(parts, edited)
    due = _mark_due(parts, sweep, lambda why: why.endswith(_STOPPED)) if sweep.state is SweepState.STOPPED else 0
    _run_on(parts, edited)
    return Acted(True, due + _release_jobs(parts, sweep.id))


def _refuse_if_done(parts: Parts, sweep: Sweep) -> None:
    """Raise Conflict where a finished sweep could only finish again."""
    search = Search(sweep.spec)
    made = sum(parts.table.counts(sweep.id).values())
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


def _retry_failed(parts: Parts, sweep: Sweep) -> Acted:
    due = _mark_due(parts, sweep, lambda why: True)
    if not due:
        return Acted(False)
    _run_on(parts, sweep)
    _release_jobs(parts, sweep.id)
    return Acted(True, due)


def _edit(parts: Parts, sweep: Sweep, samples: int | None, parallel: int | None) -> Acted:
    if samples is None and parallel is None:
        raise BadInput("there is nothing to change", remedy="give `samples` or `parallel`")
    edited = _edited(parts, sweep, samples, parallel)
    if edited == sweep:
        return Acted(False)
    with parts.engine.change() as change:
        parts.book.changed(edited, change.now, is_edited=True)
    return Acted(True)


def _edited(parts: Parts, sweep: Sweep, samples: int | None, parallel: int | None) -> Sweep:
    if samples is None and parallel is None:
        return sweep
    from dibs.sweeps.spec import read_spec, spec_object

    made = sum(parts.table.counts(sweep.id).values())
    if samples is not None and samples < made:
        raise Conflict(f"sweep {sweep.id} has {made} trials already", remedy=f"ask for {made} or more")
    spec = dict(sweep.spec)
    if samples is not None:
        spec["samples"] = samples
    if parallel is not None:
        spec["parallel"] = parallel
    return replace(sweep, spec=spec_object(read_spec(spec)))


def _run_on(parts: Parts, sweep: Sweep) -> None:
    """Let it run, whatever it did before. Its first trials are counted anew."""
    with parts.engine.change() as change:
        on = replace(sweep, state=SweepState.RUNNING, why="", ended_at=None, counts_from=change.now)
        parts.book.changed(on, change.now, is_edited=True)


def _release_jobs(parts: Parts, sweep: SweepId) -> int:
    held = jobs_in(parts, sweep, State.HELD)
    return len(parts.queue.release(held).jobs) if held else 0


def _mark_due(parts: Parts, sweep: Sweep, is_meant: Callable[[str], bool]) -> int:
    """Have failed trials tried again as soon as there is room for them; how many those are."""
    failed = parts.table.all_of(sweep.id, (TrialState.FAILED,))
    found = [trial for trial in failed if not trial.is_due and is_meant(trial.why)]
    if found:
        goals = parts.table.goals(sweep.id)
        with parts.engine.change() as change:
            for trial in found:
                parts.book.trial(replace(trial, is_due=True), goals, change.now)
    return len(found)
