"""Numbers for Prometheus. What is there is counted when somebody asks, what happens as it does."""

from collections import Counter
from collections.abc import Iterator, Sequence

from fastapi import APIRouter, Response
from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest

from dibs import __version__
from dibs.daemon.answers import errors
from dibs.daemon.desk import Desk
from dibs.daemon.gpus import gpu_objects
from dibs.model.events import Ended, Event
from dibs.model.jobs import State

_MOST_PROJECTS = 1000  # that get a line of their own


class Tally:
    """What has happened since the daemon started."""

    def __init__(self) -> None:
        self.attempts: Counter[str] = Counter()  # ended ones, by cause
        self.seconds: dict[str, float] = {}  # of work, by project
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


def metrics_routes(desk: Desk, tally: Tally) -> APIRouter:
    routes = APIRouter()
    registry = CollectorRegistry()
    registry.register(_Collector(desk, tally))

    @routes.get(
        "/metrics",
        response_class=Response,
        responses={200: {"content": {"text/plain": {"schema": {"type": "string"}}}}, **errors(503)},
    )
    async def metrics() -> Response:
        """The queue in numbers, for Prometheus."""
        return Response(generate_latest(registry), media_type=CONTENT_TYPE_LATEST)

    return routes


class _Collector:
    def __init__(self, desk: Desk, tally: Tally) -> None:
        self._desk = desk
        self._tally = tally

    def describe(self) -> list[Metric]:
        return []  # asked at registration; without it everything would be counted once for nothing

    def collect(self) -> Iterator[Metric]:
        info = GaugeMetricFamily("dibs_build_info", "The version that runs.", labels=["version"])
        info.add_metric([__version__], 1)
        yield info
        counts = self._desk.store.listing.counts()
        jobs = GaugeMetricFamily("dibs_jobs", "Jobs by state.", labels=["state"])
        for state in State:
            jobs.add_metric([str(state)], counts.get(state, 0))
        yield jobs
        watcher = self._desk.driver.watcher
        states = Counter(gpu["state"] for gpu in gpu_objects(self._desk, watcher.latest if watcher else None))
        gpus = GaugeMetricFamily("dibs_gpus", "GPUs by state.", labels=["state"])
        for name in ("free", "held", "busy", "drained", "quarantined", "silent"):
            gpus.add_metric([name], states.get(name, 0))
        yield gpus
        yield CounterMetricFamily("dibs_events", "Events since the start.", value=self._tally.events)
        attempts = CounterMetricFamily("dibs_attempts_ended", "Attempts that ended, by cause.", labels=["cause"])
        for cause, number in sorted(self._tally.attempts.items()):
            attempts.add_metric([cause], number)
        yield attempts
        work = CounterMetricFamily("dibs_work_seconds", "Seconds that attempts ran.", labels=["project"])
        for project, seconds in sorted(self._tally.seconds.items()):
            work.add_metric([project.encode("utf-8", "backslashreplace").decode()], seconds)
        yield work
