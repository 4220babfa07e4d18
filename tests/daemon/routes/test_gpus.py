"""The cards over the API: who holds them, draining, the pool, and pauses."""

import json

import pytest

from daemon.daemon_process import DaemonProcess
from stories.outside import World, wait_until


def states(daemon: DaemonProcess) -> dict[int, str]:
    return {gpu["index"]: gpu["state"] for gpu in daemon.get("/v1/gpus")["gpus"]}


def test_the_cards_and_who_holds_them_are_shown(daemon: DaemonProcess):
    number = daemon.add({"command": "sleep 60", "only": ["1"]})
    wait_until(lambda: daemon.state(number) == "running")

    found = daemon.get("/v1/gpus")

    assert found["pool"] == "0,1"
    free, held = found["gpus"]
    assert (free["state"], free["holders"], free["slots"]) == ("free", [], 1)
    assert held["state"] == "held"
    assert (held["holders"][0]["job"], held["holders"][0]["share"]) == (str(number), "1")
    assert held["holders"][0]["job_id"] == number
    daemon.post("/v1/jobs/act", {"action": "kill", "ids": [number]})


def test_a_card_is_free_while_its_job_is_suspended_and_tells_which_one_that_is(suspending: DaemonProcess):
    number = suspending.add({"command": "sleep 60", "name": "long", "only": ["1"]})
    wait_until(lambda: suspending.state(number) == "running")

    suspending.post("/v1/jobs/act", {"action": "suspend", "ids": [number]})
    wait_until(lambda: suspending.state(number) == "suspended", show=lambda: suspending.job(number)["suspension"])

    _, card = suspending.get("/v1/gpus")["gpus"]
    assert (card["state"], card["holders"]) == ("free", [])
    [suspended] = card["suspended"]
    assert (suspended["job"], suspended["job_id"], suspended["held_bytes"]) == (f"{number} (long)", number, 0)
    assert suspended["since_at"] == suspending.job(number)["suspension"]["suspended_at"]
    suspending.post("/v1/jobs/act", {"action": "resume", "ids": [number]})
    wait_until(lambda: states(suspending)[1] == "held", show=lambda: suspending.get("/v1/gpus"))
    assert suspending.get("/v1/gpus")["gpus"][1]["suspended"] == []
    suspending.post("/v1/jobs/act", {"action": "kill", "ids": [number]})


def test_a_drained_card_gets_nothing_new(daemon: DaemonProcess):
    assert daemon.post("/v1/gpus/act", {"action": "drain", "gpus": ["0"]}) == {"changed": ["0"]}

    jobs = daemon.wait(*range(first := daemon.add("true", "true", "true"), first + 3))

    assert {tuple(job["gpus"]) for job in jobs} == {(1,)}
    wait_until(lambda: states(daemon) == {0: "drained", 1: "free"}, show=lambda: states(daemon))
    daemon.post("/v1/gpus/act", {"action": "undrain", "gpus": ["0"]})
    assert states(daemon) == {0: "free", 1: "free"}


def test_a_card_is_drained_for_a_reason_that_others_see(daemon: DaemonProcess):
    daemon.post("/v1/gpus/act", {"action": "drain", "gpus": ["1"], "why": "loud fan"})

    [card] = [one for one in daemon.get("/v1/gpus")["gpus"] if one["index"] == 1]
    refused = daemon.call("POST", "/v1/gpus/act", {"action": "undrain", "gpus": ["1"], "why": "quiet now"})

    assert (card["state"], card["why"]) == ("drained", "loud fan")
    assert (refused.status, refused.json["error"]["message"]) == (400, "`undrain` needs no reason")
    daemon.post("/v1/gpus/act", {"action": "undrain", "gpus": ["1"]})


def test_the_pool_grows_and_shrinks_while_it_runs(daemon: DaemonProcess):
    added = daemon.post("/v1/gpus/act", {"action": "add", "gpus": ["5"]})
    assert added == {"changed": ["5"]}
    assert sorted(states(daemon)) == [0, 1, 5]

    removed = daemon.post("/v1/gpus/act", {"action": "remove", "gpus": ["0", "5"]})

    assert removed == {"changed": ["0", "5"]}
    assert daemon.get("/v1/status")["gpus"] == "1"
    daemon.kill()
    daemon.start()
    assert daemon.get("/v1/status")["gpus"] == "1"


@pytest.mark.parametrize("gpu", ["99", "-1", "", "a b", "GPU-nothing"])
def test_a_card_that_is_not_there_is_refused(shared: DaemonProcess, gpu):
    reply = shared.call("POST", "/v1/gpus/act", {"action": "drain", "gpus": [gpu]})

    assert (reply.status, reply.code) == (400, "bad-input")


def test_a_pause_is_for_everything_or_for_one_project(daemon: DaemonProcess):
    assert daemon.post("/v1/pause", {"project": "p"}) == {"changed": True}
    assert daemon.post("/v1/pause", {"project": "p"}) == {"changed": False}
    waits = daemon.add({"command": "true", "project": "p"})
    runs = daemon.add({"command": "true", "project": "q"})

    daemon.wait(runs)

    assert daemon.state(waits) == "queued"
    status = daemon.get("/v1/status")
    assert (status["paused"], status["paused_projects"]) == (False, ["p"])
    projects = {project["name"]: project for project in daemon.get("/v1/projects")["projects"]}
    assert (projects["p"]["paused"], projects["q"]["paused"]) == (True, False)
    assert (projects["p"]["counts"]["queued"], projects["q"]["counts"]["succeeded"]) == (1, 1)
    daemon.post("/v1/unpause", {"project": "p"})
    daemon.wait(waits)


def test_the_numbers_for_prometheus_are_true(daemon: DaemonProcess):
    daemon.wait(daemon.add({"command": "exit 1", "project": 'a "project"'}))
    daemon.post("/v1/pause", {})
    daemon.add("true", "true")

    reply = daemon.call("GET", "/metrics")

    lines = reply.body.decode().splitlines()
    assert reply.headers["content-type"].startswith("text/plain")
    assert 'dibs_jobs{state="queued"} 2.0' in lines
    assert 'dibs_jobs{state="failed"} 1.0' in lines
    wait_until(lambda: b'dibs_gpus{state="free"} 2.0\n' in daemon.call("GET", "/metrics").body)
    assert 'dibs_attempts_ended_total{cause="exit code"} 1.0' in lines
    (worked,) = [line for line in lines if line.startswith('dibs_work_seconds_total{project="a \\"project\\""} ')]
    assert float(worked.split()[-1]) > 0


def test_a_card_that_the_driver_shows_is_told_with_what_it_does(world: World):
    cards = world.folder.parent / "cards.json"
    card = {"index": 0, "uuid": "GPU-a", "name": "NVIDIA H200", "memory_total": 1000, "memory_used": 10, "load": 5}
    cards.write_text(json.dumps([card]))
    daemon = DaemonProcess(world)
    daemon.start(DIBS_PROBE=f"fake:{cards}", DIBS_POOL="auto")
    (job,) = daemon.wait(daemon.add("true"))

    (gpu,) = daemon.get("/v1/gpus")["gpus"]
    cards.write_text(json.dumps({"gpus": [card], "fail": "on fire"}))
    wait_until(lambda: states(daemon) == {0: "silent"}, show=lambda: daemon.get("/v1/gpus"))

    assert job["gpus"] == [0]
    assert (gpu["name"], gpu["memory_used_bytes"], gpu["load_percent"]) == ("NVIDIA H200", 10, 5)
    assert "on fire" in daemon.get("/v1/gpus")["gpus"][0]["why"]
    daemon.end()
