"""The processes of attempts whose shims were killed: found by what they inherited, ended as a shim would do it.

A command inherits the mark of its attempt in its environment, the locks of its leases and the files of its output.
Any of them shows whose process it is, and so does a parent that has one of them. A process that has given up all
of that cannot be told from any other.
"""

import contextlib
import os
import signal
from collections.abc import Collection, Mapping

from dibs.dataclass import dataclass
from dibs.supervise.command import OVER, TOLD, Stopping, listens
from dibs.supervise.folder import mark_of

# A locked file as the kernel lists it in /proc/locks and /proc/PID/fdinfo: major and minor number, inode.
FileKey = tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class LeftProcess:
    """A process that an attempt left behind."""

    pid: int
    name: str
    parent: int
    started: int  # clock ticks after the machine's start: a pid that is used again has another
    is_ours: bool  # False: it runs as another user, and cannot be signalled
    is_stopped: bool = False  # by a signal


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptLimits:
    """When an attempt is to end; seconds."""

    grace: float
    time: float | None = None
    checkpoint: tuple[int, float] | None = None  # a signal, and how long before the limit it is sent


class OrphanedAttempt:
    """Does for the processes of an attempt what its shim would: ends them when asked, or at the time limit.

    `started_at` is by the clock since the boot, later by the time for which it was suspended.
    """

    def __init__(self, folder: str, limits: AttemptLimits, *, started_at: float) -> None:
        self.left: Mapping[int, LeftProcess] = {}  # by pid
        self._name = os.path.basename(folder)
        self._stopping = Stopping(limits.grace, self._name, self)
        if limits.time is not None:
            self._stopping.limit = started_at + limits.time
            if limits.checkpoint is not None:
                self._stopping.save_before_limit(*limits.checkpoint)

    @property
    def ended_by(self) -> str:
        """Why it was told to end: `stop`, `time`, or empty."""
        return self._stopping.by

    def seen(self, left: Mapping[int, LeftProcess], *, is_suspended: bool = False) -> None:
        """These are left now: do what is due."""
        self.left = left
        self.obey("suspended" if is_suspended else "resumed")

    def obey(self, word: str) -> None:
        """Do what `stop`, `kill` or `signal N` says."""
        self._stopping.obey(f"{word} {self._name}\n".encode())
        self._stopping.act()

    def signal(self, number: int) -> None:
        for process in self.left.values():
            signal_process(process, number)

    def signal_listeners(self, number: int) -> int:
        """Their topmost listeners get it; where none listens, the topmost processes do."""
        tops = [one for one in self.left.values() if one.parent not in self.left]
        heard, frontier = [], list(tops)
        while frontier:
            one = frontier.pop()
            if listens(one.pid, number):
                heard.append(one)
            else:
                frontier += [child for child in self.left.values() if child.parent == one.pid]
        for one in heard or tops:
            signal_process(one, number)
        return TOLD if tops else OVER


def find_left_processes(
    attempts: Mapping[str, Collection[FileKey]],
) -> dict[str, dict[int, LeftProcess]]:
    """One look at all processes of this machine: which belong to these attempts, by folder and pid.

    With each attempt come the files of its leases.
    """
    signs = _Signs(attempts)
    processes: dict[int, LeftProcess] = {}
    owners: dict[int, str] = {}
    for pid in map(int, filter(str.isdecimal, os.listdir("/proc"))):
        process = process_at(pid)
        if process is None or pid == os.getpid():
            continue
        processes[pid] = process
        folder = signs.read(pid) if process.is_ours else None
        if folder is not None:
            owners[pid] = folder
    found: dict[str, dict[int, LeftProcess]] = {folder: {} for folder in attempts}
    for pid, process in processes.items():
        folder = _owner(pid, processes, owners)
        if folder is not None:
            found[folder][pid] = process
    return found


class _Signs:
    """What processes of some attempts have inherited."""

    def __init__(self, attempts: Mapping[str, Collection[FileKey]]) -> None:
        self._marks = {mark_of(folder): folder for folder in attempts}
        self._locked = {key: folder for folder, keys in attempts.items() for key in keys}
        self._outputs = {
            f"{_real_path(folder)}/{name}": folder for folder in attempts for name in ("stdout", "stderr")
        }

    def read(self, pid: int) -> str | None:
        """The attempt that a process belongs to."""
        with contextlib.suppress(OSError):  # it has ended, or may not be read
            with open(f"/proc/{pid}/environ", "rb") as file:
                for variable in file.read().split(b"\0"):
                    if variable in self._marks:
                        return self._marks[variable]
            for number in os.listdir(f"/proc/{pid}/fd"):
                folder = self._of_descriptor(pid, number)
                if folder is not None:
                    return folder
        return None

    def _of_descriptor(self, pid: int, number: str) -> str | None:
        try:
            with open(f"/proc/{pid}/fdinfo/{number}") as file:
                lines = [line.split() for line in file]
            target = os.readlink(f"/proc/{pid}/fd/{number}")
        except OSError:
            return None
        for words in lines:
            # lock: 1: FLOCK ADVISORY WRITE 4711 08:01:1234 0 EOF, with the process that took the lock. One that
            # took it itself did not inherit it: another dibs that looks at the file.
            if words[:1] == ["lock:"] and words[2] == "FLOCK" and words[5] != str(pid):
                major, minor, inode = words[6].split(":")
                folder = self._locked.get((int(major, 16), int(minor, 16), int(inode)))
                if folder is not None:
                    return folder
        # A process that only reads an output file, such as `tail`, does not belong to the job.
        flags = next((int(words[1], 8) for words in lines if words[:1] == ["flags:"]), os.O_RDONLY)
        if flags & os.O_ACCMODE == os.O_RDONLY:
            return None
        return self._outputs.get(target.removesuffix(" (deleted)"))


def _owner(pid: int, processes: Mapping[int, LeftProcess], owners: Mapping[int, str]) -> str | None:
    """The attempt of a process, or of the nearest process above it."""
    while pid in processes and pid not in owners:
        pid = processes[pid].parent
    return owners.get(pid)


def process_at(pid: int) -> LeftProcess | None:
    """None where it has ended."""
    try:
        uid = os.stat(f"/proc/{pid}").st_uid
        with open(f"/proc/{pid}/stat", "rb") as file:
            # The name in parentheses may contain anything, parentheses too: count from its end.
            head, _, tail = file.read().rpartition(b")")
    except OSError:
        return None
    words = tail.split()
    if words[0] in (b"Z", b"X"):
        return None
    name = head.partition(b"(")[2].decode("utf-8", "replace")
    return LeftProcess(pid, name, int(words[1]), int(words[19]), uid == os.geteuid(), words[0] in (b"T", b"t"))


def signal_process(process: LeftProcess, number: int) -> None:
    """Signal exactly the process that was found, not another one that got its pid meanwhile."""
    with contextlib.suppress(OSError):  # it has ended, or runs as another user
        handle = os.pidfd_open(process.pid)
        try:
            now = process_at(process.pid)
            if now is not None and now.started == process.started:
                signal.pidfd_send_signal(handle, number)
        finally:
            os.close(handle)


def _real_path(folder: str) -> str:
    """Without a look at the folder itself: a job can put one in its place that does not answer."""
    above, name = os.path.split(folder)
    return f"{os.path.realpath(above)}/{name}"
