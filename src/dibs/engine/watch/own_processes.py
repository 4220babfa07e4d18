"""Whether a process belongs to a job of dibs, whoever's engine started it."""

import re
import threading
import time
from typing import Any

from dibs.gpus.processes import attempt_folder_of, dibs_job_of
from dibs.supervise.folder import record_of

_ELSEWHERE = re.compile(r"/q[0-9a-f]{8}/attempts/")  # a queue's mark: what another system runs, on any file system
_PATIENCE = 0.5  # seconds; whoever asks may be a daemon's loop
_SILENT_FOR = 60.0  # seconds in which a folder that did not answer is not asked again
_MOST_SILENT = 1_000

_silent: dict[str, float] = {}  # by folder: until when, by the monotonic clock


def is_of_a_running_job(pid: int) -> bool:
    """A process that outlived its job belongs to nobody; one that does not tell its attempt is believed.

    Jobs of other users cannot be looked into: of their processes the answer is no.
    """
    folder = attempt_folder_of(pid)
    if folder is None:
        return dibs_job_of(pid) is not None
    # None where the folder was used again or removed.
    record = _record_in_time(folder) if _ELSEWHERE.search(folder) else record_of(folder)
    return record is not None and record.get("state") != "ended"


def _record_in_time(folder: str) -> dict[str, Any] | None:
    """The record of an attempt that another system runs on this machine; an empty one where its disk is silent."""
    if time.monotonic() < _silent.get(folder, 0.0):
        return {}
    found: list[dict[str, Any] | None] = []
    thread = threading.Thread(target=lambda: found.append(record_of(folder)), name="dibs-record", daemon=True)
    try:
        thread.start()
    except RuntimeError:
        return {}  # there can be no thread now
    thread.join(_PATIENCE)
    if found:
        _silent.pop(folder, None)
        return found[0]
    if len(_silent) >= _MOST_SILENT:
        _silent.clear()
    _silent[folder] = time.monotonic() + _SILENT_FOR
    return {}
