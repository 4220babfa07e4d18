"""Searching output for text, as far as a deadline allows."""

import time
from dataclasses import dataclass

from dibs.daemon.logs.index import LogFile
from dibs.daemon.logs.text import fold, without_escapes

_CHUNK = 256 * 1024  # bytes searched at once
_LONGEST = 400  # characters that are shown of a line
_BEFORE = 80  # of these at most, before the match


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
        begin = max(0, min(place - _BEFORE, len(text) - _LONGEST))
        return text[begin : begin + _LONGEST]


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
