"""From the words after `--gpus` to the pool of a run."""

import re
from collections.abc import Iterable, Mapping, Sequence

from dibs.errors import BadInput, NoGpu
from dibs.gpus.limits import DIBS, HostLimits, Limit, find_limits, remedy_of, shown_gpus
from dibs.gpus.patience import answer_within
from dibs.gpus.probe import Probe
from dibs.model.gpus import Gpu
from dibs.model.pool import Card, Pool, parse_gpu_list


def resolve_pool(
    text: str, probe: Probe | None, environ: Mapping[str, str], missing: list[str] | None = None
) -> Pool:
    """The cards meant by `auto`, `0,1,2`, `0,0,1` (slots) or `0+1,2+3` (groups); empty text means none.

    Whether a card is busy is not asked here: it belongs to the pool and may become free. Where there is no
    probe, numbers are believed. The number of a card that MIG has divided means all its parts. An inherited
    CUDA_VISIBLE_DEVICES limits the pool, ROCm's variables do for AMD cards, and so does DIBS_GPUS, by which a
    job of dibs knows the cards it was given. A card that is not there is refused, or put down in `missing`.
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


def _ask_machine(probe: Probe | None) -> HostLimits:
    if probe is None:
        return HostLimits(None)
    return HostLimits(tuple(seen.gpu for seen in answer_within(probe.read).gpus))


def _every_gpu(machine: HostLimits, limits: Sequence[Limit]) -> Sequence[Gpu]:
    gpus = machine.gpus
    if gpus is None:
        # Without a driver, CUDA_VISIBLE_DEVICES alone is no proof of cards: people set it anywhere.
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


def _entry(ids: tuple[str, ...], machine: HostLimits, limits: Sequence[Limit]) -> list[tuple[Gpu, ...]]:
    """The entries that one stands for: the number of a divided card stands for one entry with each part."""
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


def _named_gpus(gpu_id: str, machine: HostLimits, limits: Sequence[Limit]) -> list[Gpu]:
    """One, or all parts of one."""
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


def _unknown(gpu_id: str, machine: HostLimits) -> BadInput:
    if machine.gpus is None:
        return BadInput(
            f"cannot find GPU {gpu_id}: without a driver nobody knows its UUID",
            remedy="name GPUs by number, like --gpus 0,1, or install the driver",
        )
    there = f"this machine has {shown_gpus(machine.gpus)}" if machine.gpus else "the driver shows none that works"
    return BadInput(f"cannot find GPU {gpu_id}: {there}", remedy="`dibs gpus` shows them with their UUIDs")


def _joined(group: Iterable[Gpu]) -> str:
    return "+".join(gpu.number for gpu in group)
