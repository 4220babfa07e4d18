"""Inside a job: who `submitit.JobEnvironment()` says we are, and how a function is saved and queued again."""

import os
import signal
import sys
from contextlib import suppress
from typing import ClassVar

from submitit.core import job_environment, utils

# Variables that a job finds: submitit's folder, and the function as it was written before its number was known.
FOLDER, PICKLE = "SUBMITIT_FOLDER", "SUBMITIT_PICKLE"


class DibsJobEnvironment(job_environment.JobEnvironment):
    """The job's number from the queue; one process on one machine."""

    _env: ClassVar[dict[str, str]] = {
        "job_id": "DIBS_JOB_ID",
        "num_tasks": "SUBMITIT_TASKS",  # nobody sets these: one of one
        "num_nodes": "SUBMITIT_NODES",
        "node": "SUBMITIT_NODE",
        "global_rank": "SUBMITIT_RANK",
        "local_rank": "SUBMITIT_LOCAL_RANK",
    }

    def _handle_signals(self, paths: utils.JobPaths, submission: utils.DelayedSubmission) -> None:
        """Save at the signal before the time limit. TERM keeps its meaning: who cancels does not want to wait.

        submitit calls this once before the function, so the files that it looks for are linked here too.
        """
        for stream, path in ((1, paths.stdout), (2, paths.stderr)):
            _link(os.readlink(f"/proc/self/fd/{stream}"), str(path))
        handler = job_environment.SignalHandler(self, paths, submission)
        signal.signal(self._usr_sig(), handler.checkpoint_and_try_requeue)

    def _requeue(self, countdown: int) -> None:
        """Who ends with 0 after the signal is queued again, under the same number."""
        if "DIBS_CHECKPOINT_DIR" not in os.environ:
            raise utils.UncompletedJobError(
                "Job not requeued because: the signal to save did not come from its time limit."
            )
        sys.exit(0)


def _link(target: str, link: str) -> None:
    """Name the output of this attempt, in the place of an earlier one's; a file of somebody else stays."""
    if target == link or not target.startswith("/") or (os.path.lexists(link) and not os.path.islink(link)):
        return
    with suppress(FileNotFoundError):
        os.unlink(link)
    os.symlink(target, link)


def hand_over(pickle: str, paths: utils.JobPaths) -> None:
    """Lay the function where submitit looks for it. Whoever comes first does it: the job, or who submitted it.

    Before the job loads it, and over what lies there: a new queue counts from 1 again, and submitit would take the
    function, or the result, of another job that had this number for its own.
    """
    with suppress(FileNotFoundError):
        paths.move_temporary_file(pickle, "submitted_pickle")


def main() -> None:
    from submitit.core.submission import process_job

    folder = os.environ[FOLDER]
    paths = utils.JobPaths(folder, os.environ["DIBS_JOB_ID"])
    hand_over(os.environ[PICKLE], paths)
    paths.result_pickle.unlink(missing_ok=True)
    process_job(folder)


if __name__ == "__main__":
    main()
