"""Lines of output for display: progress bars folded, long lines cut, holes marked."""

import re
import time
from collections.abc import Sequence
from dataclasses import dataclass

from dibs.daemon.logs.index import LogFile
from dibs.model.units import show_size

LONGEST = 16 * 1024  # bytes of one line that are shown
MOST = 1024**2  # bytes of all lines in one response, about
_CHUNK = 256 * 1024  # bytes read at once
_TAIL_OF_LINE = 64 * 1024  # bytes at the end of a long line in which its last carriage return is searched
_MOST_COLOURS = 16
_COLOUR = re.compile(rb"\x1b\[[0-9;:]*m")
_RESET = re.compile(rb"\x1b\[[0;:]*m")
# Colours, other sequences that end in a letter, and those that set a window title or a link.
_ESCAPE = re.compile(rb"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\^_])")


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
            end = file.end_of(at)
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
