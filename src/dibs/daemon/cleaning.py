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
            await aside(lambda: empty_trash(desk.engine.place), _PATIENCE, "cleaner")
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
    if desk.engine.away is not None:
        desk.engine.away.forget_environments(unused.environments)


def _forget(desk: Desk, jobs: Sequence[Job]) -> None:
    """Beside the loop: also what other systems see of our files, which may lie on a network that is away.

    No attempt takes over a folder there, so that they are removed by their names.
    """
    for job in jobs:
        desk.results.forget(job)
    empty_trash(desk.engine.place)
    for place in desk.engine.away.places if desk.engine.away is not None else ():
        for job in jobs:
            for folder in [*_attempts(place, job), place.checkpoint_folder(job.id)]:
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
