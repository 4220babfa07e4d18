"""The route that Prometheus scrapes."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Literal, get_args

from fastapi import APIRouter, Response

from dibs.backends.nodes import counts as count_nodes
from dibs.backends.protocol import Node
from dibs.daemon.app_state import EventCounters
from dibs.daemon.http.errors import errors
from dibs.daemon.routes.gpus import GpuState, GpuTable
from dibs.daemon.routes.nodes import known_nodes
from dibs.dataclass import dataclass
from dibs.engine.engine import Engine
from dibs.engine.remote.systems import RemoteSystems
from dibs.model.jobs import State
from dibs.store.listing import Listing
from dibs.version import __version__


def metrics_routes(listing: Listing, gpus: GpuTable, remote: RemoteSystems, counters: EventCounters) -> APIRouter:
    routes = APIRouter()

    @routes.get(
        "/metrics",
        response_class=Response,
        responses={200: {"content": {"text/plain": {"schema": {"type": "string"}}}}, **errors(503)},
    )
    async def metrics() -> Response:
        """The queue in numbers, for Prometheus."""
        nodes = await known_nodes(remote)
        families = [
            Family("gauge", "dibs_build_info", "The version that runs.", ("version",), [((__version__,), 1)]),
            _jobs(listing),
            _gpus(gpus),
            _suspended(gpus.engine),
            *_nodes(nodes),
            *_totals(counters),
        ]
        content, media_type = _exposition(families)
        return Response(content, media_type=media_type)

    return routes


@dataclass(frozen=True, slots=True)
class Family:
    """One metric with its samples: the values of its labels, and a number."""

    kind: Literal["gauge", "counter"]
    name: str
    help: str
    labels: tuple[str, ...]
    samples: Sequence[tuple[tuple[str, ...], float]]


def _jobs(listing: Listing) -> Family:
    counts = listing.counts()
    samples = [((str(state),), counts.get(state, 0)) for state in State]
    return Family("gauge", "dibs_jobs", "Jobs by state.", ("state",), samples)


def _gpus(gpus: GpuTable) -> Family:
    states = Counter(gpu["state"] for gpu in gpus.objects(gpus.latest_reading))
    samples = [((name,), states.get(name, 0)) for name in get_args(GpuState)]
    return Family("gauge", "dibs_gpus", "GPUs by state.", ("state",), samples)


def _suspended(engine: Engine) -> Family:
    filled = sum(one.suspension.filled_bytes for one in engine.state.open.values() if one.suspension)
    text = "Memory of the machine that holds what suspended jobs had on GPUs."
    return Family("gauge", "dibs_suspended_bytes", text, (), [((), filled)])


def _nodes(nodes: Mapping[str, Sequence[Node]]) -> Iterator[Family]:
    """The nodes of other systems. A system that does not answer is left out."""
    states: list[tuple[tuple[str, ...], float]] = []
    gpus: list[tuple[tuple[str, ...], float]] = []
    for name, machines in nodes.items():
        states += [((name, state), number) for state, number in count_nodes(machines).items()]
        groups = [group for node in machines if node.is_usable for group in node.gpus]
        used = sum(group.used for group in groups)
        gpus += [((name, "used"), used), ((name, "free"), sum(group.total for group in groups) - used)]
    if nodes:
        yield Family("gauge", "dibs_nodes", "Nodes of other systems by state.", ("backend", "state"), states)
        yield Family("gauge", "dibs_node_gpus", "GPUs of nodes that can be used.", ("backend", "use"), gpus)


def _totals(counters: EventCounters) -> Iterator[Family]:
    attempts = [((cause,), number) for cause, number in sorted(counters.attempts.items())]
    work = [((_label(project),), seconds) for project, seconds in sorted(counters.seconds.items())]
    energy = [((_label(project),), joules) for project, joules in sorted(counters.joules.items())]
    moves = [(labels, number) for labels, number in sorted(counters.moves.items())]
    seconds = [((move,), time) for move, time in sorted(counters.move_seconds.items())]
    yield Family("counter", "dibs_moves", "Suspensions and resumptions.", ("move", "result"), moves)
    yield Family("counter", "dibs_move_seconds", "Seconds that those took which were done.", ("move",), seconds)
    yield Family("counter", "dibs_events", "Events since the start.", (), [((), counters.events)])
    yield Family("counter", "dibs_attempts_ended", "Attempts that ended, by cause.", ("cause",), attempts)
    yield Family("counter", "dibs_work_seconds", "Seconds that attempts ran.", ("project",), work)
    yield Family("counter", "dibs_energy_joules", "Energy that GPUs took.", ("project",), energy)


def _exposition(families: Sequence[Family]) -> tuple[bytes, str]:
    """The text of Prometheus, and its media type."""
    # Imported here: it takes 40 ms and a megabyte, and most daemons are never scraped.
    from prometheus_client import CollectorRegistry
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
    from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest

    class Collector:
        def describe(self) -> list[Metric]:
            return []  # without this method, registering would collect once for nothing

        def collect(self) -> Iterator[Metric]:
            for family in families:
                make = GaugeMetricFamily if family.kind == "gauge" else CounterMetricFamily
                metric = make(family.name, family.help, labels=family.labels)
                for labels, value in family.samples:
                    metric.add_metric(labels, value)
                yield metric

    registry = CollectorRegistry()
    registry.register(Collector())
    return generate_latest(registry), CONTENT_TYPE_LATEST


def _label(project: str) -> str:
    return project.encode("utf-8", "backslashreplace").decode()
