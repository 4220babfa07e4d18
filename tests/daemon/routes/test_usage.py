"""What jobs used, measured by a real daemon: the cards come out of a file, the processes are real."""

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pydantic import TypeAdapter

from daemon.daemon_process import DaemonProcess, Stream
from dibs.daemon.schemas import responses
from stories.outside import World, wait_until

G = 1024**3


class Driver:
    """The file in which the daemon finds its two cards."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.show()

    def show(self, *cards: dict[str, Any]) -> None:
        both = [
            {
                "index": index,
                "uuid": f"GPU-{index}",
                "name": "NVIDIA H200",
                "memory_total": 140 * G,
                "memory_used": 0,
            }
            | {"load": 0, "power": 100.0, **(cards[index] if index < len(cards) else {})}
            for index in range(2)
        ]
        new = self.path.with_suffix(".new")
        new.write_text(json.dumps(both))
        new.rename(self.path)


@pytest.fixture
def driver(tmp_path: Path) -> Driver:
    return Driver(tmp_path / "cards.json")


@pytest.fixture
def daemon(world: World, driver: Driver) -> Iterator[DaemonProcess]:
    one = DaemonProcess(world)
    world.environ |= {"DIBS_PROBE": f"fake:{driver.path}", "DIBS_POOL": "auto"}
    one.start()
    yield one
    one.end()


def a_process(pid: int, memory: int = G) -> dict[str, Any]:
    return {"pid": pid, "user": "me", "memory": memory}


def pid_of(daemon: DaemonProcess, number: int) -> int:
    """Of a process below the job's command."""
    return int(wait_until(lambda: _pid_in(daemon, number), show=lambda: daemon.job(number)))


def _pid_in(daemon: DaemonProcess, number: int) -> str:
    job = daemon.job(number)
    path = f"{job['folder']}/stdout"
    return open(path).read().strip() if job["folder"] and os.path.exists(path) else ""


DEEP = "bash -c 'echo $$; while true; do sleep 0.05; done'; true"  # the process is not the command itself


def usage(daemon: DaemonProcess, number: int) -> Any:
    return daemon.job(number)["usage"] or {}


def wait_for_usage(daemon: DaemonProcess, number: int, **wanted: Any) -> Any:
    def is_so() -> bool:
        found = usage(daemon, number)
        return all(name in found and found[name] == value for name, value in wanted.items())

    wait_until(is_so, show=lambda: usage(daemon, number))
    return usage(daemon, number)


def test_a_running_job_shows_what_its_processes_use(daemon: DaemonProcess, driver: Driver):
    number = daemon.add({"command": DEEP, "only": ["0"]})
    pid = pid_of(daemon, number)

    driver.show({"memory_used": 9 * G, "load": 31, "power": 350.0, "processes": [a_process(pid, 9 * G)]})
    found = wait_for_usage(daemon, number, peak_vram_bytes=9 * G)
    wait_until(lambda: (usage(daemon, number)["mean_load_percent"] or 0) > 0)
    wait_until(lambda: (usage(daemon, number)["energy_watt_hours"] or 0) > 0)

    assert found["vram_total_bytes"] == 140 * G
    assert found["was_alone"] and found["astray"] == []
    assert found["peak_mem_bytes"] > 1024**2
    report = daemon.get(f"/v1/jobs/{number}/usage")
    assert report["attempt"] == 1
    assert max(memory or 0 for memory in report["series"]["memory_bytes"]) == 9 * G
    daemon.post("/v1/jobs/act", {"action": "kill", "ids": [number]})
    daemon.wait(number)


def test_the_end_records_what_was_measured_and_the_series_stays(daemon: DaemonProcess, driver: Driver):
    number = daemon.add({"command": DEEP, "only": ["0"]})
    pid = pid_of(daemon, number)
    driver.show({"memory_used": 9 * G, "load": 50, "processes": [a_process(pid, 9 * G)]})
    wait_for_usage(daemon, number, peak_vram_bytes=9 * G)
    wait_until(lambda: len(daemon.get(f"/v1/jobs/{number}/usage")["series"]["at_seconds"]) >= 3)
    daemon.post("/v1/jobs/act", {"action": "kill", "ids": [number]})
    (job,) = daemon.wait(number)
    driver.show()

    kept = Path(job["folder"]) / "usage.json"
    wait_until(kept.exists)

    (attempt,) = daemon.job(number)["attempts_list"]
    assert job["usage"] == attempt["usage"]
    assert job["usage"]["peak_vram_bytes"] == 9 * G
    report = daemon.get(f"/v1/jobs/{number}/usage?attempt=1")
    assert report["usage"] == job["usage"]
    assert len(report["series"]["at_seconds"]) == len(report["series"]["load_percent"]) >= 3
    TypeAdapter(responses.UsageReport).validate_json(json.dumps(report), strict=True)
    TypeAdapter(responses.UsageObject).validate_json(json.dumps(attempt["usage"]), strict=True)
    (listed,) = [one for one in daemon.get("/v1/jobs")["jobs"] if one["id"] == number]
    assert listed["usage"] == job["usage"]
    assert 'dibs_energy_joules_total{project=""}' in daemon.call("GET", "/metrics").body.decode()


def test_a_silent_success_that_was_measured_keeps_its_folder(
    daemon: DaemonProcess, driver: Driver, tmp_path: Path
):
    end = tmp_path / "end"
    number = daemon.add(f"until [ -e '{end}' ]; do sleep 0.05; done")
    wait_until(lambda: len((daemon.get(f"/v1/jobs/{number}/usage")["series"] or {}).get("at_seconds", ())) >= 3)
    end.touch()
    (job,) = daemon.wait(number)
    following = daemon.wait(daemon.add("true"))

    assert wait_until(lambda: os.path.exists(f"{job['folder']}/usage.json"))
    assert following[0]["folder"] != job["folder"]
    assert job["usage"]["peak_vram_bytes"] == 0


def test_a_short_job_leaves_nothing_and_its_folder_is_used_again(daemon: DaemonProcess):
    (first,) = daemon.wait(daemon.add("true"))
    (second,) = daemon.wait(daemon.add("true"))

    assert not os.path.exists(first["folder"])
    assert not os.path.exists(f"{second['folder']}/usage.json")
    report = daemon.get(f"/v1/jobs/{second['id']}/usage")
    assert (report["series"], report["advice"]) == (None, [])


def test_two_jobs_on_one_card_are_told_apart(daemon: DaemonProcess, driver: Driver):
    one = daemon.add({"command": DEEP, "only": ["0"], "share": "1/2"})
    other = daemon.add({"command": DEEP, "only": ["0"], "share": "1/2"})
    pids = pid_of(daemon, one), pid_of(daemon, other)

    driver.show(
        {"memory_used": 9 * G, "load": 80, "processes": [a_process(pids[0], 3 * G), a_process(pids[1], 6 * G)]}
    )

    assert not wait_for_usage(daemon, one, peak_vram_bytes=3 * G)["was_alone"]
    assert not wait_for_usage(daemon, other, peak_vram_bytes=6 * G)["was_alone"]
    daemon.post("/v1/jobs/act", {"action": "kill", "ids": [one, other]})
    daemon.wait(one, other)


def test_a_job_on_a_gpu_that_it_was_not_given_is_flagged_once(daemon: DaemonProcess, driver: Driver):
    stream = Stream(daemon.socket)
    stream.first_comment()
    number = daemon.add({"command": DEEP, "only": ["0"], "name": "lost"})
    pid = pid_of(daemon, number)

    driver.show({"processes": [a_process(pid)]}, {"processes": [a_process(pid)]})
    wait_for_usage(daemon, number, astray=["GPU-1"])
    wait_until(lambda: len(daemon.get(f"/v1/jobs/{number}/usage")["series"]["at_seconds"]) >= 4)
    daemon.post("/v1/jobs/act", {"action": "kill", "ids": [number]})
    (job,) = daemon.wait(number)

    said = f"job {number} (lost) uses GPU 1, which it was not given: it has GPU 0"
    events = []
    while not events or events[-1]["kind"] != "job.ended":
        events += stream.take(1)
    stream.close()
    (astray,) = [event for event in events if event["kind"] == "job.astray"]
    assert astray["job"] == number
    assert (astray["gpus"], astray["message"]) == (["1"], said)
    assert daemon.log.count(said) == 1
    assert job["usage"]["astray"] == ["GPU-1"]
    assert "which it was not given" in daemon.get(f"/v1/jobs/{number}/usage")["advice"][0]


def test_a_job_for_no_gpu_is_flagged_on_any(daemon: DaemonProcess, driver: Driver):
    number = daemon.add({"command": DEEP, "num_gpus": 0})
    driver.show({}, {"processes": [a_process(pid_of(daemon, number))]})

    wait_for_usage(daemon, number, astray=["GPU-1"])

    assert "it has none" in daemon.log
    daemon.post("/v1/jobs/act", {"action": "kill", "ids": [number]})
    daemon.wait(number)


def test_a_new_daemon_goes_on_where_the_last_one_was_killed(daemon: DaemonProcess, driver: Driver):
    number = daemon.add({"command": DEEP, "only": ["0"]})
    pid = pid_of(daemon, number)
    driver.show({"memory_used": 9 * G, "load": 50, "processes": [a_process(pid, 9 * G)]})
    wait_for_usage(daemon, number, peak_vram_bytes=9 * G)
    kept = Path(daemon.job(number)["folder"]) / "usage.json"
    wait_until(kept.exists, seconds=60)
    before = usage(daemon, number)["seconds"]
    daemon.kill()
    driver.show({"memory_used": G, "load": 50, "processes": [a_process(pid, G)]})

    daemon.start()

    wait_until(lambda: (usage(daemon, number).get("seconds") or 0) > before, show=lambda: usage(daemon, number))
    assert usage(daemon, number)["peak_vram_bytes"] == 9 * G
    daemon.post("/v1/jobs/act", {"action": "kill", "ids": [number]})
    daemon.wait(number)


def test_what_ended_while_no_daemon_ran_has_what_was_measured_before(
    daemon: DaemonProcess, driver: Driver, tmp_path: Path
):
    end = tmp_path / "end"
    number = daemon.add({"command": f"echo $$; until [ -e '{end}' ]; do sleep 0.05; done; true", "only": ["0"]})
    pid = pid_of(daemon, number)
    driver.show({"memory_used": 9 * G, "load": 50, "processes": [a_process(pid, 9 * G)]})
    wait_for_usage(daemon, number, peak_vram_bytes=9 * G)
    wait_until(lambda: len(daemon.get(f"/v1/jobs/{number}/usage")["series"]["at_seconds"]) >= 3)
    daemon.end()  # it writes what it has
    end.touch()
    wait_until(lambda: not os.path.exists(f"/proc/{pid}"))

    daemon.start()

    (job,) = daemon.wait(number)
    assert job["usage"]["peak_vram_bytes"] == 9 * G


def test_an_attempt_that_is_not_there_is_refused(daemon: DaemonProcess):
    number = daemon.add({"command": "true", "hold": True})

    assert daemon.get(f"/v1/jobs/{number}/usage") == {
        "job": number,
        "attempt": None,
        "usage": None,
        "series": None,
        "advice": [],
    }
    assert daemon.call("GET", f"/v1/jobs/{number}/usage?attempt=2").status == 400
    assert daemon.call("GET", "/v1/jobs/999/usage").status == 404
