"""From the bytes of a file to names and values: each line is `val_loss=0.31 step=5`, or a JSON object."""

import json
import re
from collections.abc import Mapping, Sequence

STEP = "step"
STEPS = "steps"  # how many steps there will be
PROGRESS = "progress"  # 0 to 1, or `40%`
WRITTEN_AT = "_timestamp"  # seconds since the epoch; W&B's word
NOT_METRICS = frozenset((STEP, STEPS, PROGRESS, WRITTEN_AT))  # they say when a value was measured, not what

_LONGEST_LINE = 65_536  # bytes


class LineSplitter:
    """Splits a stream of bytes into lines. Only the beginning of a very long line is kept."""

    def __init__(self, ends: Sequence[bytes] = (b"\n",)) -> None:
        self._end, *self._others = ends
        self._rest = b""

    def feed(self, data: bytes) -> list[bytes]:
        """The lines that are complete now, without blank ones: half a number is another number."""
        for other in self._others:
            data = data.replace(other, self._end)
        *whole, rest = (self._rest + data).split(self._end)
        self._rest = rest[: _LONGEST_LINE + 1]
        return [line for line in whole if line and not line.isspace()]

    def finish(self) -> list[bytes]:
        """A last line without its end."""
        rest, self._rest = self._rest, b""
        return [rest] if rest.strip() else []


def line_text(line: bytes) -> str:
    return line[:_LONGEST_LINE].decode("utf-8", "replace").strip()


def read_line(line: str) -> Mapping[str, object] | None:
    """The names and values in a line; None where it has none."""
    if line.startswith("{"):
        return read_object(line)
    found: dict[str, object] = {}
    # Nearly all lines have nothing but words like `loss=0.3`, which are split in half of the time.
    for word in line.split():
        name, equals, value = word.partition("=")
        if not (name and value and equals) or not _PLAIN(word) or "=" in value:
            return {pair[1]: pair[2] for pair in _PAIR.finditer(line)} or None
        found[name] = value
    return found or None


_PLAIN = re.compile(r"[\w=.+/@-]+").fullmatch
# A name begins after a separator, and its match is possessive: otherwise a line without `=` would be searched
# again from each of its letters. Text followed by `=` is a name, not a value, as in `epoch 3: loss=0.2`. A comma
# between digits belongs to the value, as in `0,8` or `1,234.5`, which is then not a number.
_PAIR = re.compile(
    r"""(?<![^\s=:,;'"])([^\s=:,;'"]++)\s*+(?:=|:\s)\s*+"?"""
    # An atomic group instead of `++`, which backtracks here in Python 3.11.
    r"""((?>(?:[^\s=,;"]|(?<=\d),(?=\d[\d.eE+-]*+(?![^\s,;"])))+))(?!\s*+=)"""
)


def read_object(text: str) -> Mapping[str, object] | None:
    """A JSON object; None where the text is none."""
    if not text.startswith("{"):
        return None
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def read_number(given: object) -> float | None:
    """A number, perhaps not a finite one; None for what is not a number."""
    if isinstance(given, bool) or not isinstance(given, int | float | str):
        return None
    try:
        return float(given)
    except (ValueError, OverflowError):
        return None
