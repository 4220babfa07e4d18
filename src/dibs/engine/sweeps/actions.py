"""The actions on a sweep: stop, hold, release, resume, retry-failed, edit, remove."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from dibs.dataclass import dataclass
from dibs.engine.sweeps.checkpoints import WAITS
from dibs.engine.sweeps.context import Search, SweepContext
from dibs.engine.sweeps.repeats import record_means
from dibs.engine.sweeps.trial_results import NO_RESULT, NoResult, TrialReader
from dibs.engine.sweeps.work import hold_waiting, jobs_in
from dibs.errors import BadInput, Conflict, NoSuchJob
from dibs.model.jobs import State
from dibs.model.sweeps import Sweep, SweepId, SweepState, Trial, TrialState
from dibs.policy.sweeps import Goal, reached_by
from dibs.sweeps.adviser import adviser_problem
from dibs.sweeps.spec import Spec, read_spec, spec_object

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
    if action != "resume" and (samples is not None or parallel is not None):
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
    raise BadInput(f"`{action}` is nothing that is done to sweeps", remedy="stop, hold, release or resume")


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
    edited = _edited(context, sweep, SweepChanges(samples, parallel))
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
    points = search.points.size if search.spec.method in ("grid", "random") else None
    if points is not None and (sweep.cursor >= points or (made >= points and not search.spec.revision)):
        why, remedy = "it has tried every point", ""
    elif search.size is not None and made >= search.size:
        why = f"it has all of its {search.size} trials"
        remedy = f"`dibs sweep resume {sweep.id} --samples {made + 1}` or more goes on, "
    elif reached := reached_by(context.table.best(sweep.id), search.spec.metrics):
        why, remedy = reached, f"`dibs sweep edit {sweep.id} --target` sets another, "
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


@dataclass(frozen=True, slots=True)
class SweepChanges:
    """What `edit` changes; None: as it is."""

    samples: int | None = None
    parallel: int | None = None
    metrics: Sequence[Mapping[str, Any]] | None = None
    parameters: Sequence[Mapping[str, Any]] = ()  # in the place of those with these names
    where: Sequence[str] | None = None
    target: float | None = None  # of its only metric

    @property
    def is_empty(self) -> bool:
        return self == SweepChanges()

    @property
    def is_plain(self) -> bool:
        """Whether what was tried stays what it is."""
        return self == SweepChanges(samples=self.samples, parallel=self.parallel)


async def edit(context: SweepContext, number: SweepId, changes: SweepChanges) -> ActionResult:
    """Change what a sweep searches. What its trials have reported is judged by the metrics that it has then.

    It is one change: no reader sees new metrics with old values.
    """
    if changes.is_empty:
        raise BadInput("there is nothing to change", remedy="give samples, parallel, metrics, parameters or where")
    judged: dict[int, Trial] = {}
    while True:
        sweep = context.table.sweep(number)
        edited = _edited(context, sweep, changes)
        if edited.spec == sweep.spec:
            return ActionResult(False)
        spec = read_spec(edited.spec)
        if problem := adviser_problem(spec):
            what, _, remedy = problem.partition("; ")
            raise BadInput(what, remedy=remedy)
        ended: list[Trial] = []
        if spec.metrics != read_spec(sweep.spec).metrics:
            ended = [one for one in context.table.all_of(number) if one.state is not TrialState.OPEN]
        # Those that end meanwhile are judged in the next round.
        todo = [one for one in ended if one.number not in judged or judged[one.number].ended_at != one.ended_at]
        if not todo:
            break
        reader = TrialReader(spec, context)
        for trial in todo:
            judged[trial.number] = await judged_anew(context, reader, trial, spec)
    goals: list[Goal] = [metric.goal for metric in spec.metrics]
    # A failed trial that is retried meanwhile stays open, or due.
    done = [replace(judged[one.number], is_due=one.is_due) for one in ended]
    with context.engine.change() as change:
        context.records.changed(edited, change.now, is_edited=True)
        for trial in done:
            context.records.trial(trial, goals, change.now)
        record_means(context, number, spec, done, change.now)
    return ActionResult(True, len(done))


async def judged_anew(context: SweepContext, reader: TrialReader, trial: Trial, spec: Spec) -> Trial:
    """An ended trial by other metrics: by its job's files, or where they are gone by its last numbers."""
    if trial.state is TrialState.PRUNED or (trial.state is TrialState.FAILED and trial.cause != NO_RESULT):
        return replace(trial, values=None)
    job = trial.job or trial.reused_from
    try:
        if job is None or spec.results.is_shared:  # others have written the same file since
            values = _last_values(trial, spec)
        else:
            values = await reader.result(trial, context.engine.store.listing.row(job))
    except NoResult as problem:
        return replace(trial, state=TrialState.FAILED, values=None, why=str(problem), cause=problem.kind)
    except NoSuchJob:
        values = _last_values(trial, spec)
    if values is None and spec.metrics:
        names = " and ".join(f"the {metric.take} {metric.name}" for metric in spec.metrics)
        why = f"the files of job {job} are gone, and what is kept of it does not tell {names}"
        return replace(trial, state=TrialState.FAILED, values=None, why=why, cause=NO_RESULT)
    is_reused = trial.state is TrialState.REUSED
    state = TrialState.REUSED if is_reused else TrialState.COMPLETE
    return replace(trial, state=state, values=values, why=trial.why if is_reused else "", cause="")


def _last_values(trial: Trial, spec: Spec) -> tuple[float, ...] | None:
    """The result by what is kept of every trial, its last numbers; None where they do not tell it."""
    found = [trial.reported.get(metric.name) for metric in spec.metrics if metric.take == "last"]
    values = tuple(one for one in found if one is not None)
    return values if len(values) == len(spec.metrics) else None


def _edited(context: SweepContext, sweep: Sweep, changes: SweepChanges) -> Sweep:
    made = -(-sum(context.table.counts(sweep.id).values()) // int(sweep.spec.get("repeat") or 1))
    if changes.samples is not None and changes.samples < made:
        raise Conflict(f"sweep {sweep.id} has {made} points already", remedy=f"ask for {made} or more")
    spec = spec_object(read_spec(sweep.spec))
    for key in ("samples", "parallel", "metrics", "where"):
        if (value := getattr(changes, key)) is not None:
            spec[key] = value
    if changes.target is not None:
        if len(spec["metrics"]) != 1:
            raise BadInput("a target alone is for one metric", remedy="give it with its metric")
        spec["metrics"] = [{**spec["metrics"][0], "target": changes.target}]
    spec["parameters"] = _with(spec["parameters"], changes.parameters)
    after = spec_object(read_spec(spec))
    before = spec_object(read_spec(sweep.spec))
    if all(after[key] == before[key] for key in ("parameters", "where", "metrics")):
        return replace(sweep, spec=after) if after != before else sweep
    after["revision"] += 1
    has_other_points = after["parameters"] != before["parameters"] and after["method"] != "adaptive"
    return replace(sweep, spec=after, cursor=0 if has_other_points else sweep.cursor)


def _with(parameters: Sequence[Mapping[str, Any]], others: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """The parameters, with others of the same names in their places."""
    found = {str(one.get("name")): one for one in others}
    known = [one["name"] for one in parameters]
    if new := [name for name in found if name not in known]:
        raise BadInput(
            f"the sweep has no parameter {new[0][:200]}", remedy=f"its parameters are {', '.join(known)[:500]}"
        )
    return [{**found.get(one["name"], one)} for one in parameters]


def _run_on(context: SweepContext, sweep: Sweep) -> None:
    """Set the sweep running. The count of its first trials, which may all fail alike, starts again."""
    with context.engine.change() as change:
        on = replace(sweep, state=SweepState.RUNNING, why="", ended_at=None, counts_from=change.now)
        context.records.changed(on, change.now, is_edited=True)


def _release_jobs(context: SweepContext, sweep: SweepId) -> int:
    listing = context.engine.store.listing
    held = [job for job in jobs_in(context, sweep, State.HELD) if listing.row(job).job.why_held != WAITS]
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
