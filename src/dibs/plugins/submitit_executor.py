"""submitit's executor and job for the queue: `submitit.AutoExecutor(folder, cluster="dibs")`.

submitit passes the function and its result through files in its folder, as for its other clusters; the queue runs
the command that reads them.
"""

import sys
import time
import uuid
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial, wraps
from pathlib import Path
from typing import Any, TypeVar

from submitit.auto.auto import AutoExecutor
from submitit.core import core, utils

from dibs.api.calls import label_of, name_of, shown_call
from dibs.api.connection import ask, patient
from dibs.api.job import Job
from dibs.api.submit import LimitedArray, add
from dibs.client.client import Client
from dibs.errors import BadInput, DibsError
from dibs.model.fields import Verb, fields_of
from dibs.plugins import submitit_inside
from dibs.plugins.submitit_inside import DibsJobEnvironment

R = TypeVar("R", covariant=True)

_SUSPENDED = "SUSPENDED"
# Slurm's names, which submitit and scripts that use it expect.
_STATES = {
    "queued": "PENDING",
    "held": "PENDING",
    "submitted": "PENDING",
    "running": "RUNNING",
    "suspended": _SUSPENDED,
    "succeeded": "COMPLETED",
    "failed": "FAILED",
    "cancelled": "CANCELLED",
    "timed_out": "TIMEOUT",
    "lost": "NODE_FAIL",
}
_FORGOTTEN = "FORGOTTEN"  # `dibs clean` removed it
_FRESH = 0.5  # seconds for which an answer about all jobs is used again
_AT_ONCE = 500  # jobs in one request
_ROUND = 30.0  # seconds of one request; the daemon answers at once when the job is over


class DibsWatcher(core.InfoWatcher):
    """Asks the daemon about all jobs of this process together."""

    def get_state(self, job_id: str, mode: str = "standard") -> str:
        return self.get_info(job_id, mode=mode).get("jobState", "UNKNOWN")

    def is_done(self, job_id: str, mode: str = "standard") -> bool:
        """As submitit has it, which takes a suspended job for one that is over."""
        return self.get_state(job_id, mode=mode) != _SUSPENDED and super().is_done(job_id, mode="cache")

    def update_if_long_enough(self, mode: str) -> None:
        is_old = time.time() - self._last_status_check > _FRESH
        if mode == "force" or (mode == "standard" and is_old):
            self.update()

    def update(self) -> None:
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
    _results_timeout_s = 0  # job and result are on one machine: a missing result stays missing

    def wait(self) -> None:
        """Wait until it is over, without polling."""
        with patient() as daemon:
            while not self.done(force_check=True):
                daemon.ask(lambda client: client.wait([int(self.job_id)], seconds=_ROUND))

    def cancel(self, check: bool = True) -> None:
        """End it: TERM, its grace, KILL. With `check`, wait until it is over."""
        job = Job(int(self.job_id))
        job.cancel()
        if check:
            job.wait()
        self.watcher.update()  # the known state is out of date

    def _interrupt(self, timeout: bool = False) -> None:
        """Send the signal to save, after which a checkpointable function is queued again, as on preemption."""
        number = int(DibsJobEnvironment._usr_sig())
        ask(lambda client: client.act("kill", [int(self.job_id)], signal=number))

    def _get_logs_string(self, name: str) -> str | None:
        """The text of submitit's file, which the job links to its output; without the link, the daemon's."""
        text: str | None = super()._get_logs_string(name)
        if text is not None:
            return text
        try:
            return Job(int(self.job_id)).log(stream=name)
        except DibsError:  # it has not begun
            return None


def _jobs(client: Client, ids: Sequence[str]) -> dict[str, Any]:
    return {str(job["id"]): job for job in client.jobs(ids=ids)}


def _info(job: dict[str, Any] | None) -> dict[str, Any]:
    return {"jobState": _FORGOTTEN} if job is None else {**job, "jobState": _STATES.get(job["state"], "UNKNOWN")}


_NO_LIMIT_MIN = 10**6  # minutes, for a job that has no time limit
_CHECKPOINT_SECONDS = 90  # before the limit, as submitit has it for Slurm
# Wishes that submitit has no parameter for, as `dibs_vram`. None has the name of a Slurm parameter, because
# submitit would use the value for Slurm.
_OURS = frozenset(field.word for field in fields_of(Verb.SUBMITIT))


class DibsExecutor(core.Executor):
    """Adds functions to the queue of this user's daemon, which is started where there is none."""

    job_class = DibsJob

    def __init__(self, folder: str | Path, max_num_timeout: int = 3) -> None:
        super().__init__(folder)
        self.max_num_timeout = max_num_timeout  # how often a function with a checkpoint is queued again
        self.array_parallelism: int | None = None  # so many of an array or a batch at once

    @classmethod
    def affinity(cls) -> int:
        """Available, but only used where it is named: installing dibs changes no existing script."""
        return 0

    @classmethod
    def _valid_parameters(cls) -> set[str]:
        return {*_OURS, "env", "checkpoint_seconds"}

    def _internal_update_parameters(self, **kwargs: Any) -> None:
        for name in ("nodes", "tasks_per_node"):
            if kwargs.get(name, 1) != 1:
                raise BadInput(
                    f"cannot run with {name}={kwargs[name]}: a job of dibs is one process on this machine",
                    remedy="submit several jobs, or start the processes in the function, as torchrun does",
                )
        super()._internal_update_parameters(**kwargs)

    def _internal_process_submissions(
        self, delayed_submissions: Sequence[utils.DelayedSubmission]
    ) -> list[core.Job[Any]]:
        """Write every function to a file, and add all jobs at once."""
        began = time.time()
        place = utils.JobPaths.get_first_id_independent_folder(self.folder)
        place.mkdir(parents=True, exist_ok=True)
        pickles = [place / f"{uuid.uuid4().hex}.pkl" for _ in delayed_submissions]
        try:
            for submission, pickle in zip(delayed_submissions, pickles, strict=True):
                submission.set_timeout(self.parameters.get("timeout_min", _NO_LIMIT_MIN), self.max_num_timeout)
                submission.dump(pickle)
            new = [self._job(one, pickle) for one, pickle in zip(delayed_submissions, pickles, strict=True)]
            wishes, most = self._wishes(), self.array_parallelism
            added = add(new, wishes) if most is None else LimitedArray(most).add(new, wishes)
        except BaseException:
            for pickle in pickles:
                pickle.unlink(missing_ok=True)
            raise
        jobs: list[core.Job[Any]] = [DibsJob(self.folder, str(job.id)) for job in added]
        for job, pickle in zip(jobs, pickles, strict=True):
            submitit_inside.hand_over(str(pickle), job.paths)
            _remove_older(job.paths.result_pickle, began)
        return jobs

    def _wishes(self) -> dict[str, Any]:
        """The wishes that all jobs share."""
        said = self.parameters
        wishes = {word: said[word] for word in _OURS if word in said}
        wishes["num_gpus"] = said.get("gpus_per_node", 0)  # none by default, as on other clusters
        wishes["cpus"] = said.get("cpus_per_task")
        if "mem_gb" in said:
            wishes["mem"] = f"{said['mem_gb']}G"
        if "timeout_min" in said:
            wishes["time"] = f"{round(said['timeout_min'] * 60)}s"
        if said.get("stderr_to_stdout"):
            wishes["output"] = str(utils.JobPaths(self.folder).stdout).replace("%t", "0")
        return wishes

    def _job(self, submission: utils.DelayedSubmission, pickle: Path) -> dict[str, Any]:
        """One job: its command, and the checkpoint signal where its function can save its state."""
        function = submission.function
        job: dict[str, Any] = {
            "words": [sys.executable, "-u", "-m", submitit_inside.__name__, label_of(function)],
            "command": shown_call(function, submission.args, submission.kwargs),
            "name": self.parameters.get("name") or name_of(function),
            "env": {
                **{name: str(value) for name, value in self.parameters.get("env", {}).items()},
                "SUBMITIT_EXECUTOR": DibsJobEnvironment.name(),
                submitit_inside.FOLDER: str(self.folder),
                submitit_inside.PICKLE: str(pickle),
            },
        }
        if hasattr(function, "checkpoint") and "timeout_min" in self.parameters:
            seconds = self.parameters.get("checkpoint_seconds", _CHECKPOINT_SECONDS)
            half = self.parameters["timeout_min"] * 30
            job["checkpoint"] = {"signal": int(DibsJobEnvironment._usr_sig()), "seconds": min(seconds, half)}
        return job


def _take_array_parallelism(update: Callable[..., None]) -> Callable[..., None]:
    """Hear `slurm_array_parallelism`, which is submitit's only word for it, and which it gives to Slurm alone.

    A parameter of ours with that name would take the one without a prefix away from scripts for Slurm.
    """

    @wraps(update)
    def updated(self: AutoExecutor, **kwargs: Any) -> None:
        update(self, **kwargs)
        most = kwargs.get("slurm_array_parallelism", kwargs.get("array_parallelism"))
        if most is not None and isinstance(self._executor, DibsExecutor):
            self._executor.array_parallelism = most

    return updated


AutoExecutor._internal_update_parameters = _take_array_parallelism(  # type: ignore[method-assign]
    AutoExecutor._internal_update_parameters
)


def _remove_older(result: Path, moment: float) -> None:
    """Remove the result of a job with the same number, of a queue that no longer exists."""
    with suppress(FileNotFoundError):
        if result.stat().st_mtime < moment:
            result.unlink()
