"""How attempts become calls of `sbatch`: marks, names, options, arrays and batch scripts.

A mark carries an attempt's identity: `dibs-k3f9-17.1` is the first attempt of job 17. The elements of an array
share the array's mark and differ in Slurm's task number. Where that cannot be as high as ours, the mark has an
offset: `dibs-k3f9-17+1000.1`. The mark is the first word of the comment, and stands in the job's name behind the
name that the user gave: a site, its user or another program may rewrite either.
"""

import math
import re
import shlex
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from dibs.backends.protocol import AttemptRef, Resources, Submission
from dibs.dataclass import dataclass
from dibs.errors import BackendRefused, BadInput
from dibs.model.slurm_options import OF_GPUS, OF_MEMORY, OF_TASKS, SPREAD, check_options, of_pyxis
from dibs.supervise.script_job import NO_SOURCE, pack

_MARK = re.compile(r"dibs-([A-Za-z0-9-]{1,80})(?:_([0-9]{1,9})|\+([0-9]{1,9}))?\.([0-9]{1,6})")
_LONGEST_TITLE = 60  # bytes of a user's name in front of a mark


@dataclass(frozen=True, slots=True)
class JobMark:
    """What has this mark over there: a job, or the elements of an array from `offset` on."""

    base: str
    attempt: int
    task: int | None = None  # an element that is a job by itself: a retry
    offset: int = 0

    def __str__(self) -> str:
        more = f"_{self.task}" if self.task is not None else f"+{self.offset}" if self.offset else ""
        return f"dibs-{self.base}{more}.{self.attempt}"


def split_key(key: str) -> tuple[str, int | None]:
    """The array's key and the element, or the key and None."""
    base, underscore, task = key.partition("_")
    return base, int(task) if underscore else None


def named(title: str, mark: JobMark) -> str:
    """The name of a job over there: its user's title, and the mark."""
    if not title:
        return str(mark)
    cut = title.encode("utf-8", "replace")[:_LONGEST_TITLE].decode("utf-8", "ignore")
    return f"{cut}.{mark}"


def identity(name: str, comment: str, task: int | None) -> tuple[str, int] | None:
    """The key and attempt of a Slurm job with this name, comment and task number; None for one of others."""
    match = _MARK.fullmatch(comment.partition(" ")[0]) or _MARK.fullmatch(_behind_title(name))
    if match is None:
        return None
    base, element, offset, attempt = match.groups()
    if task is not None:
        return None if element else (f"{base}_{task + int(offset or 0)}", int(attempt))
    if offset:
        return None
    return (f"{base}_{element}" if element else base), int(attempt)


def _behind_title(name: str) -> str:
    """`dibs-k3f9-17.1` of `train.dibs-k3f9-17.1`."""
    return name[start:] if (start := name.rfind(".dibs-") + 1) else name


_MIB = 1024 * 1024
_GIB = 1024 * _MIB
_TYPE = re.compile(r"[A-Za-z0-9_.-]{1,60}")
_MOST_NICE = 2**31 - 4  # Slurm takes no more


def flags(wanted: Resources, *, shards_per_gpu: int = 0) -> list[str]:
    """The options for these wishes. Refuses what Slurm has no word for."""
    wishes = wanted.wishes
    if wishes.only or wishes.prefer:
        raise BackendRefused(
            "cannot ask Slurm for a GPU by its number",
            remedy="ask for a type (--gpu-type) or a node (nodelist) instead of --only and --prefer",
        )
    given = dict(wanted.options)
    # It never runs twice by itself, and never waits for what cannot happen. Where a script says itself how many
    # tasks, nodes or cards it has, nothing may make it smaller.
    found = ["--no-requeue", "--kill-on-invalid-dep=yes"]
    found += [] if OF_TASKS & given.keys() else ["--ntasks=1"]
    found += [] if SPREAD & given.keys() else ["--nodes=1"]
    found += [] if OF_GPUS & given.keys() else _cards(wanted, shards_per_gpu)
    if wishes.cpus is not None:
        found.append(f"--cpus-per-task={max(1, wishes.cpus)}")
    if wishes.mem is not None and not OF_MEMORY & given.keys():
        found.append(f"--mem={math.ceil(wishes.mem / _MIB)}M")
    if wanted.time_limit is not None:
        found.append(f"--time={max(1, math.ceil(wanted.time_limit / 60))}")
    if wanted.priority < 0:
        # Only an operator may go in front of others: a higher priority is for our own order of submitting.
        found.append(f"--nice={min(-wanted.priority, _MOST_NICE)}")
    try:
        check_options(given)
    except BadInput as error:
        raise BackendRefused(error.message, remedy=error.remedy) from error
    if wanted.avoid:
        given["exclude"] = ",".join(filter(None, (given.get("exclude", ""), *wanted.avoid)))
    told = {name: value for name, value in given.items() if name not in of_pyxis(given)}
    return [*found, *as_options(told)]


def as_options(given: Mapping[str, str]) -> list[str]:
    """As they are typed."""
    return [f"--{name}={value}" if value else f"--{name}" for name, value in given.items()]


def _cards(wanted: Resources, shards_per_gpu: int) -> list[str]:
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


@dataclass(frozen=True, slots=True)
class SlurmBatch:
    """What one call of sbatch submits: a job, or elements of an array by Slurm's task numbers."""

    mark: JobMark
    flags: tuple[str, ...]
    members: Mapping[int, Submission]
    most: int | None  # so many at once
    title: str = ""  # what the user calls them
    workdir: str = "/"

    @property
    def refs(self) -> list[AttemptRef]:
        return [one.ref for one in self.members.values()]

    @property
    def wanted(self) -> Resources:
        """What they are asked for: the same of each."""
        return next(iter(self.members.values())).wanted

    @property
    def is_array(self) -> bool:
        return len(self.members) > 1

    def divided(self, room: int) -> "tuple[SlurmBatch | None, SlurmBatch | None]":
        """The first so many of its members, and the others; None where there are none."""
        items = list(self.members.items())
        parts = [replace(self, members=dict(some)) if some else None for some in (items[:room], items[room:])]
        return parts[0], parts[1]


_Group = tuple[str, int, int, bool, tuple[tuple[str, ...], int | None, str, str]]


def batches(wanted: Iterable[tuple[Submission, tuple[str, ...]]], *, largest_array: int) -> list[SlurmBatch]:
    """In the order given. Elements of one array that ask for the same go together, in blocks of numbers below
    `largest_array`; one that is left alone, such as a retry, is a job by itself."""
    groups: dict[_Group, dict[int, Submission]] = {}
    for one, flags in wanted:
        base, task = split_key(one.ref.key)
        block = 0 if task is None else task // largest_array * largest_array
        same = (flags, one.wanted.most, printable(one.spec.get("name", "")), one.spec.get("workdir", "/"))
        group = (base, one.ref.attempt, block, task is None, same)
        groups.setdefault(group, {})[0 if task is None else task - block] = one
    found = []
    for (base, attempt, block, is_single, (flags, most, title, workdir)), members in groups.items():
        if len(members) > 1:
            mark = JobMark(base, attempt, offset=block)
        else:
            mark = JobMark(base, attempt, None if is_single else block + next(iter(members)))
        found.append(SlurmBatch(mark, flags, members, most, title, workdir))
    return found


def printable(title: str) -> str:
    """A name as other programs may print it."""
    return "".join(one if one.isprintable() else "_" for one in title)


def script(python: str, source: str, folder: str) -> bytes:
    """For one attempt. `source` is where the package dibs lies."""
    return f"#!/bin/sh\n{_become(python, source, 'batch_job', shlex.quote(folder))}\n".encode(
        "utf-8", "surrogateescape"
    )


def array_script(python: str, source: str, folders: Mapping[int, str]) -> bytes:
    """For the elements of an array, whose folders are found by Slurm's task number.

    The folders stand in the script itself: Slurm keeps it as long as it is needed, and removes it.
    """
    lines = ["#!/bin/sh", 'case "$SLURM_ARRAY_TASK_ID" in']
    lines += [f"{task}) folder={shlex.quote(folder)};;" for task, folder in sorted(folders.items())]
    lines += ["esac", _become(python, source, "batch_job", '"$folder"')]
    return ("\n".join(lines) + "\n").encode("utf-8", "surrogateescape")


def carrying_script(python: str, source: str, document: Mapping[str, Any]) -> bytes:
    """For attempts that bring along everything that they need but the package itself.

    It stands behind the last line that a shell reads, and the shim reads it from the script's own file.
    """
    there = shlex.quote(f"{source}/dibs/supervise/script_job.py")
    lines = ["#!/bin/sh", f"test -e {there} || exit {NO_SOURCE}", _become(python, source, "script_job", '"$0"')]
    return "\n".join(lines).encode("utf-8", "surrogateescape") + pack(document)


def call(python: str, source: str, module: str) -> list[str]:
    """The words that run `main` of a module of ours with whatever words follow."""
    # Isolated and without site: nothing of the node's surroundings may reach the supervisor.
    start = f"import sys; sys.path.append(sys.argv[1]); from dibs.supervise.{module} import main"
    return [python, "-I", "-S", "-X", "utf8", "-c", f"{start}; sys.exit(main(*sys.argv[2:]))", source]


def _become(python: str, source: str, module: str, argument: str) -> str:
    return f"exec {shlex.join(call(python, source, module))} {argument}"
