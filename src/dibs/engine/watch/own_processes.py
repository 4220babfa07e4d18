"""Whether a process belongs to a dibs job of any engine."""

import re

from dibs.gpus.processes import attempt_folder_of, dibs_job_of
from dibs.supervise.folder import record_of
from dibs.worker_thread import PatientReader

_ELSEWHERE = re.compile(r"/q[0-9a-f]{8}/attempts/")  # of attempts on other systems

_reader = PatientReader()


def is_of_a_running_job(pid: int) -> bool:
    """False for a process that outlived its job; a process that names a job but no attempt counts as running.

    So does one whose folder does not answer. The environment of other users' processes cannot be read: for these
    the answer is no.
    """
    folder = attempt_folder_of(pid)
    if folder is None:
        return dibs_job_of(pid) is not None
    try:
        is_elsewhere = _ELSEWHERE.search(folder) is not None
        record = _reader.read(folder, lambda: record_of(folder)) if is_elsewhere else record_of(folder)
    except TimeoutError:
        return True
    # None where the folder was used again or removed.
    return record is not None and record.get("state") != "ended"
