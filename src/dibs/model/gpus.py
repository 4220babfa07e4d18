"""GPUs as the scheduler sees them, and what a probe saw of them."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

from dibs.model.units import show_gpu, show_size

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
        return self.key.startswith("AMD-")

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
        return f"{self.user or 'somebody'}, pid {self.pid}, {show_size(self.memory)}"


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
