"""kill -9 of the daemon in the middle of a sweep: no trial is lost, none is repeated, and the study goes on."""

import random
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path

import pytest

from daemon.house import House
from daemon.sweeping import act, begin, look, trials, until, wait_for
from faults.sweep_campaign import ADAPTIVE, COMMAND, DENSE, PRUNED, SAMPLES, STEPS, complaints, dies
from stories.outside import World, wait_until


@pytest.fixture
def house(world: World) -> Iterator[House]:
    """A daemon that each test starts and kills by itself."""
    one = House(world)
    yield one
    one.end()


@pytest.mark.parametrize("times", [1, 4])
@pytest.mark.parametrize("point", ["sweep-asked", "sweep-recorded", "sweep-ended", "sweep-told"])
def test_a_kill_at_this_point_of_an_adaptive_sweep_loses_and_repeats_nothing(house: House, point: str, times: int):
    house.start(DIBS_FAULT=f"{point}:{times}")
    sweep = begin(house, COMMAND, *DENSE, **ADAPTIVE)
    dies(house)

    house.start()

    assert until(house, sweep, "finished")["counts"]["complete"] == SAMPLES
    assert complaints(house, sweep, SAMPLES) == []


def test_a_kill_at_each_of_these_points_in_turn(house: House):
    """Every life of the daemon ends at its first trial that is asked for, recorded, ended or told."""
    house.start(DIBS_FAULT="sweep-asked:1")
    sweep = begin(house, COMMAND, *DENSE, **ADAPTIVE)
    dies(house)
    for point in ("sweep-recorded", "sweep-ended", "sweep-told", "sweep-asked", "sweep-recorded", "sweep-ended"):
        # Not `house.start`: it may be gone before it is seen to listen.
        house.running = house.world.start("daemon", "run", env={"DIBS_FAULT": f"{point}:1"})
        dies(house)

    house.start()

    assert until(house, sweep, "finished")["counts"]["complete"] == SAMPLES
    assert complaints(house, sweep, SAMPLES) == []


@pytest.mark.parametrize("seed", [1, 2])
def test_kills_at_any_moment(house: House, seed: int):
    chance = random.Random(seed)
    house.start()
    sweep = begin(house, COMMAND, *DENSE, **ADAPTIVE)
    for _ in range(7):
        time.sleep(chance.uniform(0.0, 2.5))
        house.kill()
        house.start()

    assert until(house, sweep, "finished")["counts"]["complete"] == SAMPLES
    assert complaints(house, sweep, SAMPLES) == []


def test_one_trial_after_another_gives_the_same_points_as_without_any_kill(house: House):
    """Parallel trials end in an order of their own; one at a time, only the seed decides."""
    wanted = {**ADAPTIVE, "parallel": 1, "rerun": True}
    house.start()
    quiet = begin(house, COMMAND, *DENSE, **wanted)
    until(house, quiet, "finished")
    house.end()
    house.start(DIBS_FAULT="sweep-ended:5")
    killed = begin(house, COMMAND, *DENSE, **wanted)
    dies(house)
    house.start(DIBS_FAULT="sweep-asked:3")
    dies(house)
    house.start()
    until(house, killed, "finished")

    points = [[trial["point"] for trial in trials(house, sweep)] for sweep in (quiet, killed)]
    assert points[0] == points[1]


def pruned(house: House, sweep: int) -> set[int]:
    return {trial["number"] for trial in trials(house, sweep) if trial["state"] == "pruned"}


def was_given_up(house: House) -> set[int]:
    """The trials that a daemon which is dead now had decided to end."""
    with closing(sqlite3.connect(house.queue / "store.db")) as store:
        return {number for (number,) in store.execute("select number from trials where pruned_by <> ''")}


@pytest.mark.parametrize("point", ["sweep-enrolled:1", "sweep-enrolled:3", "sweep-gave-up:1", "sweep-ended:1"])
def test_a_kill_in_a_sweep_that_prunes(house: House, point: str):
    house.start(DIBS_FAULT=point)
    whole = {"name": "x", "low": 0, "high": 7, "integer": True}
    sweep = begin(house, STEPS, whole, **PRUNED)
    dies(house)
    given_up = was_given_up(house)

    house.start()

    wait_for(house, sweep, lambda seen: given_up <= pruned(house, sweep))
    Path(f"{house.world.ledger.path}.done").touch()
    done = until(house, sweep, "finished")
    assert done["counts"]["pruned"] > 0
    assert complaints(house, sweep, 8) == []
    assert pruned(house, sweep) >= given_up
    for trial in trials(house, sweep):
        ended = house.job(trial["job"])
        assert ended["state"] == ("succeeded" if trial["state"] == "complete" else "cancelled")
        assert trial["state"] == "complete" or ended["message"] == trial["why"]


def test_a_kill_between_the_retry_of_a_job_and_that_of_its_trial(house: House):
    mended = house.world.folder.parent / "mended"
    command = f'echo "start {{x}} - $$" >> "$LEDGER"; test -e "{mended}"'
    house.start(DIBS_FAULT="sweep-retried:1")
    sweep = begin(house, command, {"name": "x", "low": 1, "high": 2, "integer": True}, metrics=[])
    until(house, sweep, "finished")
    mended.touch()
    with suppress(OSError, IndexError):  # it may die before it answers
        act(house, sweep, "retry-failed")
    dies(house)

    house.start()

    assert until(house, sweep, "finished")["counts"]["complete"] == 2
    assert sorted(house.world.ledger.started()) == ["1", "1", "2", "2"]


@pytest.mark.parametrize("times", [1, 3, 6])
def test_a_kill_in_a_grid(house: House, times: int):
    house.start(DIBS_FAULT=f"sweep-recorded:{times}")
    whole = {"name": "x", "low": 1, "high": 20, "integer": True}
    held = {"metrics": [], "parallel": 3, "wishes": {"hold": True}}
    sweep = begin(house, 'echo "start {x} - $$" >> "$LEDGER"', whole, **held)
    with suppress(OSError, IndexError):  # it may die before it answers
        act(house, sweep, "release")
    dies(house)

    house.start()

    assert until(house, sweep, "finished")["counts"]["complete"] == 20
    assert sorted(map(int, house.world.ledger.started())) == [*range(1, 21)]


def test_a_sweep_goes_on_in_a_store_that_was_made_again(house: House):
    house.start()
    sweep = begin(house, COMMAND, *DENSE, **ADAPTIVE)
    wait_for(house, sweep, lambda seen: seen["counts"]["complete"] >= 5)
    # An attempt between its intent and its start is lost in a rebuild, as it should be: so none is.
    house.post("/v1/pause", {})
    wait_until(lambda: not house.get("/v1/jobs?state=running,submitted")["jobs"])
    before = look(house, sweep)
    house.kill()
    rebuilt = house.world.dibs("doctor", "--rebuild", "--yes")
    assert rebuilt.status == 0, rebuilt

    house.start()
    house.post("/v1/unpause", {})

    assert look(house, sweep)["spec"] == before["spec"]
    assert until(house, sweep, "finished")["counts"]["complete"] == SAMPLES
    assert complaints(house, sweep, SAMPLES) == []


def test_a_sweep_that_was_acknowledged_is_there_after_a_kill_at_once(house: House):
    house.start()
    house.post("/v1/pause", {})
    sweep = begin(house, COMMAND, *DENSE, **ADAPTIVE)
    house.kill()
    (house.queue / "store.db").unlink()  # the journal alone must do
    for log in ("-wal", "-shm"):
        (house.queue / f"store.db{log}").unlink(missing_ok=True)
    assert house.world.dibs("doctor", "--rebuild", "--yes").status == 0

    house.start()

    assert look(house, sweep)["size"] == SAMPLES
    house.post("/v1/unpause", {})
    assert until(house, sweep, "finished")["counts"]["complete"] == SAMPLES
