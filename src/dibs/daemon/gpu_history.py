"""What the cards did in the last hour, for the lines on the page. It is kept in memory only, and never grows."""

import math
import time
from array import array
from collections.abc import Callable
from typing import Annotated, Any

from fastapi import APIRouter, Query, Response

from dibs.daemon.http.errors import Answer, StrictRoute, errors
from dibs.daemon.schemas.gpus import GpuHistory
from dibs.daemon.schemas.serializers import moment
from dibs.model.gpus import CardState, GpuReading, Reading

LONGEST = 3600  # seconds
STEP = 6  # seconds; readings within one of these become one point
_POINTS = LONGEST // STEP
_MOST_CARDS = 256
_STANDS_FOR = 40  # seconds; a quiet daemon looks every half minute, and what it saw stands until it looks again
_UNKNOWN = math.nan
_QUANTITIES: dict[str, Callable[[GpuReading], float | None]] = {
    "load_percent": lambda seen: seen.load,
    "memory_used_bytes": lambda seen: seen.memory_used,
    "power_watts": lambda seen: seen.power,
    "temperature_celsius": lambda seen: seen.temperature,
}
_MEANS = ("load_percent", "power_watts")  # of the others the most
_WHOLE = ("memory_used_bytes",)


def history_routes(history: "History") -> APIRouter:
    routes = APIRouter(route_class=StrictRoute)

    @routes.get("/v1/gpus/history", responses={200: {"model": GpuHistory}, **errors(503)})
    async def past(seconds: Annotated[int, Query(ge=STEP, le=LONGEST)] = 600) -> Response:
        """What every card did lately, in steps of a few seconds."""
        return Answer(history.last(seconds, time.time()))

    return routes


class History:
    """One ring of points for each card."""

    def __init__(self) -> None:
        self._cards: dict[str, _Ring] = {}

    def heard(self, reading: Reading) -> None:
        """Keep what a look at the cards has shown."""
        step = int(reading.at.timestamp() // STEP)
        for seen in reading.gpus:
            if seen.state is not CardState.OK:
                continue  # what it shows was seen before
            ring = self._cards.get(seen.gpu.key)
            if ring is None or step < ring.newest - _STANDS_FOR // STEP:  # or the clock was set back
                self._make_room(step)
                ring = self._cards[seen.gpu.key] = _Ring(step)
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
                for key, ring in self._cards.items()
                if ring.newest >= first - _STANDS_FOR // STEP
            ],
        }

    def _make_room(self, step: int) -> None:
        """Forget cards that were not seen for an hour; where there are very many, the one not seen for longest."""
        for key in [key for key, ring in self._cards.items() if ring.newest <= step - _POINTS]:
            del self._cards[key]
        if len(self._cards) >= _MOST_CARDS:
            del self._cards[min(self._cards, key=lambda key: self._cards[key].newest)]


class _Ring:
    """The points of one card. A point's place is its step modulo the ring's length."""

    def __init__(self, step: int) -> None:
        self.newest = step
        self._looks = 0  # that the newest point was made of
        self._values = {name: array("d", [_UNKNOWN]) * _POINTS for name in _QUANTITIES}

    def add(self, step: int, seen: GpuReading) -> None:
        if step > self.newest:
            for passed in range(max(self.newest + 1, step - _POINTS + 1), step + 1):
                for values in self._values.values():
                    values[passed % _POINTS] = _UNKNOWN
            self.newest, self._looks = step, 0
        place = self.newest % _POINTS
        self._looks += 1
        for name, read in _QUANTITIES.items():
            value, values = read(seen), self._values[name]
            if value is None:
                continue
            before = values[place]
            if math.isnan(before):
                values[place] = value
            elif name in _MEANS:
                values[place] = before + (value - before) / self._looks
            else:
                values[place] = max(before, value)

    def columns(self, first: int, end: int) -> dict[str, list[float | None]]:
        return {name: self._column(name, first, end) for name in _QUANTITIES}

    def _column(self, name: str, first: int, end: int) -> list[float | None]:
        values, column = self._values[name], []
        last, seen_at = _UNKNOWN, first
        for step in range(max(first - _STANDS_FOR // STEP, self.newest - _POINTS + 1), end + 1):
            value = values[step % _POINTS] if step <= self.newest else _UNKNOWN
            if not math.isnan(value):
                last, seen_at = value, step
            elif (step - seen_at) * STEP > _STANDS_FOR:
                last = _UNKNOWN
            if step >= first:
                column.append(_shown(name, last))
        return [None] * (end - first + 1 - len(column)) + column


def _shown(name: str, value: float) -> float | None:
    if not math.isfinite(value):
        return None
    return int(value) if name in _WHOLE else round(value, 1)
