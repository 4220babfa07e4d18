"""How far running jobs are, by what they report. Read when a list of jobs is asked for, in a thread."""

import time
from collections.abc import Iterable, Sequence

from dibs.dataclass import dataclass
from dibs.engine.launch.browse import BrowsableFolders
from dibs.engine.launch.metric_sources import sources_of
from dibs.metrics.attempt import MetricSources
from dibs.metrics.progress import JobProgress, read_progress
from dibs.model.jobs import State
from dibs.store.codec import JobRow
from dibs.worker_thread import run_in_thread

_FRESH_FOR = 1.0  # seconds
_WAIT = 0.3  # seconds that a list waits for it
_SILENT_FOR = 60.0  # seconds for which a folder that did not answer is left alone
_MOST_HANGING = 4  # threads

_Key = tuple[int, int]  # a job, and which of its attempts


class ProgressBoard:
    """The progress of running attempts, as of the last look."""

    def __init__(self, results: BrowsableFolders) -> None:
        self._results = results
        self._seen: dict[_Key, _Seen] = {}
        self._hanging = 0  # threads; each counts itself out

    def of(self, row: JobRow) -> JobProgress | None:
        """What was known of a running job at the last look."""
        seen = self._seen.get((row.job.id, row.job.attempts))
        return None if seen is None else seen.progress

    async def look(self, rows: Iterable[JobRow]) -> None:
        """Read the progress of those that run, the longest unseen first, for a moment."""
        now = time.monotonic()
        running = [row for row in rows if row.job.state is State.RUNNING and row.folder]
        if not running or self._hanging >= _MOST_HANGING:
            return
        due = []
        for row in running:
            seen = self._seen.get((row.job.id, row.job.attempts))
            if seen is None or seen.due_at <= now:
                due.append((seen.due_at if seen else 0.0, row))
        if not due:
            return
        self._forget(now)
        look = _Look([row for _, row in sorted(due, key=lambda one: one[0])], self._results)
        try:
            await run_in_thread(lambda: self._run(look), _WAIT, "progress-reader")
        except TimeoutError:
            look.is_over = True
            if look.current is not None:
                silent = _Seen(None, time.monotonic() + _SILENT_FOR)
                self._seen[look.current] = self._seen.get(look.current, silent)
                self._seen[look.current].due_at = silent.due_at
        except MemoryError:
            pass  # no thread could be started

    def _run(self, look: "_Look") -> None:
        """In a thread."""
        self._hanging += 1
        try:
            until = time.monotonic() + _WAIT / 2
            for key, sources in look.sources:
                look.current = key
                found = read_progress(sources.line_files(), sources.began)
                if look.is_over:
                    return
                self._seen[key] = _Seen(found, time.monotonic() + _FRESH_FOR)
                if time.monotonic() > until:
                    return
        finally:
            self._hanging -= 1

    def _forget(self, now: float) -> None:
        """Those that have not been looked at for a while: they have ended."""
        if len(self._seen) > 1000:
            self._seen = {key: seen for key, seen in self._seen.items() if seen.due_at > now - _SILENT_FOR}


@dataclass(slots=True)
class _Seen:
    progress: JobProgress | None
    due_at: float  # by the monotonic clock


class _Look:
    """One thread's work."""

    def __init__(self, rows: Sequence[JobRow], results: BrowsableFolders) -> None:
        self.sources: list[tuple[_Key, MetricSources]] = [
            (
                (row.job.id, row.job.attempts),
                sources_of(row.job, results, row.folder, row.started_at or row.queued_at),
            )
            for row in rows
        ]
        self.current: _Key | None = None
        self.is_over = False  # no one waits for it any more
