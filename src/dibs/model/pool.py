"""What jobs may use: the GPUs of a pool, and the processors and memory of the machine."""

from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING

from dibs.errors import BadInput
from dibs.model.gpus import Gpu

if TYPE_CHECKING:
    from dibs.model.jobs import Wishes

AUTO = "auto"


@dataclass(frozen=True, kw_only=True, slots=True)
class Card:
    """A GPU of the pool. An id given k times has k slots, and a job books 1/k of the card."""

    gpu: Gpu
    slots: int = 1

    @property
    def slot_share(self) -> Fraction:
        return Fraction(1, self.slots)


@dataclass(frozen=True, kw_only=True, slots=True)
class Pool:
    """The cards that may be used, in order. Where there are groups, a job gets one group whole."""

    cards: tuple[Card, ...]
    groups: tuple[tuple[str, ...], ...] = ()  # keys of cards

    def card(self, key: str) -> Card | None:
        return next((card for card in self.cards if card.gpu.key == key), None)

    def number(self, key: str) -> str:
        """As people write a card; the key itself where it is not in the pool any more."""
        card = self.card(key)
        return key if card is None else card.gpu.number

    @property
    def shown(self) -> str:
        """The cards for people: slots are counted, and groups stand together (`0+1, 2+3`)."""
        cards = {card.gpu.key: card for card in self.cards}
        entries = [[cards[key] for key in group] for group in self.groups] or [[card] for card in self.cards]
        return ", ".join(
            "+".join(card.gpu.number for card in entry) + (f" ×{entry[0].slots}" if entry[0].slots > 1 else "")
            for entry in entries
        )


@dataclass(frozen=True, slots=True)
class Machine:
    """Its processors and its memory in bytes; None: not counted."""

    cpus: int | None = None
    memory: int | None = None

    def left(self, booked: "Iterable[Wishes]") -> "Machine":
        """What is not booked. Only jobs that declare what they need are counted."""
        wishes = list(booked)
        return Machine(
            None if self.cpus is None else self.cpus - sum(one.cpus or 0 for one in wishes),
            None if self.memory is None else self.memory - sum(one.mem or 0 for one in wishes),
        )


NOT_COUNTED = Machine()


def parse_gpu_list(text: str) -> list[tuple[str, ...]] | None:
    """Read `0,1,2`, `0,0,1` (slots), `0+1,2+3` (groups); None for `all` and `auto`.

    One tuple per entry; an entry of several ids is a group. Ids are numbers, `0:1` for parts of cards, or UUIDs.
    """
    if text.strip() in ("all", AUTO):
        return None
    entries = []
    for entry in text.split(","):
        ids = tuple(part.strip() for part in entry.split("+"))
        for gpu_id in ids:
            if not is_gpu_id(gpu_id):
                raise BadInput(
                    f"cannot read {gpu_id!r} as a GPU in {text!r}",
                    remedy="name GPUs like 0,1,2 (0,0,1 for two slots on GPU 0, 0+1,2+3 for groups) or auto",
                )
        entries.append(ids)
    return entries


def is_gpu_id(text: str) -> bool:
    """Whether it looks like a GPU's number, that of a part of one, or a UUID."""
    if text.startswith(("GPU-", "MIG-", "AMD-")):
        return True
    numbers = text.split(":")
    return len(numbers) <= 2 and all(one.isascii() and one.isdigit() and len(one) <= 4 for one in numbers)
