"""kill -9 of the daemon in the middle of a sweep: no trial is lost, none is repeated, and the study goes on."""

import random
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path

import pytest

from daemon.daemon_process import DaemonProcess
from daemon.sweeping import act, begin, look, trials, until, wait_for
from faults.figures import record_figures
from faults.sweep_campaign import ADAPTIVE, COMMAND, DENSE, PRUNED, SAMPLES, STEPS, complaints, dies
from stories.outside import World, wait_until

pytestmark = pytest.mark.usefixtures("forked_advisers")


@pytest.fixture
def daemon(world: World) -> Iterator[DaemonProcess]:
    """A daemon that each test starts and kills by itself."""
    one = DaemonProcess(world)
    yield one
    one.end()


@pytest.mark.parametrize("times", [1, 4])
@pytest.mark.parametrize("point", ["sweep-asked", "sweep-recorded", "sweep-ended", "sweep-told"])
def test_a_kill_at_this_point_of_an_adaptive_sweep_loses_and_repeats_nothing(
    daemon: DaemonProcess, point: str, times: int
):
    daemon.start(DIBS_FAULT=f"{point}:{times}")
    sweep = begin(daemon, COMMAND, *DENSE, **ADAPTIVE)
    dies(daemon)

    daemon.start()

    assert until(daemon, sweep, "finished")["counts"]["complete"] == SAMPLES
    assert complaints(daemon, sweep, SAMPLES) == []


def test_a_kill_at_each_of_these_points_in_turn(daemon: DaemonProcess):
    """Every life of the daemon ends at its first trial that is asked for, recorded, ended or told."""
    daemon.start(DIBS_FAULT="sweep-asked:1")
    sweep = begin(daemon, COMMAND, *DENSE, **ADAPTIVE)
    dies(daemon)
    for point in ("sweep-recorded", "sweep-ended", "sweep-told", "sweep-asked", "sweep-recorded", "sweep-ended"):
        # Not `daemon.start`: it may be gone before it is seen to listen.
        daemon.running = daemon.world.start("daemon", "run", env={"DIBS_FAULT": f"{point}:1"})
        dies(daemon)

    daemon.start()

    assert until(daemon, sweep, "finished")["counts"]["complete"] == SAMPLES
    assert complaints(daemon, sweep, SAMPLES) == []


@pytest.mark.parametrize("seed", [1, 2])
def test_kills_at_any_moment(daemon: DaemonProcess, seed: int):
    chance = random.Random(seed)
    daemon.start()
    sweep = begin(daemon, COMMAND, *DENSE, **ADAPTIVE)
    for _ in range(7):
        time.sleep(chance.uniform(0.0, 2.5))
        daemon.kill()
        daemon.start()

    assert until(daemon, sweep, "finished")["counts"]["complete"] == SAMPLES
    assert complaints(daemon, sweep, SAMPLES) == []
    record_figures(
        "the daemon is killed while an adaptive sweep runs",
        "`kill -9` at random moments",
        times=7,
        jobs=SAMPLES,
        result="every trial once, each with its result",
        seed=seed,
    )


def test_one_trial_after_another_gives_the_same_points_as_without_any_kill(daemon: DaemonProcess):
    """Parallel trials end in an order of their own; one at a time, only the seed decides."""
    wanted = {**ADAPTIVE, "parallel": 1}
    daemon.start()
    quiet = begin(daemon, COMMAND, *DENSE, **wanted)
    until(daemon, quiet, "finished")
    daemon.end()
    daemon.start(DIBS_FAULT="sweep-ended:5")
    killed = begin(daemon, COMMAND, *DENSE, **wanted)
    dies(daemon)
    daemon.start(DIBS_FAULT="sweep-asked:3")
    dies(daemon)
    daemon.start()
    until(daemon, killed, "finished")

    points = [[trial["point"] for trial in trials(daemon, sweep)] for sweep in (quiet, killed)]
    assert points[0] == points[1]


def pruned(daemon: DaemonProcess, sweep: int) -> set[int]:
    return {trial["number"] for trial in trials(daemon, sweep) if trial["state"] == "pruned"}


def was_given_up(daemon: DaemonProcess) -> set[int]:
    """The trials that a daemon which is dead now had decided to end."""
    with closing(sqlite3.connect(daemon.queue / "store.db")) as store:
        return {number for (number,) in store.execute("select number from trials where pruned_by <> ''")}


@pytest.mark.parametrize("point", ["sweep-enrolled:1", "sweep-enrolled:3", "sweep-gave-up:1", "sweep-ended:1"])
def test_a_kill_in_a_sweep_that_prunes(daemon: DaemonProcess, point: str):
    daemon.start(DIBS_FAULT=point)
    whole = {"name": "x", "low": 0, "high": 7, "integer": True}
    sweep = begin(daemon, STEPS, whole, **PRUNED)
    dies(daemon)
    given_up = was_given_up(daemon)

    daemon.start()

    wait_for(daemon, sweep, lambda seen: given_up <= pruned(daemon, sweep))
    Path(f"{daemon.world.ledger.path}.done").touch()
    done = until(daemon, sweep, "finished")
    assert done["counts"]["pruned"] > 0
    assert complaints(daemon, sweep, 8) == []
    assert pruned(daemon, sweep) >= given_up
    for trial in trials(daemon, sweep):
        ended = daemon.job(trial["job"])
        assert ended["state"] == ("succeeded" if trial["state"] == "complete" else "cancelled")
        assert trial["state"] == "complete" or ended["message"] == trial["why"]


def test_a_kill_between_the_retry_of_a_job_and_that_of_its_trial(daemon: DaemonProcess):
    mended = daemon.world.folder.parent / "mended"
    command = f'echo "start {{x}} - $$" >> "$LEDGER"; test -e "{mended}"'
    daemon.start(DIBS_FAULT="sweep-retried:1")
    sweep = begin(daemon, command, {"name": "x", "low": 1, "high": 2, "integer": True}, metrics=[])
    until(daemon, sweep, "finished")
    mended.touch()
    with suppress(OSError, IndexError):  # it may die before it answers
        act(daemon, sweep, "retry-failed")
    dies(daemon)

    daemon.start()

    assert until(daemon, sweep, "finished")["counts"]["complete"] == 2
    assert sorted(daemon.world.ledger.started()) == ["1", "1", "2", "2"]


@pytest.mark.parametrize("times", [1, 3, 6])
def test_a_kill_in_a_grid(daemon: DaemonProcess, times: int):
    daemon.start(DIBS_FAULT=f"sweep-recorded:{times}")
    whole = {"name": "x", "low": 1, "high": 20, "integer": True}
    held = {"metrics": [], "parallel": 3, "wishes": {"hold": True}}
    sweep = begin(daemon, 'echo "start {x} - $$" >> "$LEDGER"', whole, **held)
    with suppress(OSError, IndexError):  # it may die before it answers
        act(daemon, sweep, "release")
    dies(daemon)

    daemon.start()

    assert until(daemon, sweep, "finished")["counts"]["complete"] == 20
    assert sorted(map(int, daemon.world.ledger.started())) == [*range(1, 21)]


def test_a_sweep_goes_on_in_a_store_that_was_made_again(daemon: DaemonProcess):
    daemon.start()
    sweep = begin(daemon, COMMAND, *DENSE, **ADAPTIVE)
    wait_for(daemon, sweep, lambda seen: seen["counts"]["complete"] >= 5)
    # An attempt between its intent and its start is lost in a rebuild, as it should be: so none is.
    daemon.post("/v1/pause", {})
    wait_until(lambda: not daemon.get("/v1/jobs?state=running,submitted")["jobs"])
    before = look(daemon, sweep)
    daemon.kill()
    rebuilt = daemon.world.dibs("doctor", "--rebuild", "--yes")
    assert rebuilt.status == 0, rebuilt

    daemon.start()
    daemon.post("/v1/unpause", {})

    assert look(daemon, sweep)["spec"] == before["spec"]
    assert until(daemon, sweep, "finished")["counts"]["complete"] == SAMPLES
    assert complaints(daemon, sweep, SAMPLES) == []


def test_a_sweep_that_was_acknowledged_is_there_after_a_kill_at_once(daemon: DaemonProcess):
    daemon.start()
    daemon.post("/v1/pause", {})
    sweep = begin(daemon, COMMAND, *DENSE, **ADAPTIVE)
    daemon.kill()
    (daemon.queue / "store.db").unlink()  # the journal alone must do
    for log in ("-wal", "-shm"):
        (daemon.queue / f"store.db{log}").unlink(missing_ok=True)
    assert daemon.world.dibs("doctor", "--rebuild", "--yes").status == 0

    daemon.start()

    assert look(daemon, sweep)["size"] == SAMPLES
    daemon.post("/v1/unpause", {})
    assert until(daemon, sweep, "finished")["counts"]["complete"] == SAMPLES
