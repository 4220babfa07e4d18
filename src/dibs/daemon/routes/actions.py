"""Routes that change jobs and the queue."""

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Any

from fastapi import APIRouter, Body, Query, Response

from dibs.daemon.app_state import AppState
from dibs.daemon.http.errors import JsonResponse, StrictRoute, errors
from dibs.daemon.routes.jobs import Number, portions
from dibs.daemon.schemas import requests, responses
from dibs.daemon.schemas.requests import apply, ranges, read_moment, read_states
from dibs.daemon.schemas.responses import lesson_objects
from dibs.engine.queue.changed import Changed
from dibs.errors import BadInput, NoSuchJob
from dibs.inputs.checks import check_place, check_request, environment_size
from dibs.inputs.wishes import check_checkpoint
from dibs.model.jobs import OVER, ArrayTask, JobId, Request, State
from dibs.store.listing import Filter

_PORTION = 1000  # jobs changed in one go
_PLACES = ("top", "before", "behind")
_OF_CONTAINERS = {"image", "container_engine", "mounts", "image_pull", "on"}
_FAILED = (State.FAILED, State.TIMED_OUT, State.LOST)
# The states of the jobs that an action applies to, if the filter names no states.
_STATES = {
    "kill": tuple(state for state in State if not state.is_over),
    "hold": (State.QUEUED,),
    "release": (State.HELD,),
    "suspend": (State.RUNNING,),
    "resume": (State.SUSPENDED,),
    "retry": (*_FAILED, State.CANCELLED),
    "priority": (State.QUEUED, State.HELD),
}


def action_routes(app: AppState) -> APIRouter:
    routes = APIRouter(route_class=StrictRoute)

    @routes.post("/v1/jobs/act", responses={200: {"model": responses.ChangedJobs}, **errors(404, 409, 413, 503)})
    async def act(body: Annotated[requests.Act, Body()]) -> Response:
        """Kill, hold, release, retry, suspend or resume jobs, or set their priority.

        What came of a suspension is in the job's `suspension` a moment later.
        """
        act = _act(app, body)
        left_out = await _left_out(app, body)
        changed = Changed()
        async for jobs in _matching(app, body):
            some = act(jobs)
            changed.jobs += some.jobs
            changed.cancelled += some.cancelled
            changed.unchanged += some.unchanged
        app.feed.wake()
        return JsonResponse(
            {
                "changed": list(changed.jobs),
                "cancelled": list(changed.cancelled),
                "unchanged": [{"id": number, "why": sentence} for number, sentence in changed.unchanged],
                "left_out": {str(state): number for state, number in left_out.items()},
            }
        )

    @routes.patch(
        "/v1/jobs/{number}", responses={200: {"model": responses.JobObject}, **errors(404, 409, 413, 503)}
    )
    async def change(number: Number, body: Annotated[requests.Change, Body()]) -> Response:
        """Change the fields of a job, or its place in the queue, before it starts."""
        wishes = {key: value for key, value in body.items() if key not in _PLACES}
        if wishes:
            await app.check_remote([_with_wishes(app, number, wishes)])
            if _OF_CONTAINERS & wishes.keys():
                wishes |= await _container_of(app, number, wishes)
        # Read again: another request may have changed the job meanwhile.
        request = _with_wishes(app, number, wishes) if wishes else None
        places = {name: JobId(body[name]) for name in ("before", "behind") if name in body}
        if len(places) + body.get("top", False) > 1:
            raise BadInput(
                "a job can be moved to the top, before another one or behind it, not to two places",
                remedy="choose one",
            )
        job = JobId(number)
        app.queue.edit(job, request, top=body.get("top", False), hold=body.get("hold"), **places)
        app.feed.wake()
        return JsonResponse(app.job(app.store.listing.row(job), hide_secrets=False))  # guests change nothing

    @routes.post("/v1/pause", responses={200: {"model": responses.ChangedFlag}, **errors(413, 503)})
    async def pause(body: Annotated[requests.Pause, Body()]) -> Response:
        """Start no more jobs, of the whole queue or of one project. Running jobs go on."""
        changed = app.queue.pause(body.get("project", ""))
        app.feed.wake()
        return JsonResponse({"changed": changed})

    @routes.post("/v1/unpause", responses={200: {"model": responses.ChangedFlag}, **errors(413, 503)})
    async def unpause(body: Annotated[requests.Pause, Body()]) -> Response:
        """Start jobs again."""
        changed = app.queue.unpause(body.get("project", ""))
        app.feed.wake()
        return JsonResponse({"changed": changed})

    @routes.post("/v1/clean", responses={200: {"model": responses.CleanedJobs}, **errors(413, 503)})
    async def clean(body: Annotated[requests.Clean, Body()]) -> Response:
        """Forget jobs that are over, and remove their folders.

        What jobs wrote in copies of the code (`--snapshot`) is kept.
        """
        states = _ended([State(name) for name in body.get("state", ())])
        before = time.time() - body.get("older_seconds", 0.0)
        forgotten = await app.cleaner.forget_jobs(before, states, body.get("project"))
        await app.cleaner.remove_old_output()
        return JsonResponse({"removed": forgotten.jobs, "kept": forgotten.kept})

    @routes.get("/v1/clean", responses={200: {"model": responses.CleanPreview}, **errors(503)})
    async def would_clean(
        older_seconds: Annotated[float, Query(ge=0, le=3.2e9)] = 0.0,
        state: Annotated[str, Query(max_length=200, description="states with commas between")] = "",
        project: Annotated[str | None, Query(max_length=255)] = None,
    ) -> Response:
        """How many jobs a `clean` with these conditions would forget."""
        wanted = Filter(states=_ended(read_states(state, State)), project=project)
        jobs = await app.views.ended_before(wanted, time.time() - older_seconds)
        return JsonResponse({"jobs": jobs})

    @routes.get("/v1/lessons", responses={200: {"model": responses.LessonList}, **errors(503)})
    async def lessons() -> Response:
        """The measured needs of jobs with `vram: auto`, by their shape, the latest first."""
        return JsonResponse({"lessons": lesson_objects(app.store.lessons.all())})

    @routes.post("/v1/lessons/forget", responses={200: {"model": responses.Removed}, **errors(413, 503)})
    async def forget(body: Annotated[requests.Forget, Body()]) -> Response:
        """Forget the measured needs of one shape, or of all: the next such job gets a whole GPU again."""
        return JsonResponse({"removed": app.queue.forget_lessons(body.get("shape"))})

    @routes.post("/v1/stop", responses={200: {"model": responses.StoppingBody}, **errors(413, 503)})
    async def stop(body: Annotated[requests.StopOrder, Body()]) -> Response:
        """Stop the daemon. Running jobs go on without it, unless the request says that they stop too."""
        app.stop(body.get("jobs", False))
        return JsonResponse({"stopping": True})

    return routes


def _ended(states: Sequence[State]) -> tuple[State, ...]:
    """The states of jobs that are to be forgotten; without any, all in which a job is over."""
    if running := [str(state) for state in states if not state.is_over]:
        raise BadInput(f"jobs that are {running[0]} are not over", remedy="kill them first")
    return tuple(states) or OVER


async def _container_of(app: AppState, number: int, wishes: Mapping[str, Any]) -> dict[str, str]:
    """The engine and the image of a job that gets another container."""
    request = _with_wishes(app, number, wishes)
    job = app.store.listing.row(JobId(number)).job
    if not request.image or request.on:
        return {} if request.image else {"container_engine": ""}
    return await app.containers.changed(request, app.store.listing.environment(job.environment))


def _with_wishes(app: AppState, number: int, wishes: Mapping[str, Any]) -> Request:
    """The request of a job with these fields changed; raises BadInput if they cannot be changed so."""
    job = app.store.listing.row(JobId(number)).job
    request = apply(job.request, wishes)
    if "array" in wishes:
        request = replace(request, array=_with_limit(job.request.array, request.array))
    if "checkpoint" in wishes or "time_limit_seconds" in wishes:
        check_checkpoint(request)
    check_place(request)
    check_request(request, environment_size(app.store.listing.environment(job.environment)))
    return request


def _with_limit(task: ArrayTask | None, wanted: ArrayTask | None) -> ArrayTask:
    """The task with another limit of its array, which alone can be changed."""
    if task is None or wanted is None or wanted.task != task.task:
        raise BadInput(
            "of an array only the limit can be changed",
            remedy="send the job's own `task` with another `most`; other tasks are another array",
        )
    return replace(task, most=wanted.most)


def _act(app: AppState, body: requests.Act) -> Callable[[list[JobId]], Changed]:
    """What is done to the jobs of a request; BadInput where it says something that is for another action."""
    action, signal, priority = body["action"], body.get("signal"), body.get("priority")
    if signal is not None and action != "kill":
        raise BadInput(f"`{action}` sends no signal", remedy="leave out `signal`")
    if (priority is not None) != (action == "priority"):
        raise BadInput(
            "the action `priority` goes with a number in `priority`, and no other action does",
            remedy='as {"action": "priority", "priority": 5}',
        )
    if body.get("dry_run"):
        return lambda jobs: Changed(list(jobs))
    acts: dict[str, Callable[[list[JobId]], Changed]] = {
        "kill": lambda jobs: app.queue.kill(jobs, signal),
        "hold": app.queue.hold,
        "release": app.queue.release,
        "suspend": app.queue.suspensions.suspend,
        "resume": app.queue.suspensions.resume,
        "retry": app.queue.retry,
        "priority": lambda jobs: app.queue.set_priority(jobs, priority or 0),
    }
    return acts[action]


def _filter(wanted: requests.ActFilter, states: tuple[State, ...]) -> Filter:
    return Filter(
        states=states,
        project=wanted.get("project"),
        name=wanted.get("name"),
        tag=wanted.get("tag"),
        array=wanted.get("array"),
        since=read_moment(wanted["since"], "since") if wanted.get("since") else None,
        ranges=ranges(wanted.get("ids", "")),
        text=wanted.get("text", "").strip(),
    )


def _states(body: requests.Act) -> tuple[State, ...]:
    """The states of the jobs that a filter means."""
    wanted = body["filter"]
    if wanted.get("failed"):
        return _FAILED
    return tuple(State(name) for name in wanted.get("state", ())) or _STATES[body["action"]]


def _is_of_others(app: AppState, wanted: requests.ActFilter) -> bool:
    return wanted.get("user", app.user) != app.user


async def _left_out(app: AppState, body: requests.Act) -> Counter[State]:
    """The jobs that match a filter without states, and are in those that the action is not for."""
    wanted = body.get("filter", {})
    if "filter" not in body or wanted.get("failed") or wanted.get("state") or _is_of_others(app, wanted):
        return Counter()
    meant, matching = _states(body), _filter(wanted, ())
    without = set(wanted.get("without", ()))
    if matching.is_tallied and not without:
        counts = app.store.listing.counts(matching.project)
        return Counter({state: number for state, number in counts.items() if state not in meant})
    found = await app.views.states(matching)
    return Counter(state for job, state in found if state not in meant and job not in without)


async def _matching(app: AppState, body: requests.Act) -> AsyncIterator[list[JobId]]:
    """The jobs that a request names, in portions, so that other requests are served meanwhile."""
    if ("ids" in body) == ("filter" in body):
        raise BadInput("the request must name its jobs in one way", remedy="give either `ids` or a `filter`")
    if "ids" in body:
        ids = [JobId(number) for number in dict.fromkeys(body["ids"])]
        known = app.store.listing.states(ids)
        for number in ids:
            if number not in known:
                raise NoSuchJob(number)
        for begin in range(0, len(ids), _PORTION):
            yield [number for number in ids[begin : begin + _PORTION] if number in known]
            await asyncio.sleep(0)
        return
    wanted, states = body["filter"], _states(body)
    if _is_of_others(app, wanted):
        return
    without = set(wanted.get("without", ()))
    if body.get("dry_run"):  # their rows need not be read
        found = await app.views.states(_filter(wanted, states))
        yield [job for job, _ in found if job not in without]
        return
    # From the end, when jobs are killed or held: otherwise the next ones would start in the meantime.
    order = "newest" if body["action"] in ("kill", "hold") else "oldest"
    async for rows in portions(app, _filter(wanted, states), order, _PORTION):
        if some := [row.job.id for row in rows if row.job.state in states and row.job.id not in without]:
            yield some
