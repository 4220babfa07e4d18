"""Opening files in a folder where anybody may plant things."""

import fcntl
import os
import stat
import time
from errno import EACCES, EISDIR, ELOOP, ENOENT, ENXIO, EPERM

from dibs.errors import DibsError
from dibs.leases.who import user_name

# Everybody must be able to open, and so to probe, everybody's files. The sticky bit tells systemd-tmpfiles
# to leave them alone however old they get: a deleted file under a running job would be booked twice.
MODE = 0o1644
NOT_OURS = (EACCES, EISDIR, ELOOP, ENOENT, ENXIO, EPERM)  # what opening a planted name may say
SAFE = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class LeaseRefused(DibsError):
    """A file or folder for leases is not what it should be; nothing was written to it."""

    code = "lease-refused"


def open_safely(folder: str, name: str, *, create: bool, mode: int = MODE, owner: int | None = None) -> int:
    """Open a regular file with one link, or refuse; with `owner`, for writing and only if it is theirs.

    Without an owner it is opened for reading, whoever made it: that is enough to lock it.
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
                opened = os.open(path, access | os.O_CREAT | os.O_EXCL, mode)
            except FileExistsError:
                continue  # somebody was faster; open theirs
            except OSError as error:
                raise cannot_use(path, error) from error
            os.fchmod(opened, mode)  # whatever the umask took away
            return opened
        except PermissionError as error:
            refused = cannot_use(path, error)
            time.sleep(0.002)  # under a umask of 077 it is closed to us for the moment before the fchmod
            continue
        except OSError as error:
            raise cannot_use(path, error) from error
        seen = os.fstat(opened)
        if not stat.S_ISREG(seen.st_mode) or seen.st_nlink != 1 or owner not in (None, seen.st_uid):
            os.close(opened)
            if stat.S_ISREG(seen.st_mode) and seen.st_nlink == 0:
                continue  # deleted in this moment; the next one is real
            raise planted(path)
        if seen.st_uid == os.geteuid():
            mend_mode(opened, seen, mode)
        return opened
    raise refused or planted(path)


def mend_mode(opened: int, seen: os.stat_result, mode: int = MODE) -> None:
    """Give a file of ours its mode if we were killed between making it and saying so."""
    if stat.S_IMODE(seen.st_mode) != mode:
        os.fchmod(opened, mode)


def lock(opened: int) -> bool:
    """Lock it, unless somebody else has."""
    try:
        fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def planted(path: str) -> LeaseRefused:
    """The error for a name under which there is something else than our file."""
    return LeaseRefused(
        f"cannot use {path}: it is {_what_is(path)}",
        remedy=f"its owner or an admin can remove it (`rm -r {path}`); or set DIBS_LEASES to another folder",
    )


def cannot_use(path: str, error: OSError) -> LeaseRefused:
    """The error for a file that the system does not let us open."""
    if error.errno in NOT_OURS and os.path.lexists(path):
        return planted(path)
    return cannot_write(os.path.dirname(path), error)


def cannot_write(folder: str, error: OSError) -> LeaseRefused:
    """The error for a folder in which the system does not let us work."""
    return LeaseRefused(
        f"cannot keep leases in {folder}: {error.strerror}",
        remedy="set DIBS_LEASES to a folder on a local disk that you may write to",
    )


def _what_is(path: str) -> str:
    try:
        seen = os.lstat(path)
    except OSError:
        return "gone again"
    kind = _KINDS.get(stat.S_IFMT(seen.st_mode), "no regular file")
    if stat.S_ISREG(seen.st_mode) and seen.st_nlink > 1:
        kind = "a file with a second name"
    return f"{kind} of {user_name(seen.st_uid) or f'uid {seen.st_uid}'}"


_KINDS = {
    stat.S_IFREG: "a file",
    stat.S_IFLNK: "a symbolic link",
    stat.S_IFIFO: "a FIFO",
    stat.S_IFDIR: "a folder",
}
