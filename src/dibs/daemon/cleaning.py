"""Forgetting jobs with their folders, and removing old output.

A job is forgotten in three steps: first in the store, then its folders are renamed, then what is under them is
removed in a thread. What it wrote in a copy of its code (`--snapshot`) is kept.
"""

import asyncio
import contextlib
import logging
import os
import re
import shutil
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import TypeVar

from dibs.daemon.logs.output import StoredOutput, measure, remove_output
from dibs.dataclass import dataclass
from dibs.engine.engine import Engine
from dibs.engine.launch.browse import BrowsableFolders
from dibs.engine.launch.launcher import Place
from dibs.engine.queue.queue import Queue
from dibs.engine.remote.round import remove
from dibs.errors import NoSuchJob
from dibs.inputs.snapshot import mark_unused, remove_unused
from dibs.model.jobs import Attempt, Job, JobId, State
from dibs.worker_thread import run_in_thread

log = logging.getLogger(__name__)

_ANSWER_WITHIN = 5.0  # seconds
_REMOVE_WITHIN = 600.0  # seconds for the folders of some thousand jobs
_SNAPSHOT = r"[0-9a-f]{32}"
_ENOUGH = 0.9  # of the limit is kept, so that not every new line removes something again
_PORTION = 100  # attempts that are looked up before other tasks run
_T = TypeVar("_T")
_U = TypeVar("_U")


@dataclass(frozen=True, slots=True)
class Forgotten:
    """How many jobs were forgotten, and the copies of code in which something that jobs wrote is kept."""

    jobs: int
    kept: list[str]


@dataclass(frozen=True, kw_only=True, slots=True)
class Cleaner:
    """Removes what a queue no longer needs. The API is served meanwhile."""

    engine: Engine
    queue: Queue
    results: BrowsableFolders
    wake: Callable[[], None]  # called when jobs were forgotten
    keep_logs: int | None  # bytes of all output together; None: all of it is kept

    async def forget_jobs(self, before: float, states: Sequence[State], project: str | None) -> Forgotten:
        """Forget jobs that ended before a moment."""
        removed = 0
        kept: list[str] = []
        remote = _RemoteFolders()
        while (cleaned := self.queue.clean(before, states, project)).jobs:
            jobs = cleaned.jobs
            removed += len(jobs)
            self.wake()
            self.move_to_trash(jobs)
            with contextlib.suppress(TimeoutError):
                await run_in_thread(lambda jobs=jobs: self._remove_files(jobs), _REMOVE_WITHIN, "cleaner")  # type: ignore[misc]
            await remote.remove(self._remote_folders(cleaned.away), _remove_folders)
        if removed:
            keys = self.forget_unused()
            with contextlib.suppress(TimeoutError):
                kept = await run_in_thread(self.empty_trash, _REMOVE_WITHIN, "cleaner")
            await remote.remove(self._remote_environments(keys), remove)
        return Forgotten(removed, kept)

    async def remove_old_output(self) -> int:
        """Remove the oldest output if there is more than the setting `keep_logs` allows.

        Returns the number of attempts whose output was removed. The output of a running job counts, and stays.
        Files that were named with `-o` stay, and do not count.
        """
        if self.keep_logs is None:
            return 0
        away = self.engine.remote
        places = [self.engine.place, *(away.folders.elsewhere if away is not None else ())]
        # Each by itself: the folders that other systems use may be on a network that does not answer.
        measured = await _each(_measured, [place.root for place in places])
        found = [output for some in measured for output in some or ()]
        size = sum(output.size for output in found)
        if size <= self.keep_logs:
            return 0
        folders: dict[str, list[str]] = {}
        for output in await self._oldest_first(found):
            if size <= self.keep_logs * _ENOUGH:
                break
            folders.setdefault(output.root, []).append(output.folder)
            size -= output.size
        # In threads, and by name: an attempt that has ended never runs again, and its folder is used for another
        # one only if it wrote nothing.
        return sum(count or 0 for count in await _each(_removed, folders.values()))

    def move_to_trash(self, jobs: Sequence[Job]) -> None:
        """Rename the folders of these jobs, so that nothing is left under their names when this returns.

        This is done on the loop. A thread that removed a folder by its name could remove the folder of the next
        attempt, which may have taken that name in the meantime.
        """
        place = self.engine.place
        for job in jobs:
            self.engine.forget_folders(_attempt_folders(place, job))
            for folder in [*_attempt_folders(place, job), place.checkpoint_folder(job.id)]:
                _to_trash(place, folder)

    def forget_unused(self) -> list[str]:
        """Remove the environments that no job needs any more, and mark such copies of code; return the former.

        The store forgets them in the same step: a job that is added afterwards makes them again.
        """
        place = self.engine.place
        unused = self.queue.tidy_up()
        for path in unused.snapshots:
            # A client may send any path: only one that has the form of our copies is removed.
            if path == f"{place.root}/code/{os.path.basename(path)}" and re.fullmatch(
                _SNAPSHOT, os.path.basename(path)
            ):
                mark_unused(path)
        for key in unused.environments:
            with contextlib.suppress(OSError):
                os.unlink(place.environment_path(key))
        if self.engine.remote is not None:
            self.engine.remote.forget_environments(unused.environments)
        return unused.environments

    def empty_trash(self) -> list[str]:
        """Remove what no job needs any more; return the copies of code in which something is kept."""
        place = self.engine.place
        shutil.rmtree(_trash(place), ignore_errors=True)
        kept = remove_unused(f"{place.root}/code")
        for copy in kept:
            log.info("kept what jobs wrote in the copy of their code %s", copy)
        return kept

    def _remove_files(self, jobs: Sequence[Job]) -> None:
        for job in jobs:
            self.results.forget(job)
        self.empty_trash()

    def _remote_folders(self, attempts: Iterable[Attempt]) -> "_PathsByRoot":
        """The folders of attempts that other systems ran."""
        away = self.engine.remote
        found: dict[str, list[str]] = {}
        for attempt in attempts:
            for home in [] if away is None else away.folders.of(attempt):
                folders = found.setdefault(home.root, [])
                folders += [home.attempt_folder(attempt.job, attempt.number), home.checkpoint_folder(attempt.job)]
        return found

    def _remote_environments(self, keys: Sequence[str]) -> "_PathsByRoot":
        """Copies of environments below the roots of earlier settings, where they are never made again."""
        away = self.engine.remote
        places = away.folders.earlier if away is not None and keys else ()
        return {place.root: [place.environment_path(key) for key in keys] for place in places}

    async def _oldest_first(self, outputs: Sequence[StoredOutput]) -> list[StoredOutput]:
        """The outputs that may be removed, in the order in which their attempts ended."""
        listing = self.engine.store.listing
        ended: list[tuple[float, JobId, StoredOutput]] = []
        for count, output in enumerate(outputs):
            if count % _PORTION == 0:
                await asyncio.sleep(0)
            try:
                job = listing.row(output.job).job
            except NoSuchJob:
                continue  # it is being removed
            if job.state is State.RUNNING or job.request.output:
                continue
            ends = {row.attempt.number: row.ended_at for row in listing.attempts(output.job)}
            if (moment := ends.get(output.attempt)) is not None:
                ended.append((moment, output.job, output))
        ended.sort(key=lambda one: one[:2])
        return [output for _, _, output in ended]


_PathsByRoot = Mapping[str, Sequence[str]]


class _RemoteFolders:
    """Folders that other systems use. Their file systems may not answer, and then nothing there is removed."""

    def __init__(self) -> None:
        self._silent: set[str] = set()

    async def remove(self, paths: _PathsByRoot, remove_paths: Callable[[Sequence[str]], None]) -> None:
        """Remove them by name: there no attempt takes the folder of another one."""
        for root, some in paths.items():
            if root not in self._silent and not await is_answering(root):
                self._silent.add(root)
                log.info("cannot remove the files of jobs below %s: its disk does not answer", root)
            if root not in self._silent:
                with contextlib.suppress(TimeoutError):
                    await run_in_thread(lambda some=some: remove_paths(some), _REMOVE_WITHIN, "cleaner")  # type: ignore[misc]


async def _each(work: Callable[[_T], Awaitable[_U]], many: Iterable[_T]) -> "list[_U | None]":
    """The result for each of them, all at the same time; None for one that takes too long."""

    async def one(thing: _T) -> _U | None:
        with contextlib.suppress(TimeoutError):
            return await work(thing)
        return None

    return await asyncio.gather(*map(one, many))


async def is_answering(folder: str) -> bool:
    """Whether the file system of a folder answers at all; that the folder does not exist is an answer, too."""

    def ask() -> None:
        with contextlib.suppress(OSError):
            os.statvfs(folder)  # not `stat`, which the kernel may answer from its cache

    try:
        await run_in_thread(ask, _ANSWER_WITHIN, "disk-check")
    except TimeoutError:
        return False
    return True


async def _measured(root: str) -> list[StoredOutput]:
    if not await is_answering(root):
        return []
    return await run_in_thread(lambda: measure(root), _REMOVE_WITHIN, "cleaner")


async def _removed(folders: Sequence[str]) -> int:
    await run_in_thread(lambda: _remove_outputs(folders), _REMOVE_WITHIN, "cleaner")
    return len(folders)


def _remove_outputs(folders: Sequence[str]) -> None:
    for folder in folders:
        remove_output(folder)


def _remove_folders(folders: Sequence[str]) -> None:
    for folder in folders:
        shutil.rmtree(folder, ignore_errors=True)


def _attempt_folders(place: Place, job: Job) -> list[str]:
    return [place.attempt_folder(job.id, number) for number in range(1, job.attempts + 1)]


def _to_trash(place: Place, path: str) -> None:
    trash = _trash(place)
    with contextlib.suppress(OSError):
        os.makedirs(trash, mode=0o700, exist_ok=True)
        os.rename(path, f"{trash}/{os.path.basename(path)}-{os.urandom(8).hex()}")


def _trash(place: Place) -> str:
    return f"{place.root}/trash"
