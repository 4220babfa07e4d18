"""Routes that begin sweeps, change them and tell about them."""

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Body, Path, Query, Response

from dibs.daemon.app_state import Desk
from dibs.daemon.http.errors import Answer, StrictRoute, errors
from dibs.daemon.routes.parameters import ground_of
from dibs.daemon.schemas import requests as models
from dibs.daemon.schemas import sweeps as objects
from dibs.daemon.schemas.parsing import requests_of
from dibs.daemon.schemas.serializers import sweep_object, trial_object
from dibs.engine.sweeps.sweeping import NewSweep
from dibs.errors import BadInput
from dibs.model.sweeps import Sweep, SweepId, SweepState, TrialState

SweepNumber = Annotated[int, Path(ge=1, le=2**53, description="the sweep's number")]

_MOST_SWEEPS = 100
_MOST_TRIALS = 1000
_OF_ONE_JOB = ("command", "words", "shell", "array", "once")


def sweeps_routes(desk: Desk) -> APIRouter:
    routes = APIRouter(route_class=StrictRoute)
    table = desk.store.sweeps

    @routes.post(
        "/v1/sweeps",
        status_code=201,
        responses={
            201: {"model": objects.AddedSweep},
            200: {"model": objects.AddedSweep, "description": "it was added before"},
            **errors(404, 409, 413, 503),
        },
    )
    async def add(body: Annotated[models.NewSweep, Body()]) -> Response:
        """Begin a sweep. It is durable when its number comes back."""
        new = _new(desk, body)
        if not desk.sweeping.is_known(new.key):
            await desk.away.asking.check([new.request])
        added = desk.sweeping.add(new)
        desk.news.came()
        answer = {"id": added.id, "is_new": added.is_new, "size": added.size}
        return Answer(answer, 201 if added.is_new else 200)

    @routes.post(
        "/v1/sweeps/check", responses={200: {"model": objects.CheckedSweep}, **errors(404, 409, 413, 503)}
    )
    async def check(body: Annotated[models.CheckSweep, Body()]) -> Response:
        """How many trials a sweep would have, and its first commands. Nothing is stored."""
        new = _new(desk, body)
        await desk.away.asking.check([new.request])
        found = await desk.sweeping.check(new)
        return Answer({"size": found.size, "commands": found.commands, "left_out": found.left_out})

    @routes.get("/v1/sweeps", responses={200: {"model": objects.SweepList}, **errors(503)})
    async def page(
        state: Annotated[str, Query(max_length=100, description="states with commas between")] = "",
        limit: Annotated[int, Query(ge=1, le=_MOST_SWEEPS)] = _MOST_SWEEPS,
        cursor: Annotated[int | None, Query(ge=1, le=2**53, description="those below this number")] = None,
    ) -> Response:
        """Sweeps, the newest first."""
        found = table.page(_states(state, SweepState), below=cursor, limit=limit + 1)
        is_last = len(found) <= limit
        shown = found[:limit]
        return Answer(
            {"sweeps": [_whole(desk, one) for one in shown], "cursor": None if is_last else shown[-1].id}
        )

    @routes.get("/v1/sweeps/find", responses={200: {"model": objects.FoundSweep}, **errors(404, 503)})
    async def find(
        ref: Annotated[str, Query(min_length=1, max_length=255, description="3, @ or a name")],
    ) -> Response:
        """The number of the sweep that a reference stands for."""
        return Answer({"id": table.find(ref)})

    @routes.get("/v1/sweeps/{number}", responses={200: {"model": objects.SweepObject}, **errors(404, 503)})
    async def one(number: SweepNumber) -> Response:
        """One sweep and its best trial."""
        return Answer(_whole(desk, table.sweep(SweepId(number))))

    @routes.get("/v1/sweeps/{number}/trials", responses={200: {"model": objects.TrialPage}, **errors(404, 503)})
    async def trials(
        number: SweepNumber,
        order: Literal["number", "best"] = "number",
        state: Annotated[str, Query(max_length=100, description="states with commas between")] = "",
        limit: Annotated[int, Query(ge=1, le=_MOST_TRIALS)] = 100,
        cursor: Annotated[str | None, Query(max_length=60, pattern=r"^[0-9a-z.+-]{1,40}:[0-9]{1,15}$")] = None,
    ) -> Response:
        """Trials in their order, or the best of those that have a value first."""
        sweep = table.sweep(SweepId(number))
        found = table.trials(sweep.id, order, _states(state, TrialState), cursor, limit)
        return Answer({"trials": [trial_object(one) for one in found.trials], "cursor": found.cursor})

    @routes.get(
        "/v1/sweeps/{number}/importance", responses={200: {"model": objects.Importance}, **errors(404, 503)}
    )
    async def importance(number: SweepNumber) -> Response:
        """How much each parameter matters for the first metric, as far as the trials tell."""
        found, why = await desk.sweeping.importance(table.sweep(SweepId(number)))
        return Answer({"importance": [{"name": name, "value": value} for name, value in found], "why": why})

    @routes.post(
        "/v1/sweeps/{number}/act", responses={200: {"model": objects.ActedSweep}, **errors(404, 409, 413, 503)}
    )
    async def act(number: SweepNumber, body: Annotated[models.SweepAct, Body()]) -> Response:
        """Stop, hold, release or resume a sweep, try its failed trials again, or change how much it does."""
        done = desk.sweeping.act(
            SweepId(number),
            body["action"],
            samples=body.get("samples"),
            parallel=body.get("parallel"),
            keeps_running=body.get("running") == "keep",
        )
        desk.news.came()
        return Answer({"changed": done.changed, "trials": done.trials})

    @routes.post(
        "/v1/sweeps/{number}/remove",
        responses={200: {"model": objects.RemovedSweep}, **errors(404, 409, 413, 503)},
    )
    async def remove(number: SweepNumber) -> Response:
        """Forget a sweep that is over, its trials and its study. Their jobs stay until they are cleaned away."""
        trials = await desk.sweeping.remove(SweepId(number))
        desk.news.came()
        return Answer({"trials": trials})

    return routes


def _new(desk: Desk, body: models.NewSweep | models.CheckSweep) -> NewSweep:
    environment, defaults = ground_of(desk, body)
    if wrong := [key for key in _OF_ONE_JOB if key in defaults]:
        raise BadInput(f"`{wrong[0]}` cannot be the same for every trial of a sweep", remedy="leave it out")
    (request,) = requests_of([{"command": "true"}], defaults, environment, desk.default_backend)
    return NewSweep(
        key=body.get("key", ""),
        spec=body["spec"],
        request=request,
        environment=environment,
        code=body.get("code"),
    )


def _whole(desk: Desk, sweep: Sweep) -> dict[str, Any]:
    table = desk.store.sweeps
    about = desk.sweeping.about(sweep)
    return sweep_object(sweep, desk.user, about, table.counts(sweep.id), table.best(sweep.id))


def _states(text: str, kind: Any) -> tuple[Any, ...]:
    try:
        return tuple(kind(word.strip()) for word in text.split(",") if word.strip())
    except ValueError:
        raise BadInput(
            f"there is no such state in {text[:60]!r}", remedy=f"states are {', '.join(kind)}"
        ) from None
