"""The lines of output files: where they begin, their text for display, and searching them.

Everything here blocks on the disk and is called in a worker thread. The index of a file is immutable, and replaced
by a longer one: two threads may work on one file without a lock.
"""

import math
import os
import re
import threading
import time
from array import array
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import field, replace
from errno import EIO, ENODEV, ENOTCONN, ENXIO, ESTALE, ETIMEDOUT

from dibs.dataclass import dataclass
from dibs.model.units import show_size
from dibs.supervise.folder import open_own_file

BLOCK = 64 * 1024  # bytes read at once; at first each block gets a mark
_MOST_MARKS = 32_768  # of one file: half a megabyte
_MOST_FILES = 32
_DEAD = frozenset({EIO, ENODEV, ENOTCONN, ESTALE, ETIMEDOUT})  # errors of a file system, not of a path
LONGEST = 16 * 1024  # bytes of one line that are shown
MOST = 1024**2  # bytes of all lines in one response, about
_CHUNK = 256 * 1024  # bytes read or searched at once
_TAIL_OF_LINE = 64 * 1024  # bytes at the end of a long line in which its last carriage return is searched
_MOST_COLOURS = 16
_COLOUR = re.compile(rb"\x1b\[[0-9;:]*m")
_RESET = re.compile(rb"\x1b\[[0;:]*m")
# Colours, other sequences that end in a letter, and those that set a window title or a link.
_ESCAPE = re.compile(rb"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\^_])")
_LONGEST_EXCERPT = 400  # characters that are shown of a line with a match
_BEFORE = 80  # of these at most, before the match


@dataclass(frozen=True, slots=True)
class Cut:
    """A hole in the middle of a file, which reads as NULs."""

    first: int = 0
    end: int = 0

    def __str__(self) -> str:
        """`4096-8192`, or empty if nothing was cut out."""
        return f"{self.first}-{self.end}" if self.end else ""


@dataclass(frozen=True, slots=True)
class LineIndex:
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

    def only_before(self, offset: int) -> "LineIndex":
        """The part of the index that holds if everything from this offset on has changed."""
        if self.counted_to <= offset:
            return self
        last = bisect_right(self.offsets, offset)
        offsets, lines = self.offsets[:last], self.lines[:last]
        return replace(self, counted_to=offsets[-1], newlines=lines[-1], offsets=offsets, lines=lines)


class LogFile:
    """An open output file, and the index of its lines."""

    def __init__(self, fd: int, path: str, known: LineIndex) -> None:
        self.fd = fd
        self.size = os.fstat(fd).st_size
        self.cut = read_cut(path, self.size)
        if self.size < known.counted_to:
            known = LineIndex()  # the file was truncated: its lines have changed
        elif known.cut != self.cut:
            known = known.only_before(self.cut.first)  # the newlines in the hole are gone
        self.known = replace(known, cut=self.cut)
        self._ends_line: bool | None = None

    @property
    def is_counted(self) -> bool:
        return self.known.counted_to >= self.size

    @property
    def total(self) -> int | None:
        """The number of lines; None until they are counted. The last one may have no newline."""
        if not self.is_counted:
            return None
        return self.known.newlines + (not self.ends_line)

    @property
    def ends_line(self) -> bool:
        """Whether the file ends with a newline."""
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
        self.known = LineIndex(at, newlines, self.cut, every, offsets, lines)

    def start_of(self, line: int) -> int | None:
        """The offset of a line; None if the lines are not counted that far."""
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

    def end_of(self, start: int, deadline: float = math.inf) -> int:
        """The end of the line that begins here: its newline, or the end of the file.

        After the deadline a line that has not ended yet is taken to go on to the end of the file.
        """
        for at, block in self.blocks(start):
            if (place := block.find(b"\n")) >= 0:
                return at + place
            if time.monotonic() >= deadline:
                break
        return self.size

    def start_of_tail(self, lines: int, most_bytes: int) -> int:
        """The offset of the last so many lines, without counting; at most so many bytes before the end."""
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
        # Not in the middle of a line, if another one follows.
        end = self.end_of(lowest)
        return end + 1 if end < self.size - 1 else lowest

    def blocks(self, at: int, length: int = BLOCK) -> Iterator[tuple[int, bytes]]:
        """Everything from this offset on without the hole, in blocks with their offsets.

        Of a part that was never written, for example after a seek, only the first block is there.
        """
        while at < self.size:
            if self.is_in_hole(at):
                at = self.cut.end
                continue
            block = self.read(at, length)
            if not block:
                return  # the file was truncated meanwhile
            yield at, block
            at += len(block)
            if block[0] == 0 and not block.rstrip(b"\0"):
                at = self._next_written(at)

    def _next_written(self, at: int) -> int:
        """The first offset from here on that was written; the end if there is none."""
        try:
            return min(self.size, os.lseek(self.fd, at, os.SEEK_DATA))
        except OSError as error:
            return self.size if error.errno == ENXIO else at  # not every file system tells

    def is_in_hole(self, at: int) -> bool:
        return self.cut.first <= at < self.cut.end

    def read(self, at: int, length: int) -> bytes:
        """Bytes of the file as it was when it was opened: not beyond its end, nor into a hole."""
        end = self.cut.first if at < self.cut.first else self.size
        return os.pread(self.fd, max(0, min(length, end - at)), at)


class LogIndex:
    """The indexes of the files that were read last."""

    def __init__(self) -> None:
        self._files: OrderedDict[tuple[int, int], LineIndex] = OrderedDict()
        self._lock = threading.Lock()  # of this dictionary; it is never held while reading a disk

    @contextmanager
    def open(self, path: str) -> Iterator[LogFile | None]:
        """A file; None if `open_output` finds none."""
        with open_output(path) as fd:
            if fd is None:
                yield None
                return
            seen = os.fstat(fd)
            key = (seen.st_dev, seen.st_ino)
            file = LogFile(fd, path, self._files.get(key, LineIndex()))
            yield file
            self._keep(key, file.known)

    def _keep(self, key: tuple[int, int], known: LineIndex) -> None:
        with self._lock:
            self._files[key] = known
            self._files.move_to_end(key)
            while len(self._files) > _MOST_FILES:
                self._files.popitem(last=False)


@contextmanager
def open_output(path: str) -> Iterator[int | None]:
    """A descriptor; None if there is no file, or anything else in its place. OSError: its file system has died."""
    try:
        fd = open_own_file(path)
    except OSError as error:
        if error.errno in _DEAD:
            raise
        yield None
        return
    except ValueError:
        yield None
        return
    try:
        yield fd
    finally:
        os.close(fd)


def read_cut(path: str, size: int) -> Cut:
    """The hole of a file, as the shim recorded it beside the file before it punched the hole."""
    try:
        with open(open_own_file(f"{path}.cut"), "rb") as file:
            first, end = (int(word) for word in file.read(100).split())
    except (OSError, ValueError):
        return Cut()
    return Cut(first, end) if 0 <= first < end <= size else Cut()


@dataclass(frozen=True, slots=True)
class LineRange:
    """Lines, and whether they reach the end of the file."""

    lines: list[str]
    is_end: bool


def read_lines(file: LogFile, start: int, count: int, deadline: float, most: int = MOST) -> LineRange:
    """The lines from this offset on, at which a line begins."""
    found: list[str] = []
    at, size = start, 0
    while at < file.size and len(found) < count and size < most and time.monotonic() < deadline:
        chunk = b"" if file.is_in_hole(at) else file.read(at, _CHUNK)
        is_last = at + len(chunk) >= file.size
        if b"\n" not in chunk and not is_last:  # a long line, or one with a hole
            end = file.end_of(at, deadline)
            some, at = [display(file, at, end)], end + 1
        else:
            lines = chunk.split(b"\n")
            rest = lines.pop()  # after the last newline: empty, or the beginning of another line
            if is_last and rest:
                lines.append(rest)
                rest = b""
            some = [text_of(line) for line in lines[: count - len(found)]]
            if len(some) < len(lines):
                return LineRange(found + some, False)
            at += len(chunk) - len(rest)
        found += some
        size += sum(map(len, some))
    return LineRange(found, at >= file.size)


def display(file: LogFile, start: int, end: int) -> str:
    """The line in these bytes, of any length."""
    hole = file.cut
    if start < hole.end and hole.first < end:
        gone = f"[... {show_size(hole.end - hole.first)} cut]"
        return display_part(file, start, hole.first) + gone + display_part(file, hole.end, end)
    return display_part(file, start, end)


def display_part(file: LogFile, start: int, end: int) -> str:
    if end - start <= _TAIL_OF_LINE:
        return text_of(file.read(start, max(0, end - start)))
    last = file.read(end - _TAIL_OF_LINE, _TAIL_OF_LINE).rstrip(b"\r")
    if b"\r" in last:
        return text_of(last)  # what it was last overwritten with
    return _decoded(file.read(start, LONGEST), end - start)


def text_of(line: bytes) -> str:
    """A line's bytes, without its newline, as text."""
    folded = fold(line)
    return _decoded(folded[:LONGEST], len(folded))


def fold(line: bytes) -> bytes:
    """The part of an overwritten line after its last carriage return, with its colours."""
    line = line.rstrip(b"\r")
    before, _, last = line.rpartition(b"\r")
    return b"".join(_colours(before)) + last if before else last


def without_escapes(line: bytes) -> bytes:
    return _ESCAPE.sub(b"", line) if b"\x1b" in line else line


def _colours(text: bytes) -> Sequence[bytes]:
    """The colours that are still set at the end of the text."""
    if b"\x1b" not in text:
        return ()
    found: list[bytes] = []
    for colour in _COLOUR.findall(text):
        if _RESET.fullmatch(colour):
            found.clear()
        else:
            found.append(colour)
    return found[-_MOST_COLOURS:]


def _decoded(content: bytes, length: int) -> str:
    text = content.decode("utf-8", "replace")
    return f"{text}[... {length - len(content)} more bytes]" if len(content) < length else text


@dataclass(frozen=True, slots=True)
class LineMatch:
    line: int
    text: str


@dataclass(frozen=True, slots=True)
class SearchResult:
    matches: list[LineMatch]
    next: int | None  # the line to go on with; None: the end was reached


class SearchText:
    """The text that is searched for, in any case."""

    def __init__(self, text: str) -> None:
        self._folded = text.casefold()
        # Bytes are searched many times faster than text, but only ASCII has upper and lower case there.
        self._bytes = text.lower().encode() if text.isascii() else None

    def may_be_in(self, chunk: bytes) -> bool:
        plain = without_escapes(chunk)
        if self._bytes is not None:
            return self._bytes in plain.lower()
        return self._folded in plain.decode("utf-8", "replace").casefold()

    def excerpt(self, line: bytes) -> str | None:
        """The line around the text; None if the line, as it is displayed, does not contain it."""
        text = without_escapes(fold(line)).decode("utf-8", "replace")
        place = text.casefold().find(self._folded)
        if place < 0:
            return None
        begin = max(0, min(place - _BEFORE, len(text) - _LONGEST_EXCERPT))
        return text[begin : begin + _LONGEST_EXCERPT]


def search(file: LogFile, wanted: SearchText, first: int, limit: int, deadline: float) -> SearchResult:
    """The lines from `first` on that contain the text. At least one chunk is searched, even after the deadline."""
    file.count(deadline, first)
    start = file.start_of(first)
    if start is None:
        return SearchResult([], None if file.is_counted else first)
    matches: list[LineMatch] = []
    line, kept = first, b""  # kept: the beginning of a line that goes on in the next chunk
    for at, chunk in file.blocks(start, _CHUNK):
        text = kept + chunk
        is_last = at + len(chunk) >= file.size
        lines = text.split(b"\n")
        kept = b"" if is_last else lines.pop()
        if wanted.may_be_in(text):
            for place, one in enumerate(lines):
                if (excerpt := wanted.excerpt(one)) is not None:
                    matches.append(LineMatch(line + place, excerpt))
                    if len(matches) == limit:
                        return SearchResult(matches, line + place + 1)
        line += len(lines)
        if len(kept) > _CHUNK:
            kept = kept[-_CHUNK:]  # a line without an end: keep its newest part
        if not is_last and time.monotonic() >= deadline:
            return SearchResult(matches, max(line, first + 1))  # the rest of a line that takes too long is skipped
    return SearchResult(matches, None)
