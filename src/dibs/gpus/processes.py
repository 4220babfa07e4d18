"""Processes on a GPU: which of them make it busy, their owner, and the dibs job that they belong to."""

import functools
import os
import pwd
import re
from collections.abc import Callable

from dibs.dataclass import dataclass
from dibs.model.gpus import GpuProcess, GpuReading

_FIRST_PID_NAMESPACE = 0xEFFFFFFC  # PROC_PID_INIT_INO in the kernel's include/linux/proc_ns.h
_MOST_OWNERS = 4096  # to remember


@dataclass(frozen=True, slots=True)
class BusyRules:
    """Which foreign processes make a GPU busy; named as in the settings."""

    respect_graphics: bool = False  # also graphics processes, like Xorg
    ignore_memory: int = 0  # bytes; a process that is known to hold less does not count

    def count(self, process: GpuProcess) -> bool:
        if process.kind != "compute" and not self.respect_graphics:
            return False
        return process.memory is None or process.memory >= self.ignore_memory


DEFAULT_BUSY_RULES = BusyRules()


def foreign_processes(
    seen: GpuReading,
    is_ours: Callable[[int], bool],
    is_alive: Callable[[int], bool | None],
    rules: BusyRules = DEFAULT_BUSY_RULES,
) -> tuple[GpuProcess, ...]:
    """The processes that make the GPU busy and are not ours. Graphics processes count only if the rules say so.

    A reading is a moment old, so a pid that has ended since does not count. Where that is not known (`is_alive`
    gives None), a process that was visible when the GPU was read has ended; one that was not runs in another
    container and counts.
    """
    return tuple(
        process
        for process in seen.processes
        if rules.count(process) and not is_ours(process.pid) and _may_be_alive(process, is_alive(process.pid))
    )


def pid_is_alive(pid: int) -> bool | None:
    """Whether it runs; None where that cannot be seen. A zombie does not run: it holds no memory.

    Only in the machine's first pid namespace does a missing pid mean that the process is gone.
    """
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            # The command before the state is in brackets, and may contain brackets itself.
            return file.read().rpartition(b") ")[2][:1] not in (b"Z", b"X")
    except OSError:
        return _alive_by_signal(pid)


def dibs_job_of(pid: int) -> str | None:
    """The dibs job that a process belongs to, as `RUN/JOB` or `JOB`; None where it cannot be read.

    The kernel shows a user only the environment of their own processes, as it was at the start.
    """
    variables = _environment_of(pid)
    job = variables.get(b"DIBS_JOB_ID", b"")
    names = [name.decode("utf-8", "replace") for name in (variables.get(b"DIBS_RUN", b""), job) if name]
    return "/".join(names) if job else None


def attempt_folder_of(pid: int) -> str | None:
    """The folder of the attempt that started a process; None where there is none or it cannot be read."""
    metrics = os.fsdecode(_environment_of(pid).get(b"DIBS_METRICS", b""))
    is_attempt = re.search(r"/[0-9]+\.[0-9]+/metrics\Z", metrics)  # an attempt's folder is called 17.1
    return metrics.removesuffix("/metrics") if is_attempt else None


def _environment_of(pid: int) -> dict[bytes, bytes]:
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            content = file.read()
    except OSError:
        return {}
    return dict(entry.partition(b"=")[::2] for entry in content.split(b"\0"))


def _may_be_alive(process: GpuProcess, alive: bool | None) -> bool:
    return process.user is None if alive is None else alive


def _alive_by_signal(pid: int) -> bool | None:
    """For processes that a mount option hides from /proc."""
    if pid <= 0:  # some containers list every process as 0, and a signal to 0 would go to this process
        return None
    try:
        os.kill(pid, 0)
    except PermissionError:
        return True
    except (ProcessLookupError, OverflowError):
        return False if _sees_every_pid() else None
    return True


@functools.cache
def _sees_every_pid() -> bool:
    try:
        return os.stat("/proc/self/ns/pid").st_ino == _FIRST_PID_NAMESPACE
    except OSError:
        return False


@dataclass(frozen=True, slots=True)
class ProcessOwner:
    """The user and the name of a process."""

    user: str
    name: str


class ProcessOwners:
    """Reads owners from /proc and remembers them. A pid with another start time is another process."""

    def __init__(self, proc: str = "/proc") -> None:
        self._proc = proc
        self._known: dict[int, tuple[bytes, ProcessOwner]] = {}

    def of(self, pid: int) -> ProcessOwner | None:
        """None where it cannot be read, as in another container."""
        try:
            with open(f"{self._proc}/{pid}/stat", "rb") as file:
                stat = file.read()
            # The command is in brackets, and may contain brackets and blanks itself.
            head, _, tail = stat.rpartition(b") ")
            started = tail.split(b" ", 20)[19]
            known = self._known.get(pid)
            if known is None or known[0] != started:
                name = head.partition(b"(")[2].decode("utf-8", "replace")
                known = started, ProcessOwner(_user_name(os.stat(f"{self._proc}/{pid}").st_uid), name)
                if len(self._known) >= _MOST_OWNERS:
                    self._known.clear()
                self._known[pid] = known
            return known[1]
        except (OSError, IndexError):
            return None


@functools.cache  # it may ask a directory server
def _user_name(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)
