"""What the API tells of cards, now and before."""

from typing import Literal

from typing_extensions import TypedDict  # pydantic reads the one in typing from Python 3.12 only

from dibs.daemon.schemas.requests import Moment

GpuState = Literal["free", "held", "busy", "drained", "quarantined", "stale", "lost", "missing", "silent"]


class HolderObject(TypedDict):
    user: str
    job: str
    pid: int | None
    share: str
    since_at: Moment | None


class ProcessObject(TypedDict):
    user: str | None
    pid: int
    memory_bytes: int | None
    kind: Literal["compute", "graphics"]
    name: str
    is_foreign: bool  # it computes there without a claim


class GpuObject(TypedDict):
    index: int | None
    number: str | None
    key: str
    name: str
    memory_total_bytes: int | None
    memory_used_bytes: int | None
    load_percent: float | None
    temperature_celsius: float | None
    power_watts: float | None
    energy_joules: float | None
    ecc_uncorrected: int | None
    slots: int
    state: GpuState
    why: str
    remedy: str
    holders: list[HolderObject]
    processes: list[ProcessObject]


class Gpus(TypedDict):
    gpus: list[GpuObject]
    pool: str


class GpuPast(TypedDict):
    """One value for each step; null where nobody looked. Of load and power the mean, of the others the most."""

    key: str
    load_percent: list[float | None]
    memory_used_bytes: list[int | None]
    power_watts: list[float | None]
    temperature_celsius: list[float | None]


class GpuHistory(TypedDict):
    start_at: Moment
    step_seconds: float
    gpus: list[GpuPast]
