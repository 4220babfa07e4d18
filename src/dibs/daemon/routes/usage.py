"""The route to what a job used: the summary, the series, and what to make of them."""

from collections.abc import Sequence

from fastapi import APIRouter, Response

from dibs.daemon.app_state import Desk
from dibs.daemon.http.errors import Answer, StrictRoute, errors
from dibs.daemon.routes.jobs import AttemptNumber, Number
from dibs.daemon.schemas import responses as objects
from dibs.daemon.schemas.serializers import usage_object
from dibs.daemon.worker_thread import aside
from dibs.engine import series
from dibs.engine.series import Series
from dibs.errors import StoreUnusable
from dibs.model.jobs import JobId
from dibs.policy.usage import advise
from dibs.store.rows import AttemptRow

_PATIENCE = 10.0  # seconds; the file may lie on a disk that does not answer


def usage_routes(desk: Desk) -> APIRouter:
    routes = APIRouter(route_class=StrictRoute)

    @routes.get("/v1/jobs/{number}/usage", responses={200: {"model": objects.UsageReport}, **errors(404, 503)})
    async def usage(number: Number, attempt: AttemptNumber = None) -> Response:
        """What an attempt used of its GPUs and of the machine, over time, and what to make of it."""
        job = desk.store.listing.row(JobId(number)).job
        which = desk.attempt(job.id, attempt)
        used = None if which is None else desk.engine.usage_of(which.attempt.key) or which.usage
        found = None if which is None or used is None else await _series(desk, which)
        machine = desk.engine.machine
        return Answer(
            {
                "job": job.id,
                "attempt": which.attempt.number if which else None,
                "usage": usage_object(used),
                "series": found.columns() if found else None,
                "advice": []
                if used is None
                else advise(
                    used,
                    job.request.wishes,
                    cpus=machine.cpus,
                    memory=machine.memory,
                    astray=_numbers(desk, used.astray),
                ),
            }
        )

    return routes


async def _series(desk: Desk, row: AttemptRow) -> Series | None:
    """As it is measured, or as it stands in the attempt's folder."""
    sampler = desk.driver.sampler
    if sampler is not None and (live := sampler.series_of(row.attempt.key)) is not None:
        return live
    try:
        kept = await aside(lambda: series.read(row.attempt.folder), _PATIENCE, "usage-reader")
    except TimeoutError:
        raise StoreUnusable(
            f"cannot read {row.attempt.folder}: its disk does not answer", remedy="try again later"
        ) from None
    return kept.series if kept else None


def _numbers(desk: Desk, keys: Sequence[str]) -> list[str]:
    """Cards as people call them; by their keys where the driver shows them no more."""
    watcher = desk.driver.watcher
    shown = watcher.latest.gpus if watcher is not None and watcher.latest is not None else ()
    numbers = {seen.gpu.key: seen.gpu.number for seen in shown}
    return [numbers.get(key, key) for key in keys]
