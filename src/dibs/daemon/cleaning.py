"""Forgetting jobs: first the store does, then their folders go, at leisure."""

import contextlib
import os
import shutil
from collections.abc import Sequence

from dibs.daemon.aside import aside
from dibs.daemon.desk import Desk
from dibs.engine.queue import Cleaned
from dibs.model.jobs import State

_PATIENCE = 600.0  # seconds for the folders of some thousand jobs


async def clean_up(desk: Desk, before: float, states: Sequence[State], project: str | None) -> int:
    """Forget jobs that ended before a moment; return how many. Others are served meanwhile."""
    removed = 0
    while (cleaned := desk.queue.clean(before, states, project)).jobs:
        removed += len(cleaned.jobs)
        desk.news.came()
        for job in cleaned.jobs:
            desk.results.forget(job)
        with contextlib.suppress(TimeoutError):
            await aside(lambda cleaned=cleaned: _remove(desk, cleaned), _PATIENCE, "cleaner")  # type: ignore[misc]
    return removed


def _remove(desk: Desk, cleaned: Cleaned) -> None:
    place = desk.engine.place
    for job in cleaned.jobs:
        for number in range(1, job.attempts + 1):
            shutil.rmtree(place.attempt_folder(job.id, number), ignore_errors=True)
        shutil.rmtree(place.checkpoint_folder(job.id), ignore_errors=True)
    for snapshot in cleaned.snapshots:
        if os.path.dirname(snapshot) == f"{place.root}/code":  # what a client claims is not believed
            shutil.rmtree(snapshot, ignore_errors=True)
    for key in cleaned.environments:
        with contextlib.suppress(OSError):
            os.unlink(f"{place.root}/environments/{key}.json")
