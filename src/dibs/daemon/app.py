"""The API put together."""

import functools
from typing import Any

from fastapi import FastAPI, Response
from starlette.types import ASGIApp

from dibs import __version__
from dibs.daemon.app_state import Desk
from dibs.daemon.gpu_history import history_routes
from dibs.daemon.http.errors import JSON, Stamp, answer_errors, described_routes, encode
from dibs.daemon.http.limits import Gate
from dibs.daemon.routes.actions import acts_routes
from dibs.daemon.routes.events import events_routes
from dibs.daemon.routes.gpus import gpus_routes
from dibs.daemon.routes.jobs import jobs_routes
from dibs.daemon.routes.lines import lines_routes
from dibs.daemon.routes.logs import log_routes
from dibs.daemon.routes.metrics import Tally, metrics_routes
from dibs.daemon.routes.nodes import nodes_routes
from dibs.daemon.routes.status import status_routes
from dibs.daemon.routes.sweeps import sweeps_routes
from dibs.daemon.routes.timeline import timeline_routes
from dibs.daemon.routes.usage import usage_routes
from dibs.daemon.routes.web import door_routes


def make_app(desk: Desk, tally: Tally) -> FastAPI:
    """Every route. The description is at /openapi.json; it is made when somebody asks for it."""
    app = _app_with_routes(desk, tally)

    @functools.cache
    def described() -> bytes:
        return encode(description(desk, tally))

    @app.get("/openapi.json", include_in_schema=False)
    async def openapi() -> Response:
        return Response(described(), media_type=JSON)

    answer_errors(app)
    return app


def description(desk: Desk, tally: Tally) -> dict[str, Any]:
    """FastAPI tells of a 422 on every route that reads something; ours answer 400."""
    with described_routes():
        schema = _app_with_routes(desk, tally).openapi()
    for path in schema["paths"].values():
        for operation in path.values():
            operation["responses"].pop("422", None)
    for name in ("HTTPValidationError", "ValidationError"):
        schema["components"]["schemas"].pop(name, None)
    return schema


def guarded(app: FastAPI) -> ASGIApp:
    """The app as the server runs it: behind the gate, and with our version on every answer."""
    return Stamp(Gate(app))


def _app_with_routes(desk: Desk, tally: Tally) -> FastAPI:
    app = FastAPI(
        title="dibs",
        version=__version__,
        description="A queue that gives every command its GPU.",
        openapi_url=None,
        docs_url=None,
        redoc_url=None,
    )
    for routes in (
        status_routes(desk),
        jobs_routes(desk),
        acts_routes(desk),
        sweeps_routes(desk),
        log_routes(desk),
        lines_routes(desk),
        usage_routes(desk),
        events_routes(desk),
        gpus_routes(desk),
        history_routes(desk.history),
        nodes_routes(desk),
        timeline_routes(desk),
        metrics_routes(desk, tally),
        door_routes(desk),
    ):
        # Not `include_router`, which makes every route once more when the first request comes.
        app.router.routes.extend(routes.routes)
    return app
