"""Reading the metrics of attempts: the readers of those that were asked for last are kept, and read on."""

import asyncio
import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

from dibs.daemon.logs.output import read_output
from dibs.engine.launch.browse import BrowsableFolders
from dibs.engine.launch.metric_sources import sources_of
from dibs.errors import StoreUnusable
from dibs.metrics.attempt import AttemptMetrics
from dibs.model.jobs import Attempt, Job
from dibs.store.codec import AttemptRow

_READ_FOR = 0.25  # seconds of reading for one answer; a million lines need several
_MOST_READERS = 200
_MOST_SERIES = 2_000  # of all readers: 25 MB
_MOST_HANGING = 8  # threads that wait for a file system which does not answer

_Key = tuple[int, int]  # a job, and which of its attempts


class MetricReaders:
    """At most one thread reads the files of an attempt, however often it is asked for."""

    def __init__(self, results: BrowsableFolders) -> None:
        self._results = results
        self._kept: OrderedDict[_Key, _Kept] = OrderedDict()

    async def look(
        self, job: Job, row: AttemptRow, told: Callable[[AttemptMetrics], dict[str, Any]]
    ) -> dict[str, Any]:
        """What `told` makes of the attempt's metrics, after reading what is new. StoreUnusable: its disk hangs."""
        kept = self._reader(job, row.attempt)
        async with kept.turn:
            if kept.is_busy or sum(one.is_busy for one in self._kept.values()) >= _MOST_HANGING:
                raise StoreUnusable(
                    f"cannot read the metrics of job {job.id}: its disk does not answer", remedy="try again later"
                )
            kept.is_busy = True

            def work() -> dict[str, Any]:
                try:
                    is_whole = row.outcome is not None and row.outcome.exit_code is not None
                    deadline = time.monotonic() + _READ_FOR
                    kept.metrics.look(deadline, ended=row.ended_at, is_whole=is_whole)
                    return told(kept.metrics)
                finally:
                    kept.is_busy = False

            # A client that leaves must not leave the reader behind as busy.
            return await asyncio.shield(asyncio.ensure_future(read_output(row.attempt.folder, work)))

    def _reader(self, job: Job, attempt: Attempt) -> "_Kept":
        sources = sources_of(job, self._results, attempt.folder, attempt.opened_at, node=attempt.node)
        kept = self._kept.get(attempt.key)
        if kept is None or kept.metrics.sources != sources:  # a job that was edited has other patterns
            kept = self._kept[attempt.key] = _Kept(AttemptMetrics(sources))
        self._kept.move_to_end(attempt.key)
        self._forget_oldest()
        return kept

    def _forget_oldest(self) -> None:
        total = sum(one.size for one in self._kept.values())
        for key, one in list(self._kept.items())[:-1]:
            if total <= _MOST_SERIES and len(self._kept) <= _MOST_READERS:
                return
            if not one.is_busy and not one.turn.locked():
                total -= one.size
                del self._kept[key]


class _Kept:
    def __init__(self, metrics: AttemptMetrics) -> None:
        self.metrics = metrics
        self.turn = asyncio.Lock()
        self.is_busy = False  # a thread reads, or hangs

    @property
    def size(self) -> int:
        return self.metrics.size
