"""Advice in plain sentences: about what an attempt used, and about why it failed."""

import math
from collections.abc import Iterator, Mapping, Sequence

from dibs.model.jobs import Cause, Wishes
from dibs.model.units import show_size
from dibs.model.usage import Usage

_LEAST_SECONDS = 10.0  # of measuring; a shorter run says little
_LAZY = 10.0  # percent of load below which the GPU mostly waits
_WELL_USED = 80.0  # percent of load above which a second job gains little
_TOGETHER = 200.0  # percent of load for several jobs: while one computes, another loads its data
_MARGIN = 1.1  # of the peak: the next run may need a little more
_MOST_OF_CARD = 0.95  # the driver reserves a part
_MOST = 64  # jobs on one card
_MUCH = 0.25  # of the machine's memory
_ADVICE: Mapping[str, str] = {
    Cause.IMPORT_ERROR: "is the environment active where dibs was called?",
    Cause.SYNTAX_ERROR: "the program cannot be read; mend it, then `dibs retry`",
    Cause.PORT_IN_USE: "another process has this port; $MASTER_PORT in a job is a free one",
    Cause.DISK_FULL: "`df -h` shows which disk is full, `df -i` where it has too many files",
    Cause.GPU_OOM: "a smaller batch; where it shared the card, a larger `--vram` or `--share`",
    Cause.HOST_OOM: "`--mem` books memory, so that fewer such jobs run at once",
    Cause.GPU_FAULT: "not the job's fault; `dibs gpus` shows the card, `--retry-on gpu-fault` tries another",
}
_NAMES = ("ModuleNotFoundError: ", "ImportError: ", "OSError: ", "IOError: ")  # left out of the sentence


def usage_advice(
    usage: Usage,
    wishes: Wishes,
    *,
    cpus: int | None = None,
    memory: int | None = None,
    astray: Sequence[str] = (),
) -> list[str]:
    """Sentences, the most important first. `cpus` and `memory` are the machine's, `astray` numbers of GPUs."""
    found = [_about_astray(astray)] if astray else []
    if usage.seconds < _LEAST_SECONDS:
        return found
    if wishes.num_gpus and usage.peak_vram == 0:
        return [*found, "it never used its GPU: `-n 0` leaves it to others", *_about_host(usage, wishes, memory)]
    if wishes.num_gpus:
        found += [*_about_load(usage), *_about_room(usage, wishes, cpus, memory)]
    return [*found, *_about_host(usage, wishes, memory)]


def jobs_per_gpu(usage: Usage, cpus: int | None = None, memory: int | None = None) -> int:
    """How many such jobs could share its card, by memory, load, CPUs and host memory; 0: unknown."""
    if not usage.peak_vram or not usage.vram_total:
        return 0
    limits = [usage.vram_total * _MOST_OF_CARD / (usage.peak_vram * _MARGIN), float(_MOST)]
    if usage.mean_load:
        limits.append(_TOGETHER / usage.mean_load)
    if cpus and usage.mean_cpus:
        limits.append(cpus / usage.mean_cpus)
    if memory and usage.peak_mem:
        limits.append(memory / (usage.peak_mem * _MARGIN))
    return max(1, math.floor(min(limits)))


def _about_astray(numbers: Sequence[str]) -> str:
    cards = f"GPU{'s' * (len(numbers) > 1)} {', '.join(numbers)}, which it was not given"
    return f"it used {cards}: its own are in CUDA_VISIBLE_DEVICES"


def _about_load(usage: Usage) -> Iterator[str]:
    if usage.mean_load is None or usage.mean_load >= _LAZY:
        return
    host = "" if usage.mean_cpus is None else f" (host CPU {100 * usage.mean_cpus:.0f} %)"
    busy = usage.mean_cpus is not None and usage.mean_cpus >= 1.5
    look = "look at data loading" if busy else "larger batches, or more workers that load data, may help"
    yield f"load {usage.mean_load:.0f} %: the GPU waits; {look}{host}"


def _about_room(usage: Usage, wishes: Wishes, cpus: int | None, memory: int | None) -> Iterator[str]:
    if usage.peak_vram is None:
        return
    peak, needed = show_size(usage.peak_vram), show_size(math.ceil(usage.peak_vram * _MARGIN))
    if wishes.vram is not None and not wishes.shape:
        if usage.peak_vram > wishes.vram:
            yield f"it used {peak} and had booked {show_size(wishes.vram)}: `--vram {needed}`"
        elif usage.peak_vram * 2 < wishes.vram:
            yield f"it booked {show_size(wishes.vram)} and used {peak}: `--vram {needed}` leaves more to others"
        return
    number = jobs_per_gpu(usage, cpus, memory)
    if number < 2 or wishes.shape or wishes.share is not None or (usage.mean_load or 0) >= _WELL_USED:
        return
    load = "" if usage.mean_load is None else f", load {usage.mean_load:.0f} %"
    of = show_size(usage.vram_total)
    yield f"peak {peak} of {of}{load}: {number} of these fit on this card; try `--vram auto`"


def _about_host(usage: Usage, wishes: Wishes, memory: int | None) -> Iterator[str]:
    if not usage.peak_mem:
        return
    peak, needed = show_size(usage.peak_mem), show_size(math.ceil(usage.peak_mem * _MARGIN))
    if wishes.mem is not None and usage.peak_mem > wishes.mem:
        yield f"host memory {peak} is more than the {show_size(wishes.mem)} that it booked: `--mem {needed}`"
    elif wishes.mem is None and memory and usage.peak_mem > _MUCH * memory:
        yield f"host memory {peak} of {show_size(memory)}: `--mem {needed}` keeps others from filling the rest"


def failure_advice(cause: str | None, message: str) -> str:
    """What is known about a failure and what helps; empty where only the exit code is known.

    `No module named 'torch': is the environment active where dibs was called?`
    """
    advice = _ADVICE.get(cause or "", "")
    for name in _NAMES if advice else ():
        message = message.removeprefix(name)
    return ": ".join(part for part in (message.rstrip(" .:"), advice) if part) if advice else message
