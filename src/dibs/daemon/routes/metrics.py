"""What happened since the daemon started, and the route where Prometheus asks for it."""

from collections import Counter
from collections.abc import Sequence

from fastapi import APIRouter, Response

from dibs.daemon.app_state import Desk
from dibs.daemon.http.errors import errors
from dibs.daemon.routes.nodes import known_nodes
from dibs.model.events import Ended, Event

_MOST_PROJECTS = 1000  # that get a line of their own
_JOULES = 3600.0  # in a watt-hour


class Tally:
    """What has happened since the daemon started."""

    def __init__(self) -> None:
        self.attempts: Counter[str] = Counter()  # ended ones, by cause
        self.seconds: dict[str, float] = {}  # of work, by project
        self.joules: dict[str, float] = {}  # that GPUs took for it, by project
        self.events = 0

    def heard(self, events: Sequence[Event]) -> None:
        self.events += len(events)
        for event in events:
            if isinstance(event, Ended):
                project = event.job.request.project
                if project not in self.seconds and len(self.seconds) >= _MOST_PROJECTS:
                    project = "(others)"
                self.attempts[str(event.outcome.cause or "success")] += 1
                self.seconds[project] = self.seconds.get(project, 0.0) + (event.outcome.seconds or 0.0)
                if event.usage is not None and event.usage.energy is not None:
                    self.joules[project] = self.joules.get(project, 0.0) + event.usage.energy * _JOULES


def metrics_routes(desk: Desk, tally: Tally) -> APIRouter:
    routes = APIRouter()

    @routes.get(
        "/metrics",
        response_class=Response,
        responses={200: {"content": {"text/plain": {"schema": {"type": "string"}}}}, **errors(503)},
    )
    async def metrics() -> Response:
        """The queue in numbers, for Prometheus."""
        from dibs.daemon.routes.prometheus import (  # a megabyte that only those who ask pay
            CONTENT_TYPE,
            exposition,
        )

        return Response(exposition(desk, tally, await known_nodes(desk)), media_type=CONTENT_TYPE)

    return routes
