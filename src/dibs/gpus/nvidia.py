"""NVIDIA cards, asked through NVML."""

import os
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime
from functools import partial
from typing import Any

from dibs.gpus.clock import utc_now
from dibs.gpus.each import Askers, CardReader, CardSilent
from dibs.gpus.nvidia_events import Events
from dibs.gpus.nvidia_find import Finder, FoundCard, FoundDevices
from dibs.gpus.nvml import Nvml
from dibs.gpus.owners import Owners
from dibs.gpus.probe import ProbeFailed, refuse_twins
from dibs.model.gpus import GpuFault, GpuProcess, GpuReading, Reading

_TEMPERATURE_OF_THE_CHIP = 0
_UNCORRECTED, _SINCE_THE_DRIVER_WAS_LOADED = 1, 0
_PROCESS_CALLS = {
    "compute": "nvmlDeviceGetComputeRunningProcesses",
    "graphics": "nvmlDeviceGetGraphicsRunningProcesses",
}
_NOT_AVAILABLE = 2**64 - 1  # what older bindings hand through for "cannot tell"
_FIND_EVERY = 30.0  # seconds; lost cards come back, and somebody may divide one
_FIND_PARTS_EVERY = 5.0  # seconds; a handle may become that of another part
_ENERGY_EVERY = 10.0  # seconds; one answer takes an H200 three milliseconds of a core, the load of processes two
_ENERGY_AT_MOST_EVERY = 2.0  # seconds, for those who ask for it
_PATIENCE = 0.5  # seconds for the events


class NvidiaProbe:
    """Asks the driver. The handles are looked up rarely: a read may happen every second.

    What a card cannot tell is None. A card that does not answer is `stale` or `lost`, with what was last seen
    of it; one that was lost from the start is left out, and the others keep their numbers. Give it the module
    `pynvml`, which costs 25 ms to import.
    """

    def __init__(
        self, nvml: Any, *, now: Callable[[], datetime] = utc_now, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._nvml = Nvml(nvml)
        self._now = now
        self._clock = clock
        self._is_initialised = False
        self._driver = ""
        self._finder = Finder(self._nvml)
        self._found = FoundDevices()
        self._found_at = 0.0
        self._reader = CardReader(clock=clock)
        self._events = Events(self._nvml)
        self._event_askers: Askers[None] = Askers()
        self._faults_to_tell: deque[GpuFault] = deque()  # what came too late for one reading is in the next
        self._owners = Owners()
        self._energy_at = clock() - _ENERGY_AT_MOST_EVERY  # at once for those who ask, later by itself
        self._one_at_a_time = threading.Lock()

    def count(self) -> int:
        """How many cards the driver knows, healthy or not; 0 where the driver is not loaded."""
        module = self._nvml.module
        try:
            self._initialise()
            return int(module.nvmlDeviceGetCount())
        except module.NVMLError as error:
            # The library alone is common: container images bring it along, whatever the machine has.
            if error.value in (module.NVML_ERROR_DRIVER_NOT_LOADED, module.NVML_ERROR_LIBRARY_NOT_FOUND):
                return 0
            raise _failed(error) from error

    def read(self, *, energy: bool = False) -> Reading:
        with self._one_at_a_time:
            clock = self._clock()
            pause = _FIND_PARTS_EVERY if self._found.has_parts else _FIND_EVERY
            if not self._found.is_complete or clock - self._found_at >= pause:
                self._find()
            with_energy = clock - self._energy_at >= (_ENERGY_AT_MOST_EVERY if energy else _ENERGY_EVERY)
            if with_energy:
                self._energy_at = clock
            cards = self._found.cards
            questions = [(card.gpu, partial(self._read_card, card, with_energy)) for card in cards]
            return Reading(
                at=self._now(),
                gpus=self._reader.read(questions),
                driver=self._driver,
                faults=self._faults(cards),
                links=self._found.links,
            )

    def _initialise(self) -> None:
        if not self._is_initialised:
            self._nvml.module.nvmlInit()
            self._is_initialised = True
            self._driver = f"NVIDIA {self._nvml.text('nvmlSystemGetDriverVersion')}".strip()

    def _find(self) -> None:
        try:
            self._initialise()
            found = self._finder.find()
        except self._nvml.module.NVMLError as error:
            raise _failed(error) from error
        refuse_twins(card.gpu for card in found.cards)
        self._found, self._found_at = found, self._clock()

    def _faults(self, cards: tuple[FoundCard, ...]) -> tuple[GpuFault, ...]:
        """Asked beside the cards: a sick driver may block here as well."""

        def take() -> None:
            self._events.listen(self._found.boards)
            self._faults_to_tell.extend(self._events.take(cards))

        answer = self._event_askers.ask({"events": take}, _PATIENCE).get("events")
        if isinstance(answer, Exception):
            raise answer
        return tuple(self._faults_to_tell.popleft() for _ in range(len(self._faults_to_tell)))

    def _read_card(self, card: FoundCard, with_energy: bool) -> GpuReading:
        nvml, handle = self._nvml, card.handle
        memory = nvml.memory(handle)
        if memory is None and card.gpu.memory_total is not None:
            raise CardSilent  # some drivers say "unknown error" to everything, of a card that has fallen off
        load = nvml.ask("nvmlDeviceGetUtilizationRates", handle)
        milliwatts = nvml.ask("nvmlDeviceGetPowerUsage", handle)
        millijoules = nvml.ask("nvmlDeviceGetTotalEnergyConsumption", handle) if with_energy else None
        return GpuReading(
            gpu=card.gpu,
            memory_used=memory.used if memory else None,
            load=load.gpu if load else None,
            temperature=self._temperature(handle),
            power=milliwatts / 1000 if milliwatts is not None else None,
            energy=millijoules / 1000 if millijoules is not None else None,
            ecc_uncorrected=nvml.ask(
                "nvmlDeviceGetTotalEccErrors", handle, _UNCORRECTED, _SINCE_THE_DRIVER_WAS_LOADED
            ),
            processes=self._processes(handle, with_energy),
        )

    def _temperature(self, handle: Any) -> int | None:
        # The first is announced to leave with CUDA 14; older drivers and bindings do not know the second.
        for call in ("nvmlDeviceGetTemperature", "nvmlDeviceGetTemperatureV"):
            degrees = self._nvml.ask(call, handle, _TEMPERATURE_OF_THE_CHIP)
            if degrees is not None:
                return int(degrees)
        return None

    def _processes(self, handle: Any, with_load: bool) -> tuple[GpuProcess, ...]:
        """One entry per pid. Who computes and draws is listed twice by NVML, and computes for us."""
        processes: dict[int, GpuProcess] = {}
        for kind, call in _PROCESS_CALLS.items():
            # Older drivers know only the second version of the list.
            listed = self._nvml.ask(call, handle)
            for entry in (self._nvml.ask(f"{call}_v2", handle) if listed is None else listed) or ():
                if entry.pid not in processes:
                    processes[entry.pid] = self._process(entry, kind)
        if with_load and len(processes) > 1:  # one alone has all of the card's load
            for pid, load in self._loads(handle).items():
                if pid in processes:
                    processes[pid] = replace(processes[pid], load=load)
        return tuple(processes.values())

    def _loads(self, handle: Any) -> dict[int, int]:
        """Percent of the card that each process had lately."""
        since = int((self._now().timestamp() - _ENERGY_EVERY) * 1_000_000)
        told: dict[int, list[int]] = {}
        for sample in self._nvml.ask("nvmlDeviceGetProcessUtilization", handle, since) or ():
            if sample.smUtil <= 100:  # some drivers leave rubbish in samples that they did not take
                told.setdefault(sample.pid, []).append(sample.smUtil)
        return {pid: round(sum(loads) / len(loads)) for pid, loads in told.items()}

    def _process(self, entry: Any, kind: str) -> GpuProcess:
        memory = entry.usedGpuMemory
        owner = self._owners.of(entry.pid)
        name = owner.name if owner else self._nvml.text("nvmlSystemGetProcessName", entry.pid)
        return GpuProcess(
            pid=entry.pid,
            user=owner.user if owner else None,
            memory=None if memory in (None, _NOT_AVAILABLE) else int(memory),
            kind=kind,
            name=os.path.basename(name),
        )


def _failed(error: Exception) -> ProbeFailed:
    return ProbeFailed(
        f"cannot ask the NVIDIA driver for its GPUs: {error}",
        remedy="see what `nvidia-smi` says; after a driver update the machine must be restarted",
    )
