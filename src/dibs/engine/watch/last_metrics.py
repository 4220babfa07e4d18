"""The last numbers of attempts that have ended, kept in the store: lists show them without reading a file.

They also outlive the attempt's folder. What cannot be read is left out: no job depends on it.
"""

import asyncio
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import partial

from dibs.engine.launch.metric_sources import Ran, numbers_of
from dibs.engine.launch.results import Results
from dibs.errors import StoreUnusable
from dibs.model.events import Ended
from dibs.model.jobs import Attempt, Job, JobId, Outcome
from dibs.model.sweeps import trial_of
from dibs.store.reported import Numbers
from dibs.store.store import Store
from dibs.worker_thread import PatientReader, run_in_thread

_MOST_WAITING = 10_000  # attempts
_AT_ONCE = 500  # attempts in one thread and one turn of the store
_LOOKED_BACK = 1_000  # jobs that may have ended while no daemon read them
_PATIENCE = 10.0  # seconds for one attempt; then its disk does not answer
_MOST_HANGING = 4  # threads

_ToRead = tuple[Job, int, Ran]  # and which of its attempts


class LastMetrics:
    """Reads attempts as they end. All its methods are called on the loop."""

    def __init__(self, store: Store, results: Results, changed: Callable[[], None]) -> None:
        """`changed` is called when the store has new numbers."""
        self._store = store
        self._results = results
        self._changed = changed
        self._waiting: deque[_ToRead] = deque(maxlen=_MOST_WAITING)
        self._wake = asyncio.Event()
        self._folders = PatientReader(patience=_PATIENCE, most_hanging=_MOST_HANGING)

    def add(self, ended: Iterable[tuple[Ended, float]]) -> None:
        """Attempts that have ended, and when."""
        for event, at in ended:
            self._add(event.job, event.attempt, at, event.outcome)

    async def run(self) -> None:
        """Read what has ended, for as long as the daemon runs."""
        self._look_back()
        while True:
            await self._wake.wait()
            self._wake.clear()
            while self._waiting:
                some = [self._waiting.popleft() for _ in range(min(_AT_ONCE, len(self._waiting)))]
                await self._read(some)

    def _look_back(self) -> None:
        """Those that ended while no daemon ran, and all of a store that was made again."""
        listing = self._store.listing
        for job, number in reversed(self._store.reported.ended_without(_LOOKED_BACK)):
            for row in listing.attempts(job)[-1:]:
                if row.attempt.number == number and row.ended_at is not None:
                    self._add(listing.row(job).job, row.attempt, row.ended_at, row.outcome)

    def _add(self, job: Job, attempt: Attempt, ended_at: float, outcome: Outcome | None) -> None:
        """A trial keeps its own."""
        if not job.request.once or trial_of(job.request.once) is None:
            is_whole = outcome is not None and outcome.exit_code is not None
            self._waiting.append((job, attempt.number, Ran(attempt.folder, attempt.opened_at, ended_at, is_whole)))
            self._wake.set()

    async def _read(self, some: Sequence[_ToRead]) -> None:
        """In a thread. Of an attempt whose disk does not answer nothing is kept."""
        found: list[tuple[JobId, int, Numbers]] = []
        with suppress(MemoryError, TimeoutError):  # no thread could be started
            found = await run_in_thread(lambda: self._numbers(some), _AT_ONCE * _PATIENCE, "last-metrics")
        self._keep(found)

    def _numbers(self, some: Sequence[_ToRead]) -> list[tuple[JobId, int, Numbers]]:
        """In a thread."""
        found = []
        for job, attempt, ran in some:
            with suppress(TimeoutError):
                if numbers := self._folders.read(ran.folder, partial(numbers_of, job, ran, self._results)):
                    found.append((job.id, attempt, numbers))
        return found

    def _keep(self, found: Sequence[tuple[JobId, int, Numbers]]) -> None:
        if not found:
            return
        with suppress(StoreUnusable):  # on a full disk: the next daemon reads them
            with self._store.turn():
                self._store.reported.put(found)
                for job, number, _ in found:
                    self._store.events.write(time.time(), "job.reported", job, {"attempt": number})
            self._changed()
