"""Samples of what running attempts use, taken whenever the cards are read, and each attempt's part of a card."""

import contextlib
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from dibs.dataclass import dataclass
from dibs.engine.turn.state import Key, OpenAttempt
from dibs.engine.watch.metering import CardEnergy, Measured, Meter, Sample, StoredSeries, read_series
from dibs.model.gpus import CardState, Claim, GpuReading, Reading, declared_key
from dibs.model.jobs import State
from dibs.supervise.folder import marked_processes
from dibs.supervise.process_usage import ProcessUsage, TreeUsage, shim_of
from dibs.worker_thread import PatientReader, Submit

if TYPE_CHECKING:
    from dibs.engine.engine import Engine

_NOISE = 16 * 1024**2  # bytes by which a card's memory differs without a new process
_SHORTEST_PAUSE = 0.5  # seconds between two looks; the cards are read at each job's end as well
_CLOSE_PAUSE = 0.1  # the same while a card may run out of memory


class Sampler:
    """Measures open attempts. The processes are read and files written in a thread, the rest happens on the loop.

    It is idle while nothing runs or the cards are not read. After an unexpected error in the thread nothing more
    is measured: no job depends on it.
    """

    def __init__(self, engine: "Engine", submit: Submit, ticks: Callable[[], float] = time.monotonic) -> None:
        self._engine = engine
        self._submit = submit
        self._ticks = ticks
        self._census = ProcessUsage()  # this and the next are used in the thread only
        self._folders = PatientReader()  # a job can replace its folder by one that does not answer
        self._attribution = Attribution()
        self._energy: dict[str, CardEnergy] = {}  # by card
        self._meters = engine.meters
        self._free: Reading | None = None  # the last reading while nothing ran
        self._looked_at = -_SHORTEST_PAUSE
        self._is_looking = False
        engine.readings.subscribe(self.saw)

    def saw(self, reading: Reading) -> None:
        """The cards were read: read the processes too, and combine both."""
        if not self._engine.state.open:
            self._free = reading
            self._energy.clear()
            self._meters.keep_only(())
            return
        now = self._ticks()
        pause = _CLOSE_PAUSE if self._engine.guards_cards else _SHORTEST_PAUSE
        if self._is_looking or now - self._looked_at < pause:
            return
        at = reading.at.timestamp()
        # Attempts that started after the reading are not in it.
        there = [one for one in self._engine.state.open.values() if one.attempt.opened_at <= at]
        if not there:
            return
        new = [one for one in there if one.attempt.key not in self._meters]
        shims = [measured.shim for _, measured in self._meters.items()]
        contained = [one.attempt.folder for one in there if one.job.request.image]
        self._looked_at = now
        self._is_looking = True
        if not self._submit(
            lambda: self._look(new, shims, contained), lambda found: self._take_in(reading, now, found)
        ):
            self._is_looking = False

    def _look(self, new: Sequence[OpenAttempt], shims: Sequence[int], contained: Sequence[str]) -> "_Look | None":
        """In the thread; `contained` are the folders of attempts in containers.

        None where the machine is short of a resource; the next reading tries again.
        """
        found: dict[Key, int] = {}
        kept: dict[Key, StoredSeries] = {}
        for one in new:
            shim, left = self._read(one.attempt.folder, has_series=not one.is_ours)
            if shim is None:
                continue  # it is being started
            found[one.attempt.key] = shim
            if left is not None:
                kept[one.attempt.key] = left
        try:
            elsewhere = {
                pid: shim
                for folder in contained
                if (shim := self._read(folder)[0]) is not None
                for pid in marked_processes(folder)
            }
            return _Look(found, kept, self._census.look({*shims, *found.values()}, elsewhere))
        except (OSError, MemoryError):
            return None

    def _read(self, folder: str, *, has_series: bool = False) -> tuple[int | None, StoredSeries | None]:
        """In the thread: the shim of an attempt, and what an earlier engine measured of it."""

        def work() -> tuple[int | None, StoredSeries | None]:
            return shim_of(folder), read_series(folder) if has_series else None

        try:
            return self._folders.read(folder, work)
        except TimeoutError:
            return None, None  # tried again with the next reading

    def _write(self, folder: str, write: Callable[[], None]) -> None:
        """In the thread."""
        with contextlib.suppress(TimeoutError):  # no job depends on the file
            self._folders.read(folder, write)

    def _take_in(self, reading: Reading, now: float, look: "_Look | None") -> None:
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
        # A shim runs one attempt at a time: the last one counts.
        by_shim = {
            measured.shim: CardHolder(key, running[key].held_claims, measured.shim)
            for key, measured in meters.items()
            if running[key].job.state is not State.SUSPENDED
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
                self._engine.ask_for_turn()  # it may now be known what similar jobs need
            if measured.is_due(now):
                measured.write(now)
        for key, measured in meters.items():
            if running[key].job.state is State.SUSPENDED:
                measured.meter.stand_still(now)
        if self._engine.looks_closely or self._engine.guards_cards:
            self._engine.ask_for_turn()  # others may join the first one now, or one must leave
        held = {claim.gpu for one in running.values() for claim in one.held_claims}
        self._attribution.saw_free(reading, held)
        self._is_looking = False

    def _watch(self, one: OpenAttempt, shim: int, kept: StoredSeries | None, now: float) -> Measured:
        age = max(0.0, self._engine.clock() - one.attempt.opened_at)
        meter = Meter(now - age, now, is_resumed=not one.is_ours, kept=kept)
        folder = one.attempt.folder

        def keep(write: Callable[[], None]) -> None:
            self._submit(lambda: self._write(folder, write), lambda _: None)

        return Measured(meter, shim, folder, now, keep)

    def _count_energy(self, reading: Reading, now: float, cards: Mapping[Key, Sequence[str]]) -> None:
        for seen in reading.gpus:
            gpu = seen.gpu.key
            since = {key: self._meters[key].meter.counts_from for key, held in cards.items() if gpu in held}
            power = seen.power if seen.state is CardState.OK else None  # otherwise the value is an old one
            used = self._energy.setdefault(gpu, CardEnergy()).add(now, power, seen.energy, since)
            for key, joules in used.items():
                if key in self._meters:
                    self._meters[key].meter.add_energy(joules)

    def _flag(self, one: OpenAttempt, astray: Sequence[str], reading: Reading) -> None:
        numbers = {seen.gpu.key: seen.gpu.number for seen in reading.gpus}
        used = [numbers[key] for key in astray]
        given = [numbers.get(claim.gpu, str(claim.index)) for claim in one.attempt.claims]
        has = f"it has {_gpus(given)}" if given else "it has none"
        sentence = f"job {one.job.label} uses {_gpus(used)}, which it was not given: {has}"
        self._engine.report_astray(one, used, sentence)


@dataclass(frozen=True, slots=True)
class _Look:
    new: Mapping[Key, int]  # the shims of attempts that are measured from now on
    kept: Mapping[Key, StoredSeries]  # their series from an earlier engine
    seen: TreeUsage


def _gpus(numbers: Sequence[str]) -> str:
    return f"GPU{'s' * (len(numbers) > 1)} {', '.join(numbers)}"


@dataclass(frozen=True, slots=True)
class CardHolder:
    """An open attempt: what it was given, and the shim that its processes are below."""

    key: Key
    claims: tuple[Claim, ...]
    shim: int


class Attribution:
    """Divides the load and memory of the cards among the attempts that hold them."""

    def __init__(self) -> None:
        self._before: dict[str, int] = {}  # bytes used on each card when no attempt held it
        self._weights: dict[str, dict[Key, float]] = {}  # of the load, as last reported for processes

    def saw_free(self, reading: Reading, held: Iterable[str] = ()) -> None:
        """Remember how much memory is in use on the cards that no attempt holds."""
        taken = set(held)
        for seen in reading.gpus:
            if seen.memory_used is not None and not _names(seen) & taken:
                self._before[seen.gpu.key] = seen.memory_used

    def divide(self, reading: Reading, holders: Iterable[CardHolder], seen: TreeUsage) -> dict[Key, Sample]:
        """Each attempt's part. An attempt without living processes has none."""
        alive = {holder.key: holder for holder in holders if holder.shim in seen.trees}
        by_shim = {holder.shim: holder.key for holder in alive.values()}
        memory: dict[Key, dict[str, int]] = {key: {} for key in alive}
        power: dict[Key, dict[str, float]] = {key: {} for key in alive}
        loads: dict[Key, list[float]] = {key: [] for key in alive}
        totals: dict[Key, dict[str, int]] = {key: {} for key in alive}
        astray: dict[Key, list[str]] = {key: [] for key in alive}
        shared: set[Key] = set()
        for card in reading.gpus:
            if card.state is not CardState.OK:
                continue  # its values are old
            gpu = card.gpu.key
            here = [key for key, one in alive.items() if _names(card) & {claim.gpu for claim in one.claims}]
            on_card = _Processes(card, seen, by_shim)
            for key in on_card.memory.keys() - set(here):
                astray[key].append(gpu)
            if len(here) > 1 or on_card.has_strangers:
                shared.update(here)
            for key in here:
                held = self._memory_of(key, card, on_card, is_alone=len(here) == 1)
                if held is not None:
                    memory[key][gpu] = held
                if card.gpu.memory_total is not None:
                    totals[key][gpu] = card.gpu.memory_total
                if card.power is not None:
                    power[key][gpu] = card.power / len(here)
            for key, load in self._loads(card, on_card, here).items():
                loads[key].append(load)
        return {
            key: Sample(
                tree=seen.trees[one.shim],
                memory=memory[key],
                totals=totals[key],
                load=sum(loads[key]) / len(loads[key]) if loads[key] else None,
                power=power[key],
                is_alone=key not in shared,
                astray=tuple(astray[key]),
            )
            for key, one in alive.items()
        }

    def _memory_of(self, key: Key, card: GpuReading, on_card: "_Processes", *, is_alone: bool) -> int | None:
        if key in on_card.memory:
            known = on_card.memory[key]
            if known is not None:
                return known
        elif not on_card.may_hide:
            return 0  # all processes there are known, and it has none
        # In a container and in WSL the driver does not report which process uses the memory.
        before = self._before.get(card.gpu.key)
        if not is_alone or on_card.has_strangers or card.memory_used is None or before is None:
            return None
        more = card.memory_used - before
        return more if more > _NOISE else 0

    def _loads(self, card: GpuReading, on_card: "_Processes", here: list[Key]) -> dict[Key, float]:
        """Each attempt's part of the load: as last reported for its processes, otherwise an equal part."""
        if card.load is None or not here:
            return {}
        if on_card.loads:
            self._weights[card.gpu.key] = on_card.loads
        busy = [key for key in here if key in on_card.memory] if not on_card.may_hide else here
        if not busy:
            return dict.fromkeys(here, 0.0)
        weights = self._weights.get(card.gpu.key, {})
        total = sum(weights.get(key, 0.0) for key in busy)
        if total <= 0 or not weights.keys() >= set(busy):
            weights, total = dict.fromkeys(busy, 1.0), float(len(busy))
        return {key: card.load * weights[key] / total if key in busy else 0.0 for key in here}


class _Processes:
    """The processes on one card, by attempt."""

    def __init__(self, card: GpuReading, seen: TreeUsage, by_shim: Mapping[int, Key]) -> None:
        self.memory: dict[Key, int | None] = {}  # None: it is there, with an unknown amount
        self.loads: dict[Key, float] = {}
        self.has_strangers = False
        # No process is listed, or one has a pid unknown in this namespace: it may be one of our jobs.
        self.may_hide = not card.processes
        for process in card.processes:
            # A process that ended since the reading has no owner: its shim may run the next attempt by now.
            shim = seen.owners.get(process.pid)
            key = by_shim.get(shim) if shim else None
            if key is None:
                self.may_hide |= shim is None and process.user is None
                self.has_strangers |= shim == 0 and process.user is not None and process.kind == "compute"
                continue
            if process.kind != "compute":
                continue
            before = self.memory.get(key, 0)
            known = process.memory is not None and before is not None
            self.memory[key] = (before or 0) + (process.memory or 0) if known else None
            if process.load is not None:
                self.loads[key] = self.loads.get(key, 0.0) + process.load


def _names(card: GpuReading) -> set[str]:
    return {card.gpu.key, declared_key(card.gpu.index)} if card.gpu.part is None else {card.gpu.key}
