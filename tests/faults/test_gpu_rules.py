"""A GPU on which every job ends at once, and jobs that end at once on every GPU."""

import json
from typing import Any

import pytest

from stories.outside import World, wait_until

BROKEN = 'test "$CUDA_VISIBLE_DEVICES" != 1 || exit 1; '


def _gpus(world: World) -> dict[int, dict[str, Any]]:
    return {gpu["index"]: gpu for gpu in world.client().gpus()["gpus"]}


def _wait_for_states(world: World, *states: str) -> None:
    """Of the cards by their numbers. A card whose job has just ended may still be held."""
    found = lambda: tuple(gpu["state"] for _, gpu in sorted(_gpus(world).items()))  # noqa: E731
    wait_until(lambda: found() == states, show=found)


def _over(world: World, jobs: int) -> dict[str, int]:
    """How many jobs are in which state, once none waits or runs."""
    counts = lambda: world.client().status()["counts"]  # noqa: E731
    wait_until(lambda: not counts()["queued"] and not counts()["running"], show=counts)
    found = {state: number for state, number in counts().items() if number}
    assert sum(found.values()) == jobs
    return found


@pytest.mark.parametrize("words", [("-P", "vision"), ()], ids=["a project", "no project"])
def test_a_gpu_that_fails_every_job_costs_three_and_the_others_go_on(world: World, words: tuple[str, ...]) -> None:
    world.run_daemon(pool="0,1,2")
    world.write("jobs.txt", [f"{BROKEN}{world.ledger.job(number, 0.03)}" for number in range(40)])

    world.add(*words, "-f", "jobs.txt")
    counts = _over(world, 40)
    _wait_for_states(world, "free", "quarantined", "free")
    gpus = _gpus(world)
    shown = _shown(world)

    assert counts.keys() == {"succeeded", "failed"}
    assert counts["failed"] <= 3
    assert "jobs failed there one after another" in gpus[1]["why"]
    assert "quarantined" in shown
    assert set(world.ledger.gpus().values()) == {"0", "2"}
    assert world.ledger.overlaps() == []
    world.dibs("daemon", "stop")
    world.assert_nothing_is_left()


def test_a_quarantine_outlives_the_daemon_and_ends_with_undrain(world: World) -> None:
    daemon = world.run_daemon(pool="0,1,2")
    world.write("jobs.txt", [f"{BROKEN}sleep 0.03" for _ in range(12)])
    world.add("-f", "jobs.txt")
    _over(world, 12)

    daemon.kill()
    world.run_daemon(pool="0,1,2")
    after_crash = _gpus(world)[1]["state"]
    refused = world.add("--only", "1", "--", world.ledger.job("waits"))
    why = world.dibs("why", str(refused))
    given_back = world.dibs("gpus", "undrain", "1")
    world.wait_for(refused)

    assert after_crash == "quarantined"
    assert "1" in why.stdout and "quarantine" in why.stdout, why
    assert given_back.status == 0
    assert world.ledger.gpus() == {"waits": "1"}
    _wait_for_states(world, "free", "free", "free")
    world.dibs("daemon", "stop")
    world.assert_nothing_is_left()


def test_jobs_that_fail_on_every_gpu_hold_their_project_and_no_gpu_is_blamed(world: World) -> None:
    world.run_daemon(pool="0,1")
    world.write("jobs.txt", [f"echo {number} >> ran; exit 1" for number in range(30)])

    world.add("-P", "broken", "-f", "jobs.txt")
    counts = _over(world, 30)
    beside = world.add("-P", "other", "--", world.ledger.job("beside"))
    world.wait_for(beside)
    listed = world.dibs("ls", "--state", "held")
    projects = {one["name"]: one for one in world.client().projects()}

    assert 5 <= counts["failed"] <= 6  # one may have been running when the fifth ended
    assert counts["held"] == 30 - counts["failed"]
    assert len(world.read("ran").split()) == counts["failed"]
    _wait_for_states(world, "free", "free")
    assert "failed one after another" in listed.stdout
    assert projects["broken"]["counts"]["held"] == counts["held"]
    world.dibs("daemon", "stop")
    world.assert_nothing_is_left()


def test_a_list_that_fails_is_held_though_it_belongs_to_no_project(world: World) -> None:
    world.run_daemon(pool="0,1")
    world.write("jobs.txt", ["exit 1"] * 20)

    world.add("-f", "jobs.txt")
    counts = _over(world, 20)

    assert counts["failed"] <= 6 and counts["held"] == 20 - counts["failed"]
    _wait_for_states(world, "free", "free")
    world.dibs("daemon", "stop")
    world.assert_nothing_is_left()


def test_what_was_held_goes_on_when_it_is_released(world: World) -> None:
    world.run_daemon()
    world.write("jobs.txt", [f"test -e mended || exit 1; {world.ledger.job(number)}" for number in range(10)])
    world.add("-P", "p", "-f", "jobs.txt")
    before = _over(world, 10)

    world.write("mended", "")
    released = world.dibs("release", "--project", "p")
    middle = _over(world, 10)
    retried = world.dibs("retry", "--failed", "--project", "p")
    after = _over(world, 10)

    assert before == {"failed": 5, "held": 5}
    assert (released.status, retried.status) == (0, 0), (released, retried)
    assert middle == {"failed": 5, "succeeded": 5}
    assert after == {"succeeded": 10}
    world.dibs("daemon", "stop")
    world.assert_nothing_is_left()


def test_a_killed_job_is_not_blamed_on_its_card(world: World) -> None:
    world.run_daemon(pool="0,1")
    world.write("jobs.txt", ["exec sleep 60"] * 8 + [world.ledger.job("last")])
    world.add("-P", "p", "-f", "jobs.txt")

    for first in (1, 3, 5, 7):
        wait_until(lambda: world.client().status()["counts"]["running"] == 2)
        world.dibs("kill", str(first), str(first + 1))
    [last] = world.wait_for(9)

    assert last["state"] == "succeeded"
    _wait_for_states(world, "free", "free")
    world.dibs("daemon", "stop")
    world.assert_nothing_is_left()


def test_the_rules_can_be_turned_off(world: World) -> None:
    world.run_daemon(pool="0,1", env={"DIBS_MAX_QUICK_FAILURES": "0", "DIBS_GPU_FAILURES": "0"})
    world.write("jobs.txt", [f"{BROKEN}sleep 0.05" for _ in range(12)] + ["exit 1"] * 12)

    world.add("-P", "p", "-f", "jobs.txt")
    counts = _over(world, 24)

    assert counts.keys() <= {"succeeded", "failed"}
    assert counts["failed"] > 12
    _wait_for_states(world, "free", "free")
    world.dibs("daemon", "stop")
    world.assert_nothing_is_left()


def test_a_quarantine_is_told_on_every_face(world: World) -> None:
    world.run_daemon(pool="0,1")
    world.write("jobs.txt", [f"{BROKEN}sleep 0.03" for _ in range(12)])
    world.add("-f", "jobs.txt")
    _over(world, 12)
    wait_until(lambda: _gpus(world)[1]["state"] == "quarantined", show=lambda: _gpus(world))

    shown = json.loads(_shown(world, "--json"))

    assert {gpu["index"]: gpu["mark"] for gpu in shown} == {0: None, 1: "quarantined"}
    assert [gpu["why"] for gpu in shown if gpu["mark"]] == [_gpus(world)[1]["why"]]
    world.dibs("daemon", "stop")
    world.assert_nothing_is_left()


def _shown(world: World, *words: str) -> str:
    """What `dibs gpus` prints. It waits a moment for the daemon's marks, and a busy machine may need longer."""
    return str(wait_until(lambda: "quarantined" in (text := world.dibs("gpus", *words).stdout) and text))
