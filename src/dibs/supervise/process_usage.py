"""What the processes below our shims use of this machine: one look at /proc for all of them together.

A shim is a subreaper: whoever is below it stays below it, whatever becomes of the processes between. So each
process is placed once, when it is first seen, and afterwards only our own are read again. That makes a look cheap
on a machine with thousands of processes, and a job's program with a hundred threads costs one read.
"""

import os
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from dibs.supervise import folder

_TICKS = os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")


@dataclass(frozen=True, slots=True)
class Tree:
    """The processes below one shim."""

    pids: frozenset[int]
    cpu: float  # seconds since they began; of those that ended and were waited for, too
    reaped: float  # seconds of what the shim itself has waited for, in all its attempts
    memory: int  # bytes; what several of them share is counted for each


@dataclass(frozen=True, slots=True)
class Seen:
    """One look."""

    trees: Mapping[int, Tree]  # by the shim's pid; a shim that is gone and left nothing is not in it
    owners: Mapping[int, int]  # of each process that was placed: its shim, or 0


def shim_of(attempt_folder: str) -> int | None:
    """The pid of the shim that runs this attempt; None while none has taken it."""
    pid = (folder.record_of(attempt_folder) or {}).get("shim")
    return pid if isinstance(pid, int) and pid > 0 else None


class Census:
    """Knows who is below which shim. For one thread at a time."""

    def __init__(self) -> None:
        self._owners: dict[int, int] = {}
        self._begun: dict[int, int] = {}  # of our own, when each began: a number may become somebody else's
        self._shims: set[int] = set()

    def look(self, shims: Collection[int]) -> Seen:
        """Read the processes below these shims, and place those that came since the last look.

        Raises OSError where there are too many open files: nobody must seem to have ended because of that.
        """
        pids = {int(name) for name in os.listdir("/proc") if name.isdecimal()}
        # Children of a new shim may have been seen, and taken for strangers, before it was known as one.
        is_known = self._shims.issuperset(shims)
        self._shims = {*self._shims, *shims} & pids
        self._owners = {pid: shim for pid, shim in self._owners.items() if pid in pids and (shim or is_known)}
        self._begun = {pid: at for pid, at in self._begun.items() if pid in pids}
        stats = self._place(pids - self._owners.keys())
        return Seen(self._trees(shims, stats), dict(self._owners))

    def _place(self, new: Iterable[int]) -> "dict[int, _Stat]":
        """Find the shims of processes that were not seen before; return what was read."""
        stats = {pid: stat for pid in new if (stat := _read(pid)) is not None}
        for pid in stats:
            way = []  # up to somebody who is placed
            at, owner = pid, None
            while owner is None:
                way.append(at)
                stat = stats.get(at)
                if stat is None or len(way) > len(stats):
                    break  # the parent ended in between: the child has another one at the next look
                at = stat.parent
                owner = at if at in self._shims else 0 if at <= 1 else self._owners.get(at)
            if owner is not None:
                for one in way:
                    self._owners[one] = owner
                    if owner:
                        self._begun[one] = stats[one].begun
        return stats

    def _trees(self, shims: Iterable[int], stats: "Mapping[int, _Stat]") -> dict[int, Tree]:
        below: dict[int, list[int]] = {shim: [] for shim in shims}
        for pid, shim in self._owners.items():
            if shim in below:
                below[shim].append(pid)
        trees = {}
        for shim, pids in below.items():
            own = _read(shim)
            if own is None and not pids:
                continue
            found, cpu, memory = [], 0, 0
            for pid in pids:
                stat = stats.get(pid) or _read(pid)
                if stat is None:
                    continue
                if stat.begun != self._begun.get(pid):
                    del self._owners[pid]  # another process by now; the next look places it
                    continue
                found.append(pid)
                cpu += stat.used + stat.reaped
                memory += stat.pages
            reaped = own.reaped if own is not None else 0
            trees[shim] = Tree(frozenset(found), cpu / _TICKS, reaped / _TICKS, memory * _PAGE)
        return trees


@dataclass(frozen=True, slots=True)
class _Stat:
    parent: int
    used: int  # ticks
    reaped: int  # ticks of children that it waited for
    begun: int  # ticks after the machine's start
    pages: int


def _read(pid: int) -> _Stat | None:
    """None where it has ended, or is hidden from us."""
    try:
        handle = os.open(f"/proc/{pid}/stat", os.O_RDONLY | os.O_CLOEXEC)
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return None
    try:
        # The name in parentheses may hold anything, parentheses too: count from its end.
        words = os.read(handle, 4096).rpartition(b")")[2].split()
        return _Stat(
            parent=int(words[1]),
            used=int(words[11]) + int(words[12]),
            reaped=int(words[13]) + int(words[14]),
            begun=int(words[19]),
            pages=int(words[21]),
        )
    except (ProcessLookupError, ValueError, IndexError):
        return None
    finally:
        os.close(handle)
