"""What the processes of a container use: sampled while they live, because an engine's own process waits for them.

The kernel tells a parent how much memory and CPU time its children used, and no other process. Memory is counted
as for any other job: the most that one of the processes had. The container's cgroup would also count the files
that it reads, and is removed before the engine's client ends. Standard library only.
"""

import os
import time
from collections.abc import Callable
from typing import Any

from dibs.supervise.command import TICKS, descendants, read_stat, status_of
from dibs.supervise.folder import marked_processes, parent_of

_FIRST, _LONGEST = 0.1, 2.0  # seconds between two looks
_OF_ITS_AGE = 10  # a container is looked at after each tenth of its age
_OF_A_LOOK = 5  # and for at most a fifth of the time


# The processes of a container with their numbers there; 1 is the topmost.
FindProcesses = Callable[[], dict[int, int]]


class ContainerUsage:
    """The memory and CPU time of the container of an attempt, as far as the looks saw them."""

    def __init__(self, find: FindProcesses) -> None:
        self._find = find
        self._top: tuple[int, int] | None = None  # its first process, and when that began
        self._due = time.monotonic() + _FIRST
        self._found_at = 0.0
        self._memory = 0  # bytes
        self._cpu = 0.0  # seconds
        self._is_seen = False

    @property
    def seconds_left(self) -> float:
        """Until the next look is due."""
        return max(0.0, self._due - time.monotonic())

    def look(self) -> None:
        """Take a sample, where one is due."""
        now = time.monotonic()
        if now < self._due:
            return
        before = time.process_time()  # not the clock: on a busy machine a look takes long, and costs no more
        self._measure(now)
        took = time.process_time() - before
        age = now - self._found_at if self._top is not None else 0.0
        self._due = now + max(_FIRST, min(_LONGEST, age / _OF_ITS_AGE), took * _OF_A_LOOK)

    @property
    def is_seen(self) -> bool:
        """Whether a process of it was seen."""
        return self._is_seen

    @property
    def found(self) -> dict[str, int | float]:
        """What it used, by the keys of a record; nothing where it ended before the first look."""
        return {"cpu": self._cpu, "maxrss": self._memory} if self._is_seen else {}

    def _measure(self, now: float) -> None:
        if self._top is None:
            self._top, self._found_at = _top_of(self._find()), now
        if self._top is None:
            return  # it is being started
        pid, begun = self._top
        stat = read_stat(pid)
        if stat is None or stat.begun != begun:
            return  # it has ended
        ticks = stat.used + stat.reaped
        for one in descendants(pid):
            if (stat := read_stat(one)) is not None:
                ticks += stat.used + stat.reaped
            self._memory = max(self._memory, _peak_of(one))
        self._memory = max(self._memory, _peak_of(pid))
        self._cpu = max(self._cpu, ticks / TICKS)
        self._is_seen = True


def without_usage(ended: dict[str, Any]) -> dict[str, Any]:
    """How a process ended, without what it used: that of an engine's client says nothing about the command."""
    return {name: value for name, value in ended.items() if name not in ("cpu", "maxrss")}


def numbers_inside(folder: str) -> dict[int, int]:
    """The processes of an attempt in a pid namespace of their own, with their numbers there."""
    found = {}
    for pid in marked_processes(folder):
        for line in status_of(pid):
            if line.startswith(b"NSpid:") and len(numbers := line.split()) > 2:
                found[pid] = int(numbers[-1])
    return found


def numbers_elsewhere(folder: str) -> dict[int, int]:
    """The processes of an attempt that another program started beside this one, which is above all others.

    They share the pids of the machine: those without a parent among them have the number 1.
    """
    below = descendants(os.getpid())
    found = [pid for pid in marked_processes(folder) if pid not in below]
    return {pid: pid if parent_of(pid) in found else 1 for pid in found}


def _top_of(found: dict[int, int]) -> tuple[int, int] | None:
    """The first process of the container, below which all others are, and when it began."""
    for pid, number in found.items():
        if number == 1 and (stat := read_stat(pid)) is not None:
            return pid, stat.begun
    return None


def _peak_of(pid: int) -> int:
    """The most memory, in bytes, that a process had at once."""
    for line in status_of(pid):
        if line.startswith(b"VmHWM:"):
            return int(line.split()[1]) * 1024
    return 0
