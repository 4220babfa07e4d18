"""What running attempts use of the cards and of the machine, looked at whenever the cards are read."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dibs.engine.turn.state import Key, OpenAttempt
from dibs.engine.watch import series
from dibs.engine.watch.attribution import Attribution, CardHolder
from dibs.engine.watch.energy import Joules
from dibs.engine.watch.meter import Meter
from dibs.engine.watch.meters import Aside, Measured
from dibs.engine.watch.series import StoredSeries
from dibs.model.gpus import CardState
from dibs.supervise.census import Census, Seen, shim_of

if TYPE_CHECKING:
    from dibs.engine.engine import Engine
    from dibs.model.gpus import Reading

_SHORTEST_PAUSE = 0.5  # seconds between two looks; the cards are read at each job's end as well


class Sampler:
    """Measures open attempts. Everything but the looks and the files happens on the loop's thread.

    Nothing is done while nothing runs, nor without somebody who reads the cards. A bug in a look falls once, and
    nothing is measured after it: no job depends on it.
    """

    def __init__(self, engine: "Engine", aside: Aside, ticks: Callable[[], float] = time.monotonic) -> None:
        self._engine = engine
        self._aside = aside
        self._ticks = ticks
        self._census = Census()  # for the thread alone
        self._attribution = Attribution()
        self._joules: dict[str, Joules] = {}  # by card
        self._meters = engine.meters
        self._free: Reading | None = None  # what was seen last while nothing ran
        self._looked_at = -_SHORTEST_PAUSE
        self._is_looking = False
        engine.readings.subscribe(self.saw)

    def saw(self, reading: "Reading") -> None:
        """The cards were read: look at the processes, and put both together."""
        if not self._engine.state.open:
            self._free = reading
            self._joules.clear()
            self._meters.keep_only(())
            return
        now = self._ticks()
        if self._is_looking or now - self._looked_at < _SHORTEST_PAUSE:
            return
        at = reading.at.timestamp()
        # What began since the reading is not in it.
        there = [one for one in self._engine.state.open.values() if one.attempt.opened_at <= at]
        if not there:
            return
        new = [one for one in there if one.attempt.key not in self._meters]
        shims = [measured.shim for _, measured in self._meters.items()]
        self._looked_at = now
        self._is_looking = True
        if not self._aside(lambda: self._look(new, shims), lambda found: self._take_in(reading, now, found)):
            self._is_looking = False

    def _look(self, new: Sequence[OpenAttempt], shims: Sequence[int]) -> "_Look | None":
        """In the thread. None where the machine is short of something: the next look may go better."""
        found: dict[Key, int] = {}
        kept: dict[Key, StoredSeries] = {}
        for one in new:
            if (shim := shim_of(one.attempt.folder)) is None:
                continue  # it is just being started
            found[one.attempt.key] = shim
            if not one.is_ours and (left := series.read(one.attempt.folder)) is not None:
                kept[one.attempt.key] = left
        try:
            return _Look(found, kept, self._census.look({*shims, *found.values()}))
        except (OSError, MemoryError):
            return None

    def _take_in(self, reading: "Reading", now: float, look: "_Look | None") -> None:
        running, meters = self._engine.state.open, self._meters
        if look is None:
            self._is_looking = False
            return
        meters.keep_only(running)
        for key, shim in look.new.items():
            if key in running:
                meters.add(key, self._watch(running[key], shim, look.kept.get(key), now))
        if self._free is not None:
            self._attribution.saw_free(self._free)
            self._free = None
        # A shim has one attempt at a time, and the last is the one.
        by_shim = {
            measured.shim: CardHolder(key, running[key].attempt.claims, measured.shim)
            for key, measured in meters.items()
        }
        samples = self._attribution.divide(reading, by_shim.values(), look.seen)
        self._count_energy(reading, now, {key: tuple(sample.power) for key, sample in samples.items()})
        for key, sample in samples.items():
            measured = meters[key]
            was_astray = bool(measured.meter.astray)
            measured.meter.add(sample, now)
            if sample.astray and not was_astray:
                self._flag(running[key], sample.astray, reading)
            if measured.is_steady != (steady := measured.meter.is_steady(now)):
                measured.is_steady = steady
                self._engine.ask_for_turn()  # it may be known now what similar jobs need
            if measured.is_due(now):
                measured.write(now)
        held = {claim.gpu for one in running.values() for claim in one.attempt.claims}
        self._attribution.saw_free(reading, held)
        self._is_looking = False

    def _watch(self, one: OpenAttempt, shim: int, kept: StoredSeries | None, now: float) -> Measured:
        age = max(0.0, self._engine.clock() - one.attempt.opened_at)
        meter = Meter(now - age, now, is_resumed=not one.is_ours, kept=kept)
        return Measured(meter, shim, one.attempt.folder, now, self._aside)

    def _count_energy(self, reading: "Reading", now: float, cards: Mapping[Key, Sequence[str]]) -> None:
        for seen in reading.gpus:
            gpu = seen.gpu.key
            since = {key: self._meters[key].meter.counts_from for key, held in cards.items() if gpu in held}
            power = seen.power if seen.state is CardState.OK else None  # else it is an old one
            used = self._joules.setdefault(gpu, Joules()).add(now, power, seen.energy, since)
            for key, joules in used.items():
                if key in self._meters:
                    self._meters[key].meter.add_energy(joules)

    def _flag(self, one: OpenAttempt, astray: Sequence[str], reading: "Reading") -> None:
        numbers = {seen.gpu.key: seen.gpu.number for seen in reading.gpus}
        used = [numbers[key] for key in astray]
        given = [numbers.get(claim.gpu, str(claim.index)) for claim in one.attempt.claims]
        has = f"it has {_gpus(given)}" if given else "it has none"
        sentence = f"job {one.job.label} uses {_gpus(used)}, which it was not given: {has}"
        self._engine.tell_astray(one, used, sentence)


@dataclass(frozen=True, slots=True)
class _Look:
    new: Mapping[Key, int]  # shims of attempts that were not known before
    kept: Mapping[Key, StoredSeries]  # what an engine before us left of them
    seen: Seen


def _gpus(numbers: Sequence[str]) -> str:
    return f"GPU{'s' * (len(numbers) > 1)} {', '.join(numbers)}"
