"""Processes of an attempt whose supervisor was killed: found by the mark in their environment, ended by pidfd."""

import contextlib
import os
import signal

_SIGNALS = {"stop": signal.SIGTERM, "kill": signal.SIGKILL}


def tell_orphans(folder: str, word: str) -> bool:
    """Send `stop`, `kill` or `signal N` to whatever of this attempt lives; False where nothing does."""
    number = _SIGNALS.get(word) or int(word.removeprefix("signal "))
    told = False
    for pid in filter(str.isdecimal, os.listdir("/proc")):
        with contextlib.suppress(OSError):  # it has ended, or is not ours to look into
            told |= _tell(int(pid), folder, number)
    return told


def _tell(pid: int, folder: str, number: int) -> bool:
    if os.stat(f"/proc/{pid}").st_uid != os.geteuid() or not _belongs_to(pid, folder):
        return False
    handle = os.pidfd_open(pid)
    try:
        # Looked at again with the handle in hand: the number may have become somebody else's in between.
        if not _belongs_to(pid, folder):
            return False
        signal.pidfd_send_signal(handle, number)
    finally:
        os.close(handle)
    return True


def _belongs_to(pid: int, folder: str) -> bool:
    with open(f"/proc/{pid}/environ", "rb") as file:
        return os.fsencode(f"DIBS_METRICS={folder}/metrics") in file.read().split(b"\0")
