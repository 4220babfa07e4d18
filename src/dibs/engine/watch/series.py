"""What an attempt used over time: a series that never outgrows its bounds, and the file that keeps it."""

import contextlib
import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from dibs.model.usage import Usage
from dibs.store.codec import decode_usage, encode_usage

NAME = "usage.json"  # in the attempt's folder
MOST_POINTS = 512
_FIRST_STEP = 1.0  # seconds
_VERSION = 1
_LONGEST = 1024**2  # bytes; ours are a thirtieth of that
_NAMES = ("memory_bytes", "load_percent", "power_watts", "cpus", "mem_bytes")
_DIGITS = {"load_percent": 1, "power_watts": 1, "cpus": 2}


@dataclass(frozen=True, slots=True)
class Point:
    """One step of a series. What nobody could tell is None."""

    at: float  # seconds after the attempt's start
    memory: int | None = None  # bytes on the fullest of its cards, the most in this step
    load: float | None = None  # percent; this and the next two are means
    power: float | None = None  # watts
    cpus: float | None = None
    mem: int | None = None  # bytes of the machine's memory, the most in this step
    weight: int = 1  # how many looks it was made of

    def and_then(self, other: "Point") -> "Point":
        """Both as one."""
        return Point(
            self.at,
            _most(self.memory, other.memory),
            _mean(self.load, self.weight, other.load, other.weight),
            _mean(self.power, self.weight, other.power, other.weight),
            _mean(self.cpus, self.weight, other.cpus, other.weight),
            _most(self.mem, other.mem),
            self.weight + other.weight,
        )


class Series:
    """At most MOST_POINTS points. When it is full, neighbours become one and the step doubles."""

    def __init__(self, step: float = _FIRST_STEP, points: Sequence[Point] = ()) -> None:
        self.step = step
        self.points = list(points)

    def add(self, point: Point) -> None:
        if self.points and self._step_of(point.at) <= self._step_of(self.points[-1].at):
            self.points[-1] = self.points[-1].and_then(point)
            return
        self.points.append(point)
        while len(self.points) > MOST_POINTS:
            self._halve()

    def columns(self) -> dict[str, Any]:
        """As JSON has it: a list for each quantity."""
        points = self.points
        rows: dict[str, list[Any]] = {
            "memory_bytes": [point.memory for point in points],
            "load_percent": [point.load for point in points],
            "power_watts": [point.power for point in points],
            "cpus": [point.cpus for point in points],
            "mem_bytes": [point.mem for point in points],
        }
        for name, digits in _DIGITS.items():
            rows[name] = [None if value is None else round(value, digits) for value in rows[name]]
        return {"step_seconds": self.step, "at_seconds": [round(point.at, 1) for point in points], **rows}

    def _step_of(self, at: float) -> int:
        return int(at / self.step)

    def _halve(self) -> None:
        self.step *= 2
        points, self.points = self.points, []
        for point in points:
            if self.points and self._step_of(point.at) == self._step_of(self.points[-1].at):
                self.points[-1] = self.points[-1].and_then(point)
            else:
                self.points.append(point)


@dataclass(frozen=True, slots=True)
class StoredSeries:
    """What the file of an attempt holds."""

    usage: Usage
    series: Series


def write(folder: str, usage: Usage, columns: dict[str, Any]) -> None:
    """Keep it in the attempt's folder. It is a pity when that cannot be done, and no more: nothing is raised.

    Renamed into place, so that a reader finds a whole file; not synced, so that no disk waits for it.
    """
    path = f"{folder}/{NAME}"
    content = {"v": _VERSION, "usage": json.loads(encode_usage(usage)), **columns}
    with contextlib.suppress(OSError):
        # O_NOFOLLOW: the folder is the job's too, and it may have put a link in this place.
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
        handle = os.open(f"{path}.new", flags, 0o600)
        try:
            with open(handle, "w", encoding="ascii", closefd=True) as file:
                json.dump(content, file, separators=(",", ":"))
            os.replace(f"{path}.new", path)
        except OSError:
            with contextlib.suppress(OSError):
                os.unlink(f"{path}.new")
            raise


def read(folder: str) -> StoredSeries | None:
    """What stands in the attempt's folder; None where nothing whole does."""
    try:
        handle = os.open(f"{folder}/{NAME}", os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        with open(handle, "rb") as file:
            content = json.loads(file.read(_LONGEST))
        usage = decode_usage(json.dumps(content["usage"]))
        step = float(content["step_seconds"])
        columns = [content["at_seconds"], *(content[name] for name in _NAMES)]
        points = [Point(*(_number(value) for value in row)) for row in zip(*columns, strict=True)]  # type: ignore[arg-type]
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None
    is_sound = step >= _FIRST_STEP and len(points) <= MOST_POINTS and all(point.at is not None for point in points)
    if usage is None or not is_sound:
        return None
    return StoredSeries(usage, Series(step, points))


def left_behind(folder: str) -> Usage | None:
    """What an engine before us measured of an attempt."""
    kept = read(folder)
    return None if kept is None else kept.usage


def _number(value: object) -> int | float | None:
    """A job can write into its own folder: what is no number is no point."""
    if value is None or (isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 2**63):
        return value
    raise ValueError(value)


def _most(one: int | None, other: int | None) -> int | None:
    return one if other is None else other if one is None else max(one, other)


def _mean(one: float | None, weight: int, other: float | None, other_weight: int) -> float | None:
    if one is None or other is None:
        return one if other is None else other
    return (one * weight + other * other_weight) / (weight + other_weight)
