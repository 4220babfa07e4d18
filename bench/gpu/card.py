"""The card while something is measured: its load, its energy, and what a process holds there."""

import threading
import time
from dataclasses import dataclass
from typing import Any

import pynvml

_PAUSE = 0.2  # seconds between two looks


@dataclass(frozen=True, slots=True)
class Seen:
    """What happened on the card in between."""

    seconds: float
    mean_load: float  # percent
    watt_hours: float
    most_memory: int  # bytes, of everybody


class Card:
    """The first card of this machine."""

    def __init__(self) -> None:
        pynvml.nvmlInit()
        self._handle: Any = pynvml.nvmlDeviceGetHandleByIndex(0)
        self.name = str(pynvml.nvmlDeviceGetName(self._handle))
        self.driver = str(pynvml.nvmlSystemGetDriverVersion())

    def memory_of(self, pid: int) -> int:
        """Bytes that a process holds; 0 where it holds none."""
        listed = pynvml.nvmlDeviceGetComputeRunningProcesses(self._handle)
        return sum(one.usedGpuMemory or 0 for one in listed if one.pid == pid)

    def watch(self) -> "Watch":
        return Watch(self._handle)


class Watch:
    """`with card.watch() as watch: ...`, then `watch.seen`."""

    seen: Seen

    def __init__(self, handle: Any) -> None:
        self._handle = handle
        self._loads: list[int] = []
        self._most = 0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)

    def __enter__(self) -> "Watch":
        self._energy = pynvml.nvmlDeviceGetTotalEnergyConsumption(self._handle)
        self._begin = time.perf_counter()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        seconds = time.perf_counter() - self._begin
        millijoules = pynvml.nvmlDeviceGetTotalEnergyConsumption(self._handle) - self._energy
        self._over.set()
        self._thread.join()
        self.seen = Seen(seconds, sum(self._loads) / max(1, len(self._loads)), millijoules / 3.6e6, self._most)

    def _look(self) -> None:
        while not self._over.wait(_PAUSE):
            self._loads.append(pynvml.nvmlDeviceGetUtilizationRates(self._handle).gpu)
            self._most = max(self._most, pynvml.nvmlDeviceGetMemoryInfo(self._handle).used)
