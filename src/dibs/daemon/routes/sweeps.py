"""Routes that start, change and show sweeps, and the JSON that they return."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Body, Path, Query, Response
from typing_extensions import TypedDict  # pydantic reads the one in typing from Python 3.12 only

from dibs.daemon.app_state import AppState
from dibs.daemon.attempts import find_attempt
from dibs.daemon.http.errors import JsonResponse, StrictRoute, errors
from dibs.daemon.schemas import requests
from dibs.daemon.schemas.requests import Moment, read_states, requests_of
from dibs.daemon.schemas.responses import moment
from dibs.engine.sweeps.actions import SweepChanges
from dibs.engine.sweeps.context import trial_told
from dibs.engine.sweeps.manager import NewSweep, SweepSummary
from dibs.errors import BadInput, DibsError, about
from dibs.inputs.checks import check_name
from dibs.metrics.attempt import last_numbers
from dibs.model.jobs import After
from dibs.model.sweeps import Sweep, SweepId, SweepState, Trial, TrialState

SweepNumber = Annotated[int, Path(ge=1, le=2**53, description="the sweep's number")]

_MOST_SWEEPS = 100
_MOST_TRIALS = 1000
_EDITED = ("samples", "parallel", "metrics", "parameters", "where", "target")
_OF_ONE_JOB = ("command", "words", "shell", "array", "once")


def sweep_object(
    sweep: Sweep, user: str, about: SweepSummary, counts: Mapping[TrialState, int], best: Iterable[Trial]
) -> dict[str, Any]:
    return {
        "id": sweep.id,
        "name": sweep.name,
        "project": sweep.request.project,
        "user": user,
        "state": str(sweep.state),
        "why": sweep.why,
        "spec": dict(sweep.spec),
        "metrics": [{"name": name, "goal": goal} for name, goal in about.metrics],
        "size": about.size,
        "parallel": about.parallel,
        "counts": {str(state): counts.get(state, 0) for state in TrialState},
        "best": [trial_object(trial) for trial in best],
        "queued_at": moment(sweep.queued_at),
        "ended_at": moment(sweep.ended_at),
        "journal": about.journal,
    }


def trial_object(trial: Trial) -> dict[str, Any]:
    told = trial_told(trial)
    return {**told, "ended_at": moment(told["ended_at"])}


class MetricObject(TypedDict):
    name: str
    goal: Literal["min", "max"]


class TrialObject(TypedDict):
    """One point of a sweep, and its result."""

    number: int
    job: int | None
    state: Literal["open", "complete", "pruned", "failed", "reused"]
    point: dict[str, str | None]  # null: the parameter is none, and its flag is left out
    values: list[float] | None  # in the order of the sweep's metrics
    # The last of every number that it reported, also of the metrics and while it is open; null: not finite.
    reported: dict[str, float | None]
    continues: int | None  # of a population: the trial whose checkpoint it took over
    repeat_of: int | None  # the first trial of the same point, where points are repeated
    means: list[float] | None  # of that first one: of each metric over the repeats, when all have ended
    spreads: list[float] | None  # the standard deviation
    seconds: float | None
    why: str
    reused_from: int | None  # the job that ran the same point before
    ended_at: Moment | None
    command: str


class TrialCounts(TypedDict):
    open: int
    complete: int
    pruned: int
    failed: int
    reused: int


class SweepObject(TypedDict):
    """A search over parameters."""

    id: int
    name: str
    project: str
    user: str
    state: Literal["running", "held", "finished", "stopped"]
    why: str
    spec: dict[str, Any]
    metrics: list[MetricObject]
    size: int | None  # the number of its trials; null: it does not end by itself
    parallel: int  # trials at once
    counts: TrialCounts
    best: list[TrialObject]  # one; with several metrics the Pareto front
    queued_at: Moment
    ended_at: Moment | None
    journal: str  # Optuna's journal file, for its dashboard; empty if there is none


class SweepList(TypedDict):
    sweeps: list[SweepObject]
    cursor: int | None  # the next page has those below this number; null: this was the last


class AddedSweep(TypedDict):
    id: int
    is_new: bool
    size: int | None


class ReusedTrials(TypedDict):
    sweep: int
    trials: int  # that would be taken from it


class CheckedSweep(TypedDict):
    size: int | None
    commands: list[str]  # of the first points
    left_out: int  # points among these that have no command
    reused: list[ReusedTrials]


class TrialPageBody(TypedDict):
    trials: list[TrialObject]
    cursor: str | None


class ImportanceObject(TypedDict):
    name: str
    value: float


class ImportanceBody(TypedDict):
    importance: list[ImportanceObject]  # the most important first
    why: str  # a sentence, if it is not known yet


class ActedSweep(TypedDict):
    changed: bool
    trials: int  # how many trials were affected


class RemovedSweep(TypedDict):
    trials: int  # how many it had


class FoundSweep(TypedDict):
    id: int


def sweep_routes(app: AppState) -> APIRouter:
    routes = APIRouter(route_class=StrictRoute)
    table = app.store.sweeps

    @routes.post(
        "/v1/sweeps",
        status_code=201,
        responses={
            201: {"model": AddedSweep},
            200: {"model": AddedSweep, "description": "it was added before"},
            **errors(404, 409, 413, 503),
        },
    )
    async def add(body: Annotated[requests.NewSweepBody, Body()]) -> Response:
        """Start a sweep. It is durable when its number is returned."""
        new = _new(app, body)
        if not app.sweeping.is_known(new.key):
            await app.check_remote([new.request])
            (request,), _ = await app.admit_containers([new.request], new.environment, new.key)
            # A trial that follows a failed pull fails by itself, and says why.
            after = tuple(replace(one, kind=After.ANY) for one in request.after)
            new = replace(new, request=replace(request, after=after))
        added = app.sweeping.add(new)
        app.feed.wake()
        answer = {"id": added.id, "is_new": added.is_new, "size": added.size}
        return JsonResponse(answer, 201 if added.is_new else 200)

    @routes.post("/v1/sweeps/check", responses={200: {"model": CheckedSweep}, **errors(404, 409, 413, 503)})
    async def check(body: Annotated[requests.CheckSweep, Body()]) -> Response:
        """How many trials a sweep would have, and its first commands. Nothing is stored."""
        new = _new(app, body)
        await app.check_remote([new.request])
        await app.admit_containers([new.request], new.environment)
        found = await app.sweeping.check(new)
        reused = [{"sweep": sweep, "trials": trials} for sweep, trials in found.reused.items()]
        answer = {"size": found.size, "commands": found.commands, "left_out": found.left_out, "reused": reused}
        return JsonResponse(answer)

    @routes.get("/v1/sweeps", responses={200: {"model": SweepList}, **errors(503)})
    async def page(
        state: Annotated[str, Query(max_length=100, description="states with commas between")] = "",
        limit: Annotated[int, Query(ge=1, le=_MOST_SWEEPS)] = _MOST_SWEEPS,
        cursor: Annotated[int | None, Query(ge=1, le=2**53, description="those below this number")] = None,
    ) -> Response:
        """Sweeps, the newest first."""
        found = table.page(read_states(state, SweepState), below=cursor, limit=limit + 1)
        is_last = len(found) <= limit
        shown = found[:limit]
        return JsonResponse(
            {"sweeps": [_whole(app, one) for one in shown], "cursor": None if is_last else shown[-1].id}
        )

    @routes.get("/v1/sweeps/find", responses={200: {"model": FoundSweep}, **errors(404, 503)})
    async def find(
        ref: Annotated[str, Query(min_length=1, max_length=255, description="3, @ or a name")],
    ) -> Response:
        """The number of the sweep that a reference names."""
        return JsonResponse({"id": table.find(ref)})

    @routes.get("/v1/sweeps/{number}", responses={200: {"model": SweepObject}, **errors(404, 503)})
    async def one(number: SweepNumber) -> Response:
        """One sweep and its best trial."""
        return JsonResponse(_whole(app, table.sweep(SweepId(number))))

    @routes.get("/v1/sweeps/{number}/trials", responses={200: {"model": TrialPageBody}, **errors(404, 503)})
    async def trials(
        number: SweepNumber,
        order: Literal["number", "best"] = "number",
        state: Annotated[str, Query(max_length=100, description="states with commas between")] = "",
        limit: Annotated[int, Query(ge=1, le=_MOST_TRIALS)] = 100,
        cursor: Annotated[str | None, Query(max_length=60, pattern=r"^[0-9a-z.+-]{1,40}:[0-9]{1,15}$")] = None,
    ) -> Response:
        """Trials in their order, or the best first."""
        sweep = table.sweep(SweepId(number))
        found = table.trials(sweep.id, order, read_states(state, TrialState), cursor, limit)
        told = [trial_object(await _with_live_numbers(app, one)) for one in found.trials]
        return JsonResponse({"trials": told, "cursor": found.cursor})

    @routes.get("/v1/sweeps/{number}/importance", responses={200: {"model": ImportanceBody}, **errors(404, 503)})
    async def importance(number: SweepNumber) -> Response:
        """How much each parameter matters for the first metric, as far as the trials show."""
        found, why = await app.sweeping.importance(table.sweep(SweepId(number)))
        return JsonResponse({"importance": [{"name": name, "value": value} for name, value in found], "why": why})

    @routes.post("/v1/sweeps/{number}/act", responses={200: {"model": ActedSweep}, **errors(404, 409, 413, 503)})
    async def act(number: SweepNumber, body: Annotated[requests.SweepAct, Body()]) -> Response:
        """Stop, hold, release or resume a sweep, retry its failed trials, or change what it searches."""
        changes = {key: body[key] for key in _EDITED if key in body}  # type: ignore[literal-required]
        if body["action"] == "edit":
            done = await app.sweeping.edit(SweepId(number), SweepChanges(**changes))
            app.feed.wake()
            return JsonResponse({"changed": done.changed, "trials": done.trials})
        if unknown := [key for key in changes if key not in ("samples", "parallel")]:
            raise BadInput(f"`{body['action']}` does not change {unknown[0]}", remedy="`edit` does")
        done = app.sweeping.act(
            SweepId(number),
            body["action"],
            samples=body.get("samples"),
            parallel=body.get("parallel"),
            keeps_running=body.get("running") == "keep",
        )
        app.feed.wake()
        return JsonResponse({"changed": done.changed, "trials": done.trials})

    @routes.post(
        "/v1/sweeps/{number}/remove",
        responses={200: {"model": RemovedSweep}, **errors(404, 409, 413, 503)},
    )
    async def remove(number: SweepNumber) -> Response:
        """Forget a sweep that is over, its trials and its study. Their jobs stay until they are cleaned."""
        trials = await app.sweeping.remove(SweepId(number))
        app.feed.wake()
        return JsonResponse({"trials": trials})

    return routes


async def _with_live_numbers(app: AppState, trial: Trial) -> Trial:
    """An open trial with what it has reported so far."""
    if trial.state is not TrialState.OPEN or trial.job is None:
        return trial
    try:
        row = app.store.listing.row(trial.job)
        if (attempt := find_attempt(app.store.listing, trial.job, None)) is None:
            return trial
        return replace(trial, reported=await app.metrics.look(row.job, attempt, last_numbers))
    except DibsError:  # it was cleaned away, or its disk hangs: nothing is known of it now
        return trial


def _new(app: AppState, body: requests.NewSweepBody | requests.CheckSweep) -> NewSweep:
    environment, defaults = app.environment_and_defaults(body)
    if wrong := [key for key in _OF_ONE_JOB if key in defaults]:
        raise BadInput(f"`{wrong[0]}` cannot be the same for every trial of a sweep", remedy="leave it out")
    (request,) = requests_of([{"command": "true"}], defaults, environment, app.settings.default_backend)
    if isinstance(name := body["spec"].get("name"), str):  # its jobs are named after it
        with about("name"):
            check_name(name)
    return NewSweep(
        key=body.get("key", ""),
        spec=body["spec"],
        request=request,
        environment=environment,
        code=body.get("code"),
    )


def _whole(app: AppState, sweep: Sweep) -> dict[str, Any]:
    table = app.store.sweeps
    about = app.sweeping.about(sweep)
    return sweep_object(sweep, app.user, about, table.counts(sweep.id), table.best(sweep.id))
