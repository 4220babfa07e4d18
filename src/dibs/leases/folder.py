"""Finds the folder for the leases of this machine."""

import os
import stat
from collections.abc import Mapping, Sequence

from dibs.leases.files import LeaseRefused
from dibs.leases.lockers import user_name
from dibs.paths import MOUNTS, OUTER_LEASES, network_file_system

ADMIN_FOLDER = "/var/lib/dibs/leases"
# Not /dev/shm: a user's files there are removed at logout, and with them the locks of their jobs.
SHARED_FOLDERS = ("/run/lock", "/var/lock", "/var/tmp", "/tmp")


def outside(environ: Mapping[str, str]) -> dict[str, str]:
    """The environment with the leases of the whole machine: those inside a job know its own GPUs alone."""
    found = dict(environ)
    if OUTER_LEASES in found:
        found["DIBS_LEASES"] = found.pop(OUTER_LEASES)
    return found


def lease_folder(
    environ: Mapping[str, str],
    *,
    admin: str = ADMIN_FOLDER,
    shared: Sequence[str] = SHARED_FOLDERS,
    mounts: str = MOUNTS,
) -> str:
    """The folder that all users of this machine agree on, or the one that `DIBS_LEASES` names.

    Programs with another folder do not see our claims, so a bad choice is refused and never replaced by another
    folder.
    """
    if chosen := environ.get("DIBS_LEASES"):
        chosen = os.path.abspath(chosen)
        _make(chosen)
        _check(chosen, mounts)
        return chosen
    if os.path.lexists(admin):
        _check(admin, mounts)
        return admin
    for folder in shared:
        if _is_shared(folder) and not network_file_system(folder, mounts):
            return folder
    raise LeaseRefused(
        f"cannot find a folder for leases: none of {', '.join(shared)} is sticky and belongs to root",
        remedy=f"ask an admin for `mkdir -p -m 1777 {admin}`, or set DIBS_LEASES to a folder of your own",
    )


def _make(folder: str) -> None:
    """Create the folder and its parents for this user only, whatever the umask."""
    if os.path.lexists(folder):
        return
    _make(os.path.dirname(folder))
    try:
        os.mkdir(folder, 0o700)
        os.chmod(folder, 0o700)
    except FileExistsError:
        pass
    except OSError as error:
        raise LeaseRefused(
            f"cannot make the lease folder {folder}: {error.strerror}",
            remedy="set DIBS_LEASES to a folder that you may write to",
        ) from error


def _check(folder: str, mounts: str) -> None:
    """Refuse a folder in which others could remove our locks, or where locks do not work."""
    try:
        seen = os.stat(folder)
    except OSError as error:
        raise LeaseRefused(
            f"cannot use the lease folder {folder}: {error.strerror}",
            remedy="set DIBS_LEASES to a folder of your own",
        ) from error
    owner = user_name(seen.st_uid) or f"uid {seen.st_uid}"
    if not stat.S_ISDIR(seen.st_mode):
        raise LeaseRefused(
            f"cannot use {folder} for leases: it is not a folder, and belongs to {owner}",
            remedy="set DIBS_LEASES to a folder of your own",
        )
    if seen.st_uid != os.geteuid() and not (seen.st_uid == 0 and seen.st_mode & stat.S_ISVTX):
        raise LeaseRefused(
            f"cannot use {folder} for leases: it belongs to {owner}, who could remove our locks",
            remedy="use a folder of your own, or one that belongs to root and is sticky (mode 1777)",
        )
    if seen.st_mode & stat.S_IWOTH and not seen.st_mode & stat.S_ISVTX:
        raise LeaseRefused(
            f"cannot use {folder} for leases: every user may remove files in it (it belongs to {owner})",
            remedy=f"`chmod 1777 {folder}` to share it, `chmod 700 {folder}` to keep it",
        )
    if kind := network_file_system(folder, mounts):
        raise LeaseRefused(
            f"cannot use {folder} for leases: it is on {kind}, where a job does not inherit a lock",
            remedy="set DIBS_LEASES to a folder on a local disk, for example /var/tmp/dibs-leases",
        )


def _is_shared(folder: str) -> bool:
    """Whether all users may write here, and only root may remove files of others."""
    try:
        seen = os.stat(folder)
    except OSError:
        return False
    wanted = stat.S_ISVTX | stat.S_IWOTH
    return stat.S_ISDIR(seen.st_mode) and seen.st_uid == 0 and seen.st_mode & wanted == wanted
