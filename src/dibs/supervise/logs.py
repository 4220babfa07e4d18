"""A command's output files: kept within a limit while it writes, and read for its last words.

The command writes straight to its files and is never hindered: where one grows too long, its middle is given back
to the disk (a hole; the file keeps its size) and its beginning and its end stay. What was cut stands beside it,
in `stdout.cut`: the first byte that is gone and the first that is there again, in decimal. Standard library only.
"""

import contextlib
import ctypes
import os
import time
from dataclasses import dataclass

_KEEP_SIZE, _PUNCH_HOLE = 1, 2
_BLOCK = 4096  # bytes; a hole begins and ends with one
_FLOOD = 1 << 30  # bytes a second; at this speed a file grows to twice its limit at most
_QUICKEST, _SLOWEST = 0.01, 5.0  # seconds between two looks
_libc = ctypes.CDLL(None, use_errno=True)


@dataclass(slots=True)
class Log:
    """A file that a command writes to, and our copy of its descriptor."""

    path: str
    fd: int  # whatever the command does to the name, this is the file it was given
    start: int  # what stands before is not the command's
    size: int = 0  # at the last look
    cut_to: int = 0  # 0: nothing was cut


def open_log(path: str) -> Log:
    # Appending, so that a log that somebody truncates goes on at its new end. Not waiting for whoever may one day
    # read a pipe: nobody could end the job meanwhile.
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NONBLOCK, 0o644)
    os.set_blocking(fd, True)
    try:
        return Log(path, fd, os.lseek(fd, 0, os.SEEK_END))
    except OSError:
        return Log(path, fd, 0)  # a pipe or a terminal


class BoundedLogs:
    """Looks at the files now and then, the more often the faster they grow."""

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
        """Until the next look."""
        return max(0.0, self._due - time.monotonic())

    def look(self) -> None:
        """Look, if it is time."""
        if time.monotonic() < self._due:
            return
        growth = self.cut()
        self._pause = self._pause / 4 if growth > self._limit // 16 else self._pause * 2
        self._pause = min(self._calm, max(_QUICKEST, self._pause))
        self._due = time.monotonic() + self._pause

    def cut(self) -> int:
        """Look now, and cut what is too long; return by how many bytes the fastest has grown."""
        growth = 0
        for log in list(self._logs):
            seen = os.fstat(log.fd)
            growth = max(growth, seen.st_size - log.size)
            log.size = seen.st_size
            if seen.st_size < log.cut_to:  # the command made its log shorter: what was cut is gone altogether
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
            # Not every file system can do it: then the file stays whole, and nothing may say otherwise.
            self._logs.remove(log)
            with contextlib.suppress(OSError):
                os.unlink(f"{log.path}.cut")
            return
        log.cut_to = end
        if not is_marked:
            self._mark(log.path, end)  # the disk was too full even for this; now there is room

    def _mark(self, path: str, end: int) -> bool:
        """Say what is cut before it is: a reader must know why it reads zeros."""
        try:
            with open(f"{path}.cut.new", "w") as file:
                file.write(f"{self._head} {end}\n")
            # Not synced: it must survive kill -9 only, and a supervisor that waits for a disk hears no stop.
            os.replace(f"{path}.cut.new", f"{path}.cut")
        except OSError:
            return False
        return True


def last_words(log: Log, most: int) -> bytes:
    """The end of what a command wrote to a log; empty where that is no file.

    Its descriptor and ours share their place in the file, so that we see where its own last word ended, though
    others may write to the same file.
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
    """Give a piece of a file back to the disk; the file keeps its size."""
    arguments = (ctypes.c_int(_KEEP_SIZE | _PUNCH_HOLE), ctypes.c_int64(start), ctypes.c_int64(length))
    if _libc.fallocate64(fd, *arguments) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
