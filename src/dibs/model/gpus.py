"""GPUs as the scheduler sees them, and what a probe saw of them."""

from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True, kw_only=True, slots=True)
class Gpu:
    """One card. `key` stays the same across reboots; `index` is its place in PCI order today."""

    key: str  # the UUID, or `index-N` for a card that was only declared
    index: int
    name: str = ""
    memory_total: int | None = None  # bytes; None where the card was only declared


def declared_key(index: int) -> str:
    """The key of a card that nobody can ask for its UUID."""
    return f"index-{index}"


@dataclass(frozen=True, kw_only=True, slots=True)
class GpuProcess:
    """A process that holds memory on a card."""

    pid: int
    user: str | None  # None where the pid cannot be looked up, as in another container
    memory: int | None  # bytes
    kind: str = "compute"  # or "graphics"
    name: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class GpuReading:
    """What a probe saw of one card. What the vendor cannot tell is None and prints as `?`."""

    gpu: Gpu
    memory_used: int | None = None  # bytes
    load: int | None = None  # percent
    temperature: int | None = None  # degrees Celsius
    power: float | None = None  # watts
    processes: tuple[GpuProcess, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class Reading:
    """One pass over all cards, in PCI order."""

    at: datetime
    gpus: tuple[GpuReading, ...] = ()
    driver: str = ""  # "NVIDIA 580.159.04"; empty where nothing was asked
