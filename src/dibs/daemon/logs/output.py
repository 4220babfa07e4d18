"""The output files of attempts: reading their bytes, measuring and removing them.

Everything here but `read_output` blocks on the disk, and is called in a worker thread.
"""

import contextlib
import os
import stat
from collections.abc import Callable, Iterator
from typing import TypeVar

from dibs.daemon.logs.lines import Cut, open_output, read_cut
from dibs.dataclass import dataclass
from dibs.errors import LogGone, LogReplaced, StoreUnusable
from dibs.files import error_text
from dibs.model.jobs import JobId, State
from dibs.supervise.folder import replacement_of
from dibs.worker_thread import run_in_thread

_BLOCK = 65536
_READ_WITHIN = 10.0  # seconds; a file may be on a network that does not answer
_FILES = ("stdout", "stderr", "stdout.cut", "stderr.cut")
_REMOVED = "output-removed"  # an empty file in an attempt's folder: why there is nothing to read
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Piece:
    """Bytes of a file, their offset, and the size of the file."""

    content: bytes
    offset: int
    size: int
    cut: Cut


EMPTY = Piece(b"", 0, 0, Cut())


@dataclass(frozen=True, slots=True)
class AttemptOutput:
    """Where an attempt writes, and the state of its job."""

    job: int
    attempt: int  # 0: the job has had none
    state: State
    folder: str
    path: str  # empty: nothing has been written yet

    def check_exists(self, size: int) -> None:
        """Raise LogGone if there is nothing because the output was removed, or because its file was replaced."""
        if size:
            return
        if was_removed(self.folder):
            raise LogGone(self.job)
        if self.path and (what := replacement_of(self.path)):
            raise LogReplaced(self.job, self.path, what)

    def read(self, offset: int, limit: int, tail: int | None = None) -> Piece:
        """A piece of the output; LogGone if it was removed."""
        piece = read(self.path, offset, limit, tail)
        self.check_exists(piece.size)
        return piece


def read(path: str, offset: int, limit: int, tail: int | None) -> Piece:
    """A piece of a file. A file that does not exist, a pipe and a device are empty."""
    with open_output(path) as fd:
        if fd is None:
            return EMPTY
        seen = os.fstat(fd).st_size
        if tail is not None:
            offset = _start_of_tail(fd, seen, tail, limit)
        content = os.pread(fd, limit, offset)
        # The file may have grown since; a reader that follows it must not see its size shrink.
        size = max(seen, offset + len(content) if content else 0)
        return Piece(content, min(offset, seen), size, read_cut(path, size))


async def read_output(path: str, work: Callable[[], _T]) -> _T:
    """The result of this work on a file, done in a thread; StoreUnusable if its disk does not answer."""
    try:
        return await run_in_thread(work, _READ_WITHIN, "log-reader")
    except TimeoutError:
        raise StoreUnusable(f"cannot read {path}: its disk does not answer", remedy="try again later") from None
    except OSError as error:
        raise StoreUnusable(f"cannot read {path}: {error_text(error)}", remedy="try again later") from error


@dataclass(frozen=True, slots=True)
class StoredOutput:
    """The disk space that the output of one attempt takes."""

    job: JobId
    attempt: int
    size: int  # bytes on the disk; a file with holes is longer than that
    folder: str
    root: str  # below which it was found


def measure(root: str) -> list[StoredOutput]:
    """Every attempt below this root whose output takes disk space."""
    found = []
    for group in _folders(f"{root}/attempts"):
        for entry in _folders(group.path):
            job, _, number = entry.name.partition(".")
            if job.isdecimal() and number.isdecimal() and (size := _size(entry.path)):
                found.append(StoredOutput(JobId(int(job)), int(number), size, entry.path, root))
    return found


def was_removed(folder: str) -> bool:
    """Whether the output of the attempt in this folder was removed to make room."""
    return os.path.lexists(f"{folder}/{_REMOVED}")


def remove_output(folder: str) -> None:
    """Remove the output of an attempt, and leave a marker. What is not a regular file is not ours and stays."""
    try:
        # Without following a link: a job may have replaced its folder with one.
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return
    try:
        is_marked = _mark_removed(handle)
        for name in _FILES:
            with contextlib.suppress(OSError):
                if stat.S_ISREG(os.lstat(name, dir_fd=handle).st_mode):
                    os.unlink(name, dir_fd=handle)
        if not is_marked:
            _mark_removed(handle)  # the disk was too full for the marker; now there is room
    finally:
        os.close(handle)


def _start_of_tail(fd: int, size: int, lines: int, limit: int) -> int:
    """The offset of the last lines, but at most `limit` bytes before the end."""
    lowest = max(0, size - limit)
    if not lines:
        return size
    start, left = size, lines
    # A newline at the very end closes the last line, it does not begin another one.
    if size and os.pread(fd, 1, size - 1) == b"\n":
        left += 1
    while start > lowest:
        begin = max(lowest, start - _BLOCK)
        block = os.pread(fd, start - begin, begin)
        at = len(block)
        while (at := block.rfind(b"\n", 0, at)) >= 0:
            left -= 1
            if not left:
                return begin + at + 1
        start = begin
    return lowest


def _folders(path: str) -> Iterator["os.DirEntry[str]"]:
    with contextlib.suppress(OSError), os.scandir(path) as entries:  # it may be removed meanwhile
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                yield entry


def _size(folder: str) -> int:
    size = 0
    for name in _FILES:
        with contextlib.suppress(OSError):
            seen = os.lstat(f"{folder}/{name}")
            if stat.S_ISREG(seen.st_mode):
                size += seen.st_blocks * 512
    return size


def _mark_removed(folder: int) -> bool:
    try:
        os.close(os.open(_REMOVED, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600, dir_fd=folder))
    except OSError:
        return False
    return True
