"""Load, memory, power and temperature of the GPUs in the last hour, in a fixed amount of memory."""

import math
from array import array
from collections.abc import Callable
from typing import Any

from dibs.daemon.schemas.responses import moment
from dibs.model.gpus import CardState, GpuReading, Reading

LONGEST = 3600  # seconds
STEP = 6  # seconds; readings within one of these become one point
_POINTS = LONGEST // STEP
_MOST_GPUS = 256
_HOLDS_FOR = 40  # seconds that a reading holds; an idle daemon reads the GPUs every half minute
_UNKNOWN = math.nan
_QUANTITIES: dict[str, Callable[[GpuReading], float | None]] = {
    "load_percent": lambda seen: seen.load,
    "memory_used_bytes": lambda seen: seen.memory_used,
    "power_watts": lambda seen: seen.power,
    "temperature_celsius": lambda seen: seen.temperature,
}
_MEANS = ("load_percent", "power_watts")  # the others keep the maximum
_WHOLE = ("memory_used_bytes",)


class GpuHistoryBuffer:
    """One ring of points for each GPU."""

    def __init__(self) -> None:
        self._gpus: dict[str, _Ring] = {}

    def add(self, reading: Reading) -> None:
        """Keep a reading of the GPUs."""
        step = int(reading.at.timestamp() // STEP)
        for seen in reading.gpus:
            if seen.state is not CardState.OK:
                continue  # its values are old
            ring = self._gpus.get(seen.gpu.key)
            if ring is None or step < ring.newest - _HOLDS_FOR // STEP:  # or the clock was set back
                self._make_room(step)
                ring = self._gpus[seen.gpu.key] = _Ring(step)
            ring.add(step, seen)

    def last(self, seconds: int, now: float) -> dict[str, Any]:
        """The lists all begin at `start_at` and have one value for each step."""
        end = int(now // STEP)
        first = end - seconds // STEP + 1
        return {
            "start_at": moment(first * STEP),
            "step_seconds": STEP,
            "gpus": [
                {"key": key, **ring.columns(first, end)}
                for key, ring in self._gpus.items()
                if ring.newest >= first - _HOLDS_FOR // STEP
            ],
        }

    def _make_room(self, step: int) -> None:
        """Forget GPUs that had no reading for an hour; if there are very many, the one with the oldest reading."""
        for key in [key for key, ring in self._gpus.items() if ring.newest <= step - _POINTS]:
            del self._gpus[key]
        if len(self._gpus) >= _MOST_GPUS:
            del self._gpus[min(self._gpus, key=lambda key: self._gpus[key].newest)]


class _Ring:
    """The points of one GPU. The index of a point is its step modulo the length of the ring."""

    def __init__(self, step: int) -> None:
        self.newest = step
        self._readings = 0  # in the newest point
        self._values = {name: array("d", [_UNKNOWN]) * _POINTS for name in _QUANTITIES}

    def add(self, step: int, seen: GpuReading) -> None:
        if step > self.newest:
            for passed in range(max(self.newest + 1, step - _POINTS + 1), step + 1):
                for values in self._values.values():
                    values[passed % _POINTS] = _UNKNOWN
            self.newest, self._readings = step, 0
        place = self.newest % _POINTS
        self._readings += 1
        for name, read in _QUANTITIES.items():
            value, values = read(seen), self._values[name]
            if value is None:
                continue
            before = values[place]
            if math.isnan(before):
                values[place] = value
            elif name in _MEANS:
                values[place] = before + (value - before) / self._readings
            else:
                values[place] = max(before, value)

    def columns(self, first: int, end: int) -> dict[str, list[float | None]]:
        return {name: self._column(name, first, end) for name in _QUANTITIES}

    def _column(self, name: str, first: int, end: int) -> list[float | None]:
        values, column = self._values[name], []
        last, seen_at = _UNKNOWN, first
        for step in range(max(first - _HOLDS_FOR // STEP, self.newest - _POINTS + 1), end + 1):
            value = values[step % _POINTS] if step <= self.newest else _UNKNOWN
            if not math.isnan(value):
                last, seen_at = value, step
            elif (step - seen_at) * STEP > _HOLDS_FOR:
                last = _UNKNOWN
            if step >= first:
                column.append(_shown(name, last))
        return [None] * (end - first + 1 - len(column)) + column


def _shown(name: str, value: float) -> float | None:
    if not math.isfinite(value):
        return None
    return int(value) if name in _WHOLE else round(value, 1)
