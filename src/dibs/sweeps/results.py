"""The numbers of a trial, read from what its command writes in any language.

A reader is fed the bytes of a file as they arrive. It waits for the end of a line, because half a number is
another number. The result is the last value of a metric that is reported repeatedly.
"""

import json
import math
import re
import warnings
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from dibs.dataclass import dataclass
from dibs.errors import BadInput

STEP = "step"

_LONGEST_LINE = 65_536  # bytes
_SHOWN = 60  # letters of a written value, in a message
_MOST_OTHERS = 10
_LONGEST_PATTERN = 500
_SHOWN_PATTERN = 100  # letters of it, in a message
_MOST_WIDE = 4
# How many letters of a line are searched, by the number of `.*`: the time may grow with the square of them.
_LONGEST_SEARCHED = {0: 4_000, 1: 4_000, 2: 800}
_LONGEST_SEARCHED_IF_WIDER = 300


class LogPattern:
    """A regular expression that finds metrics in a line of a log; its groups are named after the metrics.

    A single group needs no name. Expressions whose search could take hours are refused.
    """

    def __init__(self, text: str, names: Sequence[str]) -> None:
        """Raise BadInput where it cannot be compiled, could take hours, or has no group for a metric."""
        self.text = text
        if len(text) > _LONGEST_PATTERN:
            raise self._refused(f"it has more than {_LONGEST_PATTERN} letters", "a shorter one will do")
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # FutureWarning about nested sets
                self._compiled = re.compile(text)
                tree = re._parser.parse(text)  # type: ignore[attr-defined]  # the only way to see repetitions
        except (re.error, RecursionError, OverflowError) as error:
            raise self._refused(str(error), _EXAMPLE) from None
        wide = self._count_wide(tree, is_inside=False)
        if wide > _MOST_WIDE:
            raise self._refused(f"it has more than {_MOST_WIDE} of `.*`, which can take hours", _EXAMPLE)
        self._longest = _LONGEST_SEARCHED.get(wide, _LONGEST_SEARCHED_IF_WIDER)
        self._groups = self._groups_of(names)

    def read(self, line: str) -> Mapping[str, str]:
        """The names and texts found in a line; empty where the line does not match."""
        found = self._compiled.search(line, 0, self._longest)
        if not found:
            return {}
        return {name: found[group] for name, group in self._groups.items() if found[group] is not None}

    def _groups_of(self, names: Sequence[str]) -> dict[str, int]:
        groups = dict(self._compiled.groupindex)
        missing = [name for name in names if name not in groups]
        unnamed = [group for group in range(1, self._compiled.groups + 1) if group not in groups.values()]
        if not missing:
            return groups
        if len(missing) > 1 or len(unnamed) != 1:
            raise self._refused(f"no group of it is called {missing[0]}", _EXAMPLE)
        return groups | {missing[0]: unnamed[0]}

    def _count_wide(self, tree: Iterable[Any], *, is_inside: bool) -> int:
        """The number of repetitions that match everything. Nested repetitions are refused: they can take hours."""
        wide = 0
        for kind, inner in tree:
            is_repeat = str(kind) in _REPEATS and inner[1] > _FEW
            if is_inside and (is_repeat or str(kind) in ("BRANCH", "GROUPREF")):
                raise self._refused("it repeats something that repeats or varies, which can take hours", _EXAMPLE)
            wide += is_repeat and "ANY" in repr(inner[2])
            for below in _below(inner):
                wide += self._count_wide(below, is_inside=is_inside or is_repeat)
        return wide

    def _refused(self, why: str, remedy: str) -> BadInput:
        return BadInput(f"cannot use the expression {shown_pattern(self.text)}: {why}", remedy=remedy)


def shown_pattern(text: str) -> str:
    """An expression as it was typed, for a message: `repr` would double its backslashes."""
    return "'" + repr(text[:_SHOWN_PATTERN])[1:-1].replace("\\\\", "\\") + "'"


_EXAMPLE = r"write it as: val_loss=(\S+), or for several: loss=(?P<loss>\S+) acc=(?P<acc>\S+)"
_REPEATS = ("MAX_REPEAT", "MIN_REPEAT", "POSSESSIVE_REPEAT")
_FEW = 10  # `(?: *\d+){1,3}` repeats too, but only a few times


def _below(inner: Any) -> Iterable[Any]:
    """The sub-patterns of a part of any kind."""
    if isinstance(inner, re._parser.SubPattern):  # type: ignore[attr-defined]
        yield inner
    elif isinstance(inner, list | tuple):
        for part in inner:
            yield from _below(part)


@dataclass(frozen=True, slots=True)
class Report:
    """The finite numbers of one line, and its step if it has one."""

    step: int | None
    values: dict[str, float]


@dataclass(frozen=True, slots=True)
class Result:
    """The numbers of a trial, one for each metric; or None and the reason."""

    values: tuple[float, ...] | None
    problem: str = ""


class TrialTally:
    """The last value of each metric, or the problem with it."""

    def __init__(self, names: Sequence[str], hint: str = "") -> None:
        """Without names every number is kept. The hint completes the message about a metric that is missing."""
        self.names = tuple(names)
        self._hint = hint
        self._last: dict[str, float | str] = {}  # a number, or the problem with it
        self._others: dict[str, None] = {}  # reported names that are not metrics, in order

    def take(self, told: Mapping[str, object] | None, line: str = "") -> Report | None:
        """Keep the metrics of one line; None where it has no valid number."""
        if told is None:
            self._hint = self._hint or f"; what was written is {_shown(line)}, which is not name=value"
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
                self._last[name] = f"{name} is {_shown(given)}, which is not a finite number"
        return Report(_step(told.get(STEP)), values) if values else None

    @property
    def problem(self) -> str:
        """The problem with the last value of a metric; empty where there is none."""
        return next((last for last in self._last.values() if isinstance(last, str)), "")

    def result(self) -> Result:
        """The result of the trial, after its last line."""
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
    """Reads a growing file line by line; subclasses parse a line."""

    def __init__(self, names: Sequence[str], ends: Sequence[bytes], hint: str = "") -> None:
        self._lines = _Lines(ends)
        self._tally = TrialTally(names, hint)

    def feed(self, data: bytes) -> list[Report]:
        """The reports of the lines that are complete now."""
        return self._read(self._lines.feed(data))

    def skim(self, data: bytes) -> None:
        """As `feed`, but only for the result: lines before the last report of each metric are not parsed."""
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
        """The report of a last line without a line feed. Only for a command that was not killed while writing."""
        return self._read(self._lines.finish())

    @property
    def problem(self) -> str:
        """The problem with the last value of a metric; empty where there is none."""
        return self._tally.problem

    def result(self) -> Result:
        """The result of the trial, after its last line."""
        return self._tally.result()

    @abstractmethod
    def told(self, line: str) -> Mapping[str, object] | None:
        """The names and values in a line; None where it has none."""

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
    """The numbers in a trial's result file: one JSON object, or lines as for $DIBS_METRICS."""
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
    """Splits a stream of bytes into lines. Only the beginning of a very long line is kept."""

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


# A name begins after a separator, and its match is possessive: otherwise a line without `=` would be searched
# again from each of its letters. Text followed by `=` is a name, not a value, as in `epoch 3: loss=0.2`. A comma
# between digits belongs to the value, as in `0,8` or `1,234.5`, which is then not a number.
_PAIR = re.compile(
    r"""(?<![^\s=:,;'"])([^\s=:,;'"]++)\s*+(?:=|:\s)\s*+"?"""
    # An atomic group instead of `++`, which backtracks here in Python 3.11.
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
    """A step is a non-negative integer; any other value counts as no step."""
    number = _number(given)
    if number is None or not number.is_integer() or not 0 <= number < 2**53:
        return None
    return int(number)


def _shown(given: object) -> str:
    """A written value, shortened for a message."""
    text = given if isinstance(given, str) else json.dumps(given)
    cut = text if len(text) <= _SHOWN else text[: _SHOWN - 3] + "..."
    return repr(cut) if isinstance(given, str) and _number(given) is None else cut
