"""Which processes and users have lease files locked or open, as the kernel tells: a file could say anything."""

import os
import pwd
from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple

_DELETED = " (deleted)"  # as the kernel marks it


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


class Locker(NamedTuple):
    """The user of a process that has a lock."""

    uid: int  # -1 where the system hides it
    user: str


def who_is(pid: int) -> Locker | None:
    """The user of a process, from the kernel; None if it has ended."""
    uid = owner_of(pid)
    if uid is not None:
        return Locker(uid, user_name(uid) or f"uid {uid}")
    try:
        os.kill(pid, 0)
    except PermissionError:
        return Locker(-1, "another user, whose name the system hides (hidepid)")
    except OSError:
        pass
    return None


def owner_of(pid: int) -> int | None:
    """The uid of a process; None if it has ended, or is hidden by a /proc with `hidepid`."""
    try:
        return os.stat(f"/proc/{pid}").st_uid
    except OSError:
        return None


def deleted_claims(folder: str) -> Iterator[tuple[str, int]]:
    """The names of claim files that were deleted while a process of this user has them open, with witnesses.

    The caller closes these. It reads /proc of all processes, which takes some milliseconds.
    """
    prefix = f"{os.path.realpath(folder)}/"
    seen: set[tuple[int, int]] = set()
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            links = [f"/proc/{pid}/fd/{number}" for number in os.listdir(f"/proc/{pid}/fd")]
        except OSError:  # it has ended, or belongs to another user
            continue
        for link in links:
            try:
                target = os.readlink(link)
                if not target.startswith(f"{prefix}dibs-claim-") or not target.endswith(_DELETED):
                    continue
                witness = os.open(link, os.O_RDONLY | os.O_CLOEXEC)
            except OSError:
                continue
            found = os.fstat(witness)
            if (found.st_dev, found.st_ino) in seen:
                os.close(witness)
                continue
            seen.add((found.st_dev, found.st_ino))
            yield target.removeprefix(prefix).removesuffix(_DELETED), witness


@lru_cache(maxsize=1024)
def user_name(uid: int) -> str:
    """The name of a user; empty where the system has none, as in a container.

    It may ask a directory server: never call it with a guard held.
    """
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return ""
