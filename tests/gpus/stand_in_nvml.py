"""A stand-in for the module `pynvml`, which answers like NVML on a machine of our choice."""

from collections import Counter
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
        "millijoules": 3_940_061,
        "ecc": 0,
        "cpus": [0x0F],
        "parts": None,  # a list of them where MIG mode is on
        "nvlinks": [],  # the bus at the other end of each link
        "levels": {},  # by the other card's bus, where the ways over PCI meet
        "instance": None,  # of a part
        "compute": [],
        "graphics": [],
        "loads": {},  # by pid, in percent: one sample after another
        "lost": False,
        "hangs": None,  # an Event: every question waits until it is set
        "refuses": {},
    }
    return SimpleNamespace(**card | changes)


def a_part(number, **changes):
    """A part of a card, as MIG makes them."""
    unknown = ("nvmlDeviceGetUtilizationRates", "nvmlDeviceGetTemperature", "nvmlDeviceGetPowerUsage")
    of_cards = ("nvmlDeviceGetTotalEnergyConsumption", "nvmlDeviceGetPciInfo")
    return a_card(
        0,
        **{
            "uuid": f"MIG-{number:08x}-0000-5000-8000-000000000000",
            "name": "NVIDIA H200 MIG 1g.18gb",
            "total": 18 * GIB,
            "reserved": 0,
            "used": 0,
            "instance": 7 + number,
            "refuses": dict.fromkeys((*unknown, *of_cards), StandInNvml.NVML_ERROR_NOT_SUPPORTED),
            **changes,
        },
    )


def an_event(card, kind, data, instance=0xFFFFFFFF):
    return SimpleNamespace(device=card, eventType=kind, eventData=data, gpuInstanceId=instance)


def a_process(pid, memory=GIB):
    return SimpleNamespace(pid=pid, usedGpuMemory=memory)


class StandInNvml:
    NVMLError = NVMLError
    NVMLLibraryMismatchError = NVMLLibraryMismatchError
    NVML_ERROR_NOT_SUPPORTED = 3
    NVML_ERROR_NO_PERMISSION = 4
    NVML_ERROR_NOT_FOUND = 6
    NVML_ERROR_DRIVER_NOT_LOADED = 9
    NVML_ERROR_TIMEOUT = 10
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
        self.asked = Counter()  # calls about cards
        self.events = []  # not taken yet
        self.listened_to = {}  # by UUID: the types

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

    def nvmlDeviceGetProcessUtilization(self, card, _since):
        loads = self._asked("nvmlDeviceGetProcessUtilization", card).loads
        if not loads:
            raise NVMLError(self.NVML_ERROR_NOT_FOUND)
        return [SimpleNamespace(pid=pid, smUtil=load) for pid, samples in loads.items() for load in samples]

    def nvmlDeviceGetTotalEnergyConsumption(self, card):
        return self._asked("nvmlDeviceGetTotalEnergyConsumption", card).millijoules

    def nvmlDeviceGetTotalEccErrors(self, card, kind, counter):
        assert (kind, counter) == (1, 0)
        return self._asked("nvmlDeviceGetTotalEccErrors", card).ecc

    def nvmlDeviceGetCpuAffinity(self, card, words):
        return (self._asked("nvmlDeviceGetCpuAffinity", card).cpus + [0] * words)[:words]

    def nvmlDeviceGetMigMode(self, card):
        mode = 0 if self._asked("nvmlDeviceGetMigMode", card).parts is None else 1
        return [mode, mode]

    def nvmlDeviceGetMaxMigDeviceCount(self, card):
        return 7 if self._asked("nvmlDeviceGetMaxMigDeviceCount", card).parts is not None else 0

    def nvmlDeviceGetMigDeviceHandleByIndex(self, card, index):
        parts = self._asked("nvmlDeviceGetMigDeviceHandleByIndex", card).parts
        if index >= len(parts) or parts[index] is None:
            raise NVMLError(self.NVML_ERROR_NOT_FOUND)
        return parts[index]

    def nvmlDeviceGetGpuInstanceId(self, card):
        return self._asked("nvmlDeviceGetGpuInstanceId", card).instance

    def nvmlDeviceGetNvLinkState(self, card, link):
        links = self._asked("nvmlDeviceGetNvLinkState", card).nvlinks
        if link >= len(links):
            raise NVMLError(self.NVML_ERROR_NOT_SUPPORTED)
        return int(links[link] is not None)

    def nvmlDeviceGetNvLinkRemotePciInfo(self, card, link):
        bus = self._asked("nvmlDeviceGetNvLinkRemotePciInfo", card).nvlinks[link]
        return SimpleNamespace(domain=0, bus=bus, device=0)

    def nvmlDeviceGetTopologyCommonAncestor(self, one, other):
        levels = self._asked("nvmlDeviceGetTopologyCommonAncestor", one).levels
        if other.bus not in levels:
            raise NVMLError(self.NVML_ERROR_NOT_SUPPORTED)
        return levels[other.bus]

    def nvmlEventSetCreate(self):
        return "the set"

    def nvmlDeviceGetSupportedEventTypes(self, card):
        return 65439 if self._asked("nvmlDeviceGetSupportedEventTypes", card) else 0

    def nvmlDeviceRegisterEvents(self, card, types, event_set):
        assert event_set == "the set"
        self.listened_to[self._asked("nvmlDeviceRegisterEvents", card).uuid] = types

    def nvmlEventSetWait_v2(self, event_set, milliseconds):
        assert (event_set, milliseconds) == ("the set", 0)
        if not self.events:
            raise NVMLError(self.NVML_ERROR_TIMEOUT)
        return self.events.pop(0)

    def _asked(self, call, card):
        self.asked[call] += 1
        if card.hangs is not None:
            card.hangs.wait()
        if card.lost:
            raise NVMLError(self.NVML_ERROR_GPU_IS_LOST)
        if call in card.refuses:
            raise NVMLError(card.refuses[call])
        return card

    def _text(self, text):
        return text.encode() if self.in_bytes else text
