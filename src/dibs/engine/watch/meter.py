"""What one attempt has used so far, from the samples of it."""

from dibs.engine.watch.attribution import Sample
from dibs.engine.watch.series import Point, Series, StoredSeries
from dibs.model.usage import Usage
from dibs.supervise.census import Tree

_GROWN = 0.01  # of its memory on the cards; less is no growth
_GROWN_BYTES = 64 * 1024**2
_CALM_LOOKS = 3
_CALM_SECONDS = 1.5
_LONGEST_PAUSE = 120.0  # seconds between two looks; of what was in a longer one nobody knows
_LONGEST_TAIL = 2.0  # seconds after the last look for which its power is believed
_JOULES = 3600.0  # in a watt-hour


class Meter:
    """Adds up. All moments are of one clock that nobody sets."""

    def __init__(
        self, began: float, now: float, *, is_resumed: bool = False, kept: StoredSeries | None = None
    ) -> None:
        """`began` is the attempt's start; `kept` what an engine before us measured, where that one began it."""
        self.counts_from = now if is_resumed else began
        self.series = kept.series if kept else Series()
        self.samples = len(self.series.points)
        self._began = began
        self._last = began  # when it was looked at last
        self._tree: Tree | None = None
        self._power: float | None = None
        usage = kept.usage if kept else Usage()
        self._is_resumed = is_resumed  # what was before the first look is not for us to count
        self._seconds = usage.seconds
        self._loaded = (usage.mean_load or 0.0) * usage.seconds  # percent-seconds
        self._load_seconds = usage.seconds if usage.mean_load is not None else 0.0
        self._joules = None if usage.energy is None else usage.energy * _JOULES
        self._cpu = (usage.mean_cpus or 0.0) * usage.seconds
        self._peak = usage.peak_vram
        self._total = usage.vram_total
        self._peak_mem = usage.peak_mem
        self._is_alone = usage.was_alone
        self._astray = dict.fromkeys(usage.astray)
        self._calm = _Calm()

    @property
    def astray(self) -> tuple[str, ...]:
        return tuple(self._astray)

    def is_steady(self, now: float) -> bool:
        return self._calm.is_steady(now)

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
        for gpu, held in sample.memory.items():
            if self._peak is None or held > self._peak:
                self._peak, self._total = held, sample.totals.get(gpu)
        self._peak_mem = max(self._peak_mem or 0, sample.tree.memory)
        self._is_alone &= sample.is_alone
        self._astray |= dict.fromkeys(sample.astray)
        self._power = sum(sample.power.values()) if sample.power else None
        self._calm.look(sum(sample.memory.values()), sample.load, now)
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

    def add_energy(self, joules: float) -> None:
        self._joules = max(0.0, (self._joules or 0.0) + joules)

    def usage(self, now: float) -> Usage:
        """Everything so far. What the cards took since the last look is guessed from their power then."""
        joules = self._joules
        if joules is not None and self._power is not None:
            joules += self._power * min(_LONGEST_TAIL, max(0.0, now - self._last))
        return Usage(
            seconds=round(self._seconds, 3),
            peak_vram=self._peak,
            vram_total=self._total,
            mean_load=round(self._loaded / self._load_seconds, 2) if self._load_seconds > 0 else None,
            energy=None if joules is None else round(joules / _JOULES, 6),
            peak_mem=self._peak_mem,
            mean_cpus=round(self._cpu / self._seconds, 3) if self._seconds > 0 else None,
            is_steady=self.is_steady(now),
            was_alone=self._is_alone,
            astray=self.astray,
        )

    def _cpu_since(self, tree: Tree) -> float:
        """Seconds of processors since the last look. What was reaped moves from a child to who waited for it."""
        before, self._tree = self._tree, tree
        if before is None:
            return tree.cpu  # what the shim itself has waited for may be of an attempt before this one
        return max(0.0, tree.cpu + tree.reaped - before.cpu - before.reaped)


class _Calm:
    """Whether an attempt's memory has stopped growing, once it has begun to compute."""

    def __init__(self) -> None:
        self._memory = 0
        self._grown_at: float | None = None  # None until it used a card
        self._looks = 0
        self._computes = False

    def look(self, memory: int, load: float | None, now: float) -> None:
        if not memory:
            return
        self._computes |= bool(load)
        if self._grown_at is None or memory > self._memory + max(_GROWN * self._memory, _GROWN_BYTES):
            self._memory, self._grown_at, self._looks = memory, now, 0
        else:
            self._looks += 1

    def is_steady(self, now: float) -> bool:
        return (
            self._computes
            and self._grown_at is not None
            and self._looks >= _CALM_LOOKS
            and now - self._grown_at >= _CALM_SECONDS
        )
