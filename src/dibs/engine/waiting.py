"""The queue's head in memory, however long the queue in the store is.

Jobs with the same wishes have the same chances, so the policy needs only the first few of each class. The rest
stays in the store as rows and costs nothing.
"""

import bisect
from collections import Counter
from collections.abc import Callable
from dataclasses import replace

from dibs.model.jobs import Job, JobId, Request
from dibs.store.codec import class_of

_KEPT = 256  # jobs of one class in memory, and of those whose moment has not come
_MOST_CLASSES = 128  # of one project in a plan: with `--vram auto` each script has a class of its own
_LAST_NUMBER = 2**62


def _order(job: Job) -> tuple[int, float]:
    return job.order


class _Class:
    """The waiting jobs with the same chances: the first ones here, perhaps more in the store."""

    def __init__(self) -> None:
        self.jobs: list[Job] = []
        self.has_more = False


class WaitingLine:
    """Who waits, in order.

    `load(class, now, limit)` reads the first jobs of a class that may start now, `load_delayed(after, limit)` the
    next ones whose moment comes after that moment and number.
    """

    def __init__(
        self,
        load: Callable[[str, float, int], list[Job]],
        load_delayed: Callable[[tuple[float, int], int], list[Job]] = lambda after, limit: [],
    ) -> None:
        self._load = load
        self._load_delayed = load_delayed
        self._classes: dict[str, _Class] = {}
        self._class_of: dict[JobId, str] = {}  # of the jobs that are here
        self._delayed: list[tuple[float, JobId, Job]] = []
        self._has_more_delayed = False
        self._boundary = (0.0, 0)  # of the delayed ones, everybody up to this moment and number has been here
        self._latest = 0.0  # a clock that is set back must not hide a job whose moment has come already
        self.count = 0

    def restore(self, classes: list[str], count: int, now: float) -> None:
        """Begin with what the store says is waiting; the moment of the delayed ones comes after `now`."""
        self._latest = now
        for name in classes:
            self._classes.setdefault(name, _Class()).has_more = True
        self._boundary = (now, _LAST_NUMBER)
        self._read_delayed()
        self.count = count

    def add(self, job: Job) -> None:
        self.count += 1
        if job.not_before is not None:
            self._delay(job.not_before, job)
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
            if job.not_before is not None:
                self._delayed = [item for item in self._delayed if item[1] != job.id]
            return
        kept = self._classes[name]
        if kept.jobs[0].id == job.id:
            del kept.jobs[0]  # nearly always
        else:
            kept.jobs = [other for other in kept.jobs if other.id != job.id]
        if not kept.jobs and not kept.has_more:
            del self._classes[name]

    def first(self, each: Callable[[Request], int], now: float) -> list[Job]:
        """The first jobs of each class, together in order. `each` tells how many could start at the most."""
        now = self._latest = max(now, self._latest)
        while (due := self.next_due) is not None and due <= now:
            if not self._delayed:
                self._read_delayed()
                continue
            _, _, job = self._delayed.pop(0)
            self.count -= 1
            self.add(replace(job, not_before=None))
        for name, kept in [(name, kept) for name, kept in self._classes.items() if not kept.jobs]:
            self._read(name, kept, now)
            if not kept.jobs:
                del self._classes[name]
        classes = list(self._classes.items())
        if len(classes) > _MOST_CLASSES:
            classes = _earliest(classes)
        found: list[Job] = []
        for name, kept in classes:
            most = each(kept.jobs[0].request)
            if kept.has_more and len(kept.jobs) < most:
                self._read(name, kept, now)
            found += kept.jobs[:most]
        if len(classes) > 1:
            found.sort(key=_order)
        return found

    @property
    def next_due(self) -> float | None:
        """When the first delayed job may start, or when those that are only in the store must be looked at."""
        if self._delayed:
            return self._delayed[0][0]
        return self._boundary[0] if self._has_more_delayed else None

    def _delay(self, when: float, job: Job) -> None:
        if self._has_more_delayed and (when, job.id) > self._boundary:
            return  # others come before it that are only in the store: it will be read with them
        bisect.insort(self._delayed, (when, job.id, job), key=_moment)
        if len(self._delayed) > 2 * _KEPT:
            del self._delayed[_KEPT:]
            self._boundary, self._has_more_delayed = _moment(self._delayed[-1]), True

    def _read_delayed(self) -> None:
        jobs = self._load_delayed(self._boundary, _KEPT)
        self._delayed = [(job.not_before or 0.0, job.id, job) for job in jobs]
        self._has_more_delayed = len(jobs) >= _KEPT
        if self._delayed:
            self._boundary = _moment(self._delayed[-1])

    def _read(self, name: str, kept: _Class, now: float) -> None:
        for job in kept.jobs:
            del self._class_of[job.id]
        kept.jobs = self._load(name, now, _KEPT)
        kept.has_more = len(kept.jobs) >= _KEPT
        self._class_of.update((job.id, name) for job in kept.jobs)


def _earliest(classes: list[tuple[str, _Class]]) -> list[tuple[str, _Class]]:
    """Of each project the classes whose first job comes first: a plan looks at each of them."""
    counts: Counter[str] = Counter()
    found = []
    for one in sorted(classes, key=lambda one: one[1].jobs[0].order):
        project = one[1].jobs[0].request.project
        counts[project] += 1
        if counts[project] <= _MOST_CLASSES:
            found.append(one)
    return found


def _moment(item: tuple[float, JobId, Job]) -> tuple[float, int]:
    return item[:2]
