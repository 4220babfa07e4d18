"""Whether a process belongs to a dibs job of any engine, and to which attempt."""

from dibs.gpus.processes import attempt_folder_of, dibs_job_of
from dibs.leases.held_claims import inherited_claims
from dibs.supervise.folder import parent_of, record_of
from dibs.worker_thread import PatientReader

_reader = PatientReader()  # folders of other systems, or what a job put in the place of its own


def attempt_of(pid: int) -> str | None:
    """The folder of the attempt that a process belongs to; None where it belongs to none, or cannot be read.

    Its environment tells. One that was given another environment still has the locks of its claims, unless they
    were closed; then a process above it tells, at last the shim.
    """
    at: int | None = pid
    while at is not None and at > 1:
        if folder := attempt_folder_of(at) or _inherited_by(at):
            return folder
        at = parent_of(at)
    return None


def _inherited_by(pid: int) -> str:
    folders = (claim.folder for claim in inherited_claims(pid))
    return next(filter(None, folders), "")


def is_of_a_running_job(pid: int) -> bool:
    """False for a process that outlived its job; a process that names a job but no attempt counts as running.

    So does one whose folder does not answer. The processes of other users cannot be looked into: for these the
    answer is no.
    """
    folder = attempt_of(pid)
    if folder is None:
        return dibs_job_of(pid) is not None
    try:
        record = _reader.read(folder, lambda: record_of(folder))
    except TimeoutError:
        return True
    # None where the folder was used again or removed.
    return record is not None and record.get("state") != "ended"
