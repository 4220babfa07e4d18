"""How much of the machine's memory programs can still have, also where a control group may have only a part."""

import os
from collections.abc import Iterator

# The limit, what is used of it, and what of that is given back when memory is short: of the two kinds of cgroups.
_NAMES_2 = ("memory.max", "memory.current", "inactive_file")
_NAMES_1 = ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")


def memory_available(root: str = "") -> int | None:
    """Bytes that new programs can have without swapping; None where the kernel does not tell.

    `root` is where /proc and /sys are.
    """
    machine = _number_of(_words(f"{root}/proc/meminfo"), "MemAvailable:")
    rooms = [] if machine is None else [machine * 1024]
    rooms += [room for place, names in _groups(root) if (room := _room_in(place, *names)) is not None]
    return min(rooms, default=None)


def _groups(root: str) -> Iterator[tuple[str, tuple[str, str, str]]]:
    """The control groups of this process that count memory, up to the topmost."""
    mounts = f"{root}/sys/fs/cgroup"
    for line in _lines(f"{root}/proc/self/cgroup"):
        _, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if not controllers:
            places, names = [mounts, f"{mounts}/unified"], _NAMES_2
        elif "memory" in controllers.split(","):
            places, names = [f"{mounts}/memory"], _NAMES_1
        else:
            continue
        while True:
            yield from ((f"{place}{path.rstrip('/')}", names) for place in places)
            if path in ("/", ""):
                break
            path = os.path.dirname(path)


def _room_in(place: str, limit_name: str, used_name: str, spare_name: str) -> int | None:
    """None where the group has no limit."""
    limit, used = ("".join(_lines(f"{place}/{name}")) for name in (limit_name, used_name))
    if not limit.isdigit() or not used.isdigit():
        return None
    spare = _number_of(_words(f"{place}/memory.stat"), spare_name) or 0
    return max(0, int(limit) - int(used) + spare)


def _number_of(lines: Iterator[list[str]], name: str) -> int | None:
    return next((int(words[1]) for words in lines if words[:1] == [name]), None)


def _words(path: str) -> Iterator[list[str]]:
    return (line.split() for line in _lines(path))


def _lines(path: str) -> list[str]:
    try:
        with open(path, errors="replace") as file:
            return file.read().splitlines()
    except OSError:
        return []
