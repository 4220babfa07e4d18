"""Where the lines of an output file begin, so that the last of ten million is found without reading the others.

Everything here blocks on the disk and is called beside the loop. What is known about a file is never changed, only
replaced by something that knows more: two threads may work on one file without a lock.
"""

import os
import stat
import threading
import time
from array import array
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

BLOCK = 64 * 1024  # bytes read at once; a mark is set in each of them, at first
_MOST_MARKS = 32_768  # of one file: half a megabyte
_MOST_FILES = 32


@dataclass(frozen=True, slots=True)
class Cut:
    """A hole in the middle of a file, which reads as NULs."""

    first: int = 0
    end: int = 0

    def __str__(self) -> str:
        """`4096-8192`, or empty where nothing was cut out."""
        return f"{self.first}-{self.end}" if self.end else ""


@dataclass(frozen=True, slots=True)
class Known:
    """How far the lines of a file were counted, and where some of them begin."""

    counted_to: int = 0  # bytes
    newlines: int = 0  # before that
    cut: Cut = Cut()
    every: int = BLOCK  # bytes between two marks, at least
    offsets: "array[int]" = field(default_factory=lambda: array("q", [0]))
    lines: "array[int]" = field(default_factory=lambda: array("q", [0]))  # that begin at these offsets

    def before(self, line: int) -> tuple[int, int]:
        """The last mark that is not after this line: its line and its offset."""
        place = bisect_right(self.lines, line) - 1
        return self.lines[place], self.offsets[place]

    def only_before(self, offset: int) -> "Known":
        """What stays true if everything from there on is different."""
        if self.counted_to <= offset:
            return self
        last = bisect_right(self.offsets, offset)
        offsets, lines = self.offsets[:last], self.lines[:last]
        return replace(self, counted_to=offsets[-1], newlines=lines[-1], offsets=offsets, lines=lines)


class LogFile:
    """An open output file, and what is known about its lines."""

    def __init__(self, fd: int, path: str, known: Known) -> None:
        self.fd = fd
        self.size = os.fstat(fd).st_size
        self.cut = read_cut(path, self.size)
        if self.size < known.counted_to:
            known = Known()  # it was made shorter: its lines are not what they were
        elif known.cut != self.cut:
            known = known.only_before(self.cut.first)  # a hole takes its newlines with it
        self.known = replace(known, cut=self.cut)
        self._ends_line: bool | None = None

    @property
    def is_counted(self) -> bool:
        return self.known.counted_to >= self.size

    @property
    def total(self) -> int | None:
        """How many lines there are; None as long as they are not counted. The last need not be ended."""
        if not self.is_counted:
            return None
        return self.known.newlines + (not self.ends_line)

    @property
    def ends_line(self) -> bool:
        """Whether nothing stands after the last newline."""
        if self._ends_line is None:
            self._ends_line = not self.size or os.pread(self.fd, 1, self.size - 1) == b"\n"
        return self._ends_line

    def count(self, deadline: float, until_line: int | None = None) -> None:
        """Go on counting lines, up to this one or to the end of the file, but not after the deadline."""
        known = self.known
        at, newlines, every = known.counted_to, known.newlines, known.every
        offsets, lines = known.offsets[:], known.lines[:]
        for begin_at, block in self.blocks(at):
            if time.monotonic() >= deadline or (until_line is not None and newlines > until_line):
                break
            if found := block.count(b"\n"):
                newlines += found
                begin = begin_at + block.rfind(b"\n") + 1
                if begin - offsets[-1] >= every:
                    offsets.append(begin)
                    lines.append(newlines)
            at = begin_at + len(block)
            if len(offsets) > _MOST_MARKS:
                offsets, lines, every = offsets[::2], lines[::2], every * 2
        else:
            at = self.size  # it may end in a hole
        self.known = Known(at, newlines, self.cut, every, offsets, lines)

    def start_of(self, line: int) -> int | None:
        """Where this line begins; None where the lines are not counted that far."""
        if line > self.known.newlines:
            return None
        at_line, start = self.known.before(line)
        if at_line == line:
            return start
        for at, block in self.blocks(start):
            found = block.count(b"\n")
            if at_line + found < line:
                at_line += found
                continue
            place = -1
            for _ in range(line - at_line):
                place = block.index(b"\n", place + 1)
            return at + place + 1
        return None

    def end_of(self, start: int) -> int:
        """Where the line that begins here ends: at its newline, or at the end of the file."""
        for at, block in self.blocks(start):
            if (place := block.find(b"\n")) >= 0:
                return at + place
        return self.size

    def start_of_tail(self, lines: int, most_bytes: int) -> int:
        """Where the last so many lines begin, without counting; not further back than these bytes."""
        lowest = max(0, self.size - most_bytes, self.cut.end if self.cut.end < self.size else 0)
        left = lines + self.ends_line
        at = self.size
        while at > lowest:
            begin = max(lowest, at - BLOCK)
            block = os.pread(self.fd, at - begin, begin)
            place = len(block)
            while (place := block.rfind(b"\n", 0, place)) >= 0:
                left -= 1
                if not left:
                    return begin + place + 1
            at = begin
        if not lowest:
            return 0
        # Not in the middle of a line, where there is another one.
        end = self.end_of(lowest)
        return end + 1 if end < self.size - 1 else lowest

    def blocks(self, at: int, length: int = BLOCK) -> Iterator[tuple[int, bytes]]:
        """Everything from here on but the hole, in pieces, and where each begins."""
        while at < self.size:
            if self.is_in_hole(at):
                at = self.cut.end
                continue
            block = self.read(at, length)
            if not block:
                return  # it was made shorter meanwhile
            yield at, block
            at += len(block)

    def is_in_hole(self, at: int) -> bool:
        return self.cut.first <= at < self.cut.end

    def read(self, at: int, length: int) -> bytes:
        """Bytes as they were when the file was opened: not beyond its end of then, nor into a hole."""
        end = self.cut.first if at < self.cut.first else self.size
        return os.pread(self.fd, max(0, min(length, end - at)), at)


class LogIndex:
    """What is known about the files that somebody looked at lately."""

    def __init__(self) -> None:
        self._files: OrderedDict[tuple[int, int], Known] = OrderedDict()
        self._lock = threading.Lock()  # of the list of files; nobody waits for a disk with it

    @contextmanager
    def open(self, path: str) -> Iterator[LogFile | None]:
        """A file; None where `open_output` finds none."""
        with open_output(path) as fd:
            if fd is None:
                yield None
                return
            seen = os.fstat(fd)
            key = (seen.st_dev, seen.st_ino)
            file = LogFile(fd, path, self._files.get(key, Known()))
            yield file
            self._keep(key, file.known)

    def _keep(self, key: tuple[int, int], known: Known) -> None:
        with self._lock:
            self._files[key] = known
            self._files.move_to_end(key)
            while len(self._files) > _MOST_FILES:
                self._files.popitem(last=False)


@contextmanager
def open_output(path: str) -> Iterator[int | None]:
    """A descriptor; None where there is no file, or a pipe or a device stands in its place."""
    try:
        # A job may have put a pipe in its file's place: do not wait for its writer.
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
    except (OSError, ValueError):
        yield None
        return
    try:
        yield fd if stat.S_ISREG(os.fstat(fd).st_mode) else None
    finally:
        os.close(fd)


def read_cut(path: str, size: int) -> Cut:
    """What the shim wrote beside a file whose middle it gave back to the disk."""
    try:
        with open(f"{path}.cut", "rb") as file:
            first, end = (int(word) for word in file.read(100).split())
    except (OSError, ValueError):
        return Cut()
    return Cut(first, end) if 0 <= first < end <= size else Cut()
