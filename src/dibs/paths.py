"""Where things live: the state folder, the runs in it, and what kind of disk a folder is on."""

import contextlib
import os
import stat
import sys
from collections.abc import Mapping

from dibs.errors import DibsError

MOUNTS = "/proc/self/mountinfo"

# Of statx(2), which Python 3.14 does not have yet.
_AT_FDCWD = -100
_STATX_MNT_ID = 0x1000
_STATX_MNT_ID_UNIQUE = 0x4000
_STATX_BYTES = 256
_MNT_ID_AT = 144  # bytes into its answer

# A lock taken here would not be seen, or not be inherited, on the other machines that mount it.
_NETWORK = frozenset(
    ("nfs", "nfs4", "cifs", "smb3", "fuse.sshfs", "lustre", "gpfs", "beegfs", "ceph", "fuse.glusterfs", "afs")
)


class FolderRefused(DibsError):
    """A folder that cannot hold what must be safe in it."""

    code = "folder-refused"
    exit_status = 2


# In a job, and in a block of `dibs.gpu`: what DIBS_LEASES is outside of it, maybe nothing.
OUTER_LEASES = "DIBS_OUTER_LEASES"


def state_folder(environ: Mapping[str, str]) -> str:
    """Our folder for stores, attempts and logs, on a disk where locks work."""
    if chosen := environ.get("DIBS_STATE"):
        return os.path.abspath(chosen)
    if base := environ.get("XDG_STATE_HOME") or _home_state(environ):
        folder = os.path.join(base, "dibs")
        if not network_file_system(folder):
            return folder
    return local_folder()


def local_folder() -> str:
    """Where locks and stores go when the home folder is on the network, or there is none."""
    return f"/var/tmp/dibs-{os.getuid()}"


def queue_folder(environ: Mapping[str, str]) -> str:
    """Where the daemon keeps its queue."""
    return f"{state_folder(environ)}/queue"


def socket_path(environ: Mapping[str, str]) -> str:
    """Where the daemon listens. It may be longer than a socket's address: see `client/connection.py`."""
    if chosen := environ.get("DIBS_SOCKET"):
        return os.path.abspath(chosen)
    # Not in XDG_RUNTIME_DIR: it is emptied at logout and unknown to cron, and the queue outlives both.
    return f"{queue_folder(environ)}/socket"


def is_private(folder: str) -> bool:
    """Whether it is a folder of ours that no other user can read."""
    try:
        seen = os.lstat(folder)
    except OSError:
        return False
    return stat.S_ISDIR(seen.st_mode) and seen.st_uid == os.geteuid() and not stat.S_IMODE(seen.st_mode) & 0o077


def make_private(folder: str) -> str:
    """Make a folder that no other user can read; refuse a link and a folder of another user."""
    folder = folder.rstrip("/") or "/"  # a slash at the end would follow a link
    try:
        with contextlib.suppress(FileExistsError):
            os.makedirs(folder, mode=0o700)
        seen = os.lstat(folder)
    except OSError as error:
        raise FolderRefused(
            f"cannot make the folder {folder}: {error.strerror}",
            remedy="set DIBS_STATE to a folder that you may write to",
        ) from error
    if seen.st_uid != os.geteuid():
        raise FolderRefused(
            f"cannot use {folder}: it belongs to uid {seen.st_uid}",
            remedy="set DIBS_STATE to a folder of your own",
        )
    if not stat.S_ISDIR(seen.st_mode):
        kind = "a link" if stat.S_ISLNK(seen.st_mode) else "a file"
        raise FolderRefused(
            f"cannot use {folder}: it is {kind}, not a folder",
            remedy="remove it, or set DIBS_STATE to a folder of your own",
        )
    if stat.S_IMODE(seen.st_mode) & 0o077:
        _close_to_others(folder)
    return folder


def network_file_system(folder: str, mounts: str = MOUNTS) -> str:
    """`nfs4` or the like where a folder (or the nearest parent that exists) is on the network, else empty."""
    kind = file_system(_nearest(folder), mounts)
    return kind if kind in _NETWORK else ""


def file_system(folder: str, mounts: str = MOUNTS) -> str:
    """The type of the file system under a folder, `ext4` or `nfs4`; empty where the kernel does not tell.

    By the id of the mount, not by its path: mounts may lie on top of each other.
    """
    handle = os.open(folder, os.O_PATH | os.O_CLOEXEC)
    try:
        with open(f"/proc/self/fdinfo/{handle}") as lines:
            mount = next((line.split()[1] for line in lines if line.startswith("mnt_id:")), "")
        with open(mounts, errors="surrogateescape") as lines:
            for line in lines:
                place, _, source = line.partition(" - ")
                if place.split(" ", 1)[0] == mount:
                    return source.split(" ", 1)[0]
    except OSError:
        pass
    finally:
        os.close(handle)
    return ""


def boot_id() -> str:
    """Which run of the machine this is."""
    try:
        with open("/proc/sys/kernel/random/boot_id") as file:
            return file.read().strip()
    except OSError:
        return "unknown"


def mount_id(folder: str) -> str:
    """Which mount of its file system this folder is in: another one after the file system was mounted again.

    The number is never used twice since Linux 6.8; an older kernel may give the number of a mount that is gone.
    """
    import ctypes  # 5 ms: not for commands that start nothing

    found = ctypes.create_string_buffer(_STATX_BYTES)
    try:
        statx = ctypes.CDLL(None).statx
        status = statx(_AT_FDCWD, os.fsencode(folder), 0, _STATX_MNT_ID_UNIQUE | _STATX_MNT_ID, found)
    except AttributeError:  # a C library without it
        status = -1
    number = int.from_bytes(found.raw[_MNT_ID_AT : _MNT_ID_AT + 8], sys.byteorder) if status == 0 else 0
    return f"{os.stat(folder).st_dev:x}:{number:x}"


def _close_to_others(folder: str) -> None:
    try:
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            os.fchmod(handle, 0o700)  # what was opened, whatever the name leads to by now
        finally:
            os.close(handle)
    except OSError as error:
        raise FolderRefused(
            f"cannot close the folder {folder} to others: {error.strerror}",
            remedy="set DIBS_STATE to a folder of your own",
        ) from error


def _home_state(environ: Mapping[str, str]) -> str:
    home = environ.get("HOME", "")
    return f"{home}/.local/state" if home and os.access(home, os.W_OK) else ""


def _nearest(folder: str) -> str:
    folder = os.path.abspath(folder)
    while not os.path.exists(folder):
        folder = os.path.dirname(folder)
    return folder
