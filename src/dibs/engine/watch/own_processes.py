"""Whether a process belongs to a dibs job of any engine."""

import re
import time
from typing import Any

from dibs.gpus.processes import attempt_folder_of, dibs_job_of
from dibs.supervise.folder import record_of
from dibs.worker_thread import wait_in_thread

_ELSEWHERE = re.compile(r"/q[0-9a-f]{8}/attempts/")  # of attempts on other systems
_PATIENCE = 0.5  # seconds; the caller may be the daemon's event loop
_SILENT_FOR = 60.0  # seconds in which a folder that did not answer is not asked again
_MOST_SILENT = 1_000

_silent: dict[str, float] = {}  # by folder: until when, by the monotonic clock


def is_of_a_running_job(pid: int) -> bool:
    """False for a process that outlived its job; a process that names a job but no attempt counts as running.

    The environment of other users' processes cannot be read: for these the answer is no.
    """
    folder = attempt_folder_of(pid)
    if folder is None:
        return dibs_job_of(pid) is not None
    # None where the folder was used again or removed.
    record = _record_in_time(folder) if _ELSEWHERE.search(folder) else record_of(folder)
    return record is not None and record.get("state") != "ended"


def _record_in_time(folder: str) -> dict[str, Any] | None:
    """The record of an attempt that another system runs on this machine; empty if its disk does not answer."""
    if time.monotonic() < _silent.get(folder, 0.0):
        return {}
    try:
        record = wait_in_thread(lambda: record_of(folder), _PATIENCE, "record")
    except MemoryError:
        return {}  # no thread can be started now
    except TimeoutError:
        if len(_silent) >= _MOST_SILENT:
            _silent.clear()
        _silent[folder] = time.monotonic() + _SILENT_FOR
        return {}
    _silent.pop(folder, None)
    return record
