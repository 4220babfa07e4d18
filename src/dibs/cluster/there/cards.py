"""The cards of this host by NVML itself, or out of a file in tests. None found is an answer too."""

from __future__ import annotations

import ctypes
import json
import os
from typing import Any

_LIBRARY = "libnvidia-ml.so.1"


def cards() -> list[dict[str, Any]]:
    """Name and device file of each, in the driver's order; an empty device is a card out of a file."""
    choice = os.environ.get("DIBS_PROBE", "")
    if choice.startswith("fake:"):
        with open(choice[len("fake:") :], encoding="utf-8") as file:
            content = json.load(file)
        listed = content if isinstance(content, list) else content.get("gpus", [])
        ordered = sorted(listed, key=lambda card: int(card["index"]))
        return [{"name": card.get("name", ""), "device": ""} for card in ordered]
    return [] if choice == "none" else _by_nvml()


def _by_nvml() -> list[dict[str, Any]]:
    try:
        nvml = ctypes.CDLL(_LIBRARY)
    except OSError:
        return []
    if nvml.nvmlInit_v2() != 0:
        return []
    number = ctypes.c_uint()
    nvml.nvmlDeviceGetCount_v2(ctypes.byref(number))
    found = []
    for index in range(number.value):
        handle, minor, name = ctypes.c_void_p(), ctypes.c_uint(), ctypes.create_string_buffer(96)
        if nvml.nvmlDeviceGetHandleByIndex_v2(index, ctypes.byref(handle)) != 0:
            continue  # a card that is lost cannot be given to anybody
        nvml.nvmlDeviceGetName(handle, name, len(name))
        if nvml.nvmlDeviceGetMinorNumber(handle, ctypes.byref(minor)) != 0:
            continue
        device = f"/dev/nvidia{minor.value}"
        if os.path.exists(device):
            found.append({"name": name.value.decode("utf-8", "replace"), "device": device})
    nvml.nvmlShutdown()
    return found
