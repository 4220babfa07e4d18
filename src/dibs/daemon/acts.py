"""Routes that change jobs and the queue."""

import asyncio
import time
from collections.abc import AsyncIterator, Mapping
from typing import Annotated, Any

from fastapi import APIRouter, Body, Response

from dibs.daemon import models, objects
from dibs.daemon.answers import Answer, StrictRoute, errors
from dibs.daemon.cleaning import clean_up
from dibs.daemon.desk import Desk
from dibs.daemon.jobs import Number, portions
from dibs.daemon.pruning import prune
from dibs.daemon.requests import apply
from dibs.daemon.shown import lesson_objects
from dibs.engine.queue import Changed
from dibs.errors import BadInput, NoSuchJob
from dibs.inputs.again import check_checkpoint
from dibs.inputs.checks import check_request, environment_size
from dibs.model.fields import BY_KEY
from dibs.model.jobs import OVER, JobId, Request, State
from dibs.model.places import check_place
from dibs.store.listing import Filter

_PORTION = 1000  # jobs changed in one go
_PLACES = ("top", "before")
_FIXED = {key for key, field in BY_KEY.items() if field.is_fixed}
_FAILED = (State.FAILED, State.TIMED_OUT, State.LOST)
# Whom an action can concern, where only a filter says who is meant.
_MEANT = {
    "kill": tuple(state for state in State if not state.is_over),
    "hold": (State.QUEUED,),
    "release": (State.HELD,),
    "retry": (*_FAILED, State.CANCELLED),
}


def acts_routes(desk: Desk) -> APIRouter:
    routes = APIRouter(route_class=StrictRoute)

    @routes.post("/v1/jobs/act", responses={200: {"model": objects.ChangedJobs}, **errors(404, 409, 413, 503)})
    async def act(body: Annotated[models.Act, Body()]) -> Response:
        """Kill, hold, release or retry jobs."""
        signal = body.get("signal")
        if signal is not None and body["action"] != "kill":
            raise BadInput(f"`{body['action']}` sends no signal", remedy="leave out `signal`")
        act = {
            "kill": lambda jobs: desk.queue.kill(jobs, signal),
            "hold": desk.queue.hold,
            "release": desk.queue.release,
            "retry": desk.queue.retry,
        }[body["action"]]
        changed = Changed()
        async for jobs in _meant(desk, body):
            some = act(jobs)
            changed.jobs += some.jobs
            changed.unchanged += some.unchanged
        desk.news.came()
        return Answer(
            {
                "changed": list(changed.jobs),
                "unchanged": [{"id": number, "why": sentence} for number, sentence in changed.unchanged],
            }
        )

    @routes.patch("/v1/jobs/{number}", responses={200: {"model": objects.JobObject}, **errors(404, 409, 413, 503)})
    async def change(number: Number, body: Annotated[models.Change, Body()]) -> Response:
        """Ask for something else, or for another place in the queue, before it starts."""
        wishes = {key: value for key, value in body.items() if key not in _PLACES}
        if wishes:
            await desk.away.asking.check([_with_wishes(desk, number, wishes)])
        request = _with_wishes(desk, number, wishes) if wishes else None  # others may have changed it meanwhile
        before = body.get("before")
        if before is not None and body.get("top"):
            raise BadInput("a job stands at the top or before another one, not both", remedy="choose one")
        job = JobId(number)
        desk.queue.edit(job, request, top=body.get("top", False), before=None if before is None else JobId(before))
        desk.news.came()
        return Answer(desk.job(desk.store.listing.row(job)))

    @routes.post("/v1/pause", responses={200: {"model": objects.ChangedFlag}, **errors(413, 503)})
    async def pause(body: Annotated[models.Pause, Body()]) -> Response:
        """Start nothing more, of the whole queue or of one project. What runs goes on."""
        changed = desk.queue.pause(body.get("project", ""))
        desk.news.came()
        return Answer({"changed": changed})

    @routes.post("/v1/unpause", responses={200: {"model": objects.ChangedFlag}, **errors(413, 503)})
    async def unpause(body: Annotated[models.Pause, Body()]) -> Response:
        """Go on."""
        changed = desk.queue.unpause(body.get("project", ""))
        desk.news.came()
        return Answer({"changed": changed})

    @routes.post("/v1/clean", responses={200: {"model": objects.Removed}, **errors(413, 503)})
    async def clean(body: Annotated[models.Clean, Body()]) -> Response:
        """Forget jobs that are over, and remove their folders."""
        states = tuple(State(name) for name in body.get("state", ()))
        if running := [str(state) for state in states if not state.is_over]:
            raise BadInput(f"jobs that are {running[0]} are not over", remedy="kill them first")
        before = time.time() - body.get("older_seconds", 0.0)
        removed = await clean_up(desk, before, states or OVER, body.get("project"))
        await prune(desk)
        return Answer({"removed": removed})

    @routes.get("/v1/lessons", responses={200: {"model": objects.LessonList}, **errors(503)})
    async def lessons() -> Response:
        """What jobs with `vram: auto` were seen to need, by their shape, the latest first."""
        return Answer({"lessons": lesson_objects(desk.store.lessons.all())})

    @routes.post("/v1/lessons/forget", responses={200: {"model": objects.Removed}, **errors(413, 503)})
    async def forget(body: Annotated[models.Forget, Body()]) -> Response:
        """Forget what was learned of one shape, or of all: the next one has the card to itself again."""
        return Answer({"removed": desk.queue.forget_lessons(body.get("shape"))})

    @routes.post("/v1/stop", responses={200: {"model": objects.Stopping}, **errors(413, 503)})
    async def stop(body: Annotated[models.StopOrder, Body()]) -> Response:
        """End the daemon. Running jobs go on without it, unless they are to end too."""
        desk.stop(body.get("jobs", False))
        return Answer({"stopping": True})

    return routes


def _with_wishes(desk: Desk, number: int, wishes: Mapping[str, Any]) -> Request:
    """What a job would ask for; raises where that makes no sense."""
    job = desk.store.listing.row(JobId(number)).job
    request = apply(job.request, wishes)
    for key in sorted(_FIXED & wishes.keys()):
        raise BadInput(f"`{key}` is said when a job is added, and not changed", remedy="add another job")
    # Every job follows older ones only, so that none can wait for itself by a detour.
    if "after" in wishes and any(needed.job >= job.id for needed in request.after):
        raise BadInput(f"job {job.id} can only follow jobs that were added before it", remedy="add it again")
    if "checkpoint" in wishes or "time_limit_seconds" in wishes:
        check_checkpoint(request)
    check_place(request)
    check_request(request, environment_size(desk.store.listing.environment(job.environment)))
    return request


async def _meant(desk: Desk, body: models.Act) -> AsyncIterator[list[JobId]]:
    """The jobs in portions: a hundred thousand of them keep nobody else waiting."""
    if ("ids" in body) == ("filter" in body):
        raise BadInput("it is not clear which jobs are meant", remedy="give either `ids` or a `filter`")
    if "ids" in body:
        ids = [JobId(number) for number in dict.fromkeys(body["ids"])]
        known = desk.store.listing.states(ids)
        for number in ids:
            if number not in known:
                raise NoSuchJob(number)
        for begin in range(0, len(ids), _PORTION):
            yield [number for number in ids[begin : begin + _PORTION] if number in known]
            await asyncio.sleep(0)
        return
    wanted = body["filter"]
    states = tuple(State(name) for name in wanted.get("state", ())) or _MEANT[body["action"]]
    if wanted.get("failed"):
        states = _FAILED
    # From the end, where something is taken away: otherwise the next ones would start while we are at it.
    order = "newest" if body["action"] in ("kill", "hold") else "oldest"
    meant = Filter(
        states=states,
        project=wanted.get("project"),
        name=wanted.get("name"),
        tag=wanted.get("tag"),
        text=wanted.get("text", "").strip(),
    )
    async for rows in portions(desk, meant, order, _PORTION):
        if some := [row.job.id for row in rows if row.job.state in states]:
            yield some
