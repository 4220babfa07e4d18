"""The API: every route with the parts that it uses."""

import functools
from typing import Any

from fastapi import FastAPI, Response
from starlette.types import ASGIApp

from dibs.daemon.app_state import AppState
from dibs.daemon.http.errors import JSON, JsonCompression, VersionHeader, described_routes, encode, handle_errors
from dibs.daemon.http.server import RequestLimits
from dibs.daemon.routes.actions import action_routes
from dibs.daemon.routes.events import event_routes
from dibs.daemon.routes.gpus import GpuTable, gpu_routes
from dibs.daemon.routes.history import history_routes
from dibs.daemon.routes.job_csv import csv_routes
from dibs.daemon.routes.job_metrics import job_metrics_routes
from dibs.daemon.routes.jobs import jobs_routes, usage_routes
from dibs.daemon.routes.logs import line_routes, log_routes
from dibs.daemon.routes.metrics import metrics_routes
from dibs.daemon.routes.nodes import node_routes
from dibs.daemon.routes.status import status_routes, web_routes
from dibs.daemon.routes.sweeps import sweep_routes
from dibs.daemon.routes.timeline import timeline_routes
from dibs.version import __version__


def make_app(state: AppState) -> FastAPI:
    """The app with every route. Its description, at /openapi.json, is made at the first request for it."""
    app = _app_with_routes(state)

    @functools.cache
    def described() -> bytes:
        return encode(description(state))

    @app.get("/openapi.json", include_in_schema=False)
    async def openapi() -> Response:
        return Response(described(), media_type=JSON)

    handle_errors(app)
    app.add_middleware(JsonCompression)
    return app


def description(state: AppState) -> dict[str, Any]:
    """The OpenAPI description. FastAPI lists a 422 for every route that reads a body; here it is a 400."""
    with described_routes():
        schema = _app_with_routes(state).openapi()
    for path in schema["paths"].values():
        for operation in path.values():
            operation["responses"].pop("422", None)
    for name in ("HTTPValidationError", "ValidationError"):
        schema["components"]["schemas"].pop(name, None)
    return schema


def with_limits(app: FastAPI) -> ASGIApp:
    """The app as the server on the UNIX socket runs it."""
    return VersionHeader(RequestLimits(app))


def _app_with_routes(state: AppState) -> FastAPI:
    app = FastAPI(
        title="dibs",
        version=__version__,
        description="A queue that gives every command its GPU.",
        openapi_url=None,
        docs_url=None,
        redoc_url=None,
    )
    listing = state.store.listing
    gpus = GpuTable(
        engine=state.engine, health=state.health, driver=state.driver, leases=state.leases, user=state.user
    )
    for routes in (
        status_routes(state),
        job_metrics_routes(state),  # before the jobs: `metrics` is not a number
        jobs_routes(state),
        csv_routes(state),
        action_routes(state),
        sweep_routes(state),
        log_routes(listing, state.results),
        line_routes(listing, state.results),
        usage_routes(state.engine, state.driver),
        event_routes(state.store.events, state.feed),
        gpu_routes(state, gpus, state.last_hour),
        node_routes(state.remote, listing),
        timeline_routes(listing.spans, state.engine.cards, state.history, state.user),
        history_routes(state.history, state.engine.cards, state.report),
        metrics_routes(listing, gpus, state.remote, state.counters),
        web_routes(state.listener),
    ):
        # Not `include_router`, which makes every route again at the first request.
        app.router.routes.extend(routes.routes)
    return app
