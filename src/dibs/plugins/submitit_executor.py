"""submitit's executor for the queue: `submitit.AutoExecutor(folder, cluster="dibs")`.

submitit ships the function and its result through files in its folder, as for its other clusters; the queue runs
the command that reads them.
"""

import sys
import time
import uuid
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from submitit.core import core, utils

from dibs.errors import BadInput
from dibs.model.fields import Verb, fields_of
from dibs.plugins import submitit_inside
from dibs.plugins.submitit_inside import DibsJobEnvironment
from dibs.plugins.submitit_job import DibsJob

_NO_LIMIT_MIN = 10**6  # minutes: what submitit is told of a job that has no time limit
_CHECKPOINT_SECONDS = 90  # before the limit, as submitit has it for Slurm
# Wishes of ours that submitit has no word for: `dibs_vram`. None is called as one of Slurm's parameters, because
# submitit would then take Slurm's for ours.
_OURS = frozenset(field.word for field in fields_of(Verb.SUBMITIT))


class DibsExecutor(core.Executor):
    """Puts functions into the queue of this user's daemon, which is started where there is none."""

    job_class = DibsJob

    def __init__(self, folder: str | Path, max_num_timeout: int = 3) -> None:
        super().__init__(folder)
        self.max_num_timeout = max_num_timeout  # how often a function that saves itself is queued again

    @classmethod
    def affinity(cls) -> int:
        """It is there, and only taken where somebody asks for it: to install dibs moves nobody's jobs."""
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
        """Write every function down, and add all jobs at once."""
        from dibs.api.submit import add

        began = time.time()
        place = utils.JobPaths.get_first_id_independent_folder(self.folder)
        place.mkdir(parents=True, exist_ok=True)
        pickles = [place / f"{uuid.uuid4().hex}.pkl" for _ in delayed_submissions]
        try:
            for submission, pickle in zip(delayed_submissions, pickles, strict=True):
                submission.set_timeout(self.parameters.get("timeout_min", _NO_LIMIT_MIN), self.max_num_timeout)
                submission.dump(pickle)
            new = [self._job(one, pickle) for one, pickle in zip(delayed_submissions, pickles, strict=True)]
            added = add(new, self._wishes())
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
        """What the jobs have in common, in our words."""
        said = self.parameters
        wishes = {word: said[word] for word in _OURS if word in said}
        wishes["num_gpus"] = said.get("gpus_per_node", 0)  # none unless said, as on other clusters
        wishes["cpus"] = said.get("cpus_per_task")
        if "mem_gb" in said:
            wishes["mem"] = f"{said['mem_gb']}G"
        if "timeout_min" in said:
            wishes["time"] = f"{round(said['timeout_min'] * 60)}s"
        if said.get("stderr_to_stdout"):
            wishes["output"] = str(utils.JobPaths(self.folder).stdout).replace("%t", "0")
        return wishes

    def _job(self, submission: utils.DelayedSubmission, pickle: Path) -> dict[str, Any]:
        """What one of them has for itself: its command, and the signal where its function can be saved."""
        from dibs.api.calls import label_of, name_of, shown_call

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


def _remove_older(result: Path, moment: float) -> None:
    """What lay there before was another job's: of a queue that is gone, under the same number."""
    with suppress(FileNotFoundError):
        if result.stat().st_mtime < moment:
            result.unlink()
