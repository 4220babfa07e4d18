"""Each plant is a bug in how a sweep comes back after a kill, and the checker must see it."""

import pytest

from daemon.daemon_process import DaemonProcess
from daemon.sweeping import begin, until
from faults.sweep_campaign import ADAPTIVE, COMMAND, DENSE, SAMPLES, complaints, dies
from faults.test_plants import planted
from stories.outside import World, wait_until

pytestmark = pytest.mark.usefixtures("forked_advisers")

PLANTS = {
    # What was asked for before the kill is never tried.
    "drops what was left over": """
        from dibs.sweeps.adviser import Adviser
        start = Adviser.start
        async def forgetful(self, known, ended=()):
            await start(self, known, ended)
            return []
        Adviser.start = forgetful
    """,
    # What was asked for is given out a second time.
    "forgets what was taken": """
        from dibs.engine.sweeps.work import LazyAdviser
        LazyAdviser.recorded = lambda self, numbers: None
    """,
    # Trials whose jobs ended while no daemon ran are begun again.
    "begins open trials again": """
        from dataclasses import replace
        from dibs.engine.sweeps.manager import SweepManager
        resume = SweepManager.resume
        def again(self):
            for sweep in self._table.unfinished():
                with self._engine.change() as change:
                    for trial in self._table.open(sweep):
                        self._engine.store._db.execute("update jobs set once = null where id = ?", (trial.job,))
                        self._context.records.trial(replace(trial, job=None), self._table.goals(sweep), change.now)
            resume(self)
        SweepManager.resume = again
    """,
    # The adviser is told of an end that the store does not know.
    "tells before it records": """
        from dataclasses import replace
        from dibs.engine.sweeps import run as sweep_run
        from dibs.model.sweeps import TrialState
        record = sweep_run._record
        async def hasty(work, adviser, ended):
            failed = [replace(one, state=TrialState.FAILED, values=None) for one in ended]
            await adviser.tell(failed)
            work.context.reach("sweep-hasty")
            await record(work, adviser, ended)
        sweep_run._record = hasty
    """,
    # A store that is made again knows of no trial.
    "journals nothing of trials": """
        from dibs.engine.sweeps.context import SweepRecords
        def begun(self, trial, goals, cursor, now):
            self._store.sweeps.add_trial(trial, goals, cursor)
        def ended(self, trial, goals, now):
            self._store.sweeps.change_trial(trial, goals)
        SweepRecords.new_trial, SweepRecords.trial = begun, ended
    """,
}


def live_through(world: World, plant: str, *points: str, rebuilds: bool = False) -> list[str]:
    """A sweep over several daemons that die at these points; the last one brings it to its end."""
    daemon = DaemonProcess(world)
    program = planted(world, PLANTS[plant]) if plant else None

    def start(fault: str) -> None:
        daemon.running = world.start("daemon", "run", program=program, env={"DIBS_FAULT": fault})
        wait_until(daemon._listens, show=lambda: daemon.running and daemon.running.stderr)

    start(points[0])
    sweep = begin(daemon, COMMAND, *DENSE, **ADAPTIVE)
    dies(daemon)
    for point in points[1:]:
        start(point)
        dies(daemon)
    if rebuilds:
        assert world.dibs("doctor", "--rebuild", "--yes").status == 0
    start("")
    until(daemon, sweep, "finished", "held")
    found = complaints(daemon, sweep, SAMPLES)
    daemon.end()
    return found


@pytest.mark.parametrize("rebuilds", [False, True])
def test_without_a_plant_there_is_nothing_to_complain_of(world: World, rebuilds: bool):
    assert live_through(world, "", "sweep-asked:2", "sweep-ended:3", rebuilds=rebuilds) == []


@pytest.mark.parametrize(
    ("plant", "points", "words"),
    [
        ("drops what was left over", ("sweep-asked:2",), "the study has"),
        ("forgets what was taken", ("sweep-recorded:2",), "the study has"),
        ("begins open trials again", ("sweep-recorded:3",), "were started"),
        ("tells before it records", ("sweep-hasty:3",), "the study has"),
    ],
)
def test_the_checker_sees_a_daemon_that(world: World, plant: str, points: tuple[str, ...], words: str):
    found = live_through(world, plant, *points)

    assert any(words in complaint for complaint in found), found


def test_the_checker_sees_a_daemon_that_journals_nothing_of_trials(world: World):
    found = live_through(world, "journals nothing of trials", "sweep-ended:3", rebuilds=True)

    assert any("trials are [" in complaint for complaint in found), found
    # Those that were lost are at least not taken for those that came after.
    assert not any("another point" in complaint for complaint in found), found
