"""`dibs sweep stop`, `hold`, `release`, `resume`, `retry-failed`, `edit`, `rm` and `wait`."""

import json
import threading

import pytest

from cli.fake_daemon import a_sweep, a_trial
from stories.outside import wait_until


@pytest.mark.parametrize(
    ("words", "body", "said"),
    [
        (["stop", "3"], {"action": "stop"}, "stopped sweep 3: 2 trials"),
        (["stop", "@", "--keep-running"], {"action": "stop", "running": "keep"}, "stopped sweep 3: 2 trials"),
        (["hold"], {"action": "hold"}, "held sweep 3: 2 trials"),
        (["release"], {"action": "release"}, "released sweep 3: 2 trials"),
        (["resume"], {"action": "resume"}, "resumed sweep 3: 2 trials"),
        (["resume", "3", "--samples", "80"], {"action": "resume", "samples": 80}, "resumed sweep 3: 2 trials"),
        (["retry-failed"], {"action": "retry-failed"}, "retried sweep 3: 2 trials"),
        (["edit", "--parallel", "8"], {"action": "edit", "parallel": 8}, "changed sweep 3: 2 trials"),
        (
            ["edit", "3", "-p", "lr", "1", "2", "--metric", "acc:max:best", "--where", "lr>1", "--target", "0.5"],
            {
                "action": "edit",
                "parameters": [{"name": "lr", "values": ["1", "2"], "when": ""}],
                "metrics": [{"name": "acc", "goal": "max", "take": "best"}],
                "where": ["lr>1"],
                "target": 0.5,
            },
            "changed sweep 3: 2 trials",
        ),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_an_act_is_asked_for_and_told_of(daemon, typed, words, body, said):
    daemon.sweeps = {2: a_sweep(2), 3: a_sweep(3)}

    done = typed("sweep", *words)

    assert (done.status, done.stderr) == (0, f"{said}\n")
    assert daemon.calls[-1][1:] == ("/v1/sweeps/3/act", {}, body)


def test_where_there_was_nothing_to_do_that_is_said_and_the_status_is_1(daemon, typed):
    daemon.sweeps[3] = a_sweep(3, changed=False)

    done = typed("sweep", "resume")

    assert done.status == 1
    assert done.stderr == "dibs: sweep 3 is running already\n"


def test_json_is_the_daemons_answer(daemon, typed):
    daemon.sweeps[3] = a_sweep(3)

    assert json.loads(typed("sweep", "hold", "--json").stdout) == {"sweep": 3, "changed": True, "trials": 2}


def test_to_stop_one_it_has_to_be_named(daemon, typed):
    daemon.sweeps[3] = a_sweep(3)

    assert typed("sweep", "stop").status == 2
    assert daemon.bodies() == []


def test_an_edit_without_a_change_is_refused(daemon, typed):
    done = typed("sweep", "edit", "3")

    assert done.status == 2
    assert "there is nothing to change" in done.stderr


@pytest.mark.parametrize(
    ("state", "trials", "status"),
    [
        ("finished", (a_trial(0), a_trial(1, "failed")), 0),
        ("finished", (a_trial(0, "reused", values=[1.0]),), 0),
        ("finished", (a_trial(1, "failed"),), 1),
        ("finished", (), 1),
        ("held", (a_trial(0),), 1),
        ("stopped", (a_trial(0),), 1),
    ],
)
def test_waiting_ends_with_whether_something_was_found(daemon, typed, state, trials, status):
    daemon.sweeps[3] = a_sweep(3, state, trials, why="because")

    assert typed("sweep", "wait").status == status


def test_waiting_comes_back_at_the_end_with_the_best_command(daemon, typed):
    daemon.sweeps[3] = a_sweep(3, trials=(a_trial(0, "open"),))

    def live():
        wait_until(lambda: len(daemon.queries("/v1/sweeps/3")) > 1)
        daemon.sweeps[3] = a_sweep(3, "finished", (a_trial(0), a_trial(1, "failed")))

    other = threading.Thread(target=live)
    other.start()
    done = typed("sweep", "wait", "3")
    other.join()

    assert done.status == 0
    assert done.stderr.splitlines() == [
        "sweep 3 has finished: 1 complete, 1 failed; best loss 0 (trial 0)",
        "  python train.py --lr 0.0 --opt adam",
    ]


def test_what_was_not_run_is_told_with_the_way_to_run_it(daemon, typed):
    daemon.sweeps[3] = a_sweep(3, "finished", (a_trial(0, "reused", values=[1.0]),))

    said = typed("sweep", "wait").stderr.splitlines()

    assert said[0].startswith("sweep 3 has finished: 1 reused; best loss 1")
    assert "the same command of the same program" in said[1]


def test_a_held_sweep_says_why(daemon, typed):
    daemon.sweeps[3] = a_sweep(3, "held", (a_trial(0, "failed"),), why="its first trials ended alike")

    said = typed("sweep", "wait").stderr

    assert said.splitlines() == ["sweep 3 is held: 1 failed", "  its first trials ended alike"]


def test_after_its_own_timeout_the_status_is_75(daemon, typed):
    daemon.sweeps[3] = a_sweep(3, trials=(a_trial(0, "open"),))

    done = typed("sweep", "wait", "--timeout", "0.1s")

    assert done.status == 75
    assert "is still running" in done.stderr


def test_a_quiet_wait_says_nothing_and_json_is_the_whole_sweep(daemon, typed):
    daemon.sweeps[3] = a_sweep(3, "finished", (a_trial(0),))

    assert typed("sweep", "wait", "-q").stderr == ""
    assert json.loads(typed("sweep", "wait", "--json", "-q").stdout)["state"] == "finished"


def test_a_sweep_that_is_removed_is_named_and_so_is_how_much_it_was(daemon, typed):
    daemon.sweeps = {2: a_sweep(2, "finished", (a_trial(1),)), 3: a_sweep(3, "finished", (a_trial(1), a_trial(2)))}

    assert typed("sweep", "rm", "3", "-y").stderr == "removed sweep 3: 2 trials\n"
    assert json.loads(typed("sweep", "rm", "2", "--yes", "--json").stdout) == {"sweep": 2, "trials": 1}
    assert daemon.sweeps == {}


@pytest.mark.parametrize(("is_asked", "status"), [(False, 2), (True, 1)])
def test_nobody_removes_a_sweep_without_having_said_so(daemon, typed, monkeypatch, is_asked, status):
    daemon.sweeps[3] = a_sweep(3, "finished")
    monkeypatch.setattr("os.isatty", lambda fd: is_asked and fd == 0)
    monkeypatch.setattr("click.confirm", lambda question, **_: False)

    done = typed("sweep", "rm", "3")

    assert (done.status, list(daemon.sweeps)) == (status, [3])
    assert ("nothing was removed" if is_asked else "--yes does it without asking") in done.stderr
