"""A command's output files: kept within a limit while it writes, and searched for the cause of a failure.

The command writes directly to its files and is never blocked: when one grows too long, its middle is freed (a
hole; the file keeps its size), and its beginning and its end stay. `stdout.cut` says what was cut: the first byte
of the hole and the first after it, in decimal. Standard library and `policy.causes` only.
"""

import contextlib
import ctypes
import os
import pwd
import signal
import time
from collections.abc import Collection, Sequence

from dibs.policy.causes import TAIL, cause_in, reports_kill

_KEEP_SIZE, _PUNCH_HOLE = 1, 2
_BLOCK = 4096  # bytes; a hole begins and ends with one
_FLOOD = 1 << 30  # bytes a second; at this speed a file grows to twice its limit at most
_QUICKEST, _SLOWEST = 0.01, 5.0  # seconds between two looks
_libc = ctypes.CDLL(None, use_errno=True)
_CGROUPS = "/sys/fs/cgroup"
# Sent from outside: the log does not name their cause.
_FROM_OUTSIDE = frozenset({signal.SIGHUP, signal.SIGINT, signal.SIGTERM, signal.SIGKILL})
_NO_MEMORY = "the machine's memory did not suffice, and the kernel killed it"


class Log:
    """A file that a command writes to, and our copy of its descriptor."""

    def __init__(self, path: str, fd: int, start: int) -> None:
        self.path = path
        self.fd = fd  # the file that the command was given, also if it is renamed
        self.start = start  # content before it is not the command's
        self.size = 0  # at the last look
        self.cut_to = 0  # 0: nothing was cut


def open_log(path: str) -> Log:
    # Appending, so that a truncated log continues at its new end. Not waiting for the reader of a pipe: the job
    # could not be ended meanwhile.
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NONBLOCK, 0o644)
    os.set_blocking(fd, True)
    try:
        return Log(path, fd, os.lseek(fd, 0, os.SEEK_END))
    except OSError:
        return Log(path, fd, 0)  # a pipe or a terminal


class BoundedLogs:
    """Checks the files now and then, more often the faster they grow."""

    def __init__(self, logs: list[Log], limit: int) -> None:
        self._logs = list(logs)
        self._limit = max(limit, 4 * _BLOCK)
        self._head = self._limit // 4 // _BLOCK * _BLOCK
        self._tail = self._limit // 2
        self._calm = min(_SLOWEST, max(5 * _QUICKEST, self._limit / _FLOOD))
        self._pause = self._calm
        self._due = time.monotonic() + self._pause

    @property
    def seconds_left(self) -> float:
        """Until the next check."""
        return max(0.0, self._due - time.monotonic())

    def look(self) -> None:
        """Check, if it is time."""
        if time.monotonic() < self._due:
            return
        growth = self.cut()
        self._pause = self._pause / 4 if growth > self._limit // 16 else self._pause * 2
        self._pause = min(self._calm, max(_QUICKEST, self._pause))
        self._due = time.monotonic() + self._pause

    def cut(self) -> int:
        """Check now, and cut what is too long; return by how many bytes the fastest has grown."""
        growth = 0
        for log in list(self._logs):
            seen = os.fstat(log.fd)
            growth = max(growth, seen.st_size - log.size)
            log.size = seen.st_size
            if seen.st_size < log.cut_to:  # the command truncated its log, with the hole
                log.cut_to = 0
                with contextlib.suppress(OSError):
                    os.unlink(f"{log.path}.cut")
            if seen.st_blocks * 512 > self._limit:
                self._cut_one(log)
        return growth

    def _cut_one(self, log: Log) -> None:
        end = (log.size - self._tail) // _BLOCK * _BLOCK
        start = log.cut_to or self._head
        if end <= start:
            return
        is_marked = self._mark(log.path, end)
        try:
            punch(log.fd, start, end - start)
        except OSError:
            # Not every file system can do it: then the file stays whole, without a mark.
            self._logs.remove(log)
            with contextlib.suppress(OSError):
                os.unlink(f"{log.path}.cut")
            return
        log.cut_to = end
        if not is_marked:
            self._mark(log.path, end)  # the disk was full even for this; now there is room

    def _mark(self, path: str, end: int) -> bool:
        """Mark the cut before it is made: a reader must know why it reads zeros."""
        new = f"{path}.cut.new"
        try:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(new)  # the command may have put a pipe there, which would block an open
            fd = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
            with open(fd, "w") as file:
                file.write(f"{self._head} {end}\n")
            # Not synced: it must survive kill -9 only, and a supervisor that waits for a disk cannot obey a stop.
            os.replace(new, f"{path}.cut")
        except OSError:
            return False
        return True


def last_words(log: Log, most: int) -> bytes:
    """The end of what a command wrote to a log; empty if that is not a file.

    Its descriptor and ours share their file offset, which is the end of its own output, though other processes may
    write to the same file.
    """
    try:
        end = os.lseek(log.fd, 0, os.SEEK_CUR)
        start = max(log.start, end - most)
        if end <= start:
            return b""
        reading = os.open(f"/proc/self/fd/{log.fd}", os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            return os.pread(reading, end - start, start)
        finally:
            os.close(reading)
    except OSError:
        return b""


def punch(fd: int, start: int, length: int) -> None:
    """Free a part of a file on the disk; the file keeps its size."""
    arguments = (ctypes.c_int(_KEEP_SIZE | _PUNCH_HOLE), ctypes.c_int64(start), ctypes.c_int64(length))
    if _libc.fallocate64(fd, *arguments) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


class KernelKills:
    """Counts the processes of our memory cgroup that the kernel killed because memory ran out.

    Other jobs may share the cgroup, so a count alone proves nothing. Without a cgroup `are_seen` is False.
    """

    def __init__(self) -> None:
        self._fd = _open_counter()

    @property
    def are_seen(self) -> bool:
        return self._fd >= 0

    def look(self) -> bytes:
        """The counter, not parsed yet: a job that succeeds does not need the number."""
        if self._fd < 0:
            return b""
        try:
            return os.pread(self._fd, 4096, 0)
        except OSError:
            return b""

    def happened_since(self, before: bytes) -> bool:
        return _count(self.look()) > _count(before)


def diagnose(
    code: int | None,
    number: int | None,
    logs: Sequence[Log],
    *,
    kernel_killed: bool | None,
    seconds: float = 0.0,
    sent: Collection[int] = (),
) -> tuple[str, str] | None:
    """The cause of a failure and a sentence about it; None where nothing is known but the exit code or signal.

    What the logs name comes before what the disk shows.

    `kernel_killed` is None if unknown. `seconds` is how long it ran, `sent` are the signals that were sent to it
    through dibs.
    """
    if kernel_killed and (number == signal.SIGKILL or code == 128 + signal.SIGKILL):
        return "host-oom", _NO_MEMORY
    if number in _FROM_OUTSIDE or (number is not None and number in sent):
        return "killed", _sender(number, kernel_killed, sent)
    tails = [last_words(log, TAIL) for log in reversed(logs)]  # stderr first: it usually names the reason
    if kernel_killed and any(map(reports_kill, tails)):
        return "host-oom", "the machine's memory did not suffice, and the kernel killed a process of it"
    named = next((found for tail in tails if tail and (found := cause_in(tail, seconds, code))), None)
    return named or _full_disk(logs)


def _full_disk(logs: Sequence[Log]) -> tuple[str, str] | None:
    """The cause that a log cannot name, because there was no room for it."""
    for log in logs:
        with contextlib.suppress(OSError):
            disk = os.fstatvfs(log.fd)
            free = disk.f_bfree if os.geteuid() == 0 else disk.f_bavail  # root may use the reserved blocks
            if disk.f_blocks and not free:  # what is no file is on a file system without blocks
                return "disk-full", f"no space is left for its output in {os.path.dirname(log.path)}"
    return None


def _sender(number: int, kernel_killed: bool | None, sent: Collection[int]) -> str:
    """The kernel does not report the sender of a signal. Only the same user and root may send one."""
    name = signal.Signals(number).name if number in set(signal.Signals) else f"signal {number}"
    if number in sent:
        return f"{name} was sent to it through dibs"
    users = [user for user in dict.fromkeys((_user(), "root")) if user]
    if number == signal.SIGKILL and kernel_killed is None:
        users.append("the kernel for want of memory")
    return f"{name} ended it, and dibs did not send it: {' or '.join(users)} did"


def _user() -> str:
    uid = os.geteuid()
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"user {uid}"


def _open_counter() -> int:
    try:
        with open("/proc/self/cgroup", "rb") as file:
            lines = [line.split(b":", 2) for line in file.read().splitlines()]
    except OSError:
        return -1
    for _, controllers, path in lines:
        if controllers == b"":
            places, name = [_CGROUPS, f"{_CGROUPS}/unified"], "memory.events"
        elif b"memory" in controllers.split(b","):
            places, name = [f"{_CGROUPS}/memory"], "memory.oom_control"
        else:
            continue
        for place in places:
            if (fd := _open_nearest(place, os.fsdecode(path), name)) >= 0:
                return fd
    return -1


def _open_nearest(place: str, path: str, name: str) -> int:
    """The counter of our own cgroup, or of the nearest one above it that has one."""
    while True:
        try:
            return os.open(f"{place}{path.rstrip('/')}/{name}", os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            if path in ("/", ""):
                return -1
            path = os.path.dirname(path)


def _count(counter: bytes) -> int:
    for line in counter.splitlines():
        word, _, number = line.partition(b" ")
        if word == b"oom_kill" and number.isdigit():
            return int(number)
    return 0
