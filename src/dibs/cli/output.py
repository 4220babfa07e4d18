"""Tables, words and colours. Commands return data; this decides how it looks."""

import os
import re
import sys
from collections.abc import Mapping, Sequence

import click

# Everything a terminal would obey, except colours; and, in a group, text that only looks like it.
# Compiled when it is used: that takes some milliseconds.
_OBEYED = (
    rb"\x1b\[(?![0-9;:]*m)[0-?]*[ -/]*[@-~]?"  # control sequences other than colours, unfinished ones too
    rb"|\x1b[\]PX^_](?s:.*?)(?:\x1b\\|\x07|$)"  # titles, clipboard, device strings
    rb"|\x1b(?!\[)[ -/]*[0-~]"
    rb"|\x1b(?!\[[0-9;:]*m)"
    rb"|\xc2[\x80-\x9f]"  # control characters of eight bits, as UTF-8
    rb"|((?:[\xc2-\xdf][\x80-\xbf]"  # whole letters in UTF-8, which are kept
    rb"|(?:\xe0[\xa0-\xbf]|[\xe1-\xec\xee\xef][\x80-\xbf]|\xed[\x80-\x9f])[\x80-\xbf]"
    rb"|(?:\xf0[\x90-\xbf]|[\xf1-\xf3][\x80-\xbf]|\xf4[\x80-\x8f])[\x80-\xbf]{2}))"
    rb"|[\x00-\x08\x0b\x0c\x0e-\x1a\x1c-\x1f\x7f-\x9f]"
)


def wants_colour(environ: Mapping[str, str], fd: int) -> bool:
    """Colours on a terminal, unless NO_COLOR or a dumb one says otherwise."""
    return os.isatty(fd) and not environ.get("NO_COLOR") and environ.get("TERM") != "dumb"


def harmless(data: bytes) -> bytes:
    """Output that can colour a terminal but not command it. Of a progress bar the last state is kept."""
    if b"\r" in data:
        data = b"\n".join(_last_state(line) for line in data.split(b"\n"))
    return re.sub(_OBEYED, rb"\1", data)


def one_line(text: str, width: int = 200) -> str:
    """Text in a table or a sentence: nothing in it is obeyed, nothing breaks the line."""
    shown = "".join(letter if letter.isprintable() else _escaped(letter) for letter in text)
    return shown if len(shown) <= width else shown[: width - 1] + "…"


def table(headings: Sequence[str], rows: Sequence[Sequence[str]], *, width: int, shrink: int) -> list[str]:
    """Aligned columns that fit the width; the column `shrink` gives way."""
    cells = [list(headings), *[list(row) for row in rows]]
    widths = [max(len(row[column]) for row in cells) for column in range(len(headings))]
    spare = width - sum(widths) - 2 * (len(widths) - 1)
    if spare < 0:
        widths[shrink] = max(10, widths[shrink] + spare)
    lines = []
    for row in cells:
        row[shrink] = one_line(row[shrink], widths[shrink])
        lines.append("  ".join(cell.ljust(size) for cell, size in zip(row, widths, strict=True)).rstrip())
    return lines


def terminal_width(fd: int = 2) -> int:
    """Columns; a generous line where nobody sits at a terminal."""
    if not os.isatty(fd):
        return 160
    try:
        return max(20, os.get_terminal_size(fd).columns or 80)  # `script` makes terminals of no width
    except OSError:
        return 80


def write_all(fd: int, data: bytes) -> bool:
    """Write every byte, however slowly it is read; False when nobody reads it any more."""
    import select

    while data:
        try:
            data = data[os.write(fd, data) :]
        except BlockingIOError:
            select.select([], [fd], [])
        except OSError:
            return False
    return True


def say(text: str) -> None:
    """Talk goes to stderr; stdout is for data."""
    sys.stdout.flush()
    click.echo(text.encode("utf-8", "backslashreplace"), err=True)


def _last_state(line: bytes) -> bytes:
    return next((part for part in reversed(line.split(b"\r")) if part), b"")


def _escaped(letter: str) -> str:
    if "\udc80" <= letter <= "\udcff":  # a byte that is no UTF-8
        return f"\\x{ord(letter) - 0xDC00:02x}"
    return {"\n": "\\n", "\t": " ", "\r": "\\r"}.get(letter) or repr(letter)[1:-1]
