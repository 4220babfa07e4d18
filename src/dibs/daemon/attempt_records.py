"""What shims wrote beside the exit codes of attempts, for whoever only shows it."""

import asyncio
import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from dibs.daemon.worker_thread import aside
from dibs.model.jobs import Attempt, JobId
from dibs.supervise.folder import record_of

_PATIENCE = 3.0  # seconds; whoever looks at a job wants to see the rest of it
_MOST_HANGING = 16  # threads that wait for a file system which does not answer

Records = Mapping[int, Mapping[str, Any]]  # by the attempt's number; none where nothing is there or known


class ShimRecords:
    """Reads them: those of this machine at once, those that other systems ran beside the loop.

    Their folders may lie on a network that does not answer, and then nothing on the loop may touch them. A thread
    that hangs there is one for each job, however often somebody asks.
    """

    def __init__(self) -> None:
        self._looks: dict[JobId, _Look] = {}

    async def of(self, attempts: Sequence[Attempt]) -> Records:
        """The records of a job's attempts, as far as their disks answer within some seconds."""
        found = {one.number: record_of(one.folder) or {} for one in attempts if not one.backend}
        if away := [one for one in attempts if one.backend]:
            found |= await self._look(away[0].job, away)
        return found

    async def _look(self, job: JobId, attempts: Sequence[Attempt]) -> dict[int, dict[str, Any]]:
        look = self._looks.get(job)
        if look is None or look.is_over:
            if len(self._looks) >= _MOST_HANGING:
                self._looks = {job: look for job, look in self._looks.items() if not look.is_over}
            if len(self._looks) >= _MOST_HANGING:
                return {}
            look = self._looks[job] = _Look()
            look.waiting = asyncio.ensure_future(self._wait(look, attempts))
        if look.waiting is not None:
            # Not awaited by itself: whoever goes takes nobody else's answer.
            await asyncio.wait([look.waiting])
        if look.is_over and self._looks.get(job) is look:
            del self._looks[job]
        return dict(look.found)

    async def _wait(self, look: "_Look", attempts: Sequence[Attempt]) -> None:
        with contextlib.suppress(TimeoutError):
            try:
                await aside(lambda: look.read(attempts), _PATIENCE, "record-reader")
            except MemoryError:
                look.is_over = True  # there can be no thread now


@dataclass(slots=True)
class _Look:
    """One look at the folders of a job's attempts."""

    found: dict[int, dict[str, Any]] = field(default_factory=dict)
    is_over: bool = False
    waiting: "asyncio.Future[None] | None" = None

    def read(self, attempts: Sequence[Attempt]) -> None:
        """In a thread. The latest first: people look at that one, and the root may have been another before."""
        try:
            for one in sorted(attempts, key=lambda one: -one.number):
                self.found[one.number] = record_of(one.folder) or {}
        finally:
            self.is_over = True
