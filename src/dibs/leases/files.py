"""Opening and locking files in a folder where every user may write, and which process holds a lock."""

import fcntl
import os
import pwd
import stat
import time
from collections.abc import Iterable
from errno import EACCES, EISDIR, ELOOP, ENOENT, ENXIO, EPERM
from functools import lru_cache

from dibs.errors import DibsError

# All users must be able to open, and so to probe, all files. The sticky bit keeps systemd-tmpfiles from removing
# old ones: with its file deleted under a running job, a card would be booked twice.
MODE = 0o1644
NOT_OURS = (EACCES, EISDIR, ELOOP, ENOENT, ENXIO, EPERM)  # errors of opening a planted name
SAFE = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class LeaseRefused(DibsError):
    """A file or folder for leases is not what it should be; nothing was written to it."""

    code = "lease-refused"


def open_safely(folder: str, name: str, *, create: bool, owner: int | None = None) -> int:
    """Open a regular file with one link, or refuse; with `owner`, for writing and only if it has this owner.

    Without an owner it is opened for reading, which is enough to lock it.
    """
    path = f"{folder}/{name}"
    access = (os.O_RDONLY if owner is None else os.O_RDWR) | SAFE
    refused: LeaseRefused | None = None
    for _ in range(20):
        try:
            opened = os.open(path, access)
        except FileNotFoundError:
            if not create:
                raise
            # Never O_CREAT without O_EXCL: fs.protected_regular refuses it on other users' files.
            try:
                opened = os.open(path, access | os.O_CREAT | os.O_EXCL, MODE)
            except FileExistsError:
                continue  # another process was faster; open its file
            except OSError as error:
                raise cannot_use(path, error) from error
            os.fchmod(opened, MODE)  # whatever the umask is
            return opened
        except PermissionError as error:
            refused = cannot_use(path, error)
            time.sleep(0.002)  # under a umask of 077 it cannot be opened until the fchmod
            continue
        except OSError as error:
            raise cannot_use(path, error) from error
        seen = os.fstat(opened)
        if not stat.S_ISREG(seen.st_mode) or seen.st_nlink != 1 or owner not in (None, seen.st_uid):
            os.close(opened)
            if stat.S_ISREG(seen.st_mode) and seen.st_nlink == 0:
                continue  # deleted in this moment; open the next one
            raise planted(path)
        if seen.st_uid == os.geteuid():
            mend_mode(opened, seen)
        return opened
    raise refused or planted(path)


def mend_mode(opened: int, seen: os.stat_result) -> None:
    """Give a file of ours its mode, if we were killed between creating it and the fchmod."""
    if stat.S_IMODE(seen.st_mode) != MODE:
        os.fchmod(opened, MODE)


def lock(opened: int) -> bool:
    """Lock it; False if another process has locked it."""
    try:
        fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def planted(path: str) -> LeaseRefused:
    """The error for a name at which there is something other than our file."""
    return LeaseRefused(
        f"cannot use {path}: it is {_what_is(path)}",
        remedy=f"its owner or an admin can remove it (`rm -r {path}`); or set DIBS_LEASES to another folder",
    )


def cannot_use(path: str, error: OSError) -> LeaseRefused:
    """The error for a file that cannot be opened."""
    if error.errno in NOT_OURS and os.path.lexists(path):
        return planted(path)
    return cannot_write(os.path.dirname(path), error)


def cannot_write(folder: str, error: OSError) -> LeaseRefused:
    """The error for a folder that cannot be used."""
    return LeaseRefused(
        f"cannot keep leases in {folder}: {error.strerror}",
        remedy="set DIBS_LEASES to a folder on a local disk that you may write to",
    )


def _what_is(path: str) -> str:
    try:
        seen = os.lstat(path)
    except OSError:
        return "no longer there"
    kind = _KINDS.get(stat.S_IFMT(seen.st_mode), "not a regular file")
    if stat.S_ISREG(seen.st_mode) and seen.st_nlink > 1:
        kind = "a file with a second name"
    return f"{kind} of {user_name(seen.st_uid) or f'uid {seen.st_uid}'}"


_KINDS = {
    stat.S_IFREG: "a file",
    stat.S_IFLNK: "a symbolic link",
    stat.S_IFIFO: "a FIFO",
    stat.S_IFDIR: "a folder",
}


class GpuGuards:
    """The guard of each GPU: a lock for "look, then claim". Held for microseconds, and never inherited."""

    def __init__(self, folder: str, *, patience: float) -> None:
        self._folder = folder
        self._patience = patience  # seconds
        self._stuck: set[str] = set()

    def hold(self, gpus: Iterable[str], *, patience: float | None = None) -> list[int] | str:
        """Lock the guards of these GPUs, in sorted order, or say which process keeps one locked.

        The caller closes the descriptors. There is one deadline for all; a guard that was not free in time is
        tried without waiting from then on, so that the jobs on other GPUs go on.
        """
        held: list[int] = []
        until = time.monotonic() + (self._patience if patience is None else patience)
        try:
            for gpu in sorted(gpus):
                guard = self._lock(gpu, 0.0 if gpu in self._stuck else until)
                if guard is None:
                    self._stuck.add(gpu)
                    close_all(held)
                    return self._who_keeps(gpu)
                held.append(guard)
                self._stuck.discard(gpu)
        except BaseException:
            close_all(held)
            raise
        return held

    def _lock(self, gpu: str, until: float) -> int | None:
        name = f"dibs-guard-{gpu}"
        pause = 0.0002
        while True:
            guard = open_safely(self._folder, name, create=True)
            # It must still be the same file: if it was replaced meanwhile, other processes lock the new one.
            if lock(guard) and self._is_still(guard, name):
                return guard
            os.close(guard)
            if time.monotonic() >= until:
                return None
            time.sleep(pause)
            pause = min(2 * pause, 0.005)

    def _is_still(self, guard: int, name: str) -> bool:
        try:
            there = os.stat(f"{self._folder}/{name}", follow_symlinks=False)
        except FileNotFoundError:
            return False
        return os.path.samestat(os.fstat(guard), there)

    def _who_keeps(self, gpu: str) -> str:
        path = f"{self._folder}/dibs-guard-{gpu}"
        try:
            pid = lockers().get(file_key(os.stat(path, follow_symlinks=False)), 0)
        except FileNotFoundError:
            pid = 0
        uid = owner_of(pid) if pid else None
        if uid is None:
            return f"another process keeps {path} locked"
        return f"process {pid} of {user_name(uid) or f'uid {uid}'} keeps {path} locked"


def close_all(descriptors: Iterable[int]) -> None:
    for descriptor in descriptors:
        os.close(descriptor)


@lru_cache(maxsize=1024)
def user_name(uid: int) -> str:
    """The name of a user; empty where the system has none, as in a container.

    It may ask a directory server: never call it with a guard held.
    """
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return ""


def lockers() -> dict[tuple[int, int, int], int]:
    """The process that took each lock on this machine, by its file's device numbers and inode.

    A lock that a child inherited is still listed under the process that took it. Locks that the kernel hides,
    for example of another container, are missing.
    """
    found = {}
    try:
        with open("/proc/locks") as lines:
            for line in lines:
                words = line.split()
                if words[1] == "FLOCK":
                    major, minor, inode = words[5].split(":")
                    found[int(major, 16), int(minor, 16), int(inode)] = int(words[4])
    except (OSError, ValueError, IndexError):
        pass
    return found


def file_key(seen: os.stat_result) -> tuple[int, int, int]:
    """A file as `lockers` names it."""
    return os.major(seen.st_dev), os.minor(seen.st_dev), seen.st_ino


def owner_of(pid: int) -> int | None:
    """The uid of a process; None if it has ended."""
    try:
        return os.stat(f"/proc/{pid}").st_uid
    except OSError:
        return None
