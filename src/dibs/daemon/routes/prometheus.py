"""The queue in the words of Prometheus: what is there is counted when somebody asks."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import get_args

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_LATEST as CONTENT_TYPE
from prometheus_client.exposition import generate_latest

from dibs import __version__
from dibs.backends.nodes import counts
from dibs.backends.protocol import Node
from dibs.daemon.app_state import Desk
from dibs.daemon.routes.gpus import gpu_objects
from dibs.daemon.routes.metrics import Tally
from dibs.daemon.schemas.gpus import GpuState
from dibs.model.jobs import State

__all__ = ["CONTENT_TYPE", "exposition"]


Nodes = Mapping[str, Sequence[Node]]  # of each backend that answers


def exposition(desk: Desk, tally: Tally, nodes: Nodes) -> bytes:
    registry = CollectorRegistry()
    registry.register(_Collector(desk, tally, nodes))
    return generate_latest(registry)


class _Collector:
    def __init__(self, desk: Desk, tally: Tally, nodes: Nodes) -> None:
        self._desk = desk
        self._tally = tally
        self._nodes = nodes

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
        for name in get_args(GpuState):
            gpus.add_metric([name], states.get(name, 0))
        yield gpus
        yield from _away(self._nodes)
        yield CounterMetricFamily("dibs_events", "Events since the start.", value=self._tally.events)
        attempts = CounterMetricFamily("dibs_attempts_ended", "Attempts that ended, by cause.", labels=["cause"])
        for cause, number in sorted(self._tally.attempts.items()):
            attempts.add_metric([cause], number)
        yield attempts
        work = CounterMetricFamily("dibs_work_seconds", "Seconds that attempts ran.", labels=["project"])
        for project, seconds in sorted(self._tally.seconds.items()):
            work.add_metric([_label(project)], seconds)
        yield work
        energy = CounterMetricFamily("dibs_energy_joules", "Energy that GPUs took.", labels=["project"])
        for project, joules in sorted(self._tally.joules.items()):
            energy.add_metric([_label(project)], joules)
        yield energy


def _away(nodes: Nodes) -> Iterator[Metric]:
    """The machines of other systems; nothing of one that does not answer."""
    by_state = GaugeMetricFamily("dibs_nodes", "Nodes of other systems by state.", labels=["backend", "state"])
    cards = GaugeMetricFamily("dibs_node_gpus", "GPUs of nodes that can be used.", labels=["backend", "use"])
    for name, machines in nodes.items():
        for state, number in counts(machines).items():
            by_state.add_metric([name, state], number)
        groups = [gpus for node in machines if node.is_usable for gpus in node.gpus]
        used = sum(gpus.used for gpus in groups)
        cards.add_metric([name, "used"], used)
        cards.add_metric([name, "free"], sum(gpus.total for gpus in groups) - used)
    if nodes:
        yield from (by_state, cards)


def _label(project: str) -> str:
    return project.encode("utf-8", "backslashreplace").decode()
