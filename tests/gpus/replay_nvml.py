"""The module `pynvml` as it answered on a real machine, from what was written down there."""

import json
from types import SimpleNamespace

from gpus.stand_in_nvml import NVMLError, NVMLLibraryMismatchError
from gpus.trees import READINGS

_ERRORS = {"NotSupported": 3, "InvalidArgument": 2}
_LISTS_OF_STRUCTURES = ("nvmlDeviceGetComputeRunningProcesses", "nvmlDeviceGetGraphicsRunningProcesses")


class ReplayNvml:
    """One card. A call that was not tried on the machine is one that this binding does not know."""

    NVMLError = NVMLError
    NVMLLibraryMismatchError = NVMLLibraryMismatchError
    NVML_ERROR_NO_PERMISSION = 4
    NVML_ERROR_DRIVER_NOT_LOADED = 9
    NVML_ERROR_TIMEOUT = 10
    NVML_ERROR_LIBRARY_NOT_FOUND = 12
    NVML_ERROR_GPU_IS_LOST = 15
    NVML_ERROR_RESET_REQUIRED = 16
    nvmlMemory_v2 = 0x02000028

    def __init__(self, name="h200"):
        self.said = json.loads((READINGS / f"{name}.json").read_text())
        self.events = list(self.said["events"])

    def nvmlInit(self):
        pass

    def nvmlSystemGetDriverVersion(self):
        return self.said["driver"]

    def nvmlDeviceGetCount(self):
        return 1

    def nvmlDeviceGetHandleByIndex(self, index):
        assert index == 0
        return "the card"

    def nvmlEventSetCreate(self):
        return "the set"

    def nvmlDeviceRegisterEvents(self, handle, types, event_set):
        assert (handle, types & self.said["event_types"], event_set) == ("the card", types, "the set")

    def nvmlEventSetWait_v2(self, event_set, milliseconds):
        if not self.events:
            raise NVMLError(self.NVML_ERROR_TIMEOUT)
        kind, data = self.events.pop(0)
        return SimpleNamespace(device="the card", eventType=kind, eventData=data, gpuInstanceId=0xFFFFFFFF)

    def nvmlDeviceGetCpuAffinity(self, handle, words):
        return self._answer("nvmlDeviceGetCpuAffinity 8")[:words]

    def __getattr__(self, name):
        if not any(call.split()[0] == name for call in self.said["calls"]):
            raise AttributeError(name)

        def call(handle, *arguments):
            assert handle == "the card"
            return self._answer(" ".join([name, *map(str, arguments)]))

        return call

    def _answer(self, call):
        answer = self.said["calls"][call]
        if "error" in answer:
            raise NVMLError(_ERRORS[answer["error"]])
        value = answer["value"]
        if isinstance(value, dict):
            return SimpleNamespace(**value)
        return [SimpleNamespace(**one) for one in value] if call in _LISTS_OF_STRUCTURES else value
