"""Looking for text in output, as far as it gets in a given time."""

import time
from dataclasses import dataclass

from dibs.daemon.logs.index import LogFile
from dibs.daemon.logs.text import fold, without_escapes

_CHUNK = 256 * 1024  # bytes looked at together
_LONGEST = 400  # characters that are shown of a line
_BEFORE = 80  # of these, at most so many before what was found


@dataclass(frozen=True, slots=True)
class Match:
    line: int
    text: str


@dataclass(frozen=True, slots=True)
class Found:
    matches: list[Match]
    next: int | None  # the line to go on with; None: that was all


class Wanted:
    """Text that is looked for, small and large letters alike."""

    def __init__(self, text: str) -> None:
        self._folded = text.casefold()
        # Bytes are compared many times faster than text; they know the letters of ASCII only.
        self._bytes = text.lower().encode() if text.isascii() else None

    def may_stand_in(self, chunk: bytes) -> bool:
        plain = without_escapes(chunk)
        if self._bytes is not None:
            return self._bytes in plain.lower()
        return self._folded in plain.decode("utf-8", "replace").casefold()

    def excerpt(self, line: bytes) -> str | None:
        """The line around it; None where it does not stand there as people see the line."""
        text = without_escapes(fold(line)).decode("utf-8", "replace")
        place = text.casefold().find(self._folded)
        if place < 0:
            return None
        begin = max(0, min(place - _BEFORE, len(text) - _LONGEST))
        return text[begin : begin + _LONGEST]


def search(file: LogFile, wanted: Wanted, first: int, limit: int, deadline: float) -> Found:
    """The lines from `first` on in which it stands. At least one piece is looked at, however late it is."""
    file.count(deadline, first)
    start = file.start_of(first)
    if start is None:
        return Found([], None if file.is_counted else first)
    matches: list[Match] = []
    line, kept = first, b""  # of the line that a piece ends in the middle of
    for at, chunk in file.blocks(start, _CHUNK):
        text = kept + chunk
        is_last = at + len(chunk) >= file.size
        lines = text.split(b"\n")
        kept = b"" if is_last else lines.pop()
        if wanted.may_stand_in(text):
            for place, one in enumerate(lines):
                if (excerpt := wanted.excerpt(one)) is not None:
                    matches.append(Match(line + place, excerpt))
                    if len(matches) == limit:
                        return Found(matches, line + place + 1)
        line += len(lines)
        if len(kept) > _CHUNK:
            kept = kept[-_CHUNK:]  # a line without an end: what it says now is at its end
        if not is_last and time.monotonic() >= deadline:
            return Found(matches, max(line, first + 1))  # of a line that takes too long the rest is left out
    return Found(matches, None)
