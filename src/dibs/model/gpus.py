"""GPUs, what a probe saw of them, the pool that a queue or a run may use, and claims on shares of them."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field
from datetime import datetime
from enum import StrEnum
from fractions import Fraction
from typing import TYPE_CHECKING

from dibs.dataclass import dataclass
from dibs.errors import BadInput
from dibs.model.units import is_gpu_id, show_gpu, show_size

if TYPE_CHECKING:
    from dibs.model.jobs import Wishes


Links = Mapping[tuple[str, str], int]  # by two keys, the smaller first: how well these cards are connected


@dataclass(frozen=True, kw_only=True, slots=True)
class Gpu:
    """One card, or a part of one that MIG made. `key` stays the same across reboots, the number need not."""

    key: str  # the UUID; `AMD-...` for AMD's; `index-N` for a card that was only declared
    index: int  # the card's place in PCI order
    part: int | None = None  # which part of the card, where MIG has divided it
    name: str = ""
    memory_total: int | None = None  # bytes; None where the card was only declared
    cpus: tuple[int, ...] = ()  # those near to it; empty where they are not known
    address: str = ""  # how its vendor's library calls it; by its number where this is empty

    @property
    def number(self) -> str:
        """As people write it: `0`, or `0:1` for a part."""
        return show_gpu(self.index, self.part)

    @property
    def is_amd(self) -> bool:
        return is_amd(self.key)

    def is_called(self, text: str) -> bool:
        """Whether `0`, `0:1` or the beginning of a key means it. The number of a card means all its parts."""
        if text[:1].isdigit():
            return text in (str(self.index), self.number)
        return bool(text) and self.key.startswith(text)


def declared_key(index: int) -> str:
    """The key of a card whose UUID cannot be read."""
    return f"index-{index}"


@dataclass(frozen=True, kw_only=True, slots=True)
class GpuProcess:
    """A process that holds memory on a card."""

    pid: int
    user: str | None  # None where the pid cannot be looked up, as in another container
    memory: int | None  # bytes
    kind: str = "compute"  # or "graphics"
    name: str = ""
    load: float | None = None  # percent of the card that it keeps busy; None in most readings: it is slow to read

    @property
    def shown(self) -> str:
        """For people: `ann, pid 4711, 3G`."""
        return f"{self.user or 'unknown user'}, pid {self.pid}, {show_size(self.memory)}"


class CardState(StrEnum):
    """Whether a card answers."""

    OK = "ok"
    STALE = "stale"  # it does not answer now
    LOST = "lost"  # it has not answered for long, or says itself that it is gone


@dataclass(frozen=True, slots=True)
class GpuFault:
    """What the driver told of a card by itself: an Xid, or an error of its memory that was not corrected."""

    gpu: str  # the card's key
    xid: int | None  # None for a memory error that came without one
    message: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class GpuReading:
    """What a probe saw of one card. What the vendor cannot tell is None and prints as `?`."""

    gpu: Gpu
    memory_used: int | None = None  # bytes
    load: int | None = None  # percent
    temperature: int | None = None  # degrees Celsius
    power: float | None = None  # watts
    energy: float | None = None  # joules since the driver was loaded; None in most readings: it is slow to read
    ecc_uncorrected: int | None = None  # errors since the driver was loaded
    processes: tuple[GpuProcess, ...] = ()
    state: CardState = CardState.OK  # what stands above is the last that was seen where it is not


@dataclass(frozen=True, kw_only=True, slots=True)
class Reading:
    """One pass over all cards, in PCI order."""

    at: datetime
    gpus: tuple[GpuReading, ...] = ()
    driver: str = ""  # "NVIDIA 580.159.04"; empty where nothing was asked
    faults: tuple[GpuFault, ...] = ()  # since the last reading
    links: Links = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True, slots=True)
class Claim:
    """An attempt's hold on a share of a GPU."""

    gpu: str  # the card's key
    index: int
    share: Fraction
    vram: int = 0  # bytes
    address: str = ""  # Gpu.address
    part: int | None = None  # Gpu.part

    @property
    def number(self) -> str:
        """As people write it: `0`, or `0:1` for a part."""
        return show_gpu(self.index, self.part)


def is_amd(key: str) -> bool:
    """Whether a card with this key is one of AMD's."""
    return key.startswith("AMD-")


GPU_VARIABLES = frozenset(
    (
        *("CUDA_DEVICE_ORDER", "CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES"),
        *("GPU", "DIBS_GPUS"),
    )
)


def gpu_environment(claims: Sequence[Claim]) -> Mapping[str, str]:
    """The variables that name its GPUs to a job. A job without a GPU gets an empty list.

    Integers in PCI order: several frameworks crash on UUIDs. A part of a card has no other name.
    """
    names = [claim.gpu if claim.gpu.startswith("MIG-") else str(claim.index) for claim in claims]
    ours = {
        "GPU": ",".join(name if name.startswith("MIG-") else f"cuda{name}" for name in names),
        "DIBS_GPUS": ",".join(names),
    }
    if claims and claims[0].gpu.startswith("AMD-"):
        return {**_amd_environment(claims), **ours}
    addresses = [claim.address or name for claim, name in zip(claims, names, strict=True)]
    environment = {"CUDA_DEVICE_ORDER": "PCI_BUS_ID", "CUDA_VISIBLE_DEVICES": ",".join(addresses), **ours}
    return environment if claims else {**environment, "ROCR_VISIBLE_DEVICES": ""}


def _amd_environment(claims: Sequence[Claim]) -> Mapping[str, str]:
    """ROCm's lowest layer hides the cards that are not the job's, for every program above it.

    HIP then counts what is left from 0, and takes CUDA's variable for its own where its own is missing: both
    say so, or one that was inherited would pick from the wrong cards. A card that is divided has an address of
    several numbers, one for each part.
    """
    addresses = ",".join(claim.address or str(claim.index) for claim in claims)
    places = ",".join(str(place) for place in range(addresses.count(",") + 1))
    return {
        "ROCR_VISIBLE_DEVICES": addresses,
        "HIP_VISIBLE_DEVICES": places,
        "CUDA_VISIBLE_DEVICES": places,
    }


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
