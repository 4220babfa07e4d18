"""Makes the database that a release leaves behind: `python tests/store/make_released.py`, once per schema.

It is never made again: that the programs to come can open what this one wrote is the point of keeping it.
"""

import os
import sys
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from dibs.model.jobs import Cause, JobId, Outcome
from dibs.model.sweeps import SweepId, SweepState, TrialState
from dibs.model.usage import Lesson, Usage
from dibs.store.store import Store
from store.builders import NOON, an_attempt, run, submit
from store.campaign import a_sweep, a_trial

FOLDER = Path(__file__).parents[1] / "data" / "stores"
# Since schema 3.
MEASURED = Usage(
    seconds=1.5,
    peak_vram=9 * 1024**3,
    vram_total=140 * 1024**3,
    mean_load=31.25,
    energy=0.125,
    peak_mem=2**32,
    mean_cpus=1.5,
    is_steady=True,
    was_alone=False,
    astray=("GPU-2",),
)
# Since schema 4.
SWEPT = a_sweep("call 1", "", name="sizes", cursor=1, why="held by its owner", state=SweepState.HELD)
TRIED = a_trial(
    SweepId(1), 1, state=TrialState.COMPLETE, job=JobId(1), values=(0.5, 2.0), seconds=1.5, ended_at=NOON
)
LEARNED = Lesson(peak_vram=9 * 1024**3, peak_mem=2**32, cpus=1.5, runs=2, needs_card=True)


def fill(store: Store) -> None:
    """One job of each kind: succeeded, failed, waiting for a retry, lost, refused, running, queued, held."""
    good, bad, flaky, lost, refused, running, _, held = submit(
        store, "good", "bad", "flaky", "lost", "refused", "running", os.fsdecode(b"queued \xff"), "held"
    )
    run(store, good, Outcome(exit_code=0, seconds=1.5), usage=MEASURED)
    run(store, bad, Outcome(signal=9, cause=Cause.SIGNAL, seconds=2.5))
    run(store, flaky, Outcome(exit_code=3, cause=Cause.EXIT_CODE), retry_at=NOON + 10)
    run(store, lost, Outcome(cause=Cause.LOST, message="nobody saw its end"))
    with store.turn():
        store.refuse(refused.id, Outcome(cause=Cause.REFUSED, message="never"), NOON)
        store.open_attempt(an_attempt(running, folder="/runs/6.1"))
        store._db.execute("update jobs set state = 'held' where id = ?", (held.id,))
        # Since schema 5: the lost one ran elsewhere.
        store._db.execute(
            "update attempts set backend = 'slurm', node = 'n1', node_gpus = '0,1' where job = ?", (lost.id,)
        )
        store.lessons.put("train.py --lr", "NVIDIA H200", LEARNED, NOON)
        store.sweeps.add_trial(replace(TRIED, sweep=store.sweeps.add(SWEPT).id), ["min", "max"], 1)


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    versions = len(list((Path(__file__).parents[2] / "src/dibs/store/migrations").glob("*.sql")))
    path = FOLDER / f"{versions:04}.db"
    if path.exists():
        sys.exit(f"{path} is there: a released database is never made again")
    store = Store(str(path))
    fill(store)
    store.close()
    path.chmod(0o644)
