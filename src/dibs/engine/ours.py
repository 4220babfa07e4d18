"""Whether a process belongs to a job of dibs, whoever's engine started it."""

from dibs.gpus.foreign import attempt_folder_of, dibs_job_of
from dibs.supervise.folder import record_of


def is_of_a_running_job(pid: int) -> bool:
    """A process that outlived its job belongs to nobody; one that does not tell its attempt is believed.

    Jobs of other users cannot be looked into: of their processes the answer is no.
    """
    folder = attempt_folder_of(pid)
    if folder is None:
        return dibs_job_of(pid) is not None
    record = record_of(folder)  # none where the folder was used again or removed
    return record is not None and record.get("state") != "ended"
