"""The queue in the words of Prometheus: what is there is counted when somebody asks."""

from collections import Counter
from collections.abc import Iterator
from typing import get_args

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_LATEST as CONTENT_TYPE
from prometheus_client.exposition import generate_latest

from dibs import __version__
from dibs.daemon.desk import Desk
from dibs.daemon.gpus import gpu_objects
from dibs.daemon.metrics import Tally
from dibs.daemon.objects import GpuState
from dibs.model.jobs import State

__all__ = ["CONTENT_TYPE", "exposition"]


def exposition(desk: Desk, tally: Tally) -> bytes:
    registry = CollectorRegistry()
    registry.register(_Collector(desk, tally))
    return generate_latest(registry)


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
        for name in get_args(GpuState):
            gpus.add_metric([name], states.get(name, 0))
        yield gpus
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


def _label(project: str) -> str:
    return project.encode("utf-8", "backslashreplace").decode()
