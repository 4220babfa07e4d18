"""Whoever can be asked for the cards of this machine, and which one to ask."""

import os
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Protocol

from dibs.errors import BadInput, DibsError

if TYPE_CHECKING:  # 2 ms that a machine without a driver does not pay
    from dibs.model.gpus import Gpu, Reading

DRIVER_LIBRARY = "libnvidia-ml.so.1"
AMD_DRIVER = "/sys/module/amdgpu"


class Probe(Protocol):
    """Sees the cards of this machine."""

    def read(self, *, energy: bool = False) -> "Reading":
        """Look once at every card. May block for as long as a sick driver likes: see `watch`.

        Energy is asked for now and then, because it is dear; with `energy` it is asked for now, unless that
        happened a moment ago. Raises ProbeFailed where there is something to ask and it gives no answer.
        """
        ...


class ProbeFailed(DibsError):
    """The driver is there, but cannot be asked."""

    code = "probe-failed"


def find_probe(environ: Mapping[str, str]) -> Probe | None:
    """The probe for this machine; None where there is no driver or no card to ask for. AMD's come last.

    `DIBS_PROBE=fake:/path.json` takes the cards from a file, `DIBS_PROBE=none` overlooks the driver: with
    these two, tests see the same machine everywhere. A driver that is there but sick gives a probe, whose
    `read` then tells what is wrong.
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
    from dibs.gpus.combined import CombinedProbe

    return CombinedProbe(found)


def refuse_twins(gpus: "Iterable[Gpu]") -> None:
    """Leases follow the key: two cards of one key, or of one number, cannot be told apart."""
    seen: set[str] = set()
    for gpu in gpus:
        if gpu.key in seen or gpu.number in seen:
            raise ProbeFailed(
                f"cannot tell the GPUs apart: two of them are number {gpu.number} or have the UUID {gpu.key}",
                remedy="`nvidia-smi -L` or `amd-smi list` shows what the driver says",
            )
        seen |= {gpu.key, gpu.number}


def _find_nvidia() -> Probe | None:
    if not _library_loads(DRIVER_LIBRARY):
        return None
    import pynvml  # 25 ms that only machines with a driver pay

    from dibs.gpus.nvidia import NvidiaProbe
    from dibs.gpus.patience import answer_within

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
    import ctypes

    try:
        ctypes.CDLL(name)
    except OSError:
        return False
    return True
