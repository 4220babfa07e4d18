"""The route to the resources that a job used: a summary, a series, and advice."""

from collections.abc import Sequence

from fastapi import APIRouter, Response

from dibs.daemon.http.errors import JsonResponse, StrictRoute, errors
from dibs.daemon.routes.jobs import AttemptNumber, Number
from dibs.daemon.routes.parameters import find_attempt
from dibs.daemon.schemas import responses
from dibs.daemon.schemas.serializers import usage_object
from dibs.engine.driver import Driver
from dibs.engine.engine import Engine
from dibs.engine.watch.metering import Series, read_series
from dibs.errors import StoreUnusable
from dibs.model.jobs import JobId
from dibs.policy.advice import usage_advice
from dibs.store.rows import AttemptRow
from dibs.worker_thread import run_in_thread

_READ_WITHIN = 10.0  # seconds; the file may be on a disk that does not answer


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
        machine = engine.behaviour.machine
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
    try:
        kept = await run_in_thread(lambda: read_series(row.attempt.folder), _READ_WITHIN, "usage-reader")
    except TimeoutError:
        raise StoreUnusable(
            f"cannot read {row.attempt.folder}: its disk does not answer", remedy="try again later"
        ) from None
    return kept.series if kept else None


def _numbers(driver: Driver, keys: Sequence[str]) -> list[str]:
    """The numbers of GPUs; their keys, if the driver does not show them any more."""
    watcher = driver.watcher
    shown = watcher.latest.gpus if watcher is not None and watcher.latest is not None else ()
    numbers = {seen.gpu.key: seen.gpu.number for seen in shown}
    return [numbers.get(key, key) for key in keys]
