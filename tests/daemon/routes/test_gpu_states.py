"""Cards that stop answering, are divided, are another maker's, or have other numbers after a reboot."""

import json
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from daemon.daemon_process import DaemonProcess
from dibs.supervise.folder import read_record
from faults.campaign import kill_everything
from stories.outside import World, wait_until

GIB = 1024**3


class Driver:
    """The file of the fake driver, rewritten while a daemon reads it."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def shows(self, *cards: dict[str, Any], **world: Any) -> None:
        new = self.path.with_suffix(".new")
        new.write_text(json.dumps({"gpus": cards, **world}))
        new.replace(self.path)


def a_card(index: int, name: str = "", **more: Any) -> dict[str, Any]:
    return {"index": index, "uuid": f"GPU-{name or index}", "memory_total": 10 * GIB, **more}


def a_part(part: int, **more: Any) -> dict[str, Any]:
    name = "NVIDIA H200 MIG 1g.18gb"
    return {"index": 0, "part": part, "uuid": f"MIG-{part}", "name": name, "memory_total": 18 * GIB, **more}


@pytest.fixture
def driver(world: World) -> Driver:
    return Driver(world.folder.parent / "cards.json")


@pytest.fixture
def daemon(world: World, driver: Driver) -> Iterator[DaemonProcess]:
    daemon = DaemonProcess(world)
    world.environ |= {"DIBS_PROBE": f"fake:{driver.path}", "DIBS_POOL": "auto", "DIBS_READING_SECONDS": "0.1"}
    yield daemon
    daemon.end()


def gpus(daemon: DaemonProcess) -> dict[str, Any]:
    return {gpu["number"]: gpu for gpu in daemon.get("/v1/gpus")["gpus"]}


def states(daemon: DaemonProcess) -> dict[str, str]:
    return {number: gpu["state"] for number, gpu in gpus(daemon).items()}


def running(daemon: DaemonProcess, job: dict[str, Any]) -> int:
    number = daemon.add(job)
    wait_until(lambda: daemon.state(number) == "running", show=lambda: daemon.job(number))
    return number


def why(daemon: DaemonProcess, number: int) -> str:
    """It waits, in a sentence."""
    reason = daemon.get(f"/v1/jobs/{number}/why")["reason"]
    return str(reason["sentence"]) if reason else ""


def output_of(daemon: DaemonProcess, number: int) -> str:
    return Path(daemon.job(number)["stdout"]).read_text(errors="replace")


def test_a_card_that_does_not_answer_gets_nothing_new_and_what_runs_there_goes_on(daemon, driver):
    driver.shows(a_card(0), a_card(1))
    daemon.start()
    go = shlex.quote(str(daemon.world.folder / "go"))
    there = running(daemon, {"command": f"until test -e {go}; do sleep 0.05; done", "only": ["0"]})

    driver.shows(a_card(0, state="stale", load=7), a_card(1))
    wait_until(lambda: states(daemon) == {"0": "stale", "1": "free"}, show=lambda: states(daemon))
    (other,) = daemon.wait(daemon.add("true"))
    waits = daemon.add({"command": "true", "only": ["0"]})
    wait_until(lambda: "answer" in why(daemon, waits), show=lambda: why(daemon, waits))

    assert other["gpus"] == [1]
    assert daemon.state(there) == "running"
    shown = gpus(daemon)["0"]
    assert (shown["load_percent"], [holder["job"] for holder in shown["holders"]]) == (7, [str(there)])
    assert shown["why"] and shown["remedy"]
    (daemon.world.folder / "go").touch()
    (ended,) = daemon.wait(there)
    assert ended["state"] == "succeeded"
    driver.shows(a_card(0), a_card(1))
    (back,) = daemon.wait(waits)
    assert back["gpus"] == [0]


def test_a_card_that_is_lost_gets_nothing_new_though_it_may_answer_again(daemon, driver):
    driver.shows(a_card(0), a_card(1))
    daemon.start()
    there = running(daemon, {"command": "sleep 60", "only": ["0"]})

    driver.shows(a_card(0, state="lost"), a_card(1))
    wait_until(lambda: states(daemon)["0"] in ("lost", "quarantined"), show=lambda: states(daemon))
    jobs = daemon.wait(*range(first := daemon.add("true", "true", "true"), first + 3))

    assert {tuple(job["gpus"]) for job in jobs} == {(1,)}
    assert daemon.state(there) == "running"
    assert "answer" in gpus(daemon)["0"]["why"]
    daemon.post("/v1/jobs/act", {"action": "kill", "ids": [there]})


def test_a_card_that_hangs_stops_neither_the_queue_nor_the_other_cards(daemon, driver):
    driver.shows(a_card(0), a_card(1))
    daemon.start()
    driver.shows(a_card(0, hang_seconds=600), a_card(1))
    wait_until(lambda: states(daemon).get("0") == "stale", show=lambda: states(daemon))

    jobs = daemon.wait(*range(first := daemon.add("true", "true", "true"), first + 3))

    assert {(job["state"], *job["gpus"]) for job in jobs} == {("succeeded", 1)}


def test_energy_and_memory_errors_are_shown_where_they_are_known(daemon, driver):
    driver.shows(a_card(0, energy=1234.5, ecc_uncorrected=2), a_card(1))
    daemon.start()

    first, second = wait_until(
        lambda: [gpus(daemon)["0"], gpus(daemon)["1"]] if gpus(daemon)["0"]["energy_joules"] else None
    )

    assert (first["energy_joules"], first["ecc_uncorrected"]) == (1234.5, 2)
    assert (second["energy_joules"], second["ecc_uncorrected"]) == (None, None)


def test_after_a_reboot_with_other_numbers_everything_still_means_the_same_cards(daemon, driver):
    driver.shows(a_card(0, "a"), a_card(1, "b"), a_card(2, "c"))
    daemon.start(DIBS_FAKE_BOOT_ID="before")
    daemon.post("/v1/gpus/act", {"action": "remove", "gpus": ["2"]})
    daemon.post("/v1/gpus/act", {"action": "drain", "gpus": ["1"]})
    runs = running(daemon, {"command": "sleep 60", "only": ["0"], "restartable": True})
    held = daemon.add({"command": "true", "only": ["0"], "hold": True})
    # A command that is only just being started would not be found, and live through the reboot.
    wait_until(lambda: (read_record(daemon.job(runs)["folder"]) or {}).get("pid"), show=lambda: daemon.job(runs))
    daemon.kill()
    kill_everything(daemon.world)

    driver.shows(a_card(0, "b"), a_card(1, "c"), a_card(2, "a"))
    daemon.start(DIBS_FAKE_BOOT_ID="after")
    daemon.post("/v1/jobs/act", {"action": "release", "ids": [held]})

    assert daemon.get("/v1/status")["gpus"] in ("2, 0", "0, 2", "2,0", "0,2")
    assert gpus(daemon)["0"]["state"] == "drained"
    wait_until(lambda: daemon.state(runs) == "running", show=lambda: daemon.job(runs))
    assert daemon.job(runs)["gpus"] == [2]
    daemon.post("/v1/jobs/act", {"action": "kill", "ids": [runs]})
    (ended,) = daemon.wait(held)
    assert ended["gpus"] == [2]


def test_a_job_on_a_part_sees_that_part_alone(daemon, driver):
    driver.shows(a_part(0), a_part(1), a_card(1, address="GPU-1"))
    daemon.start()

    on_part, on_card = (daemon.add({"command": "env", "only": [gpu]}) for gpu in ("0:1", "1"))
    daemon.wait(on_part, on_card)

    assert "CUDA_VISIBLE_DEVICES=MIG-1\n" in output_of(daemon, on_part)
    assert "DIBS_GPUS=MIG-1\n" in output_of(daemon, on_part)
    assert "CUDA_VISIBLE_DEVICES=GPU-1\n" in output_of(daemon, on_card)
    assert list(gpus(daemon)) == ["0:0", "0:1", "1"]


def test_the_number_of_a_divided_card_drains_all_its_parts(daemon, driver):
    driver.shows(a_part(0), a_part(1), a_card(1))
    daemon.start()

    changed = daemon.post("/v1/gpus/act", {"action": "drain", "gpus": ["0"]})

    assert changed == {"changed": ["0:0", "0:1"]}
    wanted = {"0:0": "drained", "0:1": "drained", "1": "free"}
    wait_until(lambda: states(daemon) == wanted, show=lambda: states(daemon))


def test_several_gpus_of_which_one_is_a_part_are_refused_with_the_reason(daemon, driver):
    driver.shows(a_part(0), a_part(1), a_card(1))
    daemon.start()

    reply = daemon.try_to_add({"command": "true", "num_gpus": 2})

    assert reply.status == 400
    assert "one part of a divided card" in reply.json["error"]["message"]


def test_a_job_on_an_amd_card_finds_it_through_rocm(daemon, driver):
    driver.shows(a_card(0), {"index": 1, "uuid": "AMD-77ff", "address": "0"})
    daemon.start()

    job = daemon.add({"command": "env", "only": ["1"]})
    daemon.wait(job)

    said = output_of(daemon, job)
    assert all(f"{name}_VISIBLE_DEVICES=0\n" in said for name in ("ROCR", "HIP", "CUDA"))
    assert "DIBS_GPUS=1\n" in said


def test_a_card_that_is_gone_after_a_reboot_does_not_take_the_others_along(daemon, driver):
    driver.shows(a_card(0), a_card(1), a_card(2))
    daemon.start()
    daemon.post("/v1/gpus/act", {"action": "remove", "gpus": ["2"]})
    daemon.end()
    driver.shows(a_card(1), a_card(2))

    daemon.start()
    (job,) = daemon.wait(daemon.add("true"))

    assert (job["state"], job["gpus"]) == ("succeeded", [1])
    assert "begins without GPU GPU-0" in daemon.log


def test_people_see_which_part_of_a_card_a_job_has(daemon, driver, world):
    driver.shows(a_part(0), a_part(1), a_card(1))
    daemon.start()

    on_part, on_card = (daemon.add({"command": "true", "only": [gpu]}) for gpu in ("0:1", "1"))
    daemon.wait(on_part, on_card)

    found = [daemon.get(f"/v1/jobs/{number}") for number in (on_part, on_card)]
    assert [(job["gpus"], job["gpu_numbers"]) for job in found] == [([0], ["0:1"]), ([1], ["1"])]
    assert [job["attempts_list"][0]["gpu_numbers"] for job in found] == [["0:1"], ["1"]]
    listed = world.dibs("ls", "--all").stdout
    assert " 0:1 " in listed
    assert "0:1" in world.dibs("info", str(on_part)).stdout
