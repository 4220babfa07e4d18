"""Forgetting jobs: first the store, then their names, then, at leisure, what lay under them."""

import contextlib
import os
import re
import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence

from dibs.daemon.app_state import Desk
from dibs.daemon.daemon_log import log
from dibs.daemon.worker_thread import answers, aside
from dibs.engine.away.round import remove
from dibs.engine.place import Place
from dibs.model.jobs import Attempt, Job, State

_PATIENCE = 600.0  # seconds for the folders of some thousand jobs
_SNAPSHOT = r"[0-9a-f]{32}"


async def clean_up(desk: Desk, before: float, states: Sequence[State], project: str | None) -> int:
    """Forget jobs that ended before a moment; return how many. Others are served meanwhile."""
    removed = 0
    elsewhere = _Elsewhere()
    while (cleaned := desk.queue.clean(before, states, project)).jobs:
        jobs = cleaned.jobs
        removed += len(jobs)
        desk.news.came()
        _throw_away(desk, jobs)
        with contextlib.suppress(TimeoutError):
            await aside(lambda jobs=jobs: _forget(desk, jobs), _PATIENCE, "cleaner")  # type: ignore[misc]
        await elsewhere.remove(_left_elsewhere(desk, cleaned.away), _remove_folders)
    if removed:
        keys = _throw_away_unused(desk)
        with contextlib.suppress(TimeoutError):
            await aside(lambda: empty_trash(desk.engine.place), _PATIENCE, "cleaner")
        await elsewhere.remove(_environments_elsewhere(desk, keys), remove)
    return removed


def empty_trash(place: Place) -> None:
    shutil.rmtree(_trash(place), ignore_errors=True)


def _throw_away(desk: Desk, jobs: Sequence[Job]) -> None:
    """Under the names of these jobs nothing is left when this returns.

    On the loop, and by renaming: a thread that removed a folder by its name would follow one that the next attempt
    has taken over in the meantime.
    """
    place = desk.engine.place
    for job in jobs:
        desk.engine.let_go_of(_attempts(place, job))
        for folder in [*_attempts(place, job), place.checkpoint_folder(job.id)]:
            _to_trash(place, folder)


def _throw_away_unused(desk: Desk) -> list[str]:
    """In one go with the store's forgetting: whoever adds a job afterwards finds that it must make them anew.

    Returns the environments that nobody needs any more.
    """
    place = desk.engine.place
    unused = desk.queue.tidy_up()
    for path in unused.snapshots:
        # What a client claims is not believed: only what could be a copy of ours goes.
        if path == f"{place.root}/code/{os.path.basename(path)}" and re.fullmatch(
            _SNAPSHOT, os.path.basename(path)
        ):
            _to_trash(place, path)
    for key in unused.environments:
        with contextlib.suppress(OSError):
            os.unlink(place.environment_path(key))
    if desk.engine.away is not None:
        desk.engine.away.forget_environments(unused.environments)
    return unused.environments


def _forget(desk: Desk, jobs: Sequence[Job]) -> None:
    for job in jobs:
        desk.results.forget(job)
    empty_trash(desk.engine.place)


class _Elsewhere:
    """What other systems saw of our files: on file systems of which one may not answer, and then nobody waits."""

    def __init__(self) -> None:
        self._silent: set[str] = set()

    async def remove(self, left: "_Left", how: Callable[[Sequence[str]], None]) -> None:
        """By their names: no attempt takes over a folder there."""
        for root, paths in left.items():
            if root not in self._silent and not await answers(root):
                self._silent.add(root)
                log.info("cannot remove what jobs left below %s: its disk does not answer", root)
            if root not in self._silent:
                with contextlib.suppress(TimeoutError):
                    await aside(lambda paths=paths: how(paths), _PATIENCE, "cleaner")  # type: ignore[misc]


_Left = Mapping[str, Sequence[str]]  # paths, by the place that they are in


def _left_elsewhere(desk: Desk, attempts: Iterable[Attempt]) -> _Left:
    """The folders of attempts that other systems ran."""
    away = desk.engine.away
    left: dict[str, list[str]] = {}
    for attempt in attempts:
        for home in [] if away is None else away.homes.of(attempt):
            folders = left.setdefault(home.root, [])
            folders += [home.attempt_folder(attempt.job, attempt.number), home.checkpoint_folder(attempt.job)]
    return left


def _environments_elsewhere(desk: Desk, keys: Sequence[str]) -> _Left:
    """Copies that nobody makes anew: those below roots of earlier settings."""
    away = desk.engine.away
    places = away.homes.earlier if away is not None and keys else ()
    return {place.root: [place.environment_path(key) for key in keys] for place in places}


def _remove_folders(folders: Sequence[str]) -> None:
    for folder in folders:
        shutil.rmtree(folder, ignore_errors=True)


def _attempts(place: Place, job: Job) -> list[str]:
    """The folders of its attempts, wherever those were."""
    return [place.attempt_folder(job.id, number) for number in range(1, job.attempts + 1)]


def _to_trash(place: Place, path: str) -> None:
    trash = _trash(place)
    with contextlib.suppress(OSError):
        os.makedirs(trash, mode=0o700, exist_ok=True)
        os.rename(path, f"{trash}/{os.path.basename(path)}-{os.urandom(8).hex()}")


def _trash(place: Place) -> str:
    return f"{place.root}/trash"
