"""The queue's head in memory, however long the queue in the store is.

Jobs with the same wishes have the same chances, so the policy needs only the first few of each class. The rest
stays in the store as rows and costs nothing.
"""

import bisect
from collections.abc import Callable
from dataclasses import replace

from dibs.model.jobs import Job, JobId
from dibs.store.codec import class_of

_KEPT = 256  # jobs of one class in memory


def _order(job: Job) -> tuple[int, float]:
    return job.order


class _Class:
    """The waiting jobs with the same chances: the first ones here, perhaps more in the store."""

    def __init__(self) -> None:
        self.jobs: list[Job] = []
        self.has_more = False


class WaitingLine:
    """Who waits, in order. `load(class, now, limit)` reads the first jobs of a class that may start now."""

    def __init__(self, load: Callable[[str, float, int], list[Job]]) -> None:
        self._load = load
        self._classes: dict[str, _Class] = {}
        self._class_of: dict[JobId, str] = {}  # of the jobs that are here
        self._delayed: list[tuple[float, JobId, Job]] = []
        self._latest = 0.0  # a clock that is set back must not hide a job whose moment has come already
        self.count = 0

    def restore(self, classes: list[str], delayed: list[Job], count: int, now: float) -> None:
        """Begin with what the store says is waiting; `delayed` are those whose moment comes after `now`."""
        self._latest = now
        for name in classes:
            self._classes.setdefault(name, _Class()).has_more = True
        for job in delayed:
            self.add(job)
        self.count = count

    def add(self, job: Job) -> None:
        self.count += 1
        if job.not_before is not None:
            bisect.insort(self._delayed, (job.not_before, job.id, job))
            return
        name = class_of(job.request)
        kept = self._classes.get(name)
        if kept is None:
            kept = self._classes[name] = _Class()
        if kept.has_more and (not kept.jobs or job.order > kept.jobs[-1].order):
            return  # its turn comes after jobs that are only in the store: it will be read with them
        if kept.jobs and job.order < kept.jobs[-1].order:
            bisect.insort(kept.jobs, job, key=_order)
        else:
            kept.jobs.append(job)
        self._class_of[job.id] = name
        if len(kept.jobs) > 2 * _KEPT:
            for late in kept.jobs[_KEPT:]:
                del self._class_of[late.id]
            del kept.jobs[_KEPT:]
            kept.has_more = True

    def remove(self, job: Job) -> None:
        """It is about to start, or does not wait any more."""
        self.count -= 1
        name = self._class_of.pop(job.id, None)
        if name is None:  # its moment has not come, or it is only in the store
            self._delayed = [item for item in self._delayed if item[1] != job.id]
            return
        kept = self._classes[name]
        if kept.jobs[0].id == job.id:
            del kept.jobs[0]  # nearly always
        else:
            kept.jobs = [other for other in kept.jobs if other.id != job.id]
        if not kept.jobs and not kept.has_more:
            del self._classes[name]

    def first(self, each: int, now: float) -> list[Job]:
        """The first jobs of each class, together in order. `each` is how many could start at the most."""
        now = self._latest = max(now, self._latest)
        while self._delayed and self._delayed[0][0] <= now:
            _, _, job = self._delayed.pop(0)
            self.count -= 1
            self.add(_ready(job))
        found: list[Job] = []
        for name, kept in list(self._classes.items()):
            if len(kept.jobs) < each and kept.has_more:
                self._read(name, kept, now)
            if not kept.jobs and not kept.has_more:
                del self._classes[name]
            found += kept.jobs[:each]
        if len(self._classes) > 1:
            found.sort(key=_order)
        return found

    @property
    def next_due(self) -> float | None:
        """When the first delayed job may start."""
        return self._delayed[0][0] if self._delayed else None

    def _read(self, name: str, kept: _Class, now: float) -> None:
        for job in kept.jobs:
            del self._class_of[job.id]
        kept.jobs = self._load(name, now, _KEPT)
        kept.has_more = len(kept.jobs) >= _KEPT
        self._class_of.update((job.id, name) for job in kept.jobs)


def _ready(job: Job) -> Job:
    return replace(job, not_before=None)
