"""From the words after `--gpus` to the pool of a run."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from dibs.errors import BadInput, NoGpu
from dibs.gpus.declared import declared_gpu
from dibs.gpus.patience import answer_within
from dibs.gpus.probe import Probe
from dibs.model.gpus import Gpu
from dibs.model.pool import Card, Pool, parse_gpu_list


def resolve_pool(text: str, probe: Probe | None, environ: Mapping[str, str]) -> Pool:
    """The cards meant by `auto`, `0,1,2`, `0,0,1` (slots) or `0+1,2+3` (groups); empty text means none.

    Whether a card is busy is not asked here: it belongs to the pool and may become free. Where there is no
    probe, numbers are believed. An inherited CUDA_VISIBLE_DEVICES limits the pool, and so does DIBS_GPUS, by
    which a job of dibs knows the cards it was given.
    """
    if not text.strip():
        return Pool(cards=())
    entries = parse_gpu_list(text)
    machine = _ask_machine(probe)
    limits = [limit for name in (_DIBS, _CUDA) if (limit := _limit(name, environ, machine))]
    if entries is None:
        return Pool(cards=tuple(Card(gpu=gpu) for gpu in _every_gpu(machine, limits)))
    return _pool_of([tuple(_named_gpu(gpu_id, machine, limits) for gpu_id in entry) for entry in entries])


def read_pool_file(path: str) -> str:
    """The text for `resolve_pool` out of a file: ids between commas, blanks or newlines, `#` comments.

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


_CUDA = "CUDA_VISIBLE_DEVICES"
_DIBS = "DIBS_GPUS"


@dataclass(frozen=True, slots=True)
class _Machine:
    """The cards that can be meant. Without a driver (None) every number can."""

    gpus: tuple[Gpu, ...] | None

    def find(self, gpu_id: str) -> list[Gpu]:
        """The cards that a number or the beginning of a UUID may mean."""
        is_number = gpu_id.isascii() and gpu_id.isdigit()
        if self.gpus is None:
            return [declared_gpu(int(gpu_id))] if is_number else []
        if is_number:
            return [gpu for gpu in self.gpus if gpu.index == int(gpu_id)]
        return [gpu for gpu in self.gpus if gpu_id and gpu.key.startswith(gpu_id)]


@dataclass(frozen=True, slots=True)
class _Limit:
    """A variable that leaves only some cards to us, in its order."""

    name: str
    value: str
    gpus: tuple[Gpu, ...]


def _ask_machine(probe: Probe | None) -> _Machine:
    if probe is None:
        return _Machine(None)
    return _Machine(tuple(seen.gpu for seen in answer_within(probe.read).gpus))


def _limit(name: str, environ: Mapping[str, str], machine: _Machine) -> _Limit | None:
    value = environ.get(name)
    if value is None:
        return None
    gpus: list[Gpu] = []
    for gpu_id in value.split(","):
        found = machine.find(gpu_id.strip())
        if len(found) != 1:
            break  # as CUDA does: what follows a wrong id is not seen either
        if found[0] not in gpus:
            gpus.append(found[0])
    if not gpus:
        raise _nothing_left(name, value.strip(), machine)
    return _Limit(name, value, tuple(gpus))


def _every_gpu(machine: _Machine, limits: Sequence[_Limit]) -> Sequence[Gpu]:
    gpus = machine.gpus
    if gpus is None:
        # Without a driver, CUDA_VISIBLE_DEVICES alone is no proof of cards: people set it anywhere.
        given = next((limit for limit in limits if limit.name == _DIBS), None)
        if given is None:
            raise NoGpu(
                "cannot find a GPU: there is no NVIDIA driver here",
                remedy="name the GPUs yourself, like --gpus 0,1, or install the driver",
            )
        gpus = given.gpus
    if not gpus:
        raise NoGpu("cannot find a GPU: the driver shows none that works", remedy="see what `nvidia-smi` says")
    for limit in limits:
        left = tuple(gpu for gpu in limit.gpus if gpu in gpus)
        if not left:
            raise NoGpu(
                f"cannot use a GPU: {limit.name}={limit.value} leaves none of {_shown(gpus)}",
                remedy=_REMEDY[limit.name],
            )
        gpus = left
    return gpus


def _named_gpu(gpu_id: str, machine: _Machine, limits: Sequence[_Limit]) -> Gpu:
    found = machine.find(gpu_id)
    if len(found) > 1:
        keys = ", ".join(gpu.key for gpu in found)
        raise BadInput(f"cannot tell which GPU {gpu_id!r} means: {keys}", remedy="write more of the UUID")
    if not found:
        raise _unknown(gpu_id, machine)
    for limit in limits:
        if found[0] not in limit.gpus:
            raise BadInput(
                f"cannot use GPU {gpu_id}: {limit.name}={limit.value} leaves only {_shown(limit.gpus)}",
                remedy=_REMEDY[limit.name],
            )
    return found[0]


def _pool_of(entries: Sequence[tuple[Gpu, ...]]) -> Pool:
    """Count how often each entry is given. A card of two different entries could be given twice."""
    slots: dict[frozenset[Gpu], int] = {}
    groups: dict[frozenset[Gpu], tuple[Gpu, ...]] = {}
    for entry in entries:
        members = frozenset(entry)
        if len(members) < len(entry):
            raise BadInput(f"cannot use a GPU twice in the group {_joined(entry)}", remedy="name each GPU once")
        for other in groups.values():
            if members != frozenset(other) and (shared := members.intersection(other)):
                raise BadInput(
                    f"cannot use GPU {min(gpu.index for gpu in shared)} both in {_joined(other)}"
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


_REMEDY = {
    _CUDA: f"unset {_CUDA}, or set it to the GPUs that may be used",
    _DIBS: "this runs inside a job of dibs, which has only the GPUs it was given: ask for more with -n",
}


def _nothing_left(name: str, value: str, machine: _Machine) -> NoGpu:
    if name == _DIBS and not value:
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
        why = f"{name}={value} names none of {_shown(machine.gpus)} and so hides all GPUs"
    return NoGpu(f"cannot use a GPU: {why}", remedy=_REMEDY[name])


def _unknown(gpu_id: str, machine: _Machine) -> BadInput:
    if machine.gpus is None:
        return BadInput(
            f"cannot find GPU {gpu_id}: without a driver nobody knows its UUID",
            remedy="name GPUs by number, like --gpus 0,1, or install the driver",
        )
    if gpu_id.startswith("MIG-"):
        return BadInput(
            f"cannot use {gpu_id}: dibs gives whole cards, not the parts that MIG makes",
            remedy=f"name the card that holds it: this machine has {_shown(machine.gpus)}",
        )
    there = f"this machine has {_shown(machine.gpus)}" if machine.gpus else "the driver shows none that works"
    return BadInput(f"cannot find GPU {gpu_id}: {there}", remedy="`dibs gpus` shows them with their UUIDs")


def _shown(gpus: Iterable[Gpu]) -> str:
    """`GPU 0` or `GPUs 0, 1, 2`."""
    numbers = [str(gpu.index) for gpu in gpus]
    return f"GPU{'s' if len(numbers) > 1 else ''} {', '.join(numbers)}"


def _joined(group: Iterable[Gpu]) -> str:
    return "+".join(str(gpu.index) for gpu in group)
