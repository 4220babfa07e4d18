"""What running attempts use of the cards and of the machine, looked at whenever the cards are read."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dibs.engine import series
from dibs.engine.attribution import Attribution, Holder
from dibs.engine.hand import Key, Open
from dibs.engine.joules import Joules
from dibs.engine.meter import Meter
from dibs.engine.series import Kept, Series
from dibs.model.gpus import CardState
from dibs.supervise.census import Census, Seen, shim_of

if TYPE_CHECKING:
    from dibs.engine.engine import Engine
    from dibs.model.gpus import Reading
    from dibs.model.jobs import Attempt
    from dibs.model.usage import Usage

_SHORTEST_PAUSE = 0.5  # seconds between two looks; the cards are read at each job's end as well
_WRITE_EVERY = 10.0  # seconds
_LEAST_SAMPLES = 2  # of a series that is kept

# Does work in a thread and calls back on the loop; False where it cannot now.
Aside = Callable[[Callable[[], Any], Callable[[Any], Any]], bool]


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
        self._watched: dict[Key, _Watched] = {}
        self._free: Reading | None = None  # what was seen last while nothing ran
        self._looked_at = -_SHORTEST_PAUSE
        self._is_looking = False
        engine.tell_reading.append(self.saw)
        engine.usage_of = self.usage_of
        engine.close_series = self.close

    def usage_of(self, key: Key) -> "Usage | None":
        """What an open attempt has used so far; None before the first look at it."""
        watched = self._watched.get(key)
        return None if watched is None or not watched.meter.samples else watched.meter.usage(self._ticks())

    def series_of(self, key: Key) -> Series | None:
        watched = self._watched.get(key)
        return None if watched is None else watched.meter.series

    def saw(self, reading: "Reading") -> None:
        """The cards were read: look at the processes, and put both together."""
        if not self._engine.hand.open:
            self._free = reading
            self._joules.clear()
            self._watched.clear()
            return
        now = self._ticks()
        if self._is_looking or now - self._looked_at < _SHORTEST_PAUSE:
            return
        at = reading.at.timestamp()
        # What began since the reading is not in it.
        there = [one for one in self._engine.hand.open.values() if one.attempt.opened_at <= at]
        if not there:
            return
        new = [one for one in there if one.attempt.key not in self._watched]
        shims = [watched.shim for watched in self._watched.values()]
        self._looked_at = now
        self._is_looking = True
        if not self._aside(lambda: self._look(new, shims), lambda found: self._take_in(reading, now, found)):
            self._is_looking = False

    def close(self, attempt: "Attempt") -> bool:
        """An attempt has ended, and that is recorded: keep its series; say whether there is one."""
        watched = self._watched.pop(attempt.key, None)
        if watched is None or watched.meter.samples < _LEAST_SAMPLES:
            return False
        self._aside(watched.writing(self._ticks()), _ignore)
        return True

    def close_all(self) -> None:
        """We leave, and the attempts go on: whoever comes after us goes on with their files."""
        for watched in self._watched.values():
            if watched.meter.samples >= _LEAST_SAMPLES:
                watched.writing(self._ticks())()
        self._watched.clear()

    def _look(self, new: Sequence[Open], shims: Sequence[int]) -> "_Look | None":
        """In the thread. None where the machine is short of something: the next look may go better."""
        found: dict[Key, int] = {}
        kept: dict[Key, Kept] = {}
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
        hand = self._engine.hand
        if look is None:
            self._is_looking = False
            return
        for key in [key for key in self._watched if key not in hand.open]:
            del self._watched[key]  # it never ran
        for key, shim in look.new.items():
            if key in hand.open:
                self._watched[key] = self._watch(hand.open[key], shim, look.kept.get(key), now)
        if self._free is not None:
            self._attribution.saw_free(self._free)
            self._free = None
        # A shim has one attempt at a time, and the last is the one.
        by_shim = {
            watched.shim: Holder(key, hand.open[key].attempt.claims, watched.shim)
            for key, watched in self._watched.items()
        }
        samples = self._attribution.divide(reading, by_shim.values(), look.seen)
        self._count_energy(reading, now, {key: tuple(sample.power) for key, sample in samples.items()})
        for key, sample in samples.items():
            watched = self._watched[key]
            was_astray = bool(watched.meter.astray)
            watched.meter.add(sample, now)
            if sample.astray and not was_astray:
                self._flag(hand.open[key], sample.astray, reading)
            if watched.is_steady != (steady := watched.meter.is_steady(now)):
                watched.is_steady = steady
                self._engine.hand.ask_for_turn()  # others like it may know now what they need
            if watched.is_due(now):
                watched.written_at = now
                self._aside(watched.writing(now), _ignore)
        held = {claim.gpu for one in hand.open.values() for claim in one.attempt.claims}
        self._attribution.saw_free(reading, held)
        self._is_looking = False

    def _watch(self, one: Open, shim: int, kept: Kept | None, now: float) -> "_Watched":
        age = max(0.0, self._engine.clock() - one.attempt.opened_at)
        meter = Meter(now - age, now, is_resumed=not one.is_ours, kept=kept)
        return _Watched(meter, shim, one.attempt.folder, now)

    def _count_energy(self, reading: "Reading", now: float, cards: Mapping[Key, Sequence[str]]) -> None:
        for seen in reading.gpus:
            gpu = seen.gpu.key
            since = {key: self._watched[key].meter.counts_from for key, held in cards.items() if gpu in held}
            power = seen.power if seen.state is CardState.OK else None  # else it is an old one
            used = self._joules.setdefault(gpu, Joules()).add(now, power, seen.energy, since)
            for key, joules in used.items():
                if key in self._watched:
                    self._watched[key].meter.add_energy(joules)

    def _flag(self, one: Open, astray: Sequence[str], reading: "Reading") -> None:
        numbers = {seen.gpu.key: seen.gpu.number for seen in reading.gpus}
        used = [numbers[key] for key in astray]
        given = [numbers.get(claim.gpu, str(claim.index)) for claim in one.attempt.claims]
        has = f"it has {_gpus(given)}" if given else "it has none"
        sentence = f"job {one.job.label} uses {_gpus(used)}, which it was not given: {has}"
        self._engine.tell_astray(one, used, sentence)


@dataclass(slots=True)
class _Watched:
    meter: Meter
    shim: int
    folder: str
    written_at: float
    is_steady: bool = False

    def is_due(self, now: float) -> bool:
        """Whether its file is old. One that is merged from many looks changes rarely."""
        pause = max(_WRITE_EVERY, self.meter.series.step)
        return self.meter.samples >= _LEAST_SAMPLES and now - self.written_at >= pause

    def writing(self, now: float) -> Callable[[], None]:
        """What writes the file as it is now, in any thread."""
        folder, usage, columns = self.folder, self.meter.usage(now), self.meter.series.columns()
        return lambda: series.write(folder, usage, columns)


@dataclass(frozen=True, slots=True)
class _Look:
    new: Mapping[Key, int]  # shims of attempts that were not known before
    kept: Mapping[Key, Kept]  # what an engine before us left of them
    seen: Seen


def _gpus(numbers: Sequence[str]) -> str:
    return f"GPU{'s' * (len(numbers) > 1)} {', '.join(numbers)}"


def _ignore(_: None) -> None:
    pass
