"""Finding an attempt of a job, and reading the records that shims wrote about attempts."""

import asyncio
import contextlib
from collections.abc import Mapping, Sequence
from typing import Any

from dibs.errors import BadInput
from dibs.model.jobs import Attempt, JobId
from dibs.store.codec import AttemptRow
from dibs.store.listing import Listing
from dibs.supervise.folder import record_of_attempt
from dibs.worker_thread import run_in_thread

_READ_WITHIN = 3.0  # seconds; then the job is shown without them
_MOST_HANGING = 16  # threads that wait for a file system which does not answer

Records = Mapping[int, Mapping[str, Any]]  # by the attempt's number; empty if there is no record or it is unknown


def find_attempt(listing: Listing, job: JobId, number: int | None) -> AttemptRow | None:
    """An attempt of a job, the last one if no number is given; None if the job has had no attempt."""
    found = {one.attempt.number: one for one in listing.attempts(job)}
    if number is not None and number not in found:
        raise BadInput(f"job {job} has no attempt {number}", remedy=f"it has had {len(found)}")
    return found.get(number or max(found, default=0))


class AttemptRecords:
    """Reads records in a thread: the event loop never touches a folder that a job can write.

    The folders of other systems may be on a network that does not answer. At most one thread hangs for each job,
    however often it is requested.
    """

    def __init__(self) -> None:
        self._reads: dict[JobId, _Read] = {}

    async def of(self, attempts: Sequence[Attempt]) -> Records:
        """The records of a job's attempts, if their disks answer within some seconds."""
        if not attempts:
            return {}
        job = attempts[0].job
        read = self._reads.get(job)
        if read is None or read.is_over:
            self._reads = {job: read for job, read in self._reads.items() if not read.is_over}
            if sum(read.is_hanging for read in self._reads.values()) >= _MOST_HANGING:
                return {}
            read = self._reads[job] = _Read(attempts)
        # `wait`, not `await`: a client that disconnects must not cancel the read that others wait for.
        await asyncio.wait([read.task])
        if read.is_over and self._reads.get(job) is read:
            del self._reads[job]
        return dict(read.found)


class _Read:
    """Reading the folders of a job's attempts once."""

    def __init__(self, attempts: Sequence[Attempt]) -> None:
        self.found: dict[int, dict[str, Any]] = {}
        self.is_over = False
        self.task = asyncio.ensure_future(self._run(attempts))

    @property
    def is_hanging(self) -> bool:
        """No request waits for it any more, but its thread is still there."""
        return self.task.done() and not self.is_over

    async def _run(self, attempts: Sequence[Attempt]) -> None:
        with contextlib.suppress(TimeoutError):
            try:
                await run_in_thread(lambda: self._read_all(attempts), _READ_WITHIN, "record-reader")
            except MemoryError:
                self.is_over = True  # no thread could be started

    def _read_all(self, attempts: Sequence[Attempt]) -> None:
        """In a thread. Those of this machine first, and the latest: earlier ones may be below another root."""
        try:
            for one in sorted(attempts, key=lambda one: (one.backend != "", -one.number)):
                opened_at = None if one.backend else one.opened_at  # elsewhere it is moved to the start there
                self.found[one.number] = record_of_attempt(one.folder, *one.key, opened_at) or {}
        finally:
            self.is_over = True
