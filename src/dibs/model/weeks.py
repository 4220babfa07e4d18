"""Weeks as ISO 8601 counts them, and the GPU time of attempts in them."""

import re
from collections.abc import Iterable, Sequence
from datetime import date, timedelta
from itertools import pairwise
from typing import NamedTuple

from dibs.dataclass import dataclass
from dibs.errors import BadInput

THIS_WEEK = "this"
_WEEK = r"(?:([0-9]{4})-)?[Ww]?([0-9]{1,2})"


class Week(NamedTuple):
    """From Monday to Sunday. The first week of a year has its first Thursday."""

    year: int
    number: int

    @classmethod
    def of(cls, day: date) -> "Week":
        return cls(*day.isocalendar()[:2])

    @property
    def monday(self) -> date:
        return date.fromisocalendar(self.year, self.number, 1)

    def later(self, weeks: int) -> "Week":
        return Week.of(self.monday + timedelta(weeks=weeks))

    def __str__(self) -> str:
        return f"{self.year}-W{self.number:02}"


def parse_week(text: str, today: date) -> Week:
    """`2026-W46`; `46` is the last week of this number; `this` is the current one."""
    now = Week.of(today)
    if text == THIS_WEEK:
        return now
    match = re.fullmatch(_WEEK, text.strip())
    try:
        if match is None:
            raise ValueError(text)
        number = int(match[2])
        year = int(match[1]) if match[1] else now.year - (number > now.number)
        week = Week(year, number)
        date.fromisocalendar(year, number, 1)
    except ValueError:
        raise BadInput(
            f"cannot read {text[:60]!r} as a week",
            remedy="write it like 2026-W46, or 46 for the last one so numbered",
        ) from None
    if week > now:
        raise BadInput(f"week {week} has not begun", remedy=f"it is week {now} now")
    return week


@dataclass(frozen=True, kw_only=True, slots=True)
class AttemptTime:
    """When an attempt had how much of GPUs, and what was measured of it. Not measured is None."""

    project: str
    begin: float
    end: float
    gpus: float  # two cards are 2, an eighth of one is 0.125
    is_remote: bool = False  # on another machine
    watt_hours: float | None = None
    load: float | None = None  # percent of its part
    off_cards: Sequence[tuple[float, float]] = ()  # when it had nothing of them: suspended, in order

    def seconds_between(self, since: float, until: float) -> float:
        """How long it had its part of the cards between two moments."""
        begin, end = max(since, self.begin), min(until, self.end)
        off = sum(max(0.0, min(end, back) - max(begin, left)) for left, back in self.off_cards)
        return max(0.0, end - begin - off)


@dataclass(slots=True)
class GpuTime:
    """GPU time of several attempts in a week."""

    seconds: float = 0.0  # of GPUs of this machine
    remote_seconds: float = 0.0  # of GPUs elsewhere
    watt_hours: float = 0.0
    load_seconds: float = 0.0  # percent times seconds, where the load was measured
    measured_seconds: float = 0.0
    attempts: int = 0

    @property
    def mean_load(self) -> float | None:
        return self.load_seconds / self.measured_seconds if self.measured_seconds else None

    def add(self, other: "GpuTime") -> None:
        self.seconds += other.seconds
        self.remote_seconds += other.remote_seconds
        self.watt_hours += other.watt_hours
        self.load_seconds += other.load_seconds
        self.measured_seconds += other.measured_seconds
        self.attempts += other.attempts


class WeeklySum:
    """GPU time by week and project. `borders` are the begins of the weeks and the end of the last one."""

    def __init__(self, borders: Sequence[float]) -> None:
        self.weeks: list[dict[str, GpuTime]] = [{} for _ in borders[1:]]
        self._borders = borders

    def add(self, attempts: Iterable[AttemptTime]) -> None:
        """Add attempts, each clipped at the borders. Its energy is taken to be even over its time."""
        for attempt in attempts:
            for week, (since, until) in zip(self.weeks, pairwise(self._borders), strict=True):
                if seconds := attempt.seconds_between(since, until):
                    week.setdefault(attempt.project, GpuTime()).add(_part(attempt, seconds))


def _part(attempt: AttemptTime, seconds: float) -> GpuTime:
    gpu_seconds = seconds * attempt.gpus
    part = seconds / attempt.seconds_between(attempt.begin, attempt.end)
    is_measured = attempt.load is not None and not attempt.is_remote
    return GpuTime(
        seconds=0.0 if attempt.is_remote else gpu_seconds,
        remote_seconds=gpu_seconds if attempt.is_remote else 0.0,
        watt_hours=(attempt.watt_hours or 0.0) * part,
        load_seconds=(attempt.load or 0.0) * gpu_seconds if is_measured else 0.0,
        measured_seconds=gpu_seconds if is_measured else 0.0,
        attempts=1,
    )
