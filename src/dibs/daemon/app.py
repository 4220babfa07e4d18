"""The API put together."""

from typing import Any

from fastapi import FastAPI, Response
from starlette.types import ASGIApp

from dibs import __version__
from dibs.daemon.acts import acts_routes
from dibs.daemon.answers import Answer, Stamp, answer_errors
from dibs.daemon.desk import Desk
from dibs.daemon.events import events_routes
from dibs.daemon.gate import Gate
from dibs.daemon.gpus import gpus_routes
from dibs.daemon.jobs import jobs_routes
from dibs.daemon.log import log_routes
from dibs.daemon.metrics import Tally, metrics_routes
from dibs.daemon.status import status_routes


def make_app(desk: Desk, tally: Tally) -> FastAPI:
    """Every route. The description is at /openapi.json; it is made when somebody asks for it."""
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
        log_routes(desk),
        events_routes(desk),
        gpus_routes(desk),
        metrics_routes(desk, tally),
    ):
        app.include_router(routes)
    _describe(app)
    answer_errors(app)
    return app


def guarded(app: FastAPI) -> ASGIApp:
    """The app as the server runs it: behind the gate, and with our version on every answer."""
    return Stamp(Gate(app))


def _describe(app: FastAPI) -> None:
    @app.get("/openapi.json", include_in_schema=False)
    async def openapi() -> Response:
        return Answer(described(app))


def described(app: FastAPI) -> dict[str, Any]:
    """FastAPI tells of a 422 on every route that reads something; ours answer 400."""
    schema = app.openapi()
    for path in schema["paths"].values():
        for operation in path.values():
            operation["responses"].pop("422", None)
    for name in ("HTTPValidationError", "ValidationError"):
        schema["components"]["schemas"].pop(name, None)
    return schema
