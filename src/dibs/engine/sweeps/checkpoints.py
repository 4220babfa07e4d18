"""Checkpoints of a population: a trial begins with a copy of what another one has left in its checkpoint folder.

Its job is held until the copy is complete, also over a crash.
"""

import os
import shutil
from collections.abc import Sequence

from dibs.engine.sweeps.context import SweepContext
from dibs.engine.sweeps.work import SweepWork
from dibs.errors import DibsError
from dibs.files import sync_folder, sync_tree
from dibs.model.jobs import State
from dibs.model.sweeps import SweepState, Trial
from dibs.worker_thread import run_in_thread

WAITS = "held until it has the checkpoint of the trial that it continues"
_COPY_WITHIN = 6 * 3600.0  # seconds


class NoCheckpoint(DibsError):
    """A trial cannot be continued."""


async def hand_over(work: SweepWork) -> None:
    """Copy the checkpoints that open trials wait for, and let their jobs start."""
    states = work.context.engine.store.listing.states(list(work.jobs))
    for trial in work.table.open(work.id):
        if work.table.sweep(work.id).state is not SweepState.RUNNING:
            return  # it was held while others were copied
        if trial.continues is None or trial.job is None or states.get(trial.job) is not State.HELD:
            continue
        if work.context.engine.store.listing.row(trial.job).job.why_held == WAITS:
            await _copy(work, trial)
            work.context.reach("sweep-checkpoint")
            if work.table.sweep(work.id).state is SweepState.RUNNING:
                work.context.queue.release([trial.job])


def hold_without_copy(context: SweepContext, trials: Sequence[Trial]) -> bool:
    """Hold the jobs of trials that were queued again before they had their copies; whether there were any."""
    place = context.engine.place
    jobs = [one.job for one in trials if one.continues is not None and one.job is not None]
    states = context.engine.store.listing.states(jobs)
    lacking = [
        job for job in jobs if states.get(job) is State.QUEUED and not os.path.isdir(place.checkpoint_folder(job))
    ]
    return bool(lacking and context.queue.hold(lacking, WAITS).jobs)


async def _copy(work: SweepWork, trial: Trial) -> None:
    assert trial.continues is not None and trial.job is not None
    before = work.table.trial(work.id, trial.continues)
    if before is None or before.job is None:
        raise NoCheckpoint(f"trial {trial.number} cannot continue trial {trial.continues}, which is gone")
    place = work.context.engine.place
    source, target = place.checkpoint_folder(before.job), place.checkpoint_folder(trial.job)
    try:
        await run_in_thread(lambda: copy_folder(source, target), _COPY_WITHIN, "checkpoint-copy")
    except (OSError, shutil.Error) as error:
        said = getattr(error, "strerror", None) or "some of its files cannot be copied"
        raise NoCheckpoint(
            f"cannot copy the checkpoint of trial {before.number} for trial {trial.number}: {said}",
            remedy=f"each trial must save its work in $DIBS_CHECKPOINT_DIR, which is {source} for that one",
        ) from error


def copy_folder(source: str, target: str) -> None:
    """Copy a folder that is not empty, whole or not at all; nothing is done where the target is there.

    That holds after a power cut, too: a training must not begin with half a checkpoint.
    """
    if os.path.isdir(target):
        return
    if not os.listdir(source):
        raise FileNotFoundError(0, "it has saved nothing")
    part = f"{target}.part"
    shutil.rmtree(part, ignore_errors=True)
    parent = os.path.dirname(target)
    os.makedirs(parent, mode=0o700, exist_ok=True)
    shutil.copytree(source, part, symlinks=True)
    sync_tree(part)
    os.rename(part, target)
    sync_folder(parent)
