"""Routes that add jobs and show them, with the resources that they used."""

import asyncio
import re
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import field, replace
from typing import Annotated, Any

from fastapi import APIRouter, Body, Path, Query, Request, Response
from fastapi.responses import StreamingResponse
from pydantic import BaseModel, ConfigDict, Field

from dibs.daemon.app_state import AppState
from dibs.daemon.attempts import AttemptRecords, find_attempt
from dibs.daemon.http.errors import JsonResponse, StrictRoute, encode, errors
from dibs.daemon.job_views import JobView
from dibs.daemon.logs.output import read_output
from dibs.daemon.schemas import responses
from dibs.daemon.schemas.requests import Check, NewJobs, numbers, ranges, read_moment, read_states, requests_of
from dibs.daemon.schemas.responses import (
    HIDDEN,
    attempt_object,
    counts_object,
    lesson_objects,
    moment,
    new_job_object,
    past_object,
    reason_object,
    usage_object,
)
from dibs.dataclass import dataclass
from dibs.engine.driver import Driver
from dibs.engine.engine import Engine
from dibs.engine.queue.explain import Alike
from dibs.engine.queue.queue import AddCall, PartPlace
from dibs.engine.watch.metering import Series, read_series
from dibs.errors import BadInput
from dibs.model.jobs import OVER, JobId, State
from dibs.model.jobs import Request as JobRequest
from dibs.policy.advice import failure_advice, usage_advice
from dibs.policy.forecast import MOST_JOBS
from dibs.policy.shapes import shape_of_job
from dibs.store.codec import AttemptRow, JobRow
from dibs.store.listing import METRIC, ORDERS, SORTED_BY, Filter, Listing

MOST_WAITED = 10_000  # jobs in one call of `wait`
_PAGE = 500
_EXPLAINED = (State.QUEUED, State.SUBMITTED, State.HELD, State.SUSPENDED)
_SECRET = re.compile("KEY|TOKEN|SECRET|PASSWORD", re.IGNORECASE)  # in the name of a variable

_AT_ONCE = 20  # jobs that are explained, each for a millisecond, before the loop does other things

Number = Annotated[int, Path(ge=1, le=2**53, description="the job's number")]
References = Annotated[list[str], Query(min_length=1, max_length=500, description="17, @, @~2, a name, 17_4, 3-9")]
AttemptNumber = Annotated[int | None, Query(ge=1, le=2**31, description="the last if left out")]


class JobQuery(BaseModel):
    """Which jobs to show. Without a condition, all of them."""

    model_config = ConfigDict(extra="forbid")

    state: Annotated[str, Field(max_length=200, description="states with commas between")] = ""
    project: Annotated[str | None, Field(max_length=255)] = None
    name: Annotated[str | None, Field(max_length=255)] = None
    tag: Annotated[str | None, Field(max_length=255)] = None
    user: Annotated[str | None, Field(max_length=255)] = None
    since: Annotated[str, Field(max_length=60, description="RFC 3339, or seconds since the epoch")] = ""
    array: Annotated[int | None, Field(ge=1, le=2**53)] = None
    ids: Annotated[str, Field(max_length=15_000, description="numbers like 1-5,8")] = ""
    text: Annotated[
        str,
        Field(
            max_length=200,
            pattern=r"^[^\u0000]*$",
            description="somewhere in the name, the command, the project or a tag, in any case; or the number",
        ),
    ] = ""

    def filter(self) -> Filter:
        return Filter(
            states=read_states(self.state, State),
            project=self.project,
            name=self.name,
            tag=self.tag,
            array=self.array,
            since=read_moment(self.since, "since") if self.since else None,
            ranges=ranges(self.ids),
            text=self.text.strip(),
        )


class SortedJobQuery(JobQuery):
    """Which jobs to show, and in which order."""

    order: Annotated[
        str,
        Field(
            pattern=rf"^({'|'.join(SORTED_BY)}|(param|metric)\.[^\u0000-\u0020\"'{{}}=:,;]{{1,200}})$",
            description=f"{', '.join(SORTED_BY)}; or, of trials, param.NAME or metric.NAME",
        ),
    ] = "newest"
    reverse: bool = False


class JobPageQuery(SortedJobQuery):
    limit: Annotated[int, Field(ge=1, le=1000)] = 100
    offset: Annotated[
        int | None, Field(ge=0, le=10_000_000, description="how many to skip; instead of a cursor")
    ] = None
    cursor: Annotated[str | None, Field(max_length=80, pattern=r"^[0-9.e+-]{1,40}:[0-9]{1,15}$")] = None


def jobs_routes(app: AppState) -> APIRouter:
    routes = APIRouter(route_class=StrictRoute)
    listing = app.store.listing
    records = AttemptRecords()

    @routes.post(
        "/v1/jobs",
        status_code=201,
        responses={
            201: {"model": responses.AddedBody},
            200: {"model": responses.AddedBody, "description": "they were added before"},
            202: {"model": responses.AddedBody, "description": "a part of a list whose other parts are missing"},
            **errors(404, 409, 413, 503),
        },
    )
    async def add(body: Annotated[NewJobs, Body()]) -> Response:
        """Add jobs. They are durable when the numbers are returned."""
        environment, defaults = app.environment_and_defaults(body)
        requests: Sequence[JobRequest] = requests_of(
            body["jobs"], defaults, environment, app.settings.default_backend
        )
        # A repeated request gets the response of the first one, even if another system would now refuse the jobs.
        is_known = app.queue.is_known(body["key"], requests)
        notes: list[str] = []
        if not is_known:
            notes = await app.check_remote(requests)
            requests, pulls = await app.admit_containers(requests, environment, body["key"])
            notes += pulls
        added = app.queue.add(
            AddCall(
                key=body["key"],
                requests=requests,
                environment=environment,
                code=body.get("code"),
                part=PartPlace(**body["part"]) if "part" in body else None,
            )
        )
        if "part" in body and not added.missing:
            await app.lists.enter_all()
        app.feed.wake()
        status = 202 if added.missing else 201 if added.is_new else 200
        numbers = {"first": added.first, "last": added.last, "is_new": added.is_new, "missing": added.missing}
        return JsonResponse({**numbers, "notes": notes}, status)

    @routes.post("/v1/jobs/check", responses={200: {"model": responses.Prospects}, **errors(404, 409, 413, 503)})
    async def check(body: Annotated[Check, Body()]) -> Response:
        """Where and when jobs would start. Nothing is stored."""
        environment, defaults = app.environment_and_defaults(body)
        requests = requests_of(body["jobs"], defaults, environment, app.settings.default_backend)
        prospects = app.queue.check(requests)
        await app.check_remote(requests)
        await app.admit_containers(requests, environment)
        return JsonResponse(
            {
                "prospects": [
                    {
                        "lessons": _lessons(app, one.shape),
                        "gpus": list(one.gpus) or None,
                        "starts_at": moment(one.starts_at),
                        "no_estimate": one.unknown,
                        "reason": reason_object(one.reason),
                    }
                    for one in prospects
                ]
            }
        )

    @routes.get("/v1/jobs", responses={200: {"model": responses.JobPage}, **errors(503)})
    async def page(asked: Annotated[JobPageQuery, Query()], request: Request) -> Response:
        """A page of jobs."""
        counts = listing.counts(asked.project)
        wanted = asked.filter()
        if asked.user not in (None, app.user):
            some = _Some([], total=0)
        elif _needs_view(asked, wanted):
            view = await sorted_jobs(app, wanted, asked)
            begin = asked.offset or 0
            rows = listing.rows(view.jobs[begin : begin + asked.limit])
            some = _Some(rows, total=view.total, is_partial=view.is_partial)
        else:
            first = app.queue.starting_order() if asked.order == "turn" else ()
            found = listing.page(wanted, asked.order, asked.cursor, asked.limit, first)
            some = _Some(found.rows, cursor=found.cursor, total=_counted(wanted, asked.order, counts))
        await app.progress.look(some.rows)
        return JsonResponse(
            {
                "jobs": [app.job(row, hide_secrets=app.is_guest(request)) for row in some.rows],
                "cursor": some.cursor,
                "total": some.total,
                "is_partial": some.is_partial,
                "counts": counts_object(counts),
                "trouble": app.engine.trouble,
            }
        )

    @routes.get("/v1/jobs/wait", responses={200: {"model": responses.Waited}, **errors(404, 503)})
    async def wait(
        request: Request,
        ids: Annotated[str, Query(min_length=1, max_length=15_000, description="numbers like 1-5,8")],
        timeout_seconds: Annotated[float, Query(ge=0, le=300)] = 30,
    ) -> Response:
        """Respond when all these jobs are over, or when the time has passed."""
        wanted = numbers(ids, MOST_WAITED)
        if len(wanted) == 1:
            listing.row(wanted[0])  # an unknown number is an error at once
        await app.feed.wait_for_jobs(wanted, timeout_seconds)
        rows = listing.rows(wanted)
        hide = app.is_guest(request)
        return JsonResponse(
            {
                "jobs": [app.job(row, hide_secrets=hide) for row in rows if row.job.state.is_over],
                "waiting": [row.job.id for row in rows if not row.job.state.is_over],
                "trouble": app.engine.trouble,
            }
        )

    @routes.get("/v1/jobs/{number}", responses={200: {"model": responses.WholeJob}, **errors(404, 503)})
    async def whole(number: Number, request: Request) -> Response:
        """Everything about one job."""
        await app.progress.look([listing.row(JobId(number))])
        written = await records.of([one.attempt for one in listing.attempts(JobId(number))])
        row = listing.row(JobId(number))  # no `await` from here on, so that all of it is of one moment
        job = row.job
        stdout, stderr = app.results.streams(job, row.folder, row.node) if row.folder else ("", "")
        suspensions = app.store.suspensions.of([job.id])
        return JsonResponse(
            app.job(row, hide_secrets=app.is_guest(request))
            | {
                "attempts_list": [
                    attempt_object(
                        one,
                        written.get(one.attempt.number, {}),
                        app.engine.meters.usage_of(one.attempt.key),
                        app.remote.number_there(one.attempt),
                        suspensions.get(one.attempt.key, ()),
                    )
                    for one in listing.attempts(job.id)
                ],
                "lessons": _lessons_of_job(app, job.request),
                "reason": None if job.state.is_over else reason_object(app.queue.why(job.id).reason),
                "explanation": _explanation(row),
                "code": listing.code(job.code) if job.code else None,
                "stdout": stdout,
                "stderr": stderr,
            }
        )

    @routes.get(
        "/v1/jobs/{number}/environment", responses={200: {"model": responses.EnvironmentBody}, **errors(404, 503)}
    )
    async def environment(number: Number, request: Request) -> Response:
        """The environment that was captured with the job. A browser gets `***` for those with a secret's name."""
        found = listing.environment(listing.row(JobId(number)).job.environment)
        if app.is_browser(request):
            found = {name: HIDDEN if _SECRET.search(name) else value for name, value in found.items()}
        return JsonResponse({"environment": found})

    @routes.get("/v1/jobs/{number}/why", responses={200: {"model": responses.Why}, **errors(404, 503)})
    async def why(number: Number) -> Response:
        """Why a job waits, in one sentence."""
        row = listing.row(JobId(number))
        waiting = app.queue.why(row.job.id)
        return JsonResponse(
            {
                "job": row.job.id,
                "state": str(row.job.state),
                "reason": reason_object(waiting.reason),
                "starts_at": moment(waiting.starts_at),
                "no_estimate": waiting.unknown,
            }
        )

    @routes.get("/v1/why", responses={200: {"model": responses.WhyMany}, **errors(404, 503)})
    async def why_many(ref: References) -> Response:
        """Why many jobs wait, each answer once: those of one array or call that wait alike have that of the first.

        Jobs that run or are over have a state only.
        """
        numbers = _found(listing, ref)
        known: Alike = {}
        for some in range(0, len(numbers), _AT_ONCE):
            known = app.queue.why_alike(numbers[some : some + _AT_ONCE], known)
            await asyncio.sleep(0)
        return JsonResponse(
            {
                "answers": [
                    {
                        "state": str(one.state),
                        "reason": reason_object(one.answer.reason),
                        "starts_at": moment(one.answer.starts_at),
                        "no_estimate": one.answer.unknown,
                        "jobs": one.jobs,
                    }
                    for one in known.values()
                ]
            }
        )

    @routes.get("/v1/reasons", responses={200: {"model": responses.Reasons}, **errors(503)})
    async def reasons(
        limit: Annotated[int, Query(ge=1, le=MOST_JOBS, description="of each of the states")] = 100,
    ) -> Response:
        """Why jobs wait or stand still, each reason once with the numbers of its jobs.

        A job that waits for its turn has the reason of the first of its kind. Of the queued jobs those are
        included that start first, of the submitted, the held and the suspended ones those that were added last.
        """
        counts = listing.counts()
        return JsonResponse(
            {
                "reasons": [
                    {**(reason_object(one.reason) or {}), "jobs": one.jobs} for one in app.queue.reasons(limit)
                ],
                "is_partial": any(counts.get(state, 0) > limit for state in _EXPLAINED),
            }
        )

    @routes.get("/v1/find", responses={200: {"model": responses.FoundIds}, **errors(404, 503)})
    async def find(ref: References) -> Response:
        """The numbers of the jobs that references name, each once."""
        return JsonResponse({"ids": _found(listing, ref)})

    @routes.get(
        "/v1/export",
        response_class=StreamingResponse,
        responses={200: {"content": {"application/jsonl": {"schema": {"type": "string"}}}}, **errors(503)},
    )
    async def export(asked: Annotated[JobQuery, Query()], request: Request) -> Response:
        """Jobs as lines of JSON, with keys with which they can be added again."""
        is_ours = asked.user in (None, app.user)
        lines = _exported(app, asked.filter(), hide_secrets=app.is_guest(request)) if is_ours else _nothing()
        return StreamingResponse(lines, media_type="application/jsonl")

    return routes


def _found(listing: Listing, references: Sequence[str]) -> list[JobId]:
    return list(dict.fromkeys(number for one in references for number in listing.find(one[:4096])))


@dataclass(frozen=True, kw_only=True, slots=True)
class _Some:
    rows: list[JobRow] = field(kw_only=False)
    cursor: str | None = None
    total: int | None = None
    is_partial: bool = False


def _needs_view(asked: JobPageQuery, wanted: Filter) -> bool:
    """Whether all matching jobs must be looked at. A first page, or one after a cursor, needs few."""
    if asked.cursor is not None and asked.offset is not None:
        raise BadInput("a page begins at a cursor or at an offset, not both", remedy="choose one")
    if asked.offset:
        return True
    is_counted = asked.offset is None or wanted.is_tallied
    if asked.order in ORDERS and not wanted.text and not asked.reverse and is_counted:
        return False
    if asked.cursor is not None:
        raise BadInput(
            "there is no cursor for a text, for this order or for a reversed one", remedy="go on with `offset`"
        )
    return True


async def sorted_jobs(app: AppState, wanted: Filter, asked: SortedJobQuery) -> JobView:
    """All jobs that match, in order; by turn, those that start first are in front."""
    live = await _live_keys(app, asked.order)
    view = await app.views.of(wanted, asked.order, asked.reverse, live=live)
    if asked.order == "turn" and not asked.reverse:
        view = replace(view, jobs=_with_first(view.jobs, app.queue.starting_order()))
    return view


async def _live_keys(app: AppState, order: str) -> dict[int, float]:
    """By what jobs that run are sorted, where the order is of metrics: the store knows those of ended ones."""
    if order != "metrics" and not order.startswith(METRIC):
        return {}
    rows = app.store.listing.rows([job for job, _ in app.engine.state.everywhere])
    await app.progress.look(rows)
    keys: dict[int, float] = {}
    for row in rows:
        numbers = app.progress.of(row).numbers
        named = [numbers.get(order.removeprefix(METRIC))] if order != "metrics" else numbers.values()
        keys |= {int(row.job.id): one for one in list(named)[:1] if one is not None}
    return keys


def _with_first(jobs: Sequence[int], first: Sequence[int]) -> Sequence[int]:
    """The same jobs, those that start first in front."""
    there = set(jobs).intersection(first)
    return [*(job for job in first if job in there), *(job for job in jobs if job not in there)]


def _counted(wanted: Filter, order: str, counts: Mapping[State, int]) -> int | None:
    """How many jobs match, if that is known without looking at them."""
    if not wanted.is_tallied:
        return None
    states: set[State] = set(wanted.states or State)
    if order == "ended":
        states &= set(OVER)
    elif order == "turn":
        states = {State.QUEUED}
    return sum(counts.get(state, 0) for state in states)


def _explanation(row: JobRow) -> str:
    return "" if row.outcome is None else failure_advice(row.outcome.cause, row.outcome.message)


def _lessons(app: AppState, shape: str) -> list[dict[str, Any]]:
    return lesson_objects(app.store.lessons.all(shape)) if shape else []


def _lessons_of_job(app: AppState, request: JobRequest) -> list[dict[str, Any]]:
    """Without `--vram auto` what was measured is not booked: then only what keeps it from being suspended."""
    if request.wishes.shape:
        return _lessons(app, request.wishes.shape)
    return [one for one in _lessons(app, shape_of_job(request)) if one["obstacle"] is not None]


async def portions(app: AppState, wanted: Filter, order: str, at_once: int) -> AsyncIterator[list[JobRow]]:
    """The matching jobs, in the order of their numbers, without blocking the loop."""
    if wanted.text:
        jobs = (await app.views.of(wanted, order, is_fresh=True)).jobs
        for begin in range(0, len(jobs), at_once):
            yield app.store.listing.rows(jobs[begin : begin + at_once])
            await asyncio.sleep(0)
        return
    cursor: str | None = None
    while True:
        page = app.store.listing.page(wanted, order, cursor, at_once)
        yield page.rows
        cursor = page.cursor
        if cursor is None:
            return
        await asyncio.sleep(0)  # let other requests run


async def _exported(app: AppState, wanted: Filter, *, hide_secrets: bool) -> AsyncIterator[bytes]:
    async for rows in portions(app, wanted, "oldest", _PAGE):
        lines = [
            encode(
                {
                    "id": row.job.id,
                    "state": str(row.job.state),
                    **past_object(row),
                    **new_job_object(row.job.request, hide_secrets=hide_secrets),
                }
            )
            for row in rows
        ]
        if lines:
            yield b"\n".join(lines) + b"\n"


async def _nothing() -> AsyncIterator[bytes]:
    return
    yield b""


def usage_routes(engine: Engine, driver: Driver) -> APIRouter:
    routes = APIRouter(route_class=StrictRoute)
    listing = engine.store.listing

    @routes.get("/v1/jobs/{number}/usage", responses={200: {"model": responses.UsageReport}, **errors(404, 503)})
    async def usage(number: Number, attempt: AttemptNumber = None) -> Response:
        """What an attempt used of its GPUs and of the machine, over time, and advice."""
        job = listing.row(JobId(number)).job
        which = find_attempt(listing, job.id, attempt)
        used = None if which is None else engine.meters.usage_of(which.attempt.key) or which.usage
        found = None if which is None or used is None else await _series(engine, which)
        machine = engine.limits.machine
        return JsonResponse(
            {
                "job": job.id,
                "attempt": which.attempt.number if which else None,
                "usage": usage_object(used),
                "series": found.columns() if found else None,
                "advice": []
                if used is None
                else usage_advice(
                    used,
                    job.request.wishes,
                    cpus=machine.cpus,
                    memory=machine.memory,
                    astray=_numbers(driver, used.astray),
                ),
            }
        )

    return routes


async def _series(engine: Engine, row: AttemptRow) -> Series | None:
    """The series that is being measured, or the one in the attempt's folder."""
    if (live := engine.meters.series_of(row.attempt.key)) is not None:
        return live
    folder = row.attempt.folder
    kept = await read_output(folder, lambda: read_series(folder))
    return kept.series if kept else None


def _numbers(driver: Driver, keys: Sequence[str]) -> list[str]:
    """The numbers of GPUs; their keys, if the driver does not show them any more."""
    watcher = driver.watcher
    shown = watcher.latest.gpus if watcher is not None and watcher.latest is not None else ()
    numbers = {seen.gpu.key: seen.gpu.number for seen in shown}
    return [numbers.get(key, key) for key in keys]
