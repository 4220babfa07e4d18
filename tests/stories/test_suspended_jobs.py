"""What is said of a suspended job, and what commands do with it: a real daemon and a driver that is a fake."""

import json
import re
import shlex

from cuda.machine import steps
from daemon.listening import call
from stories.outside import wait_until
from stories.test_making_room import MovingWorld, moving

__all__ = ["moving"]
SINCE = r"is suspended by you since [0-9]{2}:[0-9]{2}, with 10G in the machine's memory"


def test_it_is_said_who_suspended_a_job_since_when_how_much_is_moved_and_how_it_goes_on(
    moving: MovingWorld,
) -> None:
    moving.begin()
    train = moving.add("train", "--preemptible")
    moving.wait_until_held(train)
    dibs = moving.world.dibs

    assert dibs("suspend", "train").stderr == "job 1 is suspended: 10G moved; `dibs resume 1` lets it go on\n"

    sentence = f"{SINCE}; `dibs resume 1` lets it go on"
    assert re.fullmatch(rf"job 1 \(train\) {sentence}\n", dibs("why", "1").stdout)
    assert re.search(rf"^  {sentence}$", dibs("ls").stdout, re.MULTILINE)
    info = dibs("info", "1").stdout
    assert re.search(r"^  state +suspended$", info, re.MULTILINE)
    assert re.search(rf"^  why +{sentence}$", info, re.MULTILINE)
    assert re.search(r"^  suspended +once, .* in all$", info, re.MULTILINE)
    assert dibs("ls", "--state", "suspended", "--ids").stdout == "1\n"
    assert dibs("ls", "--state", "running", "--ids").stdout == ""
    told = json.loads(dibs("info", "1", "--json").stdout)
    assert told["reason"]["code"] == json.loads(dibs("why", "1", "--json").stdout)["reason"]["code"] == "suspended"
    assert (told["suspension"]["why"], told["suspension"]["held_bytes"]) == ("by you", 10 * 2**30)
    assert told["suspended_seconds"] > 0
    assert told["ran_seconds"] == moving.job(1)["ran_seconds"] > 0  # it stands still, too
    (shared,) = call(f"{moving.world.state}/queue/socket", "GET", "/v1/reasons").json["reasons"]
    assert (shared["sentence"], shared["jobs"]) == (told["reason"]["sentence"], [1])
    card, (gpu,) = json.loads(dibs("gpus", "--json").stdout)[0], moving.world.client().gpus()["gpus"]
    assert (card["state"], gpu["state"], card["holders"], gpu["holders"]) == ("free", "free", [], [])
    assert card["suspended"][0]["job"] == gpu["suspended"][0]["job"] == "1 (train)"
    assert gpu["suspended"][0]["job_id"] == 1
    assert re.search(r"suspended: .*: job 1 \(train\), pid [0-9]+", dibs("gpus").stdout)
    moving.end(train)


def test_the_metrics_count_suspensions_and_what_they_fill(moving: MovingWorld) -> None:
    moving.begin()
    train = moving.add("train", "--preemptible")
    moving.wait_until_held(train)

    moving.world.dibs("suspend", "1")
    suspended = metrics(moving)
    moving.world.dibs("resume", "1")
    resumed = metrics(moving)

    assert (suspended['dibs_jobs{state="suspended"}'], suspended["dibs_suspended_bytes"]) == (1, 10 * 2**30)
    assert resumed["dibs_suspended_bytes"] == 0
    for move in ("suspend", "resume"):
        assert resumed[f'dibs_moves_total{{move="{move}",result="done"}}'] == 1
        assert resumed[f'dibs_move_seconds_total{{move="{move}"}}'] > 0
    moving.end(train)


def metrics(moving: MovingWorld) -> dict[str, float]:
    found = call(f"{moving.world.state}/queue/socket", "GET", "/metrics").body.decode()
    samples = [line.rpartition(" ") for line in found.splitlines() if not line.startswith("#")]
    return {name: float(value) for name, _, value in samples}


def test_wait_and_a_followed_log_go_on_until_a_suspended_job_has_gone_on_and_ended(moving: MovingWorld) -> None:
    moving.begin()
    line = f"{shlex.join(moving.program('train', steps=600))}; echo done"
    moving.world.add("-J", "train", "--", line)
    wait_until(lambda: steps(moving.ledger("train")))
    log, wait = moving.world.start("log", "-f", "1"), moving.world.start("wait", "1")

    moving.world.dibs("suspend", "1")
    assert moving.world.dibs("wait", "1", "--timeout", "1s").status == 75
    assert (log.process.poll(), wait.process.poll()) == (None, None)
    moving.world.dibs("resume", "1")

    assert (wait.wait().status, log.wait().stdout) == (0, "done\n")


def test_a_suspended_job_is_killed_as_any_other(moving: MovingWorld) -> None:
    moving.begin()
    train = moving.add("train")
    wait_until(lambda: steps(moving.ledger("train")))
    moving.world.dibs("suspend", "1")

    assert moving.world.dibs("kill", "1").status == 0
    (ended,) = moving.world.wait_for(train)

    assert (ended["state"], ended["suspension"]) == ("cancelled", None)
