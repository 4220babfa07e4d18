"""A stand-in for the module `pynvml`, which answers like NVML on a machine of our choice."""

from types import SimpleNamespace

GIB = 1024**3


class NVMLError(Exception):
    def __init__(self, value):
        super().__init__(f"NVML error {value}")
        self.value = value


class NVMLLibraryMismatchError(Exception):
    """As in the real module, no NVMLError."""


def a_card(bus, **changes):
    """One card as NVML sees it. `refuses` maps a call to the error number that it raises."""
    card = {
        "uuid": f"GPU-{bus:08x}-0000-4000-8000-000000000000",
        "name": "NVIDIA H200",
        "bus": bus,
        "total": 140 * GIB,
        "reserved": GIB,
        "used": 3 * GIB,
        "load": 12,
        "temperature": 40,
        "milliwatts": 76_500,
        "compute": [],
        "graphics": [],
        "lost": False,
        "refuses": {},
    }
    return SimpleNamespace(**card | changes)


def a_process(pid, memory=GIB):
    return SimpleNamespace(pid=pid, usedGpuMemory=memory)


class StandInNvml:
    NVMLError = NVMLError
    NVMLLibraryMismatchError = NVMLLibraryMismatchError
    NVML_ERROR_NOT_SUPPORTED = 3
    NVML_ERROR_NO_PERMISSION = 4
    NVML_ERROR_DRIVER_NOT_LOADED = 9
    NVML_ERROR_LIBRARY_NOT_FOUND = 12
    NVML_ERROR_GPU_IS_LOST = 15
    NVML_ERROR_RESET_REQUIRED = 16
    NVML_ERROR_LIB_RM_VERSION_MISMATCH = 18
    nvmlMemory_v2 = 0x02000028

    def __init__(self, *cards, init_error=None, in_bytes=False):
        self.cards = cards
        self.init_error = init_error
        self.in_bytes = in_bytes
        self.inits = 0
        self.handles_asked = 0

    def nvmlInit(self):
        if self.init_error is not None:
            raise NVMLError(self.init_error)
        self.inits += 1

    def nvmlSystemGetDriverVersion(self):
        return self._text("580.159.04")

    def nvmlSystemGetProcessName(self, pid):
        return self._text(f"/opt/elsewhere/python{pid}")

    def nvmlDeviceGetCount(self):
        return len(self.cards)

    def nvmlDeviceGetHandleByIndex(self, index):
        self.handles_asked += 1
        return self._asked("nvmlDeviceGetHandleByIndex", self.cards[index])

    def nvmlDeviceGetUUID(self, card):
        return self._text(self._asked("nvmlDeviceGetUUID", card).uuid)

    def nvmlDeviceGetName(self, card):
        return self._text(self._asked("nvmlDeviceGetName", card).name)

    def nvmlDeviceGetPciInfo(self, card):
        return SimpleNamespace(domain=0, bus=self._asked("nvmlDeviceGetPciInfo", card).bus, device=0)

    def nvmlDeviceGetMemoryInfo(self, card, version=None):
        self._asked("nvmlDeviceGetMemoryInfo_v2" if version else "nvmlDeviceGetMemoryInfo", card)
        if version:
            return SimpleNamespace(total=card.total, reserved=card.reserved, used=card.used)
        return SimpleNamespace(total=card.total, used=card.used + card.reserved)

    def nvmlDeviceGetUtilizationRates(self, card):
        return SimpleNamespace(gpu=self._asked("nvmlDeviceGetUtilizationRates", card).load, memory=0)

    def nvmlDeviceGetTemperature(self, card, _sensor):
        return self._asked("nvmlDeviceGetTemperature", card).temperature

    def nvmlDeviceGetPowerUsage(self, card):
        return self._asked("nvmlDeviceGetPowerUsage", card).milliwatts

    def nvmlDeviceGetComputeRunningProcesses(self, card):
        return self._asked("nvmlDeviceGetComputeRunningProcesses", card).compute

    def nvmlDeviceGetGraphicsRunningProcesses(self, card):
        return self._asked("nvmlDeviceGetGraphicsRunningProcesses", card).graphics

    def _asked(self, call, card):
        if card.lost:
            raise NVMLError(self.NVML_ERROR_GPU_IS_LOST)
        if call in card.refuses:
            raise NVMLError(card.refuses[call])
        return card

    def _text(self, text):
        return text.encode() if self.in_bytes else text
