"""One daemon for each queue."""

import fcntl
import os
import time

from dibs.errors import DibsError

_WAIT = 0.5  # seconds; a client that checks for a daemon holds the lock for a moment


class DaemonRuns(DibsError):
    """Another daemon has this queue."""

    code = "daemon-runs"


def take_lock(queue: str) -> int:
    """Hold the queue's lock for as long as this process lives. No child inherits it."""
    lock = os.open(f"{queue}/lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    until = time.monotonic() + _WAIT
    while True:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            break
        except BlockingIOError:
            if time.monotonic() > until:
                pid = os.pread(lock, 20, 0).decode("ascii", "replace").strip()
                os.close(lock)
                raise DaemonRuns(
                    f"a daemon for this queue runs already (pid {pid or '?'})",
                    remedy="`dibs daemon restart` ends it first",
                ) from None
            time.sleep(0.02)
    os.ftruncate(lock, 0)
    os.pwrite(lock, b"%d\n" % os.getpid(), 0)
    return lock
