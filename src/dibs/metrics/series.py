"""Series of reported numbers, in a fixed amount of memory however many are reported."""

import math
from array import array
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from dibs.dataclass import dataclass
from dibs.metrics.lines import NOT_METRICS, STEP, WRITTEN_AT, read_number

MOST_SERIES = 100
MOST_POINTS = 512  # of one series, that are kept
_MOST_BUCKETS = MOST_POINTS // 2
_LONGEST_NAME = 100
_LARGEST_STEP = 2.0**53


class MetricPoint(NamedTuple):
    step: float
    at: float  # seconds since the epoch
    value: float


@dataclass(frozen=True, slots=True)
class MetricSummary:
    """A series in few numbers. They are exact, however few points were kept."""

    reported: int  # numbers, those that are not finite too
    not_finite: int
    last: float | None  # None: it is not finite
    last_step: float
    least: MetricPoint | None
    most: MetricPoint | None


class MetricSeries:
    """The numbers that were reported under one name.

    Of each group of neighbours the lowest and the highest are kept, in their order, and the last one of all. When
    there are too many groups, two become one.
    """

    def __init__(self) -> None:
        self._reported = self._not_finite = 0
        self._last: MetricPoint | None = None
        self._least: MetricPoint | None = None
        self._most: MetricPoint | None = None
        self._kept = (array("d"), array("d"), array("d"))  # steps, times, values; two entries for each group
        self._width = 1  # points in a group
        self._low: MetricPoint | None = None  # of the open group
        self._high: MetricPoint | None = None
        self._is_low_first = True
        self._in_group = 0

    def add(self, step: float | None, at: float, value: float) -> None:
        """A number without a step gets the number of those before it."""
        point = MetricPoint(float(self._reported) if step is None else step, at, value)
        self._reported += 1
        self._last = point
        if not math.isfinite(value):
            self._not_finite += 1
            return
        if self._least is None or value < self._least.value:
            self._least = point
        if self._most is None or value > self._most.value:
            self._most = point
        if self._low is None or self._high is None:
            self._low = self._high = point
        elif value < self._low.value:
            self._low, self._is_low_first = point, False
        elif value > self._high.value:
            self._high, self._is_low_first = point, True
        self._in_group += 1
        if self._in_group >= self._width:
            self._close_group()

    def summary(self) -> MetricSummary:
        assert self._last is not None, "a series begins with its first point"
        is_finite = math.isfinite(self._last.value)
        return MetricSummary(
            self._reported,
            self._not_finite,
            self._last.value if is_finite else None,
            self._last.step,
            self._least,
            self._most,
        )

    def points(self, most: int = MOST_POINTS) -> list[MetricPoint]:
        """At most so many of the finite ones, in the order in which they were reported."""
        if most <= 0:
            return []
        found: list[MetricPoint] = []
        for point in [*(MetricPoint(*row) for row in zip(*self._kept, strict=True)), *self._group()]:
            if not found or point != found[-1]:
                found.append(point)
        last = self._last
        if last is not None and math.isfinite(last.value) and (not found or found[-1] != last):
            found.append(last)
        return _thinned(found, most)

    def _group(self) -> list[MetricPoint]:
        """What is kept of the open group, in its order."""
        if self._low is None or self._high is None:
            return []
        return [self._low, self._high] if self._is_low_first else [self._high, self._low]

    def _close_group(self) -> None:
        self._keep(self._group())
        self._low = self._high = None
        self._in_group = 0
        if len(self._kept[0]) >= 2 * _MOST_BUCKETS:
            self._halve()

    def _halve(self) -> None:
        rows = [MetricPoint(*row) for row in zip(*self._kept, strict=True)]
        self._width *= 2
        self._kept = (array("d"), array("d"), array("d"))
        for place in range(0, len(rows), 4):
            self._keep(_extremes(rows[place : place + 4]))

    def _keep(self, chosen: Sequence[MetricPoint]) -> None:
        for column, one, other in zip(self._kept, chosen[0], chosen[-1], strict=True):
            column.append(one)
            column.append(other)


class MetricTable:
    """The series of one source, by name."""

    def __init__(self) -> None:
        self.series: dict[str, MetricSeries] = {}
        self.left_out: set[str] = set()  # names that there was no room for; not all of them
        self._step: float | None = None  # of an earlier line that had nothing else, as `Epoch 3/10`

    def take(self, told: Mapping[str, object], at: float) -> None:
        """The numbers of one line. `at` is when it was written, as far as that is known."""
        written = read_number(told[WRITTEN_AT]) if WRITTEN_AT in told else None
        if written is not None and math.isfinite(written):
            at = written
        step = read_step(told.get(STEP))
        numbers = numbers_in(told)
        if not numbers and step is not None:
            self._step = step
        for name, number in numbers:
            self.add(name, self._step if step is None else step, at, number)

    def add(self, name: str, step: float | None, at: float, value: float) -> None:
        series = self.series.get(name) or self.series.get(name := printable_name(name))
        if series is None:
            if len(self.series) >= MOST_SERIES:
                if len(self.left_out) < MOST_SERIES:
                    self.left_out.add(name)
                return
            series = self.series[name] = MetricSeries()
        series.add(step, at, value)


def numbers_in(told: Mapping[str, object]) -> list[tuple[str, float]]:
    """The metrics in one line, by shortened names."""
    return [
        (name[:_LONGEST_NAME], number)
        for name, given in told.items()
        if name and name not in NOT_METRICS and (number := read_number(given)) is not None
    ]


def printable_name(name: str) -> str:
    """A name without control characters and lone surrogates, which a JSON object may hold."""
    return name if name.isprintable() else ascii(name)[1:-1][:_LONGEST_NAME]


def read_step(given: object) -> float | None:
    """A number on the axis of steps; None for anything else."""
    number = read_number(given) if given is not None else None
    return number if number is not None and abs(number) <= _LARGEST_STEP else None


def _extremes(points: Sequence[MetricPoint]) -> list[MetricPoint]:
    """The lowest and the highest, in their order; one where all are equal."""
    if len(points) < 2:
        return list(points)
    values = [point.value for point in points]
    places = sorted({values.index(min(values)), values.index(max(values))})
    return [points[place] for place in places]


def _thinned(points: Sequence[MetricPoint], most: int) -> list[MetricPoint]:
    if len(points) <= most:
        return list(points)
    if most < 4:
        return list(points[-1:])
    groups = (most - 1) // 2
    before = points[:-1]
    found = _flat(
        _extremes(before[len(before) * one // groups : len(before) * (one + 1) // groups]) for one in range(groups)
    )
    return [*found, points[-1]]


def _flat(groups: Iterable[Sequence[MetricPoint]]) -> list[MetricPoint]:
    return [point for group in groups for point in group]
