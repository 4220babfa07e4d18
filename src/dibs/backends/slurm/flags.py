"""From wishes to the options of `sbatch`."""

import math
import re

from dibs.backends.protocol import Wanted
from dibs.errors import BackendRefused
from dibs.model.places import SLURM_OPTIONS as OPTIONS

_MIB = 1024 * 1024
_GIB = 1024 * _MIB
_WORD = re.compile(r"[^\s\x00-\x1f]{1,300}")
_TYPE = re.compile(r"[A-Za-z0-9_.-]{1,60}")
_MOST_NICE = 2**31 - 4  # Slurm takes no more


def flags(wanted: Wanted, *, shards_per_gpu: int = 0) -> list[str]:
    """The options for these wishes. Refuses what Slurm has no word for."""
    wishes = wanted.wishes
    if wishes.only or wishes.prefer:
        raise BackendRefused(
            "cannot ask Slurm for a GPU by its number",
            remedy="ask for a type (--gpu-type) or a node (nodelist) instead of --only and --prefer",
        )
    # It never runs twice by itself, and never waits for what cannot happen.
    found = ["--no-requeue", "--kill-on-invalid-dep=yes", "--ntasks=1", "--nodes=1"]
    found += _cards(wanted, shards_per_gpu)
    if wishes.cpus is not None:
        found.append(f"--cpus-per-task={max(1, wishes.cpus)}")
    if wishes.mem is not None:
        found.append(f"--mem={math.ceil(wishes.mem / _MIB)}M")
    if wanted.time_limit is not None:
        found.append(f"--time={max(1, math.ceil(wanted.time_limit / 60))}")
    if wanted.priority < 0:
        # Only an operator may go in front of others: a higher priority is for our own order of submitting.
        found.append(f"--nice={min(-wanted.priority, _MOST_NICE)}")
    given = dict(wanted.options)
    if wanted.avoid:
        given["exclude"] = ",".join(filter(None, (given.get("exclude", ""), *wanted.avoid)))
    for name, value in given.items():
        if name not in OPTIONS:
            raise BackendRefused(
                f"cannot tell Slurm about {name!r}", remedy=f"dibs passes on {', '.join(OPTIONS)}"
            )
        if not _WORD.fullmatch(value):
            remedy = "write it without blanks" if value else "leave it out where Slurm's own is meant"
            raise BackendRefused(f"cannot give Slurm {value[:60]!r} as {name}", remedy=remedy)
        found.append(f"--{name}={value}")
    return found


def _cards(wanted: Wanted, shards_per_gpu: int) -> list[str]:
    """Whole cards, or parts of one where the administrator divided them. A whole card is never too little."""
    wishes = wanted.wishes
    if not wishes.num_gpus:
        return []
    kind = ""
    if wishes.gpu_type:
        if not _TYPE.fullmatch(wishes.gpu_type):
            raise BackendRefused(f"cannot ask Slurm for GPUs of type {wishes.gpu_type[:60]!r}")
        kind = f"{wishes.gpu_type}:"
    # Parts carry no type and come from one card only.
    if shards_per_gpu and not kind and wishes.num_gpus == 1:
        shards = 0
        if wishes.share is not None:
            shards = math.ceil(wishes.share * shards_per_gpu)
        if wishes.vram is not None:
            shards = max(shards, math.ceil(wishes.vram / _GIB))
        if 0 < shards < shards_per_gpu:
            return [f"--gres=shard:{shards}"]
    return [f"--gres=gpu:{kind}{wishes.num_gpus}"]
