"""Resolves `--gpus` to a pool, within the variables that limit the visible GPUs: CUDA's, ROCm's and DIBS_GPUS."""

import re
from collections.abc import Collection, Iterable, Mapping, Sequence

from dibs.dataclass import dataclass
from dibs.errors import BadInput, NoGpu
from dibs.gpus.probe import Probe, answer_within
from dibs.model.gpus import Card, Gpu, Pool, declared_key, parse_gpu_list

DIBS = "DIBS_GPUS"
_CUDA = "CUDA_VISIBLE_DEVICES"
_ROCR = "ROCR_VISIBLE_DEVICES"
_HIP = "HIP_VISIBLE_DEVICES"


@dataclass(frozen=True, slots=True)
class HostGpus:
    """The GPUs that an id may refer to. Without a driver (None) every number is accepted."""

    gpus: tuple[Gpu, ...] | None

    def find(self, gpu_id: str) -> list[Gpu]:
        """The GPUs with this number, or whose UUID begins so."""
        if self.gpus is None:
            return [declared_gpu(int(gpu_id))] if gpu_id.isascii() and gpu_id.isdigit() else []
        return [gpu for gpu in self.gpus if gpu.is_called(gpu_id)]

    def find_by_rocm(self, gpu_id: str, named: Collection[str]) -> list[Gpu]:
        """The AMD GPUs that ROCm would select: it numbers only its own, and has its own form of UUID.

        It numbers the parts of a divided card. dibs assigns whole cards: all parts must be among those named.
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
    """A variable that leaves only some GPUs visible, in its order."""

    name: str
    value: str
    gpus: tuple[Gpu, ...]


def resolve_pool(
    text: str, probe: Probe | None, environ: Mapping[str, str], missing: list[str] | None = None
) -> Pool:
    """The cards meant by `auto`, `0,1,2`, `0,0,1` (slots) or `0+1,2+3` (groups); empty text means none.

    A busy GPU belongs to the pool too: it may become free. Without a probe, numbers are accepted without checking.
    The number of a card that MIG has divided means all its parts. An inherited CUDA_VISIBLE_DEVICES limits the
    pool, ROCm's variables limit it for AMD, and so does DIBS_GPUS, which names the GPUs of a dibs job. A GPU that
    does not exist is refused, or added to `missing`.
    """
    if not text.strip():
        return Pool(cards=())
    entries = parse_gpu_list(text)
    machine = _ask_machine(probe)
    limits = find_limits(environ, machine)
    if entries is None:
        return Pool(cards=tuple(Card(gpu=gpu) for gpu in _every_gpu(machine, limits)))
    if missing is not None and machine.gpus:
        gone = [entry for entry in entries if not all(machine.find(gpu_id) for gpu_id in entry)]
        missing += ["+".join(entry) for entry in gone]
        entries = [entry for entry in entries if entry not in gone]
    return _pool_of([gpus for entry in entries for gpus in _entry(entry, machine, limits)])


def pool_by_default(setting: str, environ: Mapping[str, str]) -> str:
    """The text for `resolve_pool` of a program to which no GPUs were named: the setting `gpus`.

    Variables that limit the GPUs are nearer than a setting: inside of a job its own GPUs are meant.
    """
    return "auto" if any(name in environ for name in (DIBS, _CUDA, _ROCR, _HIP)) else setting


def read_pool_file(path: str) -> str:
    """The text for `resolve_pool` from a file: ids separated by commas, blanks or newlines, `#` comments.

    An empty file means that no GPU may be used for now.
    """
    try:
        with open(path, encoding="utf-8") as file:
            lines = file.read().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not text"
        raise BadInput(f"cannot read the GPU file {path}: {reason}", remedy="it holds ids like 0,1,2") from error
    words = [re.sub(r"\s*\+\s*", "+", line.partition("#")[0]).replace(",", " ").split() for line in lines]
    return ",".join(word for line in words for word in line)


def _ask_machine(probe: Probe | None) -> HostGpus:
    if probe is None:
        return HostGpus(None)
    return HostGpus(tuple(seen.gpu for seen in answer_within(probe.read).gpus))


def _every_gpu(machine: HostGpus, limits: Sequence[Limit]) -> Sequence[Gpu]:
    gpus = machine.gpus
    if gpus is None:
        # Without a driver, CUDA_VISIBLE_DEVICES alone is no proof of GPUs: it may be set anywhere.
        given = next((limit for limit in limits if limit.name == DIBS), None)
        if given is None:
            raise NoGpu(
                "cannot find a GPU: there is no driver of NVIDIA or AMD here",
                remedy="name the GPUs yourself, like --gpus 0,1 (in Python gpus='0,1'), or install the driver",
            )
        gpus = given.gpus
    if not gpus:
        raise NoGpu(
            "cannot find a GPU: the driver shows none that works", remedy="see what `nvidia-smi` or `amd-smi` says"
        )
    for limit in limits:
        left = tuple(gpu for gpu in limit.gpus if gpu in gpus)
        if not left:
            raise NoGpu(
                f"cannot use a GPU: {limit.name}={limit.value} leaves none of {shown_gpus(gpus)}",
                remedy=remedy_of(limit.name),
            )
        gpus = left
    return gpus


def _entry(ids: tuple[str, ...], machine: HostGpus, limits: Sequence[Limit]) -> list[tuple[Gpu, ...]]:
    """The pool entries of one `--gpus` entry: the number of a divided card gives an entry for each part."""
    found = [_named_gpus(gpu_id, machine, limits) for gpu_id in ids]
    if len(ids) == 1:
        return [(gpu,) for gpu in found[0]]
    gpus = [gpu for parts in found for gpu in parts]
    if divided := [gpu for gpu in gpus if gpu.part is not None]:
        raise BadInput(
            f"cannot put {shown_gpus(divided)} into a group: CUDA shows a program one part of a divided card, and"
            " nothing beside it",
            remedy="name parts one by one, like 0:0,0:1",
        )
    if len({gpu.is_amd for gpu in gpus}) > 1:
        raise BadInput(
            f"cannot put GPUs of two makers into the group {'+'.join(ids)}", remedy="no job can use both"
        )
    return [tuple(gpus)]


def _named_gpus(gpu_id: str, machine: HostGpus, limits: Sequence[Limit]) -> list[Gpu]:
    """One GPU, or all parts of one."""
    found = machine.find(gpu_id)
    if len(found) > 1 and not gpu_id.isdigit():
        keys = ", ".join(gpu.key for gpu in found)
        raise BadInput(f"cannot tell which GPU {gpu_id!r} means: {keys}", remedy="write more of the UUID")
    if not found:
        raise _unknown(gpu_id, machine)
    for limit in limits:
        left = [gpu for gpu in found if gpu in limit.gpus]
        if not left:
            raise BadInput(
                f"cannot use GPU {gpu_id}: {limit.name}={limit.value} leaves only {shown_gpus(limit.gpus)}",
                remedy=remedy_of(limit.name),
            )
        found = left
    return found


def _pool_of(entries: Sequence[tuple[Gpu, ...]]) -> Pool:
    """Count how often each entry is named. A GPU in two different entries is refused: it could be used twice."""
    slots: dict[frozenset[Gpu], int] = {}
    groups: dict[frozenset[Gpu], tuple[Gpu, ...]] = {}
    for entry in entries:
        members = frozenset(entry)
        if len(members) < len(entry):
            raise BadInput(f"cannot use a GPU twice in the group {_joined(entry)}", remedy="name each GPU once")
        for other in groups.values():
            if members != frozenset(other) and (shared := members.intersection(other)):
                raise BadInput(
                    f"cannot use GPU {min(gpu.number for gpu in shared)} both in {_joined(other)}"
                    f" and in {_joined(entry)}",
                    remedy="put each GPU into one group, or repeat the whole group for slots",
                )
        groups.setdefault(members, entry)
        slots[members] = slots.get(members, 0) + 1
    return Pool(
        cards=tuple(Card(gpu=gpu, slots=slots[key]) for key, group in groups.items() for gpu in group),
        groups=tuple(tuple(gpu.key for gpu in group) for group in groups.values())
        if any(len(group) > 1 for group in groups.values())
        else (),
    )


def _unknown(gpu_id: str, machine: HostGpus) -> BadInput:
    if machine.gpus is None:
        return BadInput(
            f"cannot find GPU {gpu_id}: UUIDs are not known without a driver",
            remedy="name GPUs by number, like --gpus 0,1, or install the driver",
        )
    there = f"this machine has {shown_gpus(machine.gpus)}" if machine.gpus else "the driver shows none that works"
    return BadInput(f"cannot find GPU {gpu_id}: {there}", remedy="`dibs gpus` shows them with their UUIDs")


def _joined(group: Iterable[Gpu]) -> str:
    return "+".join(gpu.number for gpu in group)


def find_limits(environ: Mapping[str, str], machine: HostGpus) -> list[Limit]:
    """CUDA's variable limits NVIDIA's GPUs, ROCm's limit AMD's.

    Of ROCm's variables the lowest counts: those above it select from what it left. Without a GPU of NVIDIA, ROCm
    uses CUDA's variable too.
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
    name: str, value: str, machine: HostGpus, concerned: tuple[Gpu, ...], untouched: tuple[Gpu, ...] = ()
) -> Limit:
    is_rocm = name != DIBS and any(gpu.is_amd for gpu in concerned)
    gpus: list[Gpu] = []
    named = [gpu_id.strip() for gpu_id in value.split(",")]
    for gpu_id in named:
        found = machine.find_by_rocm(gpu_id, named) if is_rocm else machine.find(gpu_id)
        if concerned:
            found = [gpu for gpu in found if gpu in concerned]
        if not found or (len(found) > 1 and not gpu_id.isdigit()):
            break  # as CUDA does: ids after a wrong one are ignored
        gpus += [gpu for gpu in found if gpu not in gpus]
    if not gpus and not untouched:
        raise _nothing_left(name, value.strip(), machine)
    return Limit(name, value, (*gpus, *untouched))


def remedy_of(name: str) -> str:
    if name == DIBS:
        return "this runs inside a job of dibs, which has only the GPUs it was given: ask for more with -n"
    return f"unset {name}, or set it to the GPUs that may be used"


def _nothing_left(name: str, value: str, machine: HostGpus) -> NoGpu:
    if name == DIBS and not value:
        why = "this runs inside a job of dibs that was given none"
    elif not value:
        why = f"{name} is empty and hides all GPUs"
    elif value.startswith("-"):
        why = f"{name}={value} hides all GPUs"
    elif machine.gpus is None:
        why = f"{name}={value} is not a number, and UUIDs are not known without a driver"
    elif not machine.gpus:
        why = "the driver shows none that works"
    else:
        why = f"{name}={value} names none of {shown_gpus(machine.gpus)} and so hides all GPUs"
    return NoGpu(f"cannot use a GPU: {why}", remedy=remedy_of(name))


def shown_gpus(gpus: Iterable[Gpu]) -> str:
    """`GPU 0` or `GPUs 0, 1, 2`."""
    numbers = [gpu.number for gpu in gpus]
    return f"GPU{'s' if len(numbers) > 1 else ''} {', '.join(numbers)}"


def declared_gpu(index: int) -> Gpu:
    """The GPU with that number, where nothing else is known."""
    return Gpu(key=declared_key(index), index=index)
