"""NVIDIA GPUs, read through NVML, and the faults that the driver reports as events."""

import os
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from datetime import datetime
from functools import partial
from typing import Any

from dibs.gpus.card_reader import CardLost, CardQueries, CardReader, CardSilent
from dibs.gpus.nvml import DeviceFinder, FoundCard, FoundDevices, Nvml
from dibs.gpus.probe import ProbeFailed, require_distinct, utc_now
from dibs.gpus.processes import ProcessOwners
from dibs.model.gpus import GpuFault, GpuProcess, GpuReading, Reading

_TEMPERATURE_OF_THE_CHIP = 0
_UNCORRECTED, _SINCE_THE_DRIVER_WAS_LOADED = 1, 0
_PROCESS_CALLS = {
    "compute": "nvmlDeviceGetComputeRunningProcesses",
    "graphics": "nvmlDeviceGetGraphicsRunningProcesses",
}
_NOT_AVAILABLE = 2**64 - 1  # what older bindings return for "not available"
_FIND_EVERY = 30.0  # seconds; lost cards come back, and a card may be divided
_FIND_PARTS_EVERY = 5.0  # seconds; a handle may become that of another part
_ENERGY_EVERY = 10.0  # seconds; one answer takes an H200 three milliseconds of a core, the load of processes two
_ENERGY_AT_MOST_EVERY = 2.0  # seconds, on request
_EVENTS_DEADLINE = 0.5  # seconds
_DOUBLE_BIT = 0x2
_XID = 0x8
_MOST_EVENTS = 100  # of one pass: a failing card may report them without end


class NvidiaProbe:
    """Reads the GPUs through the module `pynvml`. Handles are looked up rarely: a read may happen every second.

    A value that a card does not report is None. A card that does not answer is `stale` or `lost`, with its last
    values; one that was lost from the start is left out, and the others keep their numbers.
    """

    def __init__(
        self, nvml: Any, *, now: Callable[[], datetime] = utc_now, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._nvml = Nvml(nvml)
        self._now = now
        self._clock = clock
        self._is_initialised = False
        self._driver = ""
        self._finder = DeviceFinder(self._nvml)
        self._found = FoundDevices()
        self._found_at = 0.0
        self._reader = CardReader(clock=clock)
        self._events = NvidiaEvents(self._nvml)
        self._event_queries: CardQueries[None] = CardQueries()
        self._faults_to_report: deque[GpuFault] = deque()  # those too late for one reading are in the next
        self._owners = ProcessOwners()
        self._energy_at = clock() - _ENERGY_AT_MOST_EVERY  # at once on request, later by itself
        self._one_at_a_time = threading.Lock()

    def count(self) -> int:
        """How many cards the driver lists, working or not; 0 where the driver is not loaded."""
        module = self._nvml.module
        try:
            self._initialise()
            return int(module.nvmlDeviceGetCount())
        except module.NVMLError as error:
            # The library alone proves nothing: container images contain it on any machine.
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
        require_distinct(card.gpu for card in found.cards)
        self._found, self._found_at = found, self._clock()

    def _faults(self, cards: tuple[FoundCard, ...]) -> tuple[GpuFault, ...]:
        """Asked in a thread: a failing driver may block here too."""

        def take() -> None:
            self._events.listen(self._found.boards)
            self._faults_to_report.extend(self._events.take(cards))

        answer = self._event_queries.ask({"events": take}, _EVENTS_DEADLINE).get("events")
        if isinstance(answer, Exception):
            raise answer
        return tuple(self._faults_to_report.popleft() for _ in range(len(self._faults_to_report)))

    def _read_card(self, card: FoundCard, with_energy: bool) -> GpuReading:
        nvml, handle = self._nvml, card.handle
        memory = nvml.memory(handle)
        if memory is None and card.gpu.memory_total is not None:
            raise CardSilent  # for a card that fell off the bus some drivers answer "unknown error" to all
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
        # CUDA 14 will remove the first; older drivers and bindings do not have the second.
        for call in ("nvmlDeviceGetTemperature", "nvmlDeviceGetTemperatureV"):
            degrees = self._nvml.ask(call, handle, _TEMPERATURE_OF_THE_CHIP)
            if degrees is not None:
                return int(degrees)
        return None

    def _processes(self, handle: Any, with_load: bool) -> tuple[GpuProcess, ...]:
        """One entry per pid. NVML lists a process twice that both computes and draws: it counts as compute."""
        processes: dict[int, GpuProcess] = {}
        for kind, call in _PROCESS_CALLS.items():
            # Older drivers have only the second version of the list.
            listed = self._nvml.ask(call, handle)
            for entry in (self._nvml.ask(f"{call}_v2", handle) if listed is None else listed) or ():
                if entry.pid not in processes:
                    processes[entry.pid] = self._process(entry, kind)
        if with_load and len(processes) > 1:  # a single one has all of the card's load
            for pid, load in self._loads(handle).items():
                if pid in processes:
                    processes[pid] = replace(processes[pid], load=load)
        return tuple(processes.values())

    def _loads(self, handle: Any) -> dict[int, int]:
        """Percent of the card that each process used lately."""
        since = int((self._now().timestamp() - _ENERGY_EVERY) * 1_000_000)
        samples: dict[int, list[int]] = {}
        for sample in self._nvml.ask("nvmlDeviceGetProcessUtilization", handle, since) or ():
            if sample.smUtil <= 100:  # some drivers leave garbage in samples that were not taken
                samples.setdefault(sample.pid, []).append(sample.smUtil)
        return {pid: round(sum(loads) / len(loads)) for pid, loads in samples.items()}

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


class NvidiaEvents:
    """The fault events of the boards: Xids and uncorrectable memory errors, from when `listen` was called."""

    def __init__(self, nvml: Nvml) -> None:
        self._nvml = nvml
        self._set: Any = None
        self._boards: set[str] = set()

    def listen(self, boards: Mapping[str, Any]) -> None:
        """Listen to these boards too, by UUID."""
        new = {key: handle for key, handle in boards.items() if key not in self._boards}
        if not new:
            return
        if self._set is None:
            self._set = self._nvml.ask("nvmlEventSetCreate")
        if self._set is None:
            return
        for key, handle in new.items():
            try:
                supported = self._nvml.ask("nvmlDeviceGetSupportedEventTypes", handle) or 0
                if wanted := supported & (_XID | _DOUBLE_BIT):
                    self._nvml.ask("nvmlDeviceRegisterEvents", handle, wanted, self._set)
                self._boards.add(key)
            except CardLost:
                continue  # tried again at the next search for cards

    def take(self, cards: Iterable[FoundCard]) -> list[GpuFault]:
        """The faults since the last call, without waiting."""
        if self._set is None:
            return []
        faults: list[GpuFault] = []
        for _ in range(_MOST_EVENTS):
            try:
                event = self._nvml.ask("nvmlEventSetWait_v2", self._set, 0)
            except CardLost:  # a lost card ends every wait: listen to the others with a new set
                self._start_again()
                break
            if event is None:  # no more events: the call timed out
                break
            faults += self._faults(event, cards)
        return faults

    def _start_again(self) -> None:
        self._nvml.ask("nvmlEventSetFree", self._set)
        self._set = None
        self._boards.clear()

    def _faults(self, event: Any, cards: Iterable[FoundCard]) -> list[GpuFault]:
        """One for the card, or for each part of it that the event is about."""
        try:
            board = self._nvml.text("nvmlDeviceGetUUID", event.device)
        except CardLost:
            return []
        of_board = [card for card in cards if card.board == board]
        meant = [card for card in of_board if card.instance == getattr(event, "gpuInstanceId", None)] or of_board
        if event.eventType == _XID:
            xid, message = int(event.eventData), f"Xid {int(event.eventData)}"
        else:
            xid, message = None, "a memory error that cannot be corrected"
        return [GpuFault(card.gpu.key, xid, message) for card in meant]
