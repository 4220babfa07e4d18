"""Forgetting jobs: first the store, then their names, then, at leisure, what lay under them."""

import contextlib
import os
import re
import shutil
from collections.abc import Sequence

from dibs.daemon.aside import aside
from dibs.daemon.desk import Desk
from dibs.engine.place import Place
from dibs.model.jobs import Job, State

_PATIENCE = 600.0  # seconds for the folders of some thousand jobs
_SNAPSHOT = r"[0-9a-f]{32}"


async def clean_up(desk: Desk, before: float, states: Sequence[State], project: str | None) -> int:
    """Forget jobs that ended before a moment; return how many. Others are served meanwhile."""
    removed = 0
    while jobs := desk.queue.clean(before, states, project):
        removed += len(jobs)
        desk.news.came()
        _throw_away(desk, jobs)
        with contextlib.suppress(TimeoutError):
            await aside(lambda jobs=jobs: _forget(desk, jobs), _PATIENCE, "cleaner")  # type: ignore[misc]
    if removed:
        _throw_away_unused(desk)
        with contextlib.suppress(TimeoutError):
            await aside(lambda: _empty_all(desk), _PATIENCE, "cleaner")
    return removed


def empty_trash(place: Place) -> None:
    shutil.rmtree(_trash(place), ignore_errors=True)


def _throw_away(desk: Desk, jobs: Sequence[Job]) -> None:
    """Under the names of these jobs nothing is left when this returns.

    On the loop, and by renaming: a thread that removed a folder by its name would follow one that the next attempt
    has taken over in the meantime.
    """
    for place in _places(desk):
        for job in jobs:
            folders = [place.attempt_folder(job.id, number) for number in range(1, job.attempts + 1)]
            desk.engine.let_go_of(folders)
            for folder in [*folders, place.checkpoint_folder(job.id)]:
                _to_trash(place, folder)


def _throw_away_unused(desk: Desk) -> None:
    """In one go with the store's forgetting: whoever adds a job afterwards finds that it must make them anew."""
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


def _forget(desk: Desk, jobs: Sequence[Job]) -> None:
    for job in jobs:
        desk.results.forget(job)
    _empty_all(desk)


def _empty_all(desk: Desk) -> None:
    for place in _places(desk):
        empty_trash(place)


def _places(desk: Desk) -> list[Place]:
    """Wherever attempts left something: here, and what other systems see of our files."""
    away = desk.engine.away
    return [desk.engine.place, *(away.places if away is not None else ())]


def _to_trash(place: Place, path: str) -> None:
    trash = _trash(place)
    with contextlib.suppress(OSError):
        os.makedirs(trash, mode=0o700, exist_ok=True)
        os.rename(path, f"{trash}/{os.path.basename(path)}-{os.urandom(8).hex()}")


def _trash(place: Place) -> str:
    return f"{place.root}/trash"
