"""Who somebody is: names of users, and the processes that the kernel says hold a lock."""

import os
import pwd
from functools import lru_cache


@lru_cache(maxsize=1024)
def user_name(uid: int) -> str:
    """The name of a user; empty where this system does not know it, as in a container.

    It may ask a directory server: never call it with a guard in hand.
    """
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return ""


def lockers() -> dict[tuple[int, int, int], int]:
    """The process that took each lock on this machine, by its file's device numbers and inode.

    A lock handed to a child is still listed under the process that took it. What the kernel hides, from
    another container for example, is not in it.
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
    """The uid of a process; None when it is gone."""
    try:
        return os.stat(f"/proc/{pid}").st_uid
    except OSError:
        return None
