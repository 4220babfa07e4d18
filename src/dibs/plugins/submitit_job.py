"""A job of the queue as submitit sees it: its state in Slurm's words, its result from the file of submitit."""

import time
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from submitit.core import core

if TYPE_CHECKING:
    from dibs.client.client import Client

R = TypeVar("R", covariant=True)

# What submitit and the scripts written for it know.
_STATES = {
    "queued": "PENDING",
    "held": "PENDING",
    "submitted": "PENDING",
    "running": "RUNNING",
    "succeeded": "COMPLETED",
    "failed": "FAILED",
    "cancelled": "CANCELLED",
    "timed_out": "TIMEOUT",
    "lost": "NODE_FAIL",
}
_FORGOTTEN = "FORGOTTEN"  # `dibs clean` removed it
_FRESH = 0.5  # seconds for which an answer about all jobs is good enough
_AT_ONCE = 500  # jobs in one question
_ROUND = 30.0  # seconds of one question; the daemon answers at once when the job is over


class DibsWatcher(core.InfoWatcher):
    """Asks the daemon about all jobs of this process together."""

    def get_state(self, job_id: str, mode: str = "standard") -> str:
        return self.get_info(job_id, mode=mode).get("jobState", "UNKNOWN")

    def update_if_long_enough(self, mode: str) -> None:
        is_old = time.time() - self._last_status_check > _FRESH
        if mode == "force" or (mode == "standard" and is_old):
            self.update()

    def update(self) -> None:
        from dibs.api.connection import patient

        asked = sorted(self._registered - self._finished, key=int)
        found: dict[str, Any] = {}
        with patient() as daemon:
            for start in range(0, len(asked), _AT_ONCE):
                found |= daemon.ask(partial(_jobs, ids=asked[start : start + _AT_ONCE]))
        for job_id in asked:
            self._info_dict[job_id] = _info(found.get(job_id))
            if self.is_done(job_id, mode="cache"):
                self._finished.add(job_id)
        self._num_calls += 1
        self._last_status_check = time.time()


class DibsJob(core.Job[R]):
    """One function in the queue; `job_id` is its number there."""

    watcher = DibsWatcher(delay_s=1)
    _results_timeout_s = 0  # job and result are on one machine: what is not there now will not come

    def wait(self) -> None:
        """Until it is over; the daemon tells."""
        from dibs.api.connection import patient

        with patient() as daemon:
            while not self.done(force_check=True):
                daemon.ask(lambda client: client.wait([int(self.job_id)], seconds=_ROUND))

    def cancel(self, check: bool = True) -> None:
        """End it: TERM, its grace, KILL. With `check`, come back when it is over."""
        from dibs.api.job import Job

        job = Job(int(self.job_id))
        job.cancel()
        if check:
            job.wait()
        self.watcher.update()  # what was seen before is not true any more

    def _get_logs_string(self, name: str) -> str | None:
        """What submitit's file has, which the job links to its output; what the daemon has, where it did not."""
        from dibs.api.job import Job
        from dibs.errors import DibsError

        text: str | None = super()._get_logs_string(name)
        if text is not None:
            return text
        try:
            return Job(int(self.job_id)).log(stream=name)
        except DibsError:  # it has not begun
            return None


def _jobs(client: "Client", ids: Sequence[str]) -> dict[str, Any]:
    return {str(job["id"]): job for job in client.jobs(ids=ids)}


def _info(job: dict[str, Any] | None) -> dict[str, Any]:
    return {"jobState": _FORGOTTEN} if job is None else {**job, "jobState": _STATES.get(job["state"], "UNKNOWN")}
