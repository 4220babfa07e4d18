"""Who is suspended for whom, from outside: a real daemon, real processes, and a driver that is a fake."""

import re
import sys
from pathlib import Path
from typing import Any

import pytest

from cuda.machine import GB, FakeMachine, RealMachine, goes_on, stands_still, steps
from stories.outside import World, wait_until


class MovingWorld:
    """A queue on one card of 16 GiB, with programs that count their steps while they run."""

    def __init__(
        self, world: World, machine: FakeMachine | RealMachine | None = None, *, old: bool = False
    ) -> None:
        self.world = world
        self.machine = machine or FakeMachine(Path(world.environ["DIBS_STATE"]).parent / "driver", old=old)
        world.environ |= self.machine.environ | {"DIBS_READING_SECONDS": "0.1"}

    def begin(self, **settings: str) -> None:
        self.world.environ |= settings
        self.world.run_daemon()

    def add(self, name: str, *options: str, gigabytes: int = 10, steps: int = 0, managed: bool = False) -> int:
        """A program that is called so, and ends after so many steps if at all."""
        words = self.program(name, gigabytes, steps)
        return self.world.add("-J", name, *options, "--", *words, *(["--managed"] if managed else []))

    def program(self, name: str, gigabytes: int = 10, steps: int = 0) -> list[str]:
        words = [
            sys.executable,
            "-S",
            self.machine.program,
            str(self.ledger(name)),
            "--bytes",
            str(gigabytes * GB),
        ]
        return [*words, "--steps", str(steps)]

    def ledger(self, name: str) -> Path:
        return Path(self.world.environ["DIBS_STATE"]).parent / name

    def job(self, number: int) -> dict[str, Any]:
        return self.world.client().job(number)

    def wait_for_state(self, number: int, state: str) -> None:
        wait_until(lambda: self.job(number)["state"] == state, show=lambda: self.job(number))

    def wait_until_held(self, number: int, gigabytes: int = 10) -> None:
        """Until a reading has shown what the job holds."""
        sentence = f"for {gigabytes}G"
        wait_until(lambda: sentence in self.dry_run("--urgent"), show=lambda: self.dry_run("--urgent"))

    def dry_run(self, *options: str) -> str:
        return self.world.dibs("add", "--dry-run", *options, "--", "true").stdout

    def why(self, number: int) -> str:
        return self.world.dibs("why", str(number)).stdout

    def end(self, *jobs: int) -> None:
        self.world.dibs("kill", *map(str, jobs))
        self.world.wait_for(*jobs)


@pytest.fixture
def moving(world: World) -> MovingWorld:
    return MovingWorld(world)


def test_an_urgent_job_is_told_before_and_after_what_is_suspended_for_it_and_the_other_goes_on(
    moving: MovingWorld,
) -> None:
    moving.begin()
    train = moving.add("train", "--preemptible")
    moving.wait_until_held(train)

    told = moving.dry_run("--urgent")
    assert re.search(r"on GPU 0: waits for job 1 \(train\) to be suspended, about 7s for 10G", told), told
    urgent = moving.add("urgent", "--urgent", gigabytes=12, steps=50)
    moving.wait_for_state(train, "suspended")
    assert "suspended for job 2" in moving.why(train)
    assert stands_still(moving.ledger("train"))
    (ended,) = moving.world.wait_for(urgent)

    assert (ended["state"], steps(moving.ledger("urgent"))) == ("succeeded", 50)
    moving.wait_for_state(train, "running")
    assert goes_on(moving.ledger("train"))
    # It took a moment here, and that is what is expected of the next one.
    moving.wait_until_held(train)
    assert "about 1s for 10G" in moving.dry_run("--urgent")
    moving.end(train)


def test_the_setting_makes_jobs_preemptible_but_for_one_that_says_no(moving: MovingWorld) -> None:
    moving.begin(DIBS_PREEMPTIBLE="on")
    stays = moving.add("stays", "--no-preemptible", gigabytes=4)
    wait_until(lambda: moving.job(stays)["state"] == "running", show=lambda: moving.job(stays))

    assert "GPU 0 is held by job 1 (stays)" in moving.dry_run("--urgent")
    info = moving.world.dibs("info", str(stays)).stdout
    assert re.search(r"preemptible +no", info), info
    moving.end(stays)
    moves = moving.add("moves", gigabytes=4)
    wait_until(lambda: "job 2 (moves) to be suspended" in moving.dry_run("--urgent"))
    moving.end(moves)


def test_a_program_that_cannot_be_suspended_is_remembered_and_not_chosen_again_until_it_is_forgotten(
    moving: MovingWorld,
) -> None:
    moving.begin()
    first = moving.add("first", "--preemptible", gigabytes=4, managed=True)
    moving.wait_until_held(first, gigabytes=4)
    urgent = moving.add("urgent", "--urgent", gigabytes=4, steps=1)
    wait_until(lambda: "uses memory that cannot be moved" in moving.why(urgent), show=lambda: moving.why(urgent))
    assert "it could not be suspended for job 2" in moving.why(first)
    moving.end(first)
    moving.world.wait_for(urgent)

    second = moving.add("second", "--preemptible", gigabytes=4, managed=True)
    wait_until(lambda: steps(moving.ledger("second")))
    stays = "job 3 (second) is preemptible, but jobs of its shape use managed memory, which cannot be moved"
    wait_until(lambda: stays in moving.dry_run("--urgent"), show=lambda: moving.dry_run("--urgent"))
    lessons = moving.world.dibs("lessons").stdout
    assert re.search(r"no: managed-memory +\S+/fake_program.py .*--managed", lessons), lessons
    assert re.search(r"learned +jobs of this shape use managed memory", moving.world.dibs("info", "3").stdout)
    assert moving.machine.calls(moving.job(second)["attempts_list"][0]["pid"]) == []

    moving.world.dibs("lessons", "--forget", "all")
    wait_until(lambda: "job 3 (second) to be suspended" in moving.dry_run("--urgent"))
    moving.end(second)


def test_where_the_driver_is_too_old_an_urgent_job_waits_and_is_told_why_and_its_owner_stops_the_other(
    world: World,
) -> None:
    moving = MovingWorld(world, old=True)
    moving.begin()
    train = moving.add("train", "--preemptible", gigabytes=4)
    too_old = "job 1 (train) is preemptible, but driver 550 is too old: 570 or newer"
    wait_until(lambda: too_old in moving.dry_run("--urgent"), show=lambda: moving.dry_run("--urgent"))
    urgent = moving.add("urgent", "--urgent", gigabytes=4, steps=1)
    assert too_old in moving.why(urgent)

    told = moving.world.dibs("suspend", "train").stderr

    assert re.search(r"job 1 is suspended by a signal, and .* on its GPU: driver 550 is too old", told), told
    assert stands_still(moving.ledger("train"))
    assert re.search(r"by a signal, and .* on its GPU: driver 550 is too old", moving.why(train))
    assert moving.job(urgent)["state"] == "queued"
    moving.world.dibs("resume", "train")
    assert goes_on(moving.ledger("train"))
    moving.end(train)
    moving.world.wait_for(urgent)


def test_where_the_driver_is_too_old_a_job_with_a_checkpoint_signal_makes_room_for_an_urgent_one(
    world: World,
) -> None:
    moving = MovingWorld(world, old=True)
    moving.begin()
    saves = "trap 'echo saved; exit 0' USR1; while true; do sleep 0.02; done"
    options = ("--preemptible", "--time", "1h", "--checkpoint-signal", "USR1@60")
    train = moving.world.add("-J", "train", *options, "--", saves)
    leaves = "waits for job 1 (train) to save a checkpoint and end, within 1m00s"
    wait_until(lambda: leaves in moving.dry_run("--urgent"), show=lambda: moving.dry_run("--urgent"))

    (ended,) = moving.world.wait_for(moving.add("urgent", "--urgent", gigabytes=4, steps=1))

    assert ended["state"] == "succeeded"
    moving.wait_for_state(train, "running")
    first = moving.job(train)["attempts_list"][0]
    assert (first["suspensions"][0]["rung"], first["suspensions"][0]["why"]) == ("checkpoint", "for job 2")
    assert moving.world.dibs("log", "1", "--attempt", "1").stdout == "saved\n"
    moving.end(train)


def test_jobs_of_unknown_size_start_together_and_the_youngest_steps_aside_before_the_card_is_full(
    moving: MovingWorld,
) -> None:
    moving.machine.use(9 * GB)  # 7 are left, and without help `three` would find them full after a while
    moving.begin()
    jobs = []
    for name, grows_to, most in (("one", 2.0, 6000), ("two", 2.0, 6000), ("three", 3.5, 1500)):
        words = moving.program(name, gigabytes=1, steps=most)
        jobs.append(
            moving.world.add("-J", name, "--vram", "auto", "--", *words, "--grows-to", str(int(grows_to * GB)))
        )
    three = jobs[-1]

    moving.wait_for_state(three, "suspended")

    assert "is suspended for want of memory on GPU 0 since" in moving.why(three)
    assert "waits to resume on GPU 0" in moving.why(three)
    assert [moving.job(number)["state"] for number in jobs] == ["running", "running", "suspended"]
    assert stands_still(moving.ledger("three"))
    moving.end(*jobs[:2])
    (ended,) = moving.world.wait_for(three)
    assert (ended["state"], ended["attempts"], steps(moving.ledger("three"))) == ("succeeded", 1, 1500)
