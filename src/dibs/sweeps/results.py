"""The numbers of a trial, read from what its command writes in any language.

A reader is fed the bytes of a file as they come. It waits for the end of a line, because a number that is only
half written is another number. Of a metric that is reported often the last value is the result.
"""

import json
import math
import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from dibs.sweeps.logpattern import LogPattern, shown_pattern

_LONGEST_LINE = 65_536  # bytes
_SHOWN = 60  # letters of what was written, in a sentence
_MOST_OTHERS = 10
STEP = "step"


@dataclass(frozen=True, slots=True)
class Report:
    """What one line told: numbers that can be used, and the step if it named one."""

    step: int | None
    values: dict[str, float]


@dataclass(frozen=True, slots=True)
class Result:
    """The numbers of a trial, one for each metric; or none, and the sentence that says why."""

    values: tuple[float, ...] | None
    problem: str = ""


class TrialTally:
    """The last number of each metric, and what was wrong with it."""

    def __init__(self, names: Sequence[str], hint: str = "") -> None:
        """Without names every number is kept. The hint goes on about a metric of which nothing was seen."""
        self.names = tuple(names)
        self._hint = hint
        self._last: dict[str, float | str] = {}  # a number, or what is wrong with it
        self._others: dict[str, None] = {}  # names we were not asked for, in their order

    def take(self, told: Mapping[str, object] | None, line: str = "") -> Report | None:
        """Keep what is told about the metrics; None where it was nothing of use."""
        if told is None:
            self._hint = self._hint or f"; what was written is {_shown(line)}, which is no name=value"
            return None
        values: dict[str, float] = {}
        for name, given in told.items():
            if name == STEP:
                continue
            if self.names and name not in self.names:
                if len(self._others) < _MOST_OTHERS:
                    self._others[name[:_SHOWN]] = None
                continue
            number = _number(given)
            if number is not None and math.isfinite(number):
                values[name] = self._last[name] = number
            else:
                self._last[name] = f"{name} is {_shown(given)}, which is no number a search can use"
        return Report(_step(told.get(STEP)), values) if values else None

    @property
    def problem(self) -> str:
        """What is wrong with a number that was told last; empty while there is nothing."""
        return next((last for last in self._last.values() if isinstance(last, str)), "")

    def result(self) -> Result:
        """What the trial came to, now that nothing will follow."""
        if self.problem:
            return Result(None, self.problem)
        for name in self.names:
            if name not in self._last:
                return Result(None, f"{name} was not reported{self._what_else()}")
        values = [self._last[name] for name in self.names or sorted(self._last)]
        return Result(tuple(value for value in values if isinstance(value, float)))

    def _what_else(self) -> str:
        others = [*self._last, *self._others]
        return f"; what was reported is {', '.join(others)}" if others else self._hint


class Reader(ABC):
    """Reads a growing file line by line; what a line tells is for its kinds to know."""

    def __init__(self, names: Sequence[str], ends: Sequence[bytes], hint: str = "") -> None:
        self._lines = _Lines(ends)
        self._tally = TrialTally(names, hint)

    def feed(self, data: bytes) -> list[Report]:
        """What the lines told that are whole now."""
        return self._read(self._lines.feed(data))

    def skim(self, data: bytes) -> None:
        """As `feed`, for whoever only wants the result: of a metric that is told often the last line counts."""
        lines = self._lines.feed(data)
        missing = set(self._tally.names)
        read: list[tuple[Mapping[str, object] | None, str]] = []
        while lines and (missing or not self._tally.names):
            line = _text(lines.pop())
            told = self.told(line)
            missing.difference_update(told or ())
            read.append((told, line))
        for told, line in reversed(read):
            self._tally.take(told, line)

    def finish(self) -> list[Report]:
        """What a last line without an end told. For a command that ended well: a killed one tore it off."""
        return self._read(self._lines.finish())

    @property
    def problem(self) -> str:
        """What is wrong with a metric as it was told last; empty while there is nothing."""
        return self._tally.problem

    def result(self) -> Result:
        """What the trial came to, now that nothing will follow."""
        return self._tally.result()

    @abstractmethod
    def told(self, line: str) -> Mapping[str, object] | None:
        """The names and values of a line; None where it has none."""

    def _read(self, lines: Iterable[bytes]) -> list[Report]:
        texts = map(_text, lines)
        reports = (self._tally.take(self.told(line), line) for line in texts)
        return [report for report in reports if report]


class MetricsReader(Reader):
    """Reads `val_loss=0.31 step=5`, with blanks or commas between, or a JSON object, line by line."""

    def __init__(self, names: Sequence[str]) -> None:
        super().__init__(names, [b"\n"])
        self._names = names

    def told(self, line: str) -> Mapping[str, object] | None:
        if line.startswith("{"):
            return _json_object(line)
        if pairs := {found[1]: found[2] for found in _PAIR.finditer(line)}:
            return pairs
        words = line.split()
        return {words[0]: words[1]} if len(words) == 2 and words[0] in self._names else None


class LogReader(Reader):
    """Reads numbers out of what a command prints, with a regular expression."""

    def __init__(self, pattern: str, names: Sequence[str]) -> None:
        """Raise BadInput for an expression that cannot be used."""
        self._pattern = LogPattern(pattern, names)
        # A progress bar goes back to the beginning of its line.
        super().__init__(names, [b"\n", b"\r"], f": no line of the log matches {shown_pattern(pattern)}")

    def told(self, line: str) -> Mapping[str, object] | None:
        return self._pattern.read(line)


def read_result_file(content: bytes, names: Sequence[str]) -> Result:
    """The numbers in a file that a trial left: one JSON object, or lines as for $DIBS_METRICS."""
    text = content.decode("utf-8", "replace").strip()
    told = _json_object(text)
    if told is not None:
        tally = TrialTally(names)
        tally.take(told)
        return tally.result()
    reader = MetricsReader(names)
    reader.feed(content)
    reader.finish()
    return reader.result()


class _Lines:
    """Whole lines out of bytes in pieces. Of one that never ends only the beginning is kept."""

    def __init__(self, ends: Sequence[bytes]) -> None:
        self._end, *self._others = ends
        self._rest = b""

    def feed(self, data: bytes) -> list[bytes]:
        for other in self._others:
            data = data.replace(other, self._end)
        *whole, rest = (self._rest + data).split(self._end)
        self._rest = rest[: _LONGEST_LINE + 1]
        return [line for line in whole if line and not line.isspace()]

    def finish(self) -> list[bytes]:
        rest, self._rest = self._rest, b""
        return [rest] if rest.strip() else []


def _text(line: bytes) -> str:
    return line[:_LONGEST_LINE].decode("utf-8", "replace").strip()


# A name begins behind what cannot be in it, and is never given back letter by letter: a line without any `=`
# would else be gone through again from each of its letters. What is followed by `=` is a name and no value, as in
# `epoch 3: loss=0.2`. A comma between digits belongs to the value, `0,8` or `1,234.5`, and makes it no number.
_PAIR = re.compile(
    r"""(?<![^\s=:,;'"])([^\s=:,;'"]++)\s*+(?:=|:\s)\s*+"?"""
    # An atomic group and no `++`, which in Python 3.11 gives back a letter here.
    r"""((?>(?:[^\s=,;"]|(?<=\d),(?=\d[\d.eE+-]*+(?![^\s,;"])))+))(?!\s*+=)"""
)


def _json_object(text: str) -> Mapping[str, object] | None:
    if not text.startswith("{"):
        return None
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _number(given: object) -> float | None:
    if isinstance(given, bool) or not isinstance(given, int | float | str):
        return None
    try:
        return float(given)
    except (ValueError, OverflowError):
        return None


def _step(given: object) -> int | None:
    """A step is a whole number from 0; what is none is as good as no step."""
    number = _number(given)
    if number is None or not number.is_integer() or not 0 <= number < 2**53:
        return None
    return int(number)


def _shown(given: object) -> str:
    """What was written, as it may stand in a sentence."""
    text = given if isinstance(given, str) else json.dumps(given)
    cut = text if len(text) <= _SHOWN else text[: _SHOWN - 3] + "..."
    return repr(cut) if isinstance(given, str) and _number(given) is None else cut
