"""Inside a job: its `submitit.JobEnvironment()`, and how a function saves its state and is queued again."""

import os
import signal
import sys
from contextlib import suppress
from typing import ClassVar

from submitit.core import job_environment, utils

# Variables of a job: submitit's folder, and the function's file, which was written before the number was known.
FOLDER, PICKLE = "SUBMITIT_FOLDER", "SUBMITIT_PICKLE"


class DibsJobEnvironment(job_environment.JobEnvironment):
    """The job's number from the queue; one process on one machine."""

    _env: ClassVar[dict[str, str]] = {
        "job_id": "DIBS_JOB_ID",
        "num_tasks": "SUBMITIT_TASKS",  # these are not set: one of one
        "num_nodes": "SUBMITIT_NODES",
        "node": "SUBMITIT_NODE",
        "global_rank": "SUBMITIT_RANK",
        "local_rank": "SUBMITIT_LOCAL_RANK",
    }

    def _handle_signals(self, paths: utils.JobPaths, submission: utils.DelayedSubmission) -> None:
        """Save at the signal before the time limit. TERM keeps its meaning, so that a cancelled job ends at once.

        submitit calls this once before the function, so the files that it expects are linked here too.
        """
        for stream, path in ((1, paths.stdout), (2, paths.stderr)):
            _link(os.readlink(f"/proc/self/fd/{stream}"), str(path))
        handler = job_environment.SignalHandler(self, paths, submission)
        signal.signal(self._usr_sig(), handler.checkpoint_and_try_requeue)

    def _requeue(self, countdown: int) -> None:
        """End with 0, after which the queue runs the job again under the same number."""
        if "DIBS_CHECKPOINT_DIR" not in os.environ:
            raise utils.UncompletedJobError(
                "Job not requeued because: it has no time limit (timeout_min), and only then it is queued again."
            )
        sys.exit(0)


def _link(target: str, link: str) -> None:
    """Link to the output of this attempt, in place of an earlier link; an existing file stays."""
    if target == link or not target.startswith("/") or (os.path.lexists(link) and not os.path.islink(link)):
        return
    with suppress(FileNotFoundError):
        os.unlink(link)
    os.symlink(target, link)


def hand_over(pickle: str, paths: utils.JobPaths) -> None:
    """Move the function to where submitit expects it; the job or the submitting process does it first.

    It replaces an existing file: a new queue counts from 1 again, and submitit would use the function, or the
    result, of an earlier job with this number.
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
