"""Sweeps that people, or their own failures, hold, stop and take up again."""

import re
from pathlib import Path

import pytest

from daemon.daemon_process import DaemonProcess
from daemon.sweeping import SQUARE, WHOLE, act, begin, look, states, trials, until, values, wait_for
from stories.outside import wait_until

# Fails unless the file is there.
NEEDS_FILE = 'test -e {file} || exit 3; echo "start {{x}} - $$" >> "$LEDGER"; echo loss={{x}} >> "$DIBS_METRICS"'
SLEEPS = 'echo "start {x} - $$" >> "$LEDGER"; sleep 60; echo loss={x} >> "$DIBS_METRICS"'

COUNTS = dict.fromkeys(("open", "complete", "pruned", "failed", "reused"), 0)


@pytest.fixture
def mended(tmp_path: Path) -> Path:
    return tmp_path / "mended"


def fails_until(mended: Path) -> str:
    return NEEDS_FILE.format(file=mended)


def test_a_sweep_whose_first_trials_die_alike_is_held_with_the_cause(daemon: DaemonProcess, mended: Path):
    sweep = begin(daemon, fails_until(mended), {**WHOLE, "high": 99})

    held = until(daemon, sweep, "held")

    first = [trial["job"] for trial in trials(daemon, sweep)]
    assert held["why"].startswith("its first 3 trials failed alike; the last one: job ")
    assert "failed with exit code 3" in held["why"]
    (last,) = re.findall(r"`dibs log (\d+)` shows it; `dibs sweep release 1` goes on", held["why"])
    assert int(last) in first  # trials run side by side: any of them may end last
    assert 3 <= held["counts"]["failed"] < 8

    mended.touch()
    assert act(daemon, sweep, "release")["changed"]
    wait_for(daemon, sweep, lambda seen: seen["counts"]["complete"] > 3)
    act(daemon, sweep, "stop")


def test_held_again_when_nothing_was_mended(daemon: DaemonProcess, mended: Path):
    sweep = begin(daemon, fails_until(mended), {**WHOLE, "high": 99})
    before = until(daemon, sweep, "held")["counts"]["failed"]

    act(daemon, sweep, "release")

    held = until(daemon, sweep, "held")
    assert held["counts"]["failed"] >= before + 3
    assert held["why"].startswith("its first 3 trials since it was let go on failed alike")


@pytest.mark.parametrize("stream", [1, 2])
def test_a_sweep_that_is_held_quotes_the_last_line_of_the_last_job(daemon: DaemonProcess, stream):
    sweep = begin(daemon, f"(echo first; echo '  no such layer: {{x}}'; echo) >&{stream}; exit 3", parallel=1)

    assert "and its log ends with 'no such layer: 2'; `dibs log 3` shows it" in until(daemon, sweep, "held")["why"]


def test_a_sweep_whose_project_fails_too_often_is_held_with_its_jobs(daemon: DaemonProcess, mended: Path):
    """The first trials differ, so that it is not the sweep itself that gives up."""
    command = f'test -e {mended} || exit $(( {{x}} % 3 + 1 )); echo loss={{x}} >> "$DIBS_METRICS"'
    sweep = begin(daemon, command, {**WHOLE, "high": 11}, parallel=8, wishes={"project": "vision"})

    held = wait_for(daemon, sweep, lambda seen: seen["state"] == "held")

    assert held["why"].startswith("5 jobs of project vision failed one after another")
    assert held["why"].endswith("; `dibs sweep release 1` goes on")
    mended.touch()
    wait_for(daemon, sweep, lambda seen: not daemon.get("/v1/jobs?state=running")["jobs"])
    assert act(daemon, sweep, "release")["trials"] > 0
    until(daemon, sweep, "finished")


def test_trials_that_fail_in_different_ways_do_not_hold_the_sweep(daemon: DaemonProcess):
    sweep = begin(daemon, "exit {x}", {**WHOLE, "low": 1}, metrics=[])

    assert until(daemon, sweep, "finished")["counts"]["failed"] == 7


def test_failed_trials_are_tried_again_and_no_more_at_once_than_may_be(daemon: DaemonProcess, mended: Path):
    sweep = begin(
        daemon, f'test -e {mended} -o {{x}} = 0 || exit {{x}}; echo loss={{x}} >> "$DIBS_METRICS"', parallel=2
    )
    assert until(daemon, sweep, "finished")["counts"] == COUNTS | {"complete": 1, "failed": 7}
    jobs = [trial["job"] for trial in trials(daemon, sweep)]
    mended.touch()
    daemon.post("/v1/pause", {})

    assert act(daemon, sweep, "retry-failed") == {"changed": True, "trials": 7}

    wait_for(daemon, sweep, lambda seen: seen["state"] == "running" and seen["counts"]["open"] == 2)
    daemon.post("/v1/unpause", {})
    assert until(daemon, sweep, "finished")["counts"]["complete"] == 8
    assert [trial["job"] for trial in trials(daemon, sweep)] == jobs
    assert daemon.job(jobs[7])["attempts"] == 2
    assert act(daemon, sweep, "retry-failed") == {"changed": False, "trials": 0}


def test_a_failed_trial_whose_job_was_cleaned_away_gets_another_job(daemon: DaemonProcess, mended: Path):
    sweep = begin(daemon, fails_until(mended), values("x", 5))
    until(daemon, sweep, "finished")
    (before,) = trials(daemon, sweep)
    daemon.post("/v1/clean", {})
    mended.touch()

    act(daemon, sweep, "retry-failed")
    until(daemon, sweep, "finished")

    (after,) = trials(daemon, sweep)
    assert (after["state"], after["values"]) == ("complete", [5.0])
    assert after["job"] > before["job"]


def test_a_sweep_that_is_stopped_ends_its_trials_and_goes_on_where_it_was(daemon: DaemonProcess):
    sweep = begin(daemon, SLEEPS)
    wait_until(lambda: len(daemon.world.ledger.started()) == 2, show=lambda: daemon.log)

    assert act(daemon, sweep, "stop") == {"changed": True, "trials": 2}

    stopped = until(daemon, sweep, "stopped")
    assert stopped["counts"] == {"open": 0, "complete": 0, "pruned": 0, "failed": 2, "reused": 0}
    assert stopped["ended_at"] is not None
    (first, _) = trials(daemon, sweep)
    assert first["why"].endswith("was cancelled: stopped with its sweep")
    assert daemon.job(first["job"])["message"] == "stopped with its sweep"
    assert act(daemon, sweep, "stop") == {"changed": False, "trials": 0}

    assert act(daemon, sweep, "resume") == {"changed": True, "trials": 2}
    wait_until(lambda: len(daemon.world.ledger.started()) == 4, show=lambda: daemon.log)
    assert sorted(daemon.world.ledger.started()) == ["0", "0", "1", "1"]
    act(daemon, sweep, "stop")


def test_running_trials_may_go_on_when_their_sweep_is_stopped(daemon: DaemonProcess, mended: Path):
    sweep = begin(
        daemon, f'until test -e {mended}; do sleep 0.05; done; echo loss={{x}} >> "$DIBS_METRICS"', parallel=5
    )
    wait_for(
        daemon,
        sweep,
        lambda seen: seen["counts"]["open"] == 5 and len(daemon.get("/v1/jobs?state=running")["jobs"]) == 2,
    )

    assert act(daemon, sweep, "stop", running="keep") == {"changed": True, "trials": 3}
    mended.touch()

    assert until(daemon, sweep, "stopped")["counts"] == COUNTS | {"complete": 2, "failed": 3}


def test_a_sweep_that_is_held_begins_nothing_until_it_is_released(daemon: DaemonProcess):
    daemon.post("/v1/pause", {})
    sweep = begin(daemon, parallel=3)
    wait_for(daemon, sweep, lambda seen: seen["counts"]["open"] == 3)

    assert act(daemon, sweep, "hold") == {"changed": True, "trials": 3}
    assert act(daemon, sweep, "hold") == {"changed": False, "trials": 0}
    daemon.post("/v1/unpause", {})

    assert daemon.wait(daemon.add("true"))[0]["state"] == "succeeded"
    assert [job["why_held"] for job in daemon.get("/v1/jobs?state=held")["jobs"]] == ["sweep 1 is held"] * 3
    assert (look(daemon, sweep)["state"], look(daemon, sweep)["why"]) == ("held", "held by its owner")
    assert act(daemon, sweep, "release") == {"changed": True, "trials": 3}
    assert until(daemon, sweep, "finished")["counts"]["complete"] == 8


def test_a_sweep_can_be_added_held(daemon: DaemonProcess):
    sweep = begin(daemon, wishes={"hold": True})

    assert (look(daemon, sweep)["state"], look(daemon, sweep)["why"]) == ("held", "held when it was added")
    assert daemon.get("/v1/jobs")["jobs"] == []
    act(daemon, sweep, "release")
    assert until(daemon, sweep, "finished")["counts"]["complete"] == 8


def test_more_samples_go_on_in_a_finished_sweep(daemon: DaemonProcess):
    dense = {"name": "x", "low": 0.0, "high": 1.0}
    sweep = begin(daemon, 'echo loss={x} >> "$DIBS_METRICS"', dense, method="random", samples=4, seed=3)
    until(daemon, sweep, "finished")
    before = trials(daemon, sweep)

    assert act(daemon, sweep, "resume", samples=7)["changed"]

    done = until(daemon, sweep, "finished")
    after = trials(daemon, sweep)
    assert (done["size"], len(after), after[:4]) == (7, 7, before)
    assert len({trial["point"]["x"] for trial in after}) == 7
    reply = daemon.call("POST", f"/v1/sweeps/{sweep}/act", {"action": "edit", "samples": 5})
    assert (reply.status, reply.json["error"]["message"]) == (409, "sweep 1 has 7 points already")


@pytest.mark.parametrize(
    ("more", "why", "remedy"),
    [
        ({}, "it has tried every point", "`dibs sweep retry-failed 1`"),
        ({"samples": 2}, "it has all of its 2 trials", "`dibs sweep resume 1 --samples 3`"),
    ],
)
def test_a_finished_sweep_that_has_nothing_left_is_not_resumed_and_says_what_to_do(
    daemon: DaemonProcess, more, why, remedy
):
    sweep = begin(daemon, SQUARE, values("x", 1, 2, 3), **more)
    before = until(daemon, sweep, "finished")

    reply = daemon.call("POST", f"/v1/sweeps/{sweep}/act", {"action": "resume"})

    assert (reply.status, reply.json["error"]["message"]) == (409, f"cannot resume sweep 1: {why}")
    assert remedy in reply.json["error"]["remedy"]
    assert look(daemon, sweep) == before


@pytest.mark.parametrize(
    "body",
    [
        {"action": "edit"},
        {"action": "stop", "samples": 5},
        {"action": "hold", "running": "keep"},
        {"action": "explode"},
        {"action": "edit", "parallel": 0},
    ],
)
def test_an_act_that_makes_no_sense_is_refused(shared: DaemonProcess, body):
    shared.post("/v1/pause", {})
    sweep = begin(shared)

    assert shared.call("POST", f"/v1/sweeps/{sweep}/act", body).status == 400


# -- what people do to the jobs --------------------------------------------------------------------------


def test_a_trial_whose_job_is_killed_has_failed_and_the_next_one_begins(daemon: DaemonProcess):
    sweep = begin(daemon, SLEEPS, parallel=1)
    wait_until(lambda: daemon.world.ledger.started() == ["0"], show=lambda: daemon.log)

    daemon.post("/v1/jobs/act", {"action": "kill", "ids": [trials(daemon, sweep)[0]["job"]]})

    wait_until(lambda: daemon.world.ledger.started() == ["0", "1"], show=lambda: daemon.log)
    first = trials(daemon, sweep)[0]
    assert (first["state"], first["why"]) == ("failed", f"job {first['job']} was cancelled")
    act(daemon, sweep, "stop")


def test_a_trial_whose_job_is_retried_is_open_again(daemon: DaemonProcess, mended: Path):
    sweep = begin(daemon, fails_until(mended), values("x", 5))
    until(daemon, sweep, "finished")
    (trial,) = trials(daemon, sweep)
    assert trial["state"] == "failed"
    mended.touch()

    daemon.post("/v1/jobs/act", {"action": "retry", "ids": [trial["job"]]})

    wait_for(daemon, sweep, lambda seen: seen["counts"]["complete"] == 1)
    done = until(daemon, sweep, "finished")
    assert done["best"][0]["job"] == trial["job"]


def test_a_trial_that_is_complete_keeps_its_values_whatever_becomes_of_its_job(daemon: DaemonProcess):
    sweep = begin(daemon, SQUARE, values("x", 5))
    until(daemon, sweep, "finished")
    before = trials(daemon, sweep)

    daemon.post("/v1/jobs/act", {"action": "retry", "ids": [before[0]["job"]]})
    daemon.wait(before[0]["job"])

    assert trials(daemon, sweep) == before
    assert states(daemon, sweep) == {"complete": 1}


def test_a_trial_is_open_until_its_job_is_over_for_good_and_the_last_attempt_counts(daemon: DaemonProcess):
    command = 'echo "loss=$DIBS_ATTEMPT" >> "$DIBS_METRICS"; test $DIBS_ATTEMPT = 2 # {x}'
    sweep = begin(daemon, command, values("x", 1), wishes={"retries": 2})

    until(daemon, sweep, "finished")

    (trial,) = trials(daemon, sweep)
    assert (trial["state"], trial["values"]) == ("complete", [2.0])
    assert daemon.job(trial["job"])["attempts"] == 2


def test_a_sweep_that_is_over_can_be_forgotten_and_its_jobs_stay(daemon: DaemonProcess):
    sweep = begin(daemon, sampler="qmc", samples=2, method="adaptive")
    until(daemon, sweep, "finished")
    other = begin(daemon)
    until(daemon, other, "finished")
    jobs = [trial["job"] for trial in trials(daemon, sweep)]
    study = Path(look(daemon, sweep)["journal"])
    assert study.exists()

    assert daemon.post(f"/v1/sweeps/{sweep}/remove", {}) == {"trials": 2}

    assert daemon.call("GET", f"/v1/sweeps/{sweep}").status == 404
    assert daemon.call("POST", f"/v1/sweeps/{sweep}/remove", {}).status == 404
    assert [one["id"] for one in daemon.get("/v1/sweeps")["sweeps"]] == [other]
    assert not study.parent.exists()
    assert [daemon.job(job)["state"] for job in jobs] == ["succeeded"] * 2
    assert len(trials(daemon, other)) == 8

    daemon.kill()
    (daemon.queue / "store.db").unlink()  # the journal alone knows it too
    for log in ("-wal", "-shm"):
        (daemon.queue / f"store.db{log}").unlink(missing_ok=True)
    assert daemon.world.dibs("doctor", "--rebuild", "--yes").status == 0
    daemon.start()

    assert [one["id"] for one in daemon.get("/v1/sweeps")["sweeps"]] == [other]
    assert begin(daemon) == other + 1, "a number is given once: the jobs of the other one are not its trials"


def test_a_sweep_is_not_forgotten_while_something_of_it_runs(daemon: DaemonProcess):
    sweep = begin(daemon, SLEEPS, parallel=2)
    wait_until(lambda: len(daemon.world.ledger.started()) == 2)

    running = daemon.call("POST", f"/v1/sweeps/{sweep}/remove", {})
    act(daemon, sweep, "hold")
    held = daemon.call("POST", f"/v1/sweeps/{sweep}/remove", {})
    act(daemon, sweep, "stop", running="keep")
    stopped = daemon.call("POST", f"/v1/sweeps/{sweep}/remove", {})

    assert [one.status for one in (running, held, stopped)] == [409] * 3
    assert running.json["error"]["message"] == f"cannot remove sweep {sweep}: it is running"
    assert running.json["error"]["remedy"] == f"`dibs sweep stop {sweep}` ends it"
    assert held.json["error"]["message"] == f"cannot remove sweep {sweep}: it is held"
    assert stopped.json["error"]["message"] == f"cannot remove sweep {sweep}: 2 trials of it have not ended yet"
    act(daemon, sweep, "stop")
    wait_for(daemon, sweep, lambda seen: not seen["counts"]["open"])
    assert daemon.post(f"/v1/sweeps/{sweep}/remove", {})["trials"] >= 2
