"""What running jobs report: their numbers and their progress. Read when a list is asked for, in a thread."""

import contextlib
import threading
import time
from collections.abc import Iterable, Sequence
from functools import partial

from dibs.dataclass import dataclass
from dibs.engine.launch.browse import BrowsableFolders
from dibs.engine.launch.metric_sources import sources_of
from dibs.metrics.attempt import MetricSources
from dibs.metrics.progress import JobReport, read_report
from dibs.store.codec import JobRow
from dibs.worker_thread import PatientReader, run_in_thread

_FRESH_FOR = 1.0  # seconds
_WAIT = 0.3  # seconds that a list waits for it
_KEPT_FOR = 60.0  # seconds after the last look, where many are known
_MOST_HANGING = 4  # threads

_NOTHING = JobReport()

_Key = tuple[int, int]  # a job, and which of its attempts


class ProgressBoard:
    """What running attempts have reported, as of the last look."""

    def __init__(self, results: BrowsableFolders) -> None:
        self._results = results
        self._folders = PatientReader(patience=_WAIT / 2, most_hanging=_MOST_HANGING)
        self._seen: dict[_Key, _Seen] = {}
        self._lock = (
            threading.Lock()
        )  # of changes to `_seen`: lists that are asked for at once read in a thread each

    def of(self, row: JobRow) -> JobReport:
        """What was known of a running job at the last look."""
        seen = self._seen.get((row.job.id, row.job.attempts))
        return _NOTHING if seen is None else seen.report

    async def look(self, rows: Iterable[JobRow]) -> None:
        """Read what those report that run, the longest unseen first, for a moment."""
        now = time.monotonic()
        due = []
        for row in rows:
            if row.job.state.has_begun and row.folder:
                seen = self._seen.get((row.job.id, row.job.attempts))
                if seen is None or seen.due_at <= now:
                    due.append((seen.due_at if seen else 0.0, row))
        if not due:
            return
        self._forget(now)
        sources = [self._sources_of(row) for _, row in sorted(due, key=lambda one: one[0])]
        with contextlib.suppress(
            TimeoutError, MemoryError
        ):  # this machine is too busy, or no thread can be started
            await run_in_thread(lambda: self._read(sources), 2 * _WAIT, "progress-reader")

    def _sources_of(self, row: JobRow) -> tuple[_Key, MetricSources]:
        begun = row.started_at or row.queued_at
        return (row.job.id, row.job.attempts), sources_of(row.job, self._results, row.folder, begun, node=row.node)

    def _read(self, sources: Sequence[tuple[_Key, MetricSources]]) -> None:
        """In a thread."""
        until = time.monotonic() + _WAIT / 2
        for key, one in sources:
            seen = self._seen.get(key)
            found = _NOTHING if seen is None else seen.report
            with contextlib.suppress(TimeoutError):  # its folder does not answer
                found = self._folders.read(one.folder, partial(read_report, one.line_files(), one.began))
            with self._lock:
                self._seen[key] = _Seen(found, time.monotonic() + _FRESH_FOR)
            if time.monotonic() > until:
                return

    def _forget(self, now: float) -> None:
        """Those that have not been looked at for a while: they have ended."""
        with self._lock:
            if len(self._seen) > 1000:
                self._seen = {key: seen for key, seen in self._seen.items() if seen.due_at > now - _KEPT_FOR}


@dataclass(frozen=True, slots=True)
class _Seen:
    report: JobReport
    due_at: float  # by the monotonic clock
