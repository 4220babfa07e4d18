"""Old output: where all that jobs wrote takes too much room, the oldest goes first. Their jobs stay."""

import asyncio
import contextlib
import os
import stat
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

from dibs.daemon.app_state import Desk
from dibs.daemon.worker_thread import answers, aside
from dibs.errors import NoSuchJob
from dibs.model.jobs import JobId, State

_FILES = ("stdout", "stderr", "stdout.cut", "stderr.cut")
_GONE = "output-removed"  # an empty file in an attempt's folder: why there is nothing to read
_ENOUGH = 0.9  # of the limit: not for every line that comes is something removed again
_PORTION = 100  # attempts that are looked up before others have their turn
_PATIENCE = 600.0  # seconds for the folders of a million jobs
_T = TypeVar("_T")
_U = TypeVar("_U")


@dataclass(frozen=True, slots=True)
class Output:
    """What one attempt wrote."""

    job: JobId
    attempt: int
    size: int  # bytes on the disk; a file with holes is longer than that
    folder: str
    root: str  # below which it was found


async def prune(desk: Desk) -> int:
    """Remove the oldest output if there is more than the setting `keep_logs` allows; return of how many attempts.

    What a running job writes counts, and stays; so do files that somebody named with `-o`, which do not count.
    """
    limit = desk.keep_logs
    if limit is None:
        return 0
    away = desk.engine.away
    places = [desk.engine.place, *(away.homes.elsewhere if away is not None else ())]
    # Each for itself: what other systems see of our files may lie on a network that does not answer.
    found = [output for one in await _each(_measured, [place.root for place in places]) for output in one or ()]
    size = sum(output.size for output in found)
    if size <= limit:
        return 0
    folders: dict[str, list[str]] = {}
    for output in await _oldest_first(desk, found):
        if size <= limit * _ENOUGH:
            break
        folders.setdefault(output.root, []).append(output.folder)
        size -= output.size
    # In threads, and by their names: an attempt that has ended never runs again, and its folder is taken over
    # by another one only where it wrote nothing.
    return sum(count or 0 for count in await _each(_removed, folders.values()))


def was_removed(folder: str) -> bool:
    """Whether the output of the attempt in this folder was removed to make room."""
    return os.path.lexists(f"{folder}/{_GONE}")


def measure(root: str) -> list[Output]:
    """Every attempt of a place that takes room with its output."""
    found = []
    for group in _folders(f"{root}/attempts"):
        for entry in _folders(group.path):
            job, _, number = entry.name.partition(".")
            if job.isdecimal() and number.isdecimal() and (size := _size(entry.path)):
                found.append(Output(JobId(int(job)), int(number), size, entry.path, root))
    return found


def remove_output(folder: str) -> None:
    """Remove what an attempt wrote, and leave word of it. What is no plain file is not ours and stays."""
    try:
        # Not by way of a link: a job may have put one in its folder's place.
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return
    try:
        is_told = _leave_word(handle)
        for name in _FILES:
            with contextlib.suppress(OSError):
                if stat.S_ISREG(os.lstat(name, dir_fd=handle).st_mode):
                    os.unlink(name, dir_fd=handle)
        if not is_told:
            _leave_word(handle)  # the disk was too full even for this; now there is room
    finally:
        os.close(handle)


async def _oldest_first(desk: Desk, outputs: Sequence[Output]) -> list[Output]:
    """Those that may go, in the order in which their attempts ended."""
    ended: list[tuple[float, Output]] = []
    for count, output in enumerate(outputs):
        if count % _PORTION == 0:
            await asyncio.sleep(0)
        try:
            job = desk.store.listing.row(output.job).job
        except NoSuchJob:
            continue  # it is being cleaned away
        if job.state is State.RUNNING or job.request.output:
            continue
        ends = {row.attempt.number: row.ended_at for row in desk.store.listing.attempts(output.job)}
        if (moment := ends.get(output.attempt)) is not None:
            ended.append((moment, output))
    ended.sort(key=lambda one: (one[0], one[1].job))
    return [output for _, output in ended]


async def _each(work: Callable[[_T], Awaitable[_U]], many: Iterable[_T]) -> "list[_U | None]":
    """What it gives for each of them, all at the same time; None for one that takes too long."""

    async def one(thing: _T) -> _U | None:
        with contextlib.suppress(TimeoutError):
            return await work(thing)
        return None

    return await asyncio.gather(*map(one, many))


async def _measured(root: str) -> list[Output]:
    return await aside(lambda: measure(root), _PATIENCE, "pruner") if await answers(root) else []


async def _removed(folders: Sequence[str]) -> int:
    await aside(lambda: _remove_all(folders), _PATIENCE, "pruner")
    return len(folders)


def _remove_all(folders: Sequence[str]) -> None:
    for folder in folders:
        remove_output(folder)


def _folders(path: str) -> Iterator["os.DirEntry[str]"]:
    with contextlib.suppress(OSError), os.scandir(path) as entries:  # it may be cleaned away meanwhile
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                yield entry


def _size(folder: str) -> int:
    size = 0
    for name in _FILES:
        with contextlib.suppress(OSError):
            seen = os.lstat(f"{folder}/{name}")
            if stat.S_ISREG(seen.st_mode):
                size += seen.st_blocks * 512
    return size


def _leave_word(folder: int) -> bool:
    try:
        os.close(os.open(_GONE, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600, dir_fd=folder))
    except OSError:
        return False
    return True
