"""Routes to the metrics that jobs report: their series, bounded."""

from collections.abc import Collection
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query, Response
from typing_extensions import TypedDict  # pydantic reads the one in typing from Python 3.12 only

from dibs.daemon.app_state import AppState
from dibs.daemon.attempts import find_attempt
from dibs.daemon.http.errors import JsonResponse, StrictRoute, errors
from dibs.daemon.routes.jobs import AttemptNumber, Number
from dibs.daemon.schemas.requests import Moment, StateName, numbers
from dibs.daemon.schemas.responses import moment
from dibs.errors import StoreUnusable
from dibs.metrics.attempt import AttemptMetrics, FoundSeries
from dibs.metrics.series import MOST_POINTS, MetricPoint
from dibs.model.jobs import JobId
from dibs.store.codec import AttemptRow, JobRow

_MOST_JOBS = 100  # in one response

Names = Annotated[
    list[str] | None, Query(max_length=100, description="of the series; may be given again; all if left out")
]
Points = Annotated[int, Query(ge=0, le=MOST_POINTS, description="the most of one series")]


class MetricSeriesObject(TypedDict):
    """The numbers that were reported under one name. The lists have one entry for each point that is kept."""

    name: str
    source: Literal["metrics", "log", "tensorboard", "wandb", "mlflow"]
    reported: int  # how many numbers, also those that are not finite
    not_finite: int  # of these
    last: float | None  # null: it is not finite
    last_step: float
    min: float | None
    min_step: float | None
    max: float | None
    max_step: float | None
    steps: list[float]
    at_seconds: list[float]  # after the attempt's start; estimated where the line has no `_timestamp`
    values: list[float]


class JobMetricsObject(TypedDict):
    """What one attempt of a job has reported so far."""

    job: int
    attempt: int | None  # null: it has had none
    state: StateName
    started_at: Moment | None  # of the attempt
    is_complete: bool  # false: more of it is there and was not read yet; ask again
    series: list[MetricSeriesObject]
    notes: list[str]  # what was left out, one sentence each


class JobMetricsList(TypedDict):
    jobs: list[JobMetricsObject]


def job_metrics_routes(app: AppState) -> APIRouter:
    routes = APIRouter(route_class=StrictRoute)
    listing = app.store.listing

    async def found(
        row: JobRow, which: AttemptRow | None, names: Collection[str] | None, points: int
    ) -> dict[str, Any]:
        about = {"job": row.job.id, "state": str(row.job.state)}
        if which is None:
            return {**about, **_NOTHING}
        began = which.attempt.opened_at
        read = await app.metrics.look(row.job, which, lambda metrics: _told(metrics, began, names, points))
        return {**about, "attempt": which.attempt.number, "started_at": moment(began), **read}

    @routes.get("/v1/jobs/metrics", responses={200: {"model": JobMetricsList}, **errors(404, 503)})
    async def of_several(
        ids: Annotated[str, Query(min_length=1, max_length=15_000, description="numbers like 1-5,8")],
        name: Names = None,
        points: Points = 200,
    ) -> Response:
        """The metrics of the last attempts of several jobs. Jobs that do not exist are left out."""
        told = []
        for row in listing.rows(numbers(ids, _MOST_JOBS)):
            try:
                told.append(await found(row, find_attempt(listing, row.job.id, None), name, points))
            except StoreUnusable as error:
                about = {"job": row.job.id, "state": str(row.job.state)}
                told.append({**about, **_NOTHING, "notes": [error.message]})
        return JsonResponse({"jobs": told})

    @routes.get("/v1/jobs/{number}/metrics", responses={200: {"model": JobMetricsObject}, **errors(404, 503)})
    async def of_one(
        number: Number, attempt: AttemptNumber = None, name: Names = None, points: Points = MOST_POINTS
    ) -> Response:
        """The metrics of one attempt of a job."""
        row = listing.row(JobId(number))
        return JsonResponse(await found(row, find_attempt(listing, row.job.id, attempt), name, points))

    return routes


_NOTHING: dict[str, Any] = {"attempt": None, "started_at": None, "is_complete": True, "series": [], "notes": []}


def _told(metrics: AttemptMetrics, began: float, names: Collection[str] | None, points: int) -> dict[str, Any]:
    chosen = [one for one in metrics.series() if names is None or one.name in names]
    return {
        "is_complete": metrics.is_complete,
        "series": [_series_object(one, began, points) for one in chosen],
        "notes": metrics.notes(),
    }


def _series_object(found: FoundSeries, began: float, points: int) -> dict[str, Any]:
    summary, kept = found.series.summary(), found.series.points(points)
    return {
        "name": found.name,
        "source": found.source,
        "reported": summary.reported,
        "not_finite": summary.not_finite,
        "last": summary.last,
        "last_step": _plain(summary.last_step),
        **_extreme("min", summary.least),
        **_extreme("max", summary.most),
        "steps": [_plain(point.step) for point in kept],
        "at_seconds": [round(point.at - began, 3) for point in kept],
        "values": [point.value for point in kept],
    }


def _extreme(word: str, point: MetricPoint | None) -> dict[str, float | None]:
    return {word: point.value if point else None, f"{word}_step": _plain(point.step) if point else None}


def _plain(step: float) -> float:
    """A whole number without `.0`: most steps are."""
    return int(step) if step.is_integer() else step
