"""Changing the cards of a queue: add, remove, drain, undrain.

Each call is one change: durable when it returns, and where it raises nothing has changed.
"""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from dibs.engine.engine import Engine
from dibs.engine.turn.state import Change
from dibs.errors import BadInput
from dibs.model.gpus import Pool
from dibs.model.records import Mark, MarkCleared, MarkSet, SettingChanged
from dibs.model.units import is_gpu_id
from dibs.policy.outcomes import without_gpu

if TYPE_CHECKING:
    from dibs.gpus.probe import Probe


class PoolActions:
    """The verbs of the pool."""

    def __init__(self, engine: Engine, resolve: "Callable[[str, Probe | None], Pool]") -> None:
        # Makes a pool out of its text. It reads the cards through the given probe, so it must not run on the loop.
        self.resolve = resolve
        self._engine = engine

    def drain(self, gpus: Sequence[str], why: str = "") -> list[str]:
        """Start nothing more on these cards; what runs there goes on. Returns the keys of the cards."""
        keys = [key for gpu in gpus for key in self.card_keys(gpu)]
        with self._engine.change() as change:
            for key in keys:
                set_mark(change, Mark(f"gpu {key}", "drained", why, change.now))
        return keys

    def undrain(self, gpus: Sequence[str]) -> list[str]:
        """Take back a drain or a quarantine. Returns the keys of the cards for which there was one."""
        keys = [key for gpu in gpus for key in self.card_keys(gpu)]
        with self._engine.change() as change:
            return [key for key in keys if clear_mark(change, f"gpu {key}")]

    def card_keys(self, gpu: str) -> list[str]:
        """The card that a number or the beginning of a UUID means; of a divided card all its parts."""
        found = [card.gpu.key for card in self._engine.cards.pool.cards if card.gpu.is_called(gpu)]
        if len(found) > 1 and not gpu.isdigit():
            raise BadInput(f"cannot tell which GPU {gpu} is: {', '.join(found)}", remedy="write more of the UUID")
        if not found:
            raise BadInput(
                f"cannot find GPU {gpu} in the queue's pool",
                remedy=f"it has GPU {self._engine.cards.pool.shown or '(none)'}",
            )
        return found

    def with_more(self, gpus: Sequence[str]) -> str:
        """The text of the pool with more GPUs, for `resolve`. Those that are in it stay as they are."""
        entries = self._entries()
        known = {card.gpu.number for card in self._engine.cards.pool.cards}
        known |= {card.gpu.key for card in self._engine.cards.pool.cards}
        return ",".join([*entries, *(gpu for gpu in gpus if gpu not in known)])

    def without(self, gpus: Sequence[str]) -> str:
        """The text of the pool without these GPUs and all their slots."""
        gone = {key for gpu in gpus for key in self.card_keys(gpu)}
        entries = self._entries()
        return ",".join(one for one in entries if not any(gone & {*self.card_keys(gpu)} for gpu in one.split("+")))

    def _entries(self) -> list[str]:
        """By UUID where there is one: a number may mean another card after a reboot."""
        pool = self._engine.cards.pool
        cards = {card.gpu.key: card for card in pool.cards}
        groups = pool.groups or tuple((key,) for key in cards)
        return [
            "+".join(key if is_gpu_id(key) else cards[key].gpu.number for key in group)
            for group in groups
            for _ in range(cards[group[0]].slots)
        ]

    def set(self, text: str, pool: Pool) -> None:
        """Use these GPUs from now on. Those that are not among them any more finish what they run."""
        with self._engine.change() as change:
            change.record(SettingChanged("pool", text))
        self._engine.cards.pool = pool


def set_mark(change: Change, mark: Mark) -> None:
    change.record(MarkSet(mark))
    change.next.set_mark(mark)


def clear_mark(change: Change, subject: str) -> bool:
    """Take a mark away, or end a card's rest; False where there is neither."""
    state = change.next
    kind, _, name = subject.partition(" ")
    is_resting = kind == "gpu" and name in state.resting
    if subject not in state.marks and not is_resting:
        return False
    change.record(MarkCleared(subject, was_set=subject in state.marks))
    state.clear_mark(subject)
    if is_resting:
        state.resting = {key: why for key, why in state.resting.items() if key != name}
    if kind == "gpu":  # a card that is taken back is used again at once
        state.breakers = without_gpu(state.breakers, name)
    return True
