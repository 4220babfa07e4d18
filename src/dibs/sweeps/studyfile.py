"""The journal file of a study: kept by one adviser at a time, whole again after a kill -9.

Other programs may read it meanwhile, as Optuna's dashboard does, and even write, under Optuna's own lock.
"""

import fcntl
import json
import os
import time
from pathlib import Path

from optuna.storages import BaseStorage, JournalStorage
from optuna.storages.journal import JournalFileBackend

_PATIENCE_SECONDS = 2.0  # Optuna holds its lock for the time of one write


def open_journal(path: Path) -> BaseStorage:
    """The storage in that file. Waits for the adviser before us to end, if it still writes."""
    _keep_alone(path.with_suffix(".lock-adviser"))
    _free_lock_of_the_dead(Path(f"{path}.lock"))
    _cut_torn_end(path)
    return JournalStorage(JournalFileBackend(str(path)))


def _keep_alone(path: Path) -> None:
    # Never closed: the kernel frees it with our last breath.
    lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    fcntl.flock(lock, fcntl.LOCK_EX)


def _free_lock_of_the_dead(path: Path) -> None:
    """Take away the lock of a writer that was killed while it wrote.

    Optuna's lock is a symbolic link that nobody removes then, and old versions wait for it for ever.
    """
    give_up = time.monotonic() + _PATIENCE_SECONDS
    while path.is_symlink() and time.monotonic() < give_up:
        time.sleep(0.05)
    path.unlink(missing_ok=True)


def _cut_torn_end(path: Path) -> None:
    """Cut what a killed writer, a full disk or a power cut left of a last line.

    Nothing answered is lost, because a line is synced before its answer. Left in place, the next line would
    be glued to it and no program could read the file any more.
    """
    if not path.exists():
        return
    with open(path, "r+b") as file:
        end = size = file.seek(0, os.SEEK_END)
        while end and not _is_whole(line := _last_line(file.fileno(), end)):
            end -= len(line)
        if end < size:
            file.truncate(end)
            os.fsync(file.fileno())


def _last_line(file: int, end: int) -> bytes:
    """The last line of what is before `end`, with its line feed if it has one."""
    read = b""
    while len(read) < end and b"\n" not in read[:-1]:
        begin = max(0, end - max(4096, 2 * len(read)))
        read = os.pread(file, end - begin, begin)
    return read[read.rfind(b"\n", 0, -1) + 1 :]


def _is_whole(line: bytes) -> bool:
    if not line.endswith(b"\n"):
        return False
    try:
        return isinstance(json.loads(line), dict)
    except ValueError:
        return False
