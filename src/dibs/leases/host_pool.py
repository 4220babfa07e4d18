"""The pool that `schedule -i` sets for all users of the host."""

import json
import math
import os
import re
import stat

from dibs.dataclass import dataclass
from dibs.files import replace_file
from dibs.leases.files import MODE, MOST_FILES, SAFE, LeaseRefused, cannot_use, cannot_write

_NAME = re.compile(r"dibs-pool-(0|[1-9][0-9]{0,9})")
_MOST = 4096  # GPUs
_LONGEST = 65536  # bytes


@dataclass(frozen=True, kw_only=True, slots=True)
class HostPool:
    """How many GPUs the host has, and which of them are not to be used."""

    count: int
    unavailable: tuple[int, ...] = ()
    at: float = 0.0  # when it was set, seconds since the epoch


def read_host_pool(folder: str) -> HostPool | None:
    """The pool that was set last, by any user; None if none was.

    Last by the time of the file, which the kernel writes: a time in its content could be in the year 9999 and
    would stay in force for ever.
    """
    found = []
    count = 0
    for name in os.listdir(folder):
        if match := _NAME.fullmatch(name):
            count += 1
            if count > MOST_FILES:
                raise LeaseRefused(
                    f"cannot read the pool of this host: {folder} has over {MOST_FILES:,} files dibs-pool-UID",
                    remedy="ask their owner to remove them, or set DIBS_LEASES to a folder of your own",
                )
            read = _read(f"{folder}/{name}", owner=int(match[1]))
            if read:
                found.append(read)
    return max(found, key=lambda read: (read[0], read[1].at))[1] if found else None


def write_host_pool(folder: str, pool: HostPool) -> None:
    """Put this pool in force."""
    path = f"{folder}/dibs-pool-{os.geteuid()}"
    record = json.dumps({"count": pool.count, "unavailable": pool.unavailable, "at": pool.at})
    try:
        replace_file(path, record, mode=MODE)
    except OSError as error:
        raise (cannot_use(path, error) if os.path.lexists(path) else cannot_write(folder, error)) from error


def _read(path: str, *, owner: int) -> tuple[int, HostPool] | None:
    """When it was written, and the pool; None for a file that is planted, broken or not readable."""
    try:
        opened = os.open(path, os.O_RDONLY | SAFE)
    except OSError:
        return None
    try:
        seen = os.fstat(opened)
        if not stat.S_ISREG(seen.st_mode) or seen.st_nlink != 1 or seen.st_uid != owner:
            return None
        pool = _decode(os.pread(opened, _LONGEST, 0))
    finally:
        os.close(opened)
    return (seen.st_ctime_ns, pool) if pool else None


def _decode(record: bytes) -> HostPool | None:
    try:
        fields = json.loads(record)
        count, unavailable, at = fields["count"], tuple(fields["unavailable"]), float(fields["at"])
    except (ValueError, TypeError, KeyError, OverflowError, RecursionError):
        return None
    if not math.isfinite(at) or not all(type(one) is int and 0 <= one <= _MOST for one in (count, *unavailable)):
        return None
    return HostPool(count=count, unavailable=unavailable, at=at)
