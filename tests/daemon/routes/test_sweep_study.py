"""Sweeps with Optuna's advice: the real one, in its own process."""

import os
import signal
from pathlib import Path

import optuna
import pytest

from daemon.daemon_process import DaemonProcess
from daemon.sweeping import LONG, WHOLE, act, begin, look, states, trials, until, values, wait_for
from stories.outside import wait_until

pytestmark = pytest.mark.usefixtures("forked_advisers")

DENSE = [{"name": name, "low": -5, "high": 5} for name in ("x", "y")]
BOWL = (
    """awk 'BEGIN { print "loss=" ({x} - 2)^2 + ({y} + 1)^2 }' >> "$DIBS_METRICS"; """
    'echo "start {x},{y} - $$" >> "$LEDGER"'
)
# Ten steps, of which others see each before the next is taken; more of x is worse from the first one on.
STEPS = (
    'for step in 1 2 3 4 5 6 7 8 9 10; do echo "loss=$(( 100 * {x} - step )) step=$step" >> "$DIBS_METRICS"; '
    'sleep {x}; done; echo "end {x} - $$" >> "$LEDGER"'
)


def advisers(daemon: DaemonProcess) -> list[int]:
    """The processes that advise the sweeps of this daemon."""
    return [pid for pid, line in daemon.world.processes().items() if "dibs.sweeps.adviser_process" in line]


def points(daemon: DaemonProcess, sweep: int) -> list[dict[str, str]]:
    return [trial["point"] for trial in trials(daemon, sweep)]


def study_of(daemon: DaemonProcess, sweep: int) -> optuna.Study:
    """As Optuna's own dashboard opens it."""
    backend = optuna.storages.journal.JournalFileBackend(look(daemon, sweep)["journal"])
    return optuna.load_study(study_name=f"sweep-{sweep}", storage=optuna.storages.JournalStorage(backend))


def test_an_adaptive_sweep_comes_close_and_leaves_a_study_that_optuna_opens(daemon: DaemonProcess):
    sweep = begin(daemon, BOWL, *DENSE, method="adaptive", samples=25, seed=1, wishes={"num_gpus": 0})

    done = until(daemon, sweep, "finished")

    assert done["counts"]["complete"] == 25
    assert done["best"][0]["values"][0] < 5
    study = study_of(daemon, sweep)
    assert len(study.trials) == 25
    assert study.best_value == pytest.approx(done["best"][0]["values"][0])
    wait_until(lambda: not advisers(daemon), show=lambda: advisers(daemon))  # no adviser is left
    importance = daemon.get(f"/v1/sweeps/{sweep}/importance")
    assert {one["name"] for one in importance["importance"]} == {"x", "y"}
    assert sum(one["value"] for one in importance["importance"]) == pytest.approx(1)


def test_the_same_seed_gives_the_same_points_and_more_samples_go_on_from_there(daemon: DaemonProcess):
    wanted = {"method": "adaptive", "seed": 7, "parallel": 1, "wishes": {"num_gpus": 0}}
    long = begin(daemon, BOWL, *DENSE, samples=14, **wanted)
    short = begin(daemon, BOWL, *DENSE, samples=12, **wanted)
    until(daemon, long, "finished")
    until(daemon, short, "finished")

    act(daemon, short, "resume", samples=14)

    until(daemon, short, "finished")
    assert points(daemon, short) == points(daemon, long)
    assert len(study_of(daemon, short).trials) == 14


def test_a_point_that_is_advised_twice_is_run_once(daemon: DaemonProcess):
    command = 'echo "start {x} - $$" >> "$LEDGER"; sleep 0.2; echo loss={x} >> "$DIBS_METRICS"'
    sweep = begin(
        daemon, command, values("x", 1, 2), method="adaptive", samples=12, parallel=4, wishes={"num_gpus": 0}
    )

    done = until(daemon, sweep, "finished")

    assert sorted(daemon.world.ledger.started()) == ["1", "2"]
    assert done["counts"]["complete"] == 2
    assert done["counts"]["reused"] == 10
    assert all(trial["values"] == [float(trial["point"]["x"])] for trial in trials(daemon, sweep))
    assert all(trial.state.is_finished() for trial in study_of(daemon, sweep).trials)


def test_without_room_in_the_conditions_the_sweep_is_held_with_the_reason(daemon: DaemonProcess):
    sweep = begin(daemon, BOWL, *DENSE, method="adaptive", samples=5, where=["x - x > 9"])

    held = until(daemon, sweep, "held")

    assert "x > 9" in held["why"]
    assert states(daemon, sweep) == {}


# -- pruning ---------------------------------------------------------------------------------------------


def test_a_number_without_a_step_may_be_the_result_and_does_not_end_the_trial(daemon: DaemonProcess):
    line = 'echo loss={x} >> "$DIBS_METRICS"; sleep 2.5; echo saved'  # running trials are looked at once a second
    space = {**WHOLE, "low": 0, "high": 5}

    sweep = begin(daemon, line, space, pruner="halving", parallel=6, wishes={"num_gpus": 0})

    assert until(daemon, sweep, "finished")["counts"]["complete"] == 6


def test_trials_that_are_not_worth_it_are_ended_early_and_say_so(daemon: DaemonProcess):
    space = {**WHOLE, "low": 0, "high": 9}
    sweep = begin(
        daemon, STEPS, space, pruner="halving", parallel=10, seed=1, wishes={"num_gpus": 0, "grace_seconds": 1}
    )

    done = until(daemon, sweep, "finished")

    assert done["counts"]["pruned"] > 0
    assert done["counts"]["failed"] == 0
    assert done["best"][0]["point"] == {"x": "0"}
    found = trials(daemon, sweep)
    pruned = [trial for trial in found if trial["state"] == "pruned"]
    ended = set(daemon.world.ledger.ended())
    for trial in pruned:
        job = daemon.job(trial["job"])
        assert trial["why"].startswith("pruned at step ")
        assert (job["state"], job["message"]) == ("cancelled", trial["why"])
        assert trial["point"]["x"] not in ended
    assert {trial["point"]["x"] for trial in found if trial["state"] == "complete"} == ended
    told = {trial.state.name for trial in study_of(daemon, sweep).trials}
    assert told == {"COMPLETE", "PRUNED"}


# -- an adviser that dies --------------------------------------------------------------------------------


# A hang is ended by the time limit, its children too.
MISHAPS = (
    'set -- {how} {x}; case "$1" in crash) exit 3;; hang) sleep 600;; nan) echo loss=nan >> "$DIBS_METRICS";; '
    '*) echo "loss=$2" >> "$DIBS_METRICS";; esac'
)


def test_trials_that_crash_hang_or_find_nonsense_fail_and_the_search_goes_on(daemon: DaemonProcess):
    how = values("how", "good", "crash", "hang", "nan")
    wishes = {"num_gpus": 0, "time_limit_seconds": 4.0, "grace_seconds": 0.5}

    sweep = begin(daemon, MISHAPS, how, WHOLE, method="adaptive", samples=20, seed=1, parallel=3, wishes=wishes)
    done = until(daemon, sweep, "finished")

    found = trials(daemon, sweep)
    states_of = {name: {one["state"] for one in found if one["point"]["how"] == name} for name in how["values"]}
    assert states_of == {"good": {"complete"}, "crash": {"failed"}, "hang": {"failed"}, "nan": {"failed"}}
    whys = {one["point"]["how"]: one["why"] for one in found}
    assert "exit code 3" in whys["crash"] and "time limit" in whys["hang"] and "nan" in whys["nan"]
    assert done["best"][0]["point"]["how"] == "good"
    complete = study_of(daemon, sweep).get_trials(states=[optuna.trial.TrialState.COMPLETE])
    assert len(complete) == done["counts"]["complete"]


def test_a_killed_adviser_is_replaced_and_no_trial_is_lost_or_repeated(daemon: DaemonProcess):
    sweep = begin(daemon, BOWL, *DENSE, method="adaptive", samples=25, seed=1, wishes={"num_gpus": 0})
    for made in (3, 9, 15):
        wait_for(daemon, sweep, lambda seen, made=made: seen["counts"]["complete"] >= made)
        for pid in advisers(daemon):
            os.kill(pid, signal.SIGKILL)

    done = until(daemon, sweep, "finished")

    assert done["counts"]["complete"] == 25
    assert len(daemon.world.ledger.started()) == 25
    assert len(study_of(daemon, sweep).trials) == 25


def test_an_adviser_that_cannot_begin_holds_the_sweep_until_it_is_resumed(daemon: DaemonProcess):
    daemon.post("/v1/pause", {})
    folder = daemon.queue / "sweeps"
    folder.write_text("in the way")
    sweep = begin(daemon, BOWL, *DENSE, method="adaptive", samples=3, wishes={"num_gpus": 0})

    held = until(daemon, sweep, "held", seconds=LONG)
    assert held["why"]
    folder.unlink()
    daemon.post("/v1/unpause", {})
    act(daemon, sweep, "resume")

    assert until(daemon, sweep, "finished")["counts"]["complete"] == 3


def test_a_daemon_that_ends_takes_its_advisers_along_and_the_next_one_goes_on(daemon: DaemonProcess):
    sweep = begin(daemon, BOWL, *DENSE, method="adaptive", samples=20, seed=1, wishes={"num_gpus": 0})
    wait_for(daemon, sweep, lambda seen: seen["counts"]["complete"] >= 5)
    (pid,) = advisers(daemon)

    finished = daemon.end()

    assert finished is not None
    assert finished.status == 0
    wait_until(lambda: not Path(f"/proc/{pid}").exists(), show=lambda: pid)
    daemon.start()
    assert until(daemon, sweep, "finished")["counts"]["complete"] == 20
    assert len(daemon.world.ledger.started()) == 20
