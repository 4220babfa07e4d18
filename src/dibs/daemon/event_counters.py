"""Totals since the daemon started, for Prometheus."""

from collections import Counter
from collections.abc import Sequence

from dibs.model.events import Ended, Event

_MOST_PROJECTS = 1000  # that are counted by name; the rest is counted together
_JOULES_PER_WATT_HOUR = 3600.0


class EventCounters:
    """What has happened since the daemon started."""

    def __init__(self) -> None:
        self.attempts: Counter[str] = Counter()  # ended ones, by cause
        self.seconds: dict[str, float] = {}  # of work, by project
        self.joules: dict[str, float] = {}  # used by GPUs, by project
        self.events = 0

    def count(self, events: Sequence[Event]) -> None:
        self.events += len(events)
        for event in events:
            if isinstance(event, Ended):
                project = event.job.request.project
                if project not in self.seconds and len(self.seconds) >= _MOST_PROJECTS:
                    project = "(others)"
                self.attempts[str(event.outcome.cause or "success")] += 1
                self.seconds[project] = self.seconds.get(project, 0.0) + (event.outcome.seconds or 0.0)
                if event.usage is not None and event.usage.energy is not None:
                    joules = event.usage.energy * _JOULES_PER_WATT_HOUR
                    self.joules[project] = self.joules.get(project, 0.0) + joules
