"""The disk fills up under a run, and there is room again."""

import signal
import subprocess
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from stories.outside import World, fill, needs_root, open_store, wait_until

pytestmark = needs_root


@pytest.fixture
def disk(world: World) -> Iterator[Path]:
    """Eight megabytes."""
    place = world.folder / "disk"
    place.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", str(place)], check=True)
    yield place
    world.clean_up()
    subprocess.run(["umount", "-l", str(place)], check=True)


def test_a_run_recovers_by_itself_when_there_is_room_again(world: World, disk: Path) -> None:
    quick, held = map(world.ledger.job, (0, 1)), map(world.ledger.held, range(2, 12))
    world.write("jobs.txt", [*quick, *held])
    running = world.start("run", "--gpus", "0,1", "-f", "jobs.txt", "--output-dir", "disk/out")
    wait_until(lambda: len(world.ledger.started()) >= 3, show=lambda: running.stderr)

    ballast = fill(disk)
    world.write("go", "")
    wait_until(lambda: "full" in running.stderr or "No space" in running.stderr, show=lambda: running.stderr)
    ballast.unlink()
    ended = running.wait()

    assert ended.status == 0, ended
    assert Counter(world.ledger.ended()) == {str(number): 1 for number in range(12)}
    assert world.ledger.overlaps() == []
    assert "Traceback" not in ended.stderr
    with open_store(disk / "out/.dibs") as store:
        assert store.execute("pragma integrity_check").fetchone() == ("ok",)
    world.assert_nothing_is_left()


def test_an_exit_code_is_kept_though_the_disk_was_full_and_dibs_was_killed(world: World, disk: Path) -> None:
    world.write("jobs.txt", ["touch started; until test -e go; do sleep 0.02; done; exit 9"])
    running = world.start("run", "--gpus", "0", "-f", "jobs.txt", "--output-dir", "disk/out")
    wait_until(lambda: (world.folder / "started").exists(), show=lambda: running.stderr)

    ballast = fill(disk)
    running.kill()
    world.write("go", "")
    wait_until(lambda: not world.processes(), show=world.processes)
    ballast.unlink()
    ended = world.dibs("run", "--gpus", "0", "--output-dir", "disk/out", "--resume", "--max-failures", "1")

    assert ended.status == 1
    assert "exit_code: 9" in world.read("disk/out/job_1/info")


def test_a_run_on_a_full_disk_can_be_stopped_and_resumed(world: World, disk: Path) -> None:
    held = "until test -e go; do sleep 0.02; done"
    world.write("jobs.txt", [f"touch up-{number}; {held}; {world.ledger.job(number)}" for number in (1, 2, 3)])
    running = world.start("run", "--gpus", "0,1", "-f", "jobs.txt", "--output-dir", "disk/out")
    wait_until(lambda: len(list(world.folder.glob("up-*"))) == 2, show=lambda: running.stderr)

    ballast = fill(disk)
    world.write("go", "")
    wait_until(lambda: "full" in running.stderr, show=lambda: running.stderr)
    running.signal(signal.SIGTERM)
    stopped = running.wait()
    ballast.unlink()
    resumed = world.dibs("run", "--gpus", "0,1", "-f", "jobs.txt", "--output-dir", "disk/out", "--resume")

    assert stopped.status == 1, stopped
    assert "cannot record how 2 jobs ended" in stopped.stderr
    assert resumed.status == 0, resumed
    assert Counter(world.ledger.started()) == {"1": 1, "2": 1, "3": 1}
    world.assert_nothing_is_left()


def test_a_list_that_the_disk_cannot_take_is_not_told_with_every_piece_of_it(world: World, disk: Path) -> None:
    """Each piece that was read began an endless row of tries of its own, each with its sentence."""
    world.write("jobs.txt", (f"true {number} {'x' * 400}" for number in range(60_000)))
    running = world.start("run", "-q", "--gpus", "0,0", "-f", "jobs.txt", "--output-dir", "disk/out")
    wait_until(lambda: "is full" in running.stderr, show=lambda: running.stderr)
    began = time.monotonic()

    time.sleep(5)  # in which it is tried again two or three times

    told = running.stderr.count("is full")
    assert told < 8 * (time.monotonic() - began) / 5, "a busy machine may sleep for longer"
    running.kill()
