"""The numbers of a trial, read from what its command writes in any language.

A reader is fed the bytes of a file as they arrive. It waits for the end of a line, because half a number is
another number. The result is the last value of a metric that is reported repeatedly.
"""

import json
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from typing import Literal

from dibs.dataclass import dataclass
from dibs.metrics.lines import (
    NOT_METRICS,
    STEP,
    LineSplitter,
    line_text,
    read_line,
    read_number,
    read_object,
)
from dibs.metrics.patterns import LogPattern, shown_pattern
from dibs.metrics.scalar import Scalar
from dibs.metrics.wandb_file import WandbFile

_SHOWN = 60  # letters of a written value, in a message
_MOST_OTHERS = 10

Bests = Mapping[str, Literal["min", "max"]]  # metrics of which the best value counts, and what is better
NO_BESTS: Bests = {}


@dataclass(frozen=True, slots=True)
class Report:
    """The numbers of one line, and its step if it has one."""

    step: int | None
    values: dict[str, float]  # that are finite
    not_finite: tuple[str, ...] = ()  # names of metrics


@dataclass(frozen=True, slots=True)
class Result:
    """The numbers of a trial, one for each metric; or None and the reason."""

    values: tuple[float, ...] | None
    problem: str = ""


class TrialTally:
    """The last value of each metric, or its best one, or the problem with it."""

    def __init__(self, names: Sequence[str], hint: str = "", bests: Bests = NO_BESTS) -> None:
        """Without names every number is kept. The hint completes the message about a metric that is missing.

        Of those in `bests` the best value counts, not the last one.
        """
        self.names = tuple(names)
        self.bests = bests
        self._hint = hint
        self._last: dict[str, float | str] = {}  # a number, or the problem with it
        self._others: dict[str, None] = {}  # reported names that are not metrics, in order

    def take(self, told: Mapping[str, object] | None, line: str = "") -> Report | None:
        """Keep the metrics of one line; None where it has no valid number."""
        if told is None:
            self._hint = self._hint or f"; what was written is {_shown(line)}, which is not name=value"
            return None
        values: dict[str, float] = {}
        not_finite: list[str] = []
        for name, given in told.items():
            if name in NOT_METRICS and name not in self.names:
                continue
            if self.names and name not in self.names:
                if len(self._others) < _MOST_OTHERS:
                    self._others[name[:_SHOWN]] = None
                continue
            number = read_number(given)
            if number is not None and math.isfinite(number):
                values[name] = number
                self._last[name] = self._better(name, number)
                continue
            if number is not None:
                not_finite.append(name)
            if name not in self.bests or not isinstance(self._last.get(name), float):
                self._last[name] = f"{name} is {_shown(given)}, which is not a finite number"
        return Report(_step(told.get(STEP)), values, tuple(not_finite)) if values or not_finite else None

    def has(self, name: str) -> bool:
        """Whether there is a number for it."""
        return isinstance(self._last.get(name), float)

    def best(self, name: str) -> float:
        found = self._last[name]
        assert isinstance(found, float)
        return found

    def _better(self, name: str, number: float) -> float:
        before = self._last.get(name)
        if name not in self.bests or not isinstance(before, float):
            return number
        return min(before, number) if self.bests[name] == "min" else max(before, number)

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

    def __init__(
        self, names: Sequence[str], ends: Sequence[bytes], hint: str = "", bests: Bests = NO_BESTS
    ) -> None:
        self._lines = LineSplitter(ends)
        self._tally = TrialTally(names, hint, bests)

    def feed(self, data: bytes) -> list[Report]:
        """The reports of the lines that are complete now."""
        return self._read(self._lines.feed(data))

    def skim(self, data: bytes) -> None:
        """As `feed`, but only for the result: lines before the last report of each metric are not parsed.

        All are, where the best value of a metric counts.
        """
        lines = self._lines.feed(data)
        missing = set(self._tally.names)
        read: list[tuple[Mapping[str, object] | None, str]] = []
        while lines and (missing or not self._tally.names or self._tally.bests):
            line = line_text(lines.pop())
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
        texts = map(line_text, lines)
        reports = (self._tally.take(self.told(line), line) for line in texts)
        return [report for report in reports if report]


class MetricsReader(Reader):
    """Reads `val_loss=0.31 step=5`, with blanks or commas between, or a JSON object, line by line."""

    def __init__(self, names: Sequence[str], bests: Bests = NO_BESTS) -> None:
        super().__init__(names, [b"\n"], bests=bests)
        self._names = names

    def told(self, line: str) -> Mapping[str, object] | None:
        if (told := read_line(line)) is not None or line.startswith("{"):
            return told
        words = line.split()
        return {words[0]: words[1]} if len(words) == 2 and words[0] in self._names else None


class LogReader(Reader):
    """Reads numbers out of what a command prints, with a regular expression."""

    def __init__(self, pattern: str, names: Sequence[str], bests: Bests = NO_BESTS) -> None:
        """Raise BadInput for an expression that cannot be used."""
        self._pattern = LogPattern(pattern, names)
        # A progress bar goes back to the beginning of its line.
        hint = f": no line of the log matches {shown_pattern(pattern)}"
        super().__init__(names, [b"\n", b"\r"], hint, bests)

    def told(self, line: str) -> Mapping[str, object] | None:
        return self._pattern.read(line)


class WandbResults:
    """The numbers that a trial's program gives `wandb.log`, as W&B writes them.

    The result is that of W&B's sweeps: the value in the run's summary, which is the last that was logged unless
    the program has set it.
    """

    def __init__(self, names: Sequence[str], find: Callable[[], Sequence[str]], bests: Bests = NO_BESTS) -> None:
        """`find` finds the files of the run, of which there are several where the program has begun it again."""
        self._names = names
        self._bests = bests
        self._best: dict[str, float] = {}  # of the values in `bests`
        self._find = find
        self._files: dict[str, WandbFile] = {}

    def read(self) -> list[Report]:
        """The new reports."""
        steps: dict[int | None, dict[str, float]] = {}
        for scalar in self._scalars(self._names):
            steps.setdefault(scalar.step, {})[scalar.tag] = scalar.value
        tally = self._tally()
        found = [
            tally.take({**values, **({} if step is None else {STEP: step})}) for step, values in steps.items()
        ]
        self._keep(tally)
        return [report for report in found if report is not None]

    def skim(self) -> None:
        """Read on for the result only: millions of steps would fill the memory."""
        tally = self._tally()
        for scalar in self._scalars(self._bests):  # the last values are kept by the files
            tally.take({scalar.tag: scalar.value})
        self._keep(tally)

    def _scalars(self, names: Container[str]) -> Iterator[Scalar]:
        """The new ones with these names."""
        for path in self._find():
            if path not in self._files and len(self._files) < _MOST_RUNS:
                self._files[path] = WandbFile(path)
        for file in self._files.values():
            for scalar in file.scalars(math.inf):
                if scalar.tag in names:
                    yield scalar

    def _tally(self, hint: str = "") -> TrialTally:
        """With the best values so far."""
        tally = TrialTally(self._names, hint, self._bests)
        tally.take(self._best)
        return tally

    def _keep(self, tally: TrialTally) -> None:
        self._best = {name: tally.best(name) for name in self._bests if tally.has(name)}

    def finish(self) -> None:
        """A record is complete or not there."""

    def result(self) -> Result:
        """The result of the trial, after its last record."""
        hint = "" if self._files else "; the program wrote no file of W&B: does it call wandb.init?"
        tally = self._tally(hint)
        for file in self._files.values():
            tally.take({**file.logged, **file.summary})
        return tally.result()


_MOST_RUNS = 16


def read_result_file(content: bytes, names: Sequence[str], bests: Bests = NO_BESTS) -> Result:
    """The numbers in a trial's result file: one JSON object, or lines as for $DIBS_METRICS."""
    text = content.decode("utf-8", "replace").strip()
    told = read_object(text)
    if told is not None:
        tally = TrialTally(names)
        tally.take(told)
        return tally.result()
    reader = MetricsReader(names, bests)
    reader.feed(content)
    reader.finish()
    return reader.result()


def _step(given: object) -> int | None:
    """A step is a non-negative integer; any other value counts as no step."""
    number = read_number(given)
    if number is None or not number.is_integer() or not 0 <= number < 2**53:
        return None
    return int(number)


def _shown(given: object) -> str:
    """A written value, shortened for a message."""
    text = given if isinstance(given, str) else json.dumps(given)
    cut = text if len(text) <= _SHOWN else text[: _SHOWN - 3] + "..."
    return repr(cut) if isinstance(given, str) and read_number(given) is None else cut
