"""CPU and memory of the processes below our shims: one pass over /proc for all of them.

A shim is a subreaper: a process below it stays below it, also when the processes between them end. So the shim of
a process is looked up once, and afterwards only our own processes are read again. That keeps a pass cheap on a
machine with thousands of processes.
"""

import os
from collections.abc import Collection, Iterable, Mapping

from dibs.dataclass import dataclass
from dibs.supervise import folder
from dibs.supervise.command import TICKS, ProcessStat, read_stat

_PAGE = os.sysconf("SC_PAGE_SIZE")


@dataclass(frozen=True, slots=True)
class ProcessTree:
    """The processes below one shim."""

    pids: frozenset[int]
    cpu: float  # seconds since their start, with children that were waited for
    reaped: float  # seconds of children that the shim has waited for, in all its attempts
    memory: int  # bytes; shared memory counts for each process


@dataclass(frozen=True, slots=True)
class TreeUsage:
    """The result of one pass."""

    trees: Mapping[int, ProcessTree]  # by the shim's pid, without shims that have ended and left no process
    owners: Mapping[int, int]  # of each known process: its shim, or 0


def shim_of(attempt_folder: str) -> int | None:
    """The pid of the shim that runs this attempt; None while none has taken it."""
    pid = (folder.record_of(attempt_folder) or {}).get("shim")
    return pid if isinstance(pid, int) and pid > 0 else None


class ProcessUsage:
    """Knows which processes are below which shim. For one thread at a time."""

    def __init__(self) -> None:
        self._owners: dict[int, int] = {}
        self._begun: dict[int, int] = {}  # start times of our own: a pid may be reused
        self._shims: set[int] = set()

    def look(self, shims: Collection[int], elsewhere: Mapping[int, int] | None = None) -> TreeUsage:
        """Read the processes below these shims, and find the shims of new processes.

        `elsewhere` has processes that belong to a shim without being below it, as docker's do.
        Raises OSError if too many files are open: processes must not seem to have ended because of that.
        """
        pids = {int(name) for name in os.listdir("/proc") if name.isdecimal()}
        # Children of a new shim may have been seen, and taken for foreign, before the shim was known.
        is_known = self._shims.issuperset(shims)
        self._shims = {*self._shims, *shims} & pids
        self._owners = {pid: shim for pid, shim in self._owners.items() if pid in pids and (shim or is_known)}
        self._begun = {pid: at for pid, at in self._begun.items() if pid in pids}
        stats = self._place(pids - self._owners.keys())
        for pid, shim in (elsewhere or {}).items():
            if not self._owners.get(pid) and (stat := stats.get(pid) or read_stat(pid)) is not None:
                self._owners[pid], self._begun[pid] = shim, stat.begun
        return TreeUsage(self._trees(shims, stats), dict(self._owners))

    def _place(self, new: Iterable[int]) -> "dict[int, ProcessStat]":
        """Find the shims of processes that were not seen before; return what was read."""
        stats = {pid: stat for pid in new if (stat := read_stat(pid)) is not None}
        for pid in stats:
            way = []  # up to a known process
            at, owner = pid, None
            while owner is None:
                way.append(at)
                stat = stats.get(at)
                if stat is None or len(way) > len(stats):
                    break  # the parent ended meanwhile: the child has another one at the next pass
                at = stat.parent
                owner = at if at in self._shims else 0 if at <= 1 else self._owners.get(at)
            if owner is not None:
                for one in way:
                    self._owners[one] = owner
                    if owner:
                        self._begun[one] = stats[one].begun
        return stats

    def _trees(self, shims: Iterable[int], stats: "Mapping[int, ProcessStat]") -> dict[int, ProcessTree]:
        below: dict[int, list[int]] = {shim: [] for shim in shims}
        for pid, shim in self._owners.items():
            if shim in below:
                below[shim].append(pid)
        trees = {}
        for shim, pids in below.items():
            own = read_stat(shim)
            if own is None and not pids:
                continue
            found, cpu, memory = [], 0, 0
            for pid in pids:
                stat = stats.get(pid) or read_stat(pid)
                if stat is None:
                    continue
                if stat.begun != self._begun.get(pid):
                    del self._owners[pid]  # another process by now, for the next pass
                    continue
                found.append(pid)
                cpu += stat.used + stat.reaped
                memory += stat.pages
            reaped = own.reaped if own is not None else 0
            trees[shim] = ProcessTree(frozenset(found), cpu / TICKS, reaped / TICKS, memory * _PAGE)
        return trees
