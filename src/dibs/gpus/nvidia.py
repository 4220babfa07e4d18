"""NVIDIA cards, asked through NVML."""

import contextlib
import functools
import os
import pwd
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from dibs.gpus.clock import utc_now
from dibs.gpus.probe import ProbeFailed, refuse_twins
from dibs.model.gpus import Gpu, GpuProcess, GpuReading, Reading

_TEMPERATURE_OF_THE_CHIP = 0
_PROCESS_CALLS = {
    "compute": "nvmlDeviceGetComputeRunningProcesses",
    "graphics": "nvmlDeviceGetGraphicsRunningProcesses",
}
_NOT_AVAILABLE = 2**64 - 1  # what older bindings hand through for "cannot tell"


class NvidiaProbe:
    """Asks the driver. The handles are looked up once: a read may happen every second.

    What a card cannot tell is None. A card that fell off the bus is left out of the reading; the others keep
    their numbers. Give it the module `pynvml`, which costs 25 ms to import.
    """

    def __init__(self, nvml: Any, *, now: Callable[[], datetime] = utc_now) -> None:
        self._nvml = nvml
        self._now = now
        self._is_initialised = False
        self._cards: tuple[_Card, ...] = ()
        self._has_all_cards = False
        self._driver = ""

    def count(self) -> int:
        """How many cards the driver knows, healthy or not; 0 where the driver is not loaded."""
        try:
            self._initialise()
            return int(self._nvml.nvmlDeviceGetCount())
        except self._nvml.NVMLError as error:
            # The library alone is common: container images bring it along, whatever the machine has.
            if error.value in (
                self._nvml.NVML_ERROR_DRIVER_NOT_LOADED,
                self._nvml.NVML_ERROR_LIBRARY_NOT_FOUND,
            ):
                return 0
            raise self._failed(error) from error

    def read(self) -> Reading:
        if not self._has_all_cards:
            self._find_cards()
        seen = tuple(reading for card in self._cards if (reading := self._read_card(card)))
        return Reading(at=self._now(), gpus=seen, driver=self._driver)

    def _initialise(self) -> None:
        if not self._is_initialised:
            self._nvml.nvmlInit()
            self._is_initialised = True
            self._driver = f"NVIDIA {_text(self._ask('nvmlSystemGetDriverVersion'))}".strip()

    def _find_cards(self) -> None:
        try:
            self._initialise()
            count = int(self._nvml.nvmlDeviceGetCount())
        except self._nvml.NVMLError as error:
            raise self._failed(error) from error
        found: list[_Found | None] = []  # None for a card that is lost
        for number in range(count):
            with contextlib.suppress(_Forbidden):
                found.append(self._find_card(number))
        # A lost card does not tell its bus. It keeps the place where NVML counts it, so that the others do
        # not move up: NVML usually counts by bus too, though it promises nothing.
        places = [place for place, card in enumerate(found) if card]
        by_bus = sorted((card for card in found if card), key=lambda card: card.bus)
        cards = tuple(
            _Card(
                handle=card.handle,
                gpu=Gpu(key=card.key, index=index, name=card.name, memory_total=card.memory_total),
            )
            for index, card in zip(places, by_bus, strict=True)
        )
        refuse_twins(card.gpu for card in cards)
        self._cards = cards
        self._has_all_cards = None not in found

    def _find_card(self, number: int) -> "_Found | None":
        try:
            handle = self._nvml.nvmlDeviceGetHandleByIndex(number)
            key = _text(self._ask("nvmlDeviceGetUUID", handle))
            bus = self._ask("nvmlDeviceGetPciInfo", handle)
            name = _text(self._ask("nvmlDeviceGetName", handle))
            memory = self._memory(handle)
        except _Lost:
            return None
        except self._nvml.NVMLError as error:
            if error.value == self._nvml.NVML_ERROR_NO_PERMISSION:
                raise _Forbidden from error
            return None
        if not key:  # without it nobody could lease the card
            return None
        return _Found(
            handle=handle,
            key=key,
            bus=(bus.domain, bus.bus, bus.device) if bus else (0, 0, number),
            name=name,
            memory_total=memory.total - getattr(memory, "reserved", 0) if memory else None,
        )

    def _read_card(self, card: "_Card") -> GpuReading | None:
        try:
            memory = self._memory(card.handle)
            load = self._ask("nvmlDeviceGetUtilizationRates", card.handle)
            milliwatts = self._ask("nvmlDeviceGetPowerUsage", card.handle)
            return GpuReading(
                gpu=card.gpu,
                memory_used=memory.used if memory else None,
                load=load.gpu if load else None,
                temperature=self._temperature(card.handle),
                power=milliwatts / 1000 if milliwatts is not None else None,
                processes=self._processes(card.handle),
            )
        except _Lost:
            return None

    def _memory(self, handle: Any) -> Any:
        """The second version keeps apart what the driver reserved for itself; no job can have that."""
        second = getattr(self._nvml, "nvmlMemory_v2", None)
        with_reserved = self._ask("nvmlDeviceGetMemoryInfo", handle, second) if second else None
        return with_reserved or self._ask("nvmlDeviceGetMemoryInfo", handle)

    def _temperature(self, handle: Any) -> int | None:
        # The first is announced to leave with CUDA 14; older drivers and bindings do not know the second.
        for call in ("nvmlDeviceGetTemperature", "nvmlDeviceGetTemperatureV"):
            degrees = self._ask(call, handle, _TEMPERATURE_OF_THE_CHIP)
            if degrees is not None:
                return int(degrees)
        return None

    def _processes(self, handle: Any) -> tuple[GpuProcess, ...]:
        """One entry per pid. Who computes and draws is listed twice by NVML, and computes for us."""
        processes: dict[int, GpuProcess] = {}
        for kind, call in _PROCESS_CALLS.items():
            # Older drivers know only the second version of the list.
            listed = self._ask(call, handle)
            for entry in (self._ask(f"{call}_v2", handle) if listed is None else listed) or ():
                if entry.pid not in processes:
                    processes[entry.pid] = self._process(entry, kind)
        return tuple(processes.values())

    def _process(self, entry: Any, kind: str) -> GpuProcess:
        memory = entry.usedGpuMemory
        user = _user_of(entry.pid)
        name = _command_of(entry.pid) if user else _text(self._ask("nvmlSystemGetProcessName", entry.pid))
        return GpuProcess(
            pid=entry.pid,
            user=user,
            memory=None if memory in (None, _NOT_AVAILABLE) else int(memory),
            kind=kind,
            name=os.path.basename(name),
        )

    def _ask(self, call: str, *arguments: Any) -> Any:
        """One call to NVML; None where the card, the driver or the binding cannot answer it."""
        nvml = self._nvml
        function = getattr(nvml, call, None)
        if function is None:
            return None
        try:
            return function(*arguments)
        except nvml.NVMLError as error:
            if error.value in (nvml.NVML_ERROR_GPU_IS_LOST, nvml.NVML_ERROR_RESET_REQUIRED):
                raise _Lost from error
            return None
        except nvml.NVMLLibraryMismatchError:  # the driver is older than the binding; not an NVMLError
            return None

    def _failed(self, error: Exception) -> ProbeFailed:
        return ProbeFailed(
            f"cannot ask the NVIDIA driver for its GPUs: {error}",
            remedy="see what `nvidia-smi` says; after a driver update the machine must be restarted",
        )


class _Lost(Exception):
    """This card is gone until somebody resets it; the others are not."""


class _Forbidden(Exception):
    """This card is given to others, by a cgroup of Slurm for instance. CUDA does not count it, nor do we."""


@dataclass(frozen=True, kw_only=True, slots=True)
class _Found:
    handle: Any
    key: str
    bus: tuple[int, int, int]
    name: str
    memory_total: int | None


@dataclass(frozen=True, kw_only=True, slots=True)
class _Card:
    handle: Any
    gpu: Gpu


def _text(answer: Any) -> str:
    """Older bindings answer in bytes, later ones in text."""
    if isinstance(answer, bytes):
        return answer.decode("utf-8", "replace")
    return str(answer or "")


def _user_of(pid: int) -> str | None:
    try:
        return _user_name(os.stat(f"/proc/{pid}").st_uid)
    except OSError:
        return None


@functools.cache  # a directory server may stand behind it
def _user_name(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def _command_of(pid: int) -> str:
    try:
        with open(f"/proc/{pid}/comm", encoding="utf-8", errors="replace") as file:
            return file.read().rstrip("\n")
    except OSError:
        return ""
