"""Finds the probe for this machine: NVIDIA's, AMD's, both, or the fake one."""

import ctypes
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace

from dibs.errors import BadInput
from dibs.gpus.probe import Probe, ProbeFailed, answer_within
from dibs.model.gpus import CardState, Reading

DRIVER_LIBRARY = "libnvidia-ml.so.1"
AMD_DRIVER = "/sys/module/amdgpu"

# The probes are imported where they are used: a command pays only for those of its own machine.


def find_probe(environ: Mapping[str, str]) -> Probe | None:
    """The probe for this machine; None where there is no driver or no GPU. AMD's GPUs come last.

    `DIBS_PROBE=fake:/path.json` reads the GPUs from a file, `DIBS_PROBE=none` ignores the driver: with
    these two, tests see the same machine everywhere. A driver that is there but fails gives a probe whose
    `read` raises what is wrong.
    """
    choice = environ.get("DIBS_PROBE", "")
    if choice == "none":
        return None
    if choice.startswith("fake:"):
        from dibs.gpus.fake import FakeProbe

        return FakeProbe(choice.removeprefix("fake:"))
    if choice:
        raise BadInput(
            f"cannot read DIBS_PROBE={choice!r}",
            remedy="it is fake:/path.json or none; unset it to ask the driver",
        )
    found = [probe for probe in (_find_nvidia(), _find_amd()) if probe is not None]
    if len(found) < 2:
        return found[0] if found else None
    return CombinedProbe(found)


class CombinedProbe:
    """The GPUs of several probes, for a machine with two makers. Later probes are numbered after earlier ones.

    When one driver fails, only its own GPUs are lost.
    """

    def __init__(self, probes: Sequence[Probe]) -> None:
        self._probes = tuple(probes)
        self._last: dict[int, Reading] = {}

    def read(self, *, energy: bool = False) -> Reading:
        readings = [self._read(at, energy) for at in range(len(self._probes))]
        first = 0
        shown = []
        for reading in readings:
            shown += [replace(seen, gpu=replace(seen.gpu, index=first + seen.gpu.index)) for seen in reading.gpus]
            first = 1 + max((seen.gpu.index for seen in shown), default=-1)
        return Reading(
            at=readings[0].at,
            gpus=tuple(shown),
            driver=", ".join(reading.driver for reading in readings if reading.driver),
            faults=tuple(fault for reading in readings for fault in reading.faults),
            links={pair: quality for reading in readings for pair, quality in reading.links.items()},
        )

    def _read(self, at: int, energy: bool) -> Reading:
        try:
            self._last[at] = self._probes[at].read(energy=energy)
            return self._last[at]
        except ProbeFailed:
            if at not in self._last:  # the numbers of the next probe depend on how many GPUs this one has
                raise
            last = self._last[at]
            lost = tuple(replace(seen, energy=None, state=CardState.LOST) for seen in last.gpus)
            return replace(last, gpus=lost, faults=())


def _find_nvidia() -> Probe | None:
    if not _library_loads(DRIVER_LIBRARY):
        return None
    import pynvml  # 25 ms

    from dibs.gpus.nvidia import NvidiaProbe

    probe = NvidiaProbe(pynvml)
    try:
        return probe if answer_within(probe.count) else None
    except ProbeFailed:
        return probe


def _find_amd() -> Probe | None:
    if not os.path.isdir(AMD_DRIVER):
        return None
    from dibs.gpus.amd import AmdProbe

    probe = AmdProbe()
    return probe if probe.count() else None


def _library_loads(name: str) -> bool:
    try:
        ctypes.CDLL(name)
    except OSError:
        return False
    return True
