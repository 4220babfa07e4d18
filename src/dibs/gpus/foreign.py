"""Processes that hold a card without asking dibs."""

import functools
import os
import re
from collections.abc import Callable
from dataclasses import dataclass

from dibs.model.gpus import GpuProcess, GpuReading

_FIRST_PID_NAMESPACE = 0xEFFFFFFC  # PROC_PID_INIT_INO in the kernel's include/linux/proc_ns.h


@dataclass(frozen=True, slots=True)
class BusyRules:
    """Which processes of others make a card busy; the words are those of the settings."""

    respect_graphics: bool = False  # also those that only draw, like Xorg
    ignore_memory: int = 0  # bytes; whoever is known to hold less is overlooked

    def count(self, process: GpuProcess) -> bool:
        if process.kind != "compute" and not self.respect_graphics:
            return False
        return process.memory is None or process.memory >= self.ignore_memory


AS_EVER = BusyRules()


def foreign_processes(
    seen: GpuReading,
    is_ours: Callable[[int], bool],
    is_alive: Callable[[int], bool | None],
    rules: BusyRules = AS_EVER,
) -> tuple[GpuProcess, ...]:
    """Those who use the card and are not ours. Unless the rules say otherwise, who only draws does no harm.

    A reading is a moment old, so a pid that has ended since does not count. Where nobody can tell
    (`is_alive` gives None), whoever was in our sight when the card was read has ended; whoever was not lives
    in another container, and the reading is all there is to believe.
    """
    return tuple(
        process
        for process in seen.processes
        if rules.count(process) and not is_ours(process.pid) and _may_be_alive(process, is_alive(process.pid))
    )


def pid_is_alive(pid: int) -> bool | None:
    """Whether it runs; None where it may run out of our sight. A zombie does not run: it holds no memory.

    Only in the machine's first pid namespace does a missing pid mean that the process is gone.
    """
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            # The command stands in brackets before the state, and may hold brackets itself.
            return file.read().rpartition(b") ")[2][:1] not in (b"Z", b"X")
    except OSError:
        return _alive_by_signal(pid)


def dibs_job_of(pid: int) -> str | None:
    """The dibs job that a process belongs to, as `RUN/JOB` or `JOB`; None where it cannot be read.

    The kernel shows the environment of one's own processes only, and as it was when they started.
    """
    variables = _environment_of(pid)
    job = variables.get(b"DIBS_JOB_ID", b"")
    names = [name.decode("utf-8", "replace") for name in (variables.get(b"DIBS_RUN", b""), job) if name]
    return "/".join(names) if job else None


def attempt_folder_of(pid: int) -> str | None:
    """The folder of the attempt that a process was started in; None where it cannot be read, or in no job."""
    metrics = os.fsdecode(_environment_of(pid).get(b"DIBS_METRICS", b""))
    is_in_one = re.search(r"/[0-9]+\.[0-9]+/metrics\Z", metrics)  # an attempt's folder is called 17.1
    return metrics.removesuffix("/metrics") if is_in_one else None


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
    """A mount option may hide other users' processes from /proc; the kernel still knows them."""
    if pid <= 0:  # some containers list every process as 0; and a signal to 0 would go to ourselves
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
