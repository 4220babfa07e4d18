"""The claims whose locks a process has inherited."""

import os
from contextlib import suppress

from dibs.leases.files import LONGEST, SAFE, Holder, claim_gpu, decode


def inherited_claims(pid: int) -> list[Holder]:
    """The claims of this user whose locks another process took. One that only reads a claim's file has no lock.

    An engine takes the claims of all its jobs; only the processes of a job have inherited them.
    """
    found: list[Holder] = []
    try:
        numbers = os.listdir(f"/proc/{pid}/fd")
    except OSError:  # it has ended, or belongs to another user
        return found
    for number in numbers:
        with suppress(OSError):  # it was closed meanwhile
            link = f"/proc/{pid}/fd/{number}"
            gpu = claim_gpu(os.path.basename(os.readlink(link)).removesuffix(" (deleted)"))
            if not gpu or not (takers := _lock_takers(pid, number)) or pid in takers:
                continue
            # Through the link: the file may have been deleted. O_NOFOLLOW would refuse it.
            opened = os.open(link, os.O_RDONLY | SAFE & ~os.O_NOFOLLOW)
            try:
                owner = os.fstat(opened).st_uid
                if owner == os.geteuid():  # the file of another user could name any job
                    found.append(decode(os.pread(opened, LONGEST, 0), gpu, owner))
            finally:
                os.close(opened)
    return found


def _lock_takers(pid: int, number: str) -> list[int]:
    """The processes that took the locks of an open file: `lock: 1: FLOCK ADVISORY WRITE 4711 08:01:1234 0 EOF`."""
    with open(f"/proc/{pid}/fdinfo/{number}") as file:
        lines = [line.split() for line in file]
    return [int(words[5]) for words in lines if words[:1] == ["lock:"] and words[2] == "FLOCK"]
