"""Variables that leave us only some of the cards: CUDA's, ROCm's, and that of a job of dibs."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from dibs.errors import NoGpu
from dibs.gpus.declared import declared_gpu
from dibs.model.gpus import Gpu

DIBS = "DIBS_GPUS"
_CUDA = "CUDA_VISIBLE_DEVICES"
_ROCR = "ROCR_VISIBLE_DEVICES"
_HIP = "HIP_VISIBLE_DEVICES"


@dataclass(frozen=True, slots=True)
class HostLimits:
    """The cards that can be meant. Without a driver (None) every number can."""

    gpus: tuple[Gpu, ...] | None

    def find(self, gpu_id: str) -> list[Gpu]:
        """The cards that a number or the beginning of a UUID may mean."""
        if self.gpus is None:
            return [declared_gpu(int(gpu_id))] if gpu_id.isascii() and gpu_id.isdigit() else []
        return [gpu for gpu in self.gpus if gpu.is_called(gpu_id)]

    def find_by_rocm(self, gpu_id: str, named: Collection[str]) -> list[Gpu]:
        """The AMD cards that ROCm would take: it counts its own only, and has a UUID of its own making.

        It counts the parts of a divided card. dibs hands out whole cards: all parts must be among those named.
        """
        found = []
        for gpu in self.gpus or ():
            parts = gpu.address.split(",")
            by_number = gpu_id in parts and all(part in named for part in parts)
            if gpu.is_amd and (by_number or gpu_id == f"GPU-{gpu.key.removeprefix('AMD-')}"):
                found.append(gpu)
        return found


@dataclass(frozen=True, slots=True)
class Limit:
    """A variable that leaves only some cards to us, in its order."""

    name: str
    value: str
    gpus: tuple[Gpu, ...]


def find_limits(environ: Mapping[str, str], machine: HostLimits) -> list[Limit]:
    """CUDA's variable speaks of NVIDIA's cards, ROCm's of AMD's: the others' cards stay as they are.

    Of ROCm's variables the lowest counts: those above it speak of what it left. Without a card of NVIDIA's, ROCm
    takes CUDA's variable for its own.
    """
    limits = []
    if DIBS in environ:
        limits.append(_limit(DIBS, environ[DIBS], machine, machine.gpus or ()))
    amd = tuple(gpu for gpu in machine.gpus or () if gpu.is_amd)
    others = tuple(gpu for gpu in machine.gpus or () if not gpu.is_amd)
    if _CUDA in environ and (others or not amd):
        limits.append(_limit(_CUDA, environ[_CUDA], machine, others, amd))
    if amd:
        names = (_ROCR, _HIP) if others else (_ROCR, _HIP, _CUDA)
        name = next((name for name in names if name in environ), None)
        if name is not None:
            limits.append(_limit(name, environ[name], machine, amd, others))
    return limits


def _limit(
    name: str, value: str, machine: HostLimits, concerned: tuple[Gpu, ...], untouched: tuple[Gpu, ...] = ()
) -> Limit:
    speaks_rocm = name != DIBS and any(gpu.is_amd for gpu in concerned)
    gpus: list[Gpu] = []
    named = [gpu_id.strip() for gpu_id in value.split(",")]
    for gpu_id in named:
        found = machine.find_by_rocm(gpu_id, named) if speaks_rocm else machine.find(gpu_id)
        if concerned:
            found = [gpu for gpu in found if gpu in concerned]
        if not found or (len(found) > 1 and not gpu_id.isdigit()):
            break  # as CUDA does: what follows a wrong id is not seen either
        gpus += [gpu for gpu in found if gpu not in gpus]
    if not gpus and not untouched:
        raise _nothing_left(name, value.strip(), machine)
    return Limit(name, value, (*gpus, *untouched))


def remedy_of(name: str) -> str:
    if name == DIBS:
        return "this runs inside a job of dibs, which has only the GPUs it was given: ask for more with -n"
    return f"unset {name}, or set it to the GPUs that may be used"


def _nothing_left(name: str, value: str, machine: HostLimits) -> NoGpu:
    if name == DIBS and not value:
        why = "this runs inside a job of dibs that was given none"
    elif not value:
        why = f"{name} is empty and hides all GPUs"
    elif value.startswith("-"):
        why = f"{name}={value} hides all GPUs"
    elif machine.gpus is None:
        why = f"{name}={value} is no number, and without a driver nobody knows a UUID"
    elif not machine.gpus:
        why = "the driver shows none that works"
    else:
        why = f"{name}={value} names none of {shown_gpus(machine.gpus)} and so hides all GPUs"
    return NoGpu(f"cannot use a GPU: {why}", remedy=remedy_of(name))


def shown_gpus(gpus: Iterable[Gpu]) -> str:
    """`GPU 0` or `GPUs 0, 1, 2`."""
    numbers = [gpu.number for gpu in gpus]
    return f"GPU{'s' if len(numbers) > 1 else ''} {', '.join(numbers)}"
