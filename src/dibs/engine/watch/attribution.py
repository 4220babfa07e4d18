"""Whose is what on the cards: from one reading and one look at the processes to each attempt's part."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from dibs.engine.turn.state import Key
from dibs.model.claims import Claim
from dibs.model.gpus import CardState, GpuReading, Reading, declared_key
from dibs.supervise.census import Seen, Tree

_NOISE = 16 * 1024**2  # bytes by which a card's memory differs though nobody came


@dataclass(frozen=True, slots=True)
class CardHolder:
    """An open attempt: what it was given, and the shim that its processes are below."""

    key: Key
    claims: tuple[Claim, ...]
    shim: int


@dataclass(frozen=True, slots=True)
class Sample:
    """What one attempt uses at one moment. What nobody could tell is None."""

    tree: Tree
    memory: Mapping[str, int] = field(default_factory=dict)  # bytes on each of its cards, as far as they are known
    totals: Mapping[str, int] = field(default_factory=dict)  # bytes that these cards have
    load: float | None = None  # percent of its cards
    power: Mapping[str, float] = field(default_factory=dict)  # watts of its part, by card
    is_alone: bool = True
    astray: tuple[str, ...] = ()  # cards that it was not given


class Attribution:
    """Divides the cards among those who hold them."""

    def __init__(self) -> None:
        self._before: dict[str, int] = {}  # bytes used on each card when none of us held it last
        self._weights: dict[str, dict[Key, float]] = {}  # of the load, as it was last told for each process

    def saw_free(self, reading: Reading, held: Iterable[str] = ()) -> None:
        """Remember what a card that we do not hold is filled with."""
        taken = set(held)
        for seen in reading.gpus:
            if seen.memory_used is not None and not _names(seen) & taken:
                self._before[seen.gpu.key] = seen.memory_used

    def divide(self, reading: Reading, holders: Iterable[CardHolder], seen: Seen) -> dict[Key, Sample]:
        """Each attempt's part. An attempt whose processes are not there has none."""
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
                continue  # what stands there is old
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
            return 0  # everybody there is known, and it is not among them
        # In a container, and in WSL, the driver does not say whose the memory is.
        before = self._before.get(card.gpu.key)
        if not is_alone or on_card.has_strangers or card.memory_used is None or before is None:
            return None
        more = card.memory_used - before
        return more if more > _NOISE else 0

    def _loads(self, card: GpuReading, on_card: "_Processes", here: list[Key]) -> dict[Key, float]:
        """Each one's part of the card's load: as the driver last told it for processes, else in equal parts."""
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

    def __init__(self, card: GpuReading, seen: Seen, by_shim: Mapping[int, Key]) -> None:
        self.memory: dict[Key, int | None] = {}  # None: it is there, but how much it holds is not known
        self.loads: dict[Key, float] = {}
        self.has_strangers = False
        # Nothing listed on a card that is in use, or somebody whose pid means nothing here: it may be one of ours.
        self.may_hide = not card.processes
        for process in card.processes:
            # Whoever ended since the reading is nobody's now: its shim may have begun with the next attempt.
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
