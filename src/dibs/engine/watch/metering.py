"""What open attempts use of the cards and of the machine: samples become a series and a sum, kept in a file.

The sampler (sampling.py) adds samples whenever the cards are read.
"""

import contextlib
import json
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from typing import TYPE_CHECKING, Any

from dibs.dataclass import dataclass
from dibs.engine.turn.state import Key
from dibs.files import replace_file
from dibs.model.jobs import Attempt
from dibs.model.usage import Usage
from dibs.store.codec import decode_usage, encode_usage
from dibs.supervise.folder import open_own_file
from dibs.worker_thread import wait_in_thread

if TYPE_CHECKING:
    from dibs.supervise.process_usage import ProcessTree  # loaded where cards are read

SERIES_FILE = "usage.json"  # in the attempt's folder
MOST_POINTS = 512

_FIRST_STEP = 1.0  # seconds
_VERSION = 1
_LONGEST_FILE = 1024**2  # bytes; a full series takes a thirtieth of that
_COLUMNS = ("memory_bytes", "load_percent", "power_watts", "cpus", "mem_bytes")
_DIGITS = {"load_percent": 1, "power_watts": 1, "cpus": 2}
_WRITE_EVERY = 10.0  # seconds
_WRITE_WITHIN = 0.5  # seconds for the last time: a job can replace its folder by one that does not answer
_FEWEST_SAMPLES = 2  # a shorter series is not kept
_GROWTH = 0.01  # of an attempt's memory on the cards; a smaller change does not count as growth
_GROWTH_BYTES = 64 * 1024**2
_GROWTH_SECONDS = 1.0  # over which it is measured how fast that grows
_STEADY_SAMPLES = 3
_STEADY_SECONDS = 1.5
_LONGEST_PAUSE = 120.0  # seconds between two samples; a longer gap is not counted
_POWER_LASTS = 2.0  # seconds before the first and after the last sample for which its power is assumed
_COUNTER_MIN, _COUNTER_MAX = 0.5, 2.0  # a counter that differs by more than these factors from our sum is ignored
_WATT_HOUR = 3600.0  # joules


@dataclass(frozen=True, slots=True)
class Sample:
    """What one attempt uses at one moment. An unknown quantity is None."""

    tree: "ProcessTree"
    memory: Mapping[str, int] = field(default_factory=dict)  # bytes on each of its cards, where known
    totals: Mapping[str, int] = field(default_factory=dict)  # bytes that these cards have
    load: float | None = None  # percent of its cards
    power: Mapping[str, float] = field(default_factory=dict)  # watts of its part, by card
    is_alone: bool = True
    astray: tuple[str, ...] = ()  # cards that it uses but was not given


@dataclass(frozen=True, slots=True)
class Point:
    """One step of a series. An unknown quantity is None."""

    at: float  # seconds after the attempt's start
    memory: int | None = None  # bytes on the fullest of its cards, the most in this step
    load: float | None = None  # percent; this and the next two are means
    power: float | None = None  # watts
    cpus: float | None = None
    mem: int | None = None  # bytes of the machine's memory, the most in this step
    weight: int = 1  # how many samples it was made of

    def and_then(self, other: "Point") -> "Point":
        """This step and the next as one."""
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
        """As it stands in JSON: a list for each quantity."""
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
    """The content of an attempt's file."""

    usage: Usage
    series: Series


def write_series(folder: str, usage: Usage, columns: dict[str, Any]) -> None:
    """Write it into the attempt's folder, if that is possible: an OSError is ignored, no job depends on it.

    Renamed into place, so that a reader finds a whole file; not synced, because it is not worth the wait.
    """
    content = {"v": _VERSION, "usage": json.loads(encode_usage(usage)), **columns}
    with contextlib.suppress(OSError):
        replace_file(f"{folder}/{SERIES_FILE}", json.dumps(content, separators=(",", ":")), sync=False)


def read_series(folder: str) -> StoredSeries | None:
    """What the attempt's folder holds; None where there is no complete file."""
    try:
        with open(open_own_file(f"{folder}/{SERIES_FILE}"), "rb") as file:
            content = json.loads(file.read(_LONGEST_FILE))
        usage = decode_usage(json.dumps(content["usage"]))
        step = float(content["step_seconds"])
        columns = [content["at_seconds"], *(content[name] for name in _COLUMNS)]
        points = [Point(*(_number(value) for value in row)) for row in zip(*columns, strict=True)]  # type: ignore[arg-type]
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None
    is_sound = step >= _FIRST_STEP and len(points) <= MOST_POINTS and all(point.at is not None for point in points)
    if usage is None or not is_sound:
        return None
    return StoredSeries(usage, Series(step, points))


def stored_usage(folder: str) -> Usage | None:
    """What an earlier engine measured of an attempt."""
    kept = read_series(folder)
    return None if kept is None else kept.usage


def _number(value: object) -> int | float | None:
    """Checked, because a job can write into its own folder: points that are not numbers are refused."""
    if value is None or (isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 2**63):
        return value
    raise ValueError(value)


def _most(one: int | None, other: int | None) -> int | None:
    return one if other is None else other if one is None else max(one, other)


def _mean(one: float | None, weight: int, other: float | None, other_weight: int) -> float | None:
    if one is None or other is None:
        return one if other is None else other
    return (one * weight + other * other_weight) / (weight + other_weight)


class Meter:
    """What one attempt has used so far. All times are of the monotonic clock."""

    def __init__(
        self, began: float, now: float, *, is_resumed: bool = False, kept: StoredSeries | None = None
    ) -> None:
        """`began` is the attempt's start; `kept` is what an earlier engine measured."""
        self.counts_from = now if is_resumed else began
        self.series = kept.series if kept else Series()
        self.samples = len(self.series.points)
        self._began = began
        self._last = began  # time of the last sample
        self._tree: ProcessTree | None = None
        self._power: float | None = None
        usage = kept.usage if kept else Usage()
        self._is_resumed = is_resumed  # what was used before the first sample is not counted
        self._seconds = usage.seconds
        self._loaded = (usage.mean_load or 0.0) * usage.seconds  # percent-seconds
        self._load_seconds = usage.seconds if usage.mean_load is not None else 0.0
        self._joules = None if usage.energy is None else usage.energy * _WATT_HOUR
        self._cpu = (usage.mean_cpus or 0.0) * usage.seconds
        self._peak = usage.peak_vram
        self._total = usage.vram_total
        self._peak_mem = usage.peak_mem
        self._is_alone = usage.was_alone
        self._astray = dict.fromkeys(usage.astray)
        self._growth = _Growth()
        self.memory: Mapping[str, int] = {}  # bytes on each of its cards, as last seen
        self._held = [(began, 0)]  # how many bytes they were, since about a second ago

    @property
    def astray(self) -> tuple[str, ...]:
        return tuple(self._astray)

    @property
    def grows(self) -> float:
        """The bytes that it has taken of its cards in a second, in the last one."""
        (since, before), (now, held) = self._held[0], self._held[-1]
        return max(0.0, (held - before) / max(now - since, _GROWTH_SECONDS))

    def is_steady(self, now: float) -> bool:
        return self._growth.is_steady(now)

    def add(self, sample: Sample, now: float) -> None:
        seconds = max(0.0, now - self._last)
        cpu = self._cpu_since(sample.tree)
        if self._is_resumed or seconds > _LONGEST_PAUSE:
            self._is_resumed, seconds, cpu = False, 0.0, 0.0
        self._last = now
        self._seconds += seconds
        self._cpu += cpu
        if sample.load is not None:
            self._loaded += sample.load * seconds
            self._load_seconds += seconds
        self.memory = sample.memory
        self._held.append((now, sum(sample.memory.values())))
        while len(self._held) > 2 and self._held[1][0] <= now - _GROWTH_SECONDS:
            del self._held[0]
        for gpu, held in sample.memory.items():
            if self._peak is None or held > self._peak:
                self._peak, self._total = held, sample.totals.get(gpu)
        self._peak_mem = max(self._peak_mem or 0, sample.tree.memory)
        self._is_alone &= sample.is_alone
        self._astray |= dict.fromkeys(sample.astray)
        self._power = sum(sample.power.values()) if sample.power else None
        self._growth.add(sum(sample.memory.values()), sample.load, now)
        self.samples += 1
        self.series.add(
            Point(
                at=max(0.0, now - self._began),
                memory=max(sample.memory.values(), default=None),
                load=sample.load,
                power=self._power,
                cpus=cpu / seconds if seconds > 0 else None,
                mem=sample.tree.memory,
            )
        )

    def stand_still(self, now: float) -> None:
        """It is suspended: its time does not count until the next sample."""
        self._last, self._is_resumed, self._power = now, True, None

    def add_energy(self, joules: float) -> None:
        self._joules = max(0.0, (self._joules or 0.0) + joules)

    def usage(self, now: float) -> Usage:
        """The sums so far. The energy since the last sample is estimated from its power."""
        joules = self._joules
        if joules is not None and self._power is not None:
            joules += self._power * min(_POWER_LASTS, max(0.0, now - self._last))
        return Usage(
            seconds=round(self._seconds, 3),
            peak_vram=self._peak,
            vram_total=self._total,
            mean_load=round(self._loaded / self._load_seconds, 2) if self._load_seconds > 0 else None,
            energy=None if joules is None else round(joules / _WATT_HOUR, 6),
            peak_mem=self._peak_mem,
            mean_cpus=round(self._cpu / self._seconds, 3) if self._seconds > 0 else None,
            is_steady=self.is_steady(now),
            was_alone=self._is_alone,
            astray=self.astray,
        )

    def _cpu_since(self, tree: "ProcessTree") -> float:
        """CPU seconds since the last sample. Those of a reaped child move to the process that waited for it."""
        before, self._tree = self._tree, tree
        if before is None:
            return tree.cpu  # what the shim itself has reaped may belong to an earlier attempt
        return max(0.0, tree.cpu + tree.reaped - before.cpu - before.reaped)


class _Growth:
    """Whether an attempt's memory has stopped growing, once it has begun to compute."""

    def __init__(self) -> None:
        self._memory = 0
        self._grown_at: float | None = None  # None until it used a card
        self._samples = 0
        self._computes = False

    def add(self, memory: int, load: float | None, now: float) -> None:
        if not memory:
            return
        self._computes |= bool(load)
        if self._grown_at is None or memory > self._memory + max(_GROWTH * self._memory, _GROWTH_BYTES):
            self._memory, self._grown_at, self._samples = memory, now, 0
        else:
            self._samples += 1

    def is_steady(self, now: float) -> bool:
        return (
            self._computes
            and self._grown_at is not None
            and self._samples >= _STEADY_SAMPLES
            and now - self._grown_at >= _STEADY_SECONDS
        )


class CardEnergy:
    """The energy that one card takes, divided among the attempts that hold it.

    Power is added up over time; the card's own counter, read rarely, corrects the sum since its last value.
    """

    def __init__(self) -> None:
        self._at: float | None = None
        self._power: float | None = None
        self._counter: float | None = None
        self._total = 0.0  # since the counter was read
        self._parts: dict[Key, float] = {}  # of it

    def add(
        self, now: float, power: float | None, counter: float | None, since: Mapping[Key, float]
    ) -> dict[Key, float]:
        """The joules that each holder used since the last sample; `since` is when each began to hold the card.

        They are negative where the counter shows that too much was counted before.
        """
        used = self._integrate(now, power, since)
        if counter is not None and counter != self._counter:
            for key, more in self._correct(counter).items():
                used[key] = used.get(key, 0.0) + more
        return used

    def _integrate(self, now: float, power: float | None, since: Mapping[Key, float]) -> dict[Key, float]:
        at, before, self._at, self._power = self._at, self._power, now, power
        if power is None:
            self._at = self._counter = None  # the next reading starts anew
            return {}
        if at is None or now - at > _LONGEST_PAUSE:
            at, before, self._counter = now - _POWER_LASTS, None, None
        mean = power if before is None else (before + power) / 2
        self._total += mean * (now - at)
        used = {key: mean * max(0.0, now - max(at, begun)) / len(since) for key, begun in since.items()}
        # Only current holders: a card without a counter would never reset the sum.
        self._parts = {key: self._parts.get(key, 0.0) + joules for key, joules in used.items()}
        return used

    def _correct(self, counter: float) -> dict[Key, float]:
        before, self._counter = self._counter, counter
        total, self._total = self._total, 0.0
        parts, self._parts = self._parts, {}
        if before is None or total <= 0 or not _COUNTER_MIN <= (counter - before) / total <= _COUNTER_MAX:
            return {}
        factor = (counter - before) / total
        return {key: joules * (factor - 1) for key, joules in parts.items()}


@dataclass(slots=True)
class Measured:
    """An attempt that is being measured."""

    meter: Meter
    shim: int
    folder: str
    written_at: float
    keep: Callable[[Callable[[], None]], None]  # have its file written, aside
    is_steady: bool = False

    @property
    def is_worth_keeping(self) -> bool:
        return self.meter.samples >= _FEWEST_SAMPLES

    def is_due(self, now: float) -> bool:
        """Whether its file is to be written again. A series with long steps changes rarely."""
        pause = max(_WRITE_EVERY, self.meter.series.step)
        return self.is_worth_keeping and now - self.written_at >= pause

    def writing(self, now: float) -> Callable[[], None]:
        """A function that writes the present state; it may run in any thread."""
        folder, usage, columns = self.folder, self.meter.usage(now), self.meter.series.columns()
        return lambda: write_series(folder, usage, columns)

    def write(self, now: float) -> None:
        self.written_at = now
        self.keep(self.writing(now))


class Meters:
    """The meters of open attempts. Empty where the cards are not read."""

    def __init__(self, ticks: Callable[[], float] = time.monotonic) -> None:
        self._ticks = ticks
        self._measured: dict[Key, Measured] = {}

    def __len__(self) -> int:
        return len(self._measured)

    def __contains__(self, key: Key) -> bool:
        return key in self._measured

    def __getitem__(self, key: Key) -> Measured:
        return self._measured[key]

    def items(self) -> Iterator[tuple[Key, Measured]]:
        return iter(list(self._measured.items()))

    def add(self, key: Key, measured: Measured) -> None:
        self._measured[key] = measured

    def keep_only(self, keys: Iterable[Key]) -> None:
        """Drop the others: their attempts never ran."""
        kept = set(keys)
        self._measured = {key: one for key, one in self._measured.items() if key in kept}

    def usage_of(self, key: Key) -> Usage | None:
        """What an open attempt has used so far; None before the first sample."""
        measured = self._measured.get(key)
        return None if measured is None or not measured.meter.samples else measured.meter.usage(self._ticks())

    def held_by(self, key: Key) -> Mapping[str, int]:
        """The bytes that an attempt holds on each of its cards, as last seen."""
        measured = self._measured.get(key)
        return {} if measured is None else measured.meter.memory

    def growth_of(self, key: Key) -> float:
        """The bytes that an attempt takes of its cards in a second."""
        measured = self._measured.get(key)
        return 0.0 if measured is None else measured.meter.grows

    def series_of(self, key: Key) -> Series | None:
        measured = self._measured.get(key)
        return None if measured is None else measured.meter.series

    def close(self, attempt: Attempt) -> bool:
        """The end of an attempt is recorded: write its series; returns whether there is one."""
        measured = self._measured.pop(attempt.key, None)
        if measured is None or not measured.is_worth_keeping:
            return False
        measured.write(self._ticks())
        return True

    def close_all(self) -> None:
        """The engine leaves and the attempts go on: the next engine continues their files."""
        for measured in self._measured.values():
            if measured.is_worth_keeping:
                with contextlib.suppress(TimeoutError, MemoryError):
                    wait_in_thread(measured.writing(self._ticks()), _WRITE_WITHIN, "usage")
        self._measured.clear()
