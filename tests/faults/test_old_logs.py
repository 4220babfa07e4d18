"""More output than there should be: the oldest goes first, and never that of running jobs (faults.md, row 37)."""

import asyncio
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from daemon.daemon_process import DaemonProcess
from dibs.daemon.cleaning import Cleaner
from dibs.daemon.logs.output import was_removed
from dibs.engine.launch.browse import BrowsableFolders
from dibs.errors import BadInput
from dibs.model.jobs import JobId, State
from dibs.settings import load_settings
from engine.queue_world import QueueWorld, a_wish
from engine.world import a_pool
from stories.outside import World, wait_until

KIB, MIB = 1024, 1024**2


class Logs:
    """A queue whose jobs have written something, and the pruning of it."""

    def __init__(self, world: QueueWorld, limit: int | None) -> None:
        self.world = world
        self.limit = limit

    def folder(self, job: int, attempt: int = 1) -> Path:
        return Path(self.world.engine.place.attempt_folder(JobId(job), attempt))

    def start(self, jobs: int, **wish: Any) -> None:
        self.world.add(*[a_wish(**wish) for _ in range(jobs)])

    def write(self, job: int, size: int, attempt: int = 1, name: str = "stdout") -> Path:
        folder = self.folder(job, attempt)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "record").touch()
        (folder / name).write_bytes(os.urandom(size))
        return folder / name

    def end(self, *jobs: int, **how: Any) -> None:
        """One after the other."""
        for job in jobs:
            self.world.now += 1.0
            self.world.end(JobId(job), **how)

    def prune(self) -> int:
        cleaner = Cleaner(
            engine=self.world.engine,
            queue=self.world.queue,
            results=BrowsableFolders(""),
            wake=lambda: None,
            keep_logs=self.limit,
        )
        return asyncio.run(cleaner.remove_old_output())

    def left(self) -> list[int]:
        """The jobs whose output is there."""
        found = Path(self.world.root).glob("attempts/*/*/stdout")
        return sorted(int(path.parent.name.partition(".")[0]) for path in found)


@pytest.fixture
def logs(tmp_path: Path) -> Iterator[Logs]:
    """At most a mebibyte is kept; six jobs run at once."""
    for name in ("queue", "leases"):
        (tmp_path / name).mkdir()
    one = QueueWorld(root=str(tmp_path / "queue"), leases_folder=str(tmp_path / "leases"), pool=a_pool(6))
    yield Logs(one, MIB)
    one.journal.close()
    one.close()


def test_the_output_that_is_over_for_longest_goes_until_there_is_room_again(logs: Logs) -> None:
    logs.start(6)
    for job in range(1, 7):
        logs.write(job, 200 * KIB)
    logs.end(4, 2, 1, 3, 5, 6)

    assert logs.prune() == 2  # 1,200 KiB were there, 922 may stay
    assert logs.left() == [1, 3, 5, 6]
    assert logs.prune() == 0


def test_until_the_limit_is_reached_everything_stays(logs: Logs) -> None:
    logs.start(5)
    for job in range(1, 6):
        logs.write(job, 200 * KIB)
    logs.end(1, 2, 3, 4, 5)

    assert logs.prune() == 0
    assert logs.left() == [1, 2, 3, 4, 5]


def test_without_a_limit_everything_stays(logs: Logs) -> None:
    logs.start(1)
    logs.write(1, 3 * MIB)
    logs.end(1)
    logs.limit = None

    assert logs.prune() == 0
    assert logs.left() == [1]


def test_of_running_jobs_nothing_goes_however_much_it_is(logs: Logs) -> None:
    logs.start(3)
    for job in (1, 2, 3):
        logs.write(job, MIB)
    logs.end(2)

    assert logs.prune() == 1
    assert logs.left() == [1, 3]


def test_an_earlier_attempt_of_a_running_job_stays(logs: Logs) -> None:
    logs.start(1, retries=1)
    logs.write(1, 2 * MIB, attempt=1)
    logs.end(1, code=1)
    logs.world.advance(600)
    logs.write(1, MIB, attempt=2)
    assert logs.world.running() == [1]

    assert logs.prune() == 0
    logs.end(1)
    assert logs.prune() == 2


def test_the_job_its_end_and_everything_else_in_its_folder_stay(logs: Logs) -> None:
    logs.start(1)
    for name in ("stdout", "stderr", "stdout.cut", "stderr.cut", "metrics", "model.pt"):
        logs.write(1, 600 * KIB, name=name)
    logs.end(1, code=3)

    logs.prune()

    assert {path.name for path in logs.folder(1).iterdir()} == {"record", "metrics", "model.pt", "output-removed"}
    assert was_removed(str(logs.folder(1)))
    row = logs.world.store.listing.row(JobId(1))
    assert (row.job.state, row.outcome.exit_code) == (State.FAILED, 3)


def test_a_hole_takes_no_room(logs: Logs) -> None:
    logs.start(1)
    with logs.write(1, 8 * KIB).open("r+b") as file:
        file.truncate(10 * 1024 * MIB)
    logs.end(1)

    assert logs.prune() == 0
    assert logs.left() == [1]


def test_a_file_that_the_user_named_is_neither_counted_nor_removed(logs: Logs, tmp_path: Path) -> None:
    mine = tmp_path / "mine.txt"
    mine.write_bytes(os.urandom(2 * MIB))
    inside = logs.folder(1) / "stdout"
    logs.start(1, output=str(inside))
    logs.start(1, output=str(mine))
    logs.write(1, 2 * MIB)
    logs.end(1, 2)

    logs.prune()

    assert inside.exists() and mine.exists()


def test_what_a_job_put_in_its_files_place_leads_nowhere(logs: Logs, tmp_path: Path) -> None:
    logs.start(2)
    victim = tmp_path / "home"
    victim.mkdir()
    (victim / "stdout").write_bytes(os.urandom(2 * MIB))
    for job in (1, 2):
        logs.write(job, 2 * MIB, name="stderr")
    (logs.folder(1) / "stdout").symlink_to(victim / "stdout")
    logs.folder(2).rename(tmp_path / "moved")
    logs.folder(2).symlink_to(victim)
    logs.end(1, 2)

    assert logs.prune() == 1
    assert (victim / "stdout").stat().st_size == 2 * MIB
    assert (logs.folder(1) / "stdout").is_symlink()
    assert [path.name for path in victim.iterdir()] == ["stdout"]


@pytest.mark.parametrize(("text", "expected"), [("never", None), ("50G", 50 * KIB * MIB), ("1.5M", 1536 * KIB)])
def test_the_setting_is_a_size_or_never(tmp_path: Path, text: str, expected: int | None) -> None:
    found = load_settings({"HOME": str(tmp_path), "DIBS_KEEP_LOGS": text})

    assert found.keep_logs == expected
    assert load_settings({"HOME": str(tmp_path)}).keep_logs is None


@pytest.mark.parametrize("text", ["", "0", "1K", "always", "-1G", "50 parsecs"])
def test_a_setting_that_cannot_be_meant_is_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(BadInput, match=r"DIBS_KEEP_LOGS: cannot read .* as keep_logs") as refused:
        load_settings({"HOME": str(tmp_path), "DIBS_KEEP_LOGS": text})

    assert '"never"' in refused.value.remedy and '"50G"' in refused.value.remedy


# -- from outside ------------------------------------------------------------------------------------------


@pytest.fixture
def daemon(world: World) -> Iterator[DaemonProcess]:
    """A daemon that keeps a mebibyte."""
    one = DaemonProcess(world)
    one.start(DIBS_KEEP_LOGS="1M")
    yield one
    one.end()


def test_asking_for_output_that_was_removed_is_answered_in_one_sentence(daemon: DaemonProcess) -> None:
    old = daemon.add("head -c 900000 /dev/urandom; echo problem >&2; exit 4")
    daemon.wait(old)
    running = daemon.add("head -c 900000 /dev/urandom; touch wrote; until test -e go; do sleep 0.02; done")
    stdout = Path(wait_until(lambda: daemon.job(running)["stdout"]))
    wait_until(lambda: stdout.exists() and stdout.stat().st_size == 900_000)

    daemon.post("/v1/clean", {"older_seconds": 3600})

    told = daemon.call("GET", f"/v1/jobs/{old}/log?stream=stderr")
    assert (told.status, told.code) == (410, "log-gone")
    assert stdout.stat().st_size == 900_000
    assert daemon.job(old)["exit_code"] == 4
    said = daemon.world.dibs("log", str(old))
    assert (said.status, said.stdout) == (1, "")
    assert f"the output of job {old} was removed to make room" in said.stderr.splitlines()[0]
    assert "Traceback" not in said.stderr
    daemon.post("/v1/jobs/act", {"action": "kill", "ids": [running]})
    daemon.wait(running)


def test_a_daemon_that_starts_makes_room_by_itself(world: World) -> None:
    daemon = DaemonProcess(world)
    daemon.start()
    for command in ("head -c 900000 /dev/urandom", "head -c 900000 /dev/urandom; true"):
        daemon.wait(daemon.add(command))  # one after the other: the first to end is the first to be removed
    daemon.end()

    daemon.start(DIBS_KEEP_LOGS="1M")

    wait_until(lambda: "removed the output of 1 old attempt" in daemon.log, show=lambda: daemon.log)
    assert daemon.call("GET", "/v1/jobs/1/log").status == 410
    assert daemon.call("GET", "/v1/jobs/2/log").status == 200
    daemon.end()
