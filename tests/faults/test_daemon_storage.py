"""The disk under a queue fills up, turns read-only, is damaged, or belongs to another user."""

import os
import stat
import subprocess
from collections import Counter
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest

from faults.refusing import needs_strace, refusing
from stories.outside import NOBODY, Running, World, fill, needs_root, open_store, wait_until

HELD = "touch up-$DIBS_JOB_ID; until test -e go; do sleep 0.02; done"


@pytest.fixture
def disk(world: World) -> Iterator[Path]:
    """Eight megabytes for everything that dibs keeps. Leases and the jobs' own files are elsewhere."""
    place = world.folder.parent / "disk"
    place.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", str(place)], check=True)
    world.environ |= {"DIBS_STATE": str(place / "state €")}
    yield place
    world.clean_up()
    subprocess.run(["umount", "-l", str(place)], check=True)


def _is_whole(world: World) -> None:
    with open_store(world.state / "queue") as store:
        assert store.execute("pragma integrity_check").fetchone() == ("ok",)


# -- a full disk -------------------------------------------------------------------------------------------


@needs_root
def test_on_a_full_disk_an_add_is_refused_in_a_sentence_and_the_next_one_is_taken(
    world: World, disk: Path
) -> None:
    daemon = world.run_daemon()
    before = world.add("--hold", "--", "true")

    ballast = fill(disk)
    refused = [world.dibs("add", "--", world.ledger.job("refused")) for _ in range(3)]
    listed = world.dibs("ls", "--json")
    ballast.unlink()
    taken = world.add("--", world.ledger.job("taken"))
    world.wait_for(taken)

    for one in refused:
        assert one.status == 1, one
        assert len(one.stderr.splitlines()) == 2, one.stderr
        assert "Traceback" not in one.stderr
    assert listed.status == 0
    assert (before, taken) == (1, 2)
    assert world.ledger.started() == ["taken"]
    assert "Traceback" not in daemon.stderr
    world.dibs("daemon", "stop")
    _is_whole(world)
    world.assert_nothing_is_left()


@needs_root
def test_jobs_wait_while_the_disk_is_full_and_start_by_themselves_when_there_is_room(
    world: World, disk: Path
) -> None:
    """The intents, the ends and the output find no room, one after the other."""
    daemon = world.run_daemon(pool="0,1")
    world.write("jobs.txt", [f"{HELD}; {world.ledger.job(number)}" for number in range(6)])
    world.add("-f", "jobs.txt")
    wait_until(lambda: len(list(world.folder.glob("up-*"))) == 2)

    ballast = fill(disk)
    world.write("go", "")
    wait_until(lambda: "disk" in daemon.stderr.split("listens at")[1], show=lambda: daemon.stderr)
    answered, status = world.dibs("ls"), world.dibs("daemon", "status")
    waited = world.dibs("wait", "1", "--timeout", "3s")
    early = len(world.ledger.started())
    ballast.unlink()
    over = world.wait_for(*range(1, 7))

    assert answered.status == 0
    for told in (answered.stderr, status.stdout, waited.stderr):
        assert told.count("store.db: database or disk is full") == 1, told
    assert "dibs: nothing starts and no end is recorded at the moment: cannot use " in answered.stderr
    assert early == 2
    assert {one["state"] for one in over} == {"succeeded"}
    assert Counter(world.ledger.ended()) == {str(number): 1 for number in range(6)}
    assert world.ledger.overlaps() == []
    assert "Traceback" not in daemon.stderr
    world.dibs("daemon", "stop")
    _is_whole(world)
    world.assert_nothing_is_left()


@needs_root
def test_an_exit_code_survives_a_full_disk_and_a_killed_daemon(world: World, disk: Path) -> None:
    daemon = world.run_daemon()
    job = world.add("--", f"{HELD}; head -c 3000000 /dev/zero; exit 9")
    wait_until(lambda: (world.folder / f"up-{job}").exists())

    ballast = fill(disk)
    daemon.kill()
    world.write("go", "")
    wait_until(lambda: not world.processes(), show=world.processes)
    ballast.unlink()
    world.run_daemon()
    [over] = world.wait_for(job)
    world.dibs("daemon", "stop")

    assert (over["state"], over["exit_code"]) == ("failed", 9)
    _is_whole(world)
    world.assert_nothing_is_left()


@needs_root
def test_a_daemon_that_finds_no_room_says_so_and_harms_nothing(world: World, disk: Path) -> None:
    world.run_daemon()
    job = world.add("--hold", "--", world.ledger.job("held"))
    world.dibs("daemon", "stop")

    ballast = fill(disk)
    added = world.dibs("add", "--", "true", env={"DIBS_NO_START": "0"})
    world.dibs("daemon", "stop")
    ballast.unlink()
    world.run_daemon()
    world.dibs("release", str(job))
    [over] = world.wait_for(job)
    world.dibs("daemon", "stop")

    assert added.status in (1, 69)
    assert len(added.stderr.splitlines()) == 2, added.stderr
    assert "Traceback" not in added.stderr
    assert over["state"] == "succeeded"
    world.assert_nothing_is_left()


# -- a disk that refuses -----------------------------------------------------------------------------------


def _refusing(world: World, daemon: Running, what: str) -> AbstractContextManager[None]:
    """Let the kernel refuse the daemon's writes to its store and journal for a while."""
    queue = world.state / "queue"
    files = [word for name in ("store.db", "store.db-wal", "journal.jsonl") for word in ("-P", f"{queue}/{name}")]
    return refusing(daemon.pid, what, "-f", *files)


@needs_strace
@pytest.mark.parametrize(
    "what",
    [
        pytest.param("write,pwrite64,fdatasync,ftruncate:error=EROFS", id="read-only"),
        pytest.param("write,pwrite64,fdatasync:error=EIO", id="broken"),
        pytest.param("fdatasync:error=EIO", id="without syncs"),
    ],
)
def test_while_the_disk_refuses_no_work_is_taken_what_runs_is_kept_and_then_it_goes_on(
    world: World, what: str
) -> None:
    daemon = world.run_daemon()
    running = world.add("--", f"{HELD}; exit 4")
    wait_until(lambda: (world.folder / f"up-{running}").exists())

    with _refusing(world, daemon, what):
        refused = world.dibs("add", "--", world.ledger.job("refused"))
        listed = world.dibs("ls")
        said = len(daemon.stderr)
        world.write("go", "")  # its end cannot be taken down either
        wait_until(lambda: len(daemon.stderr) > said, show=lambda: daemon.stderr)
        meanwhile = world.client().job(running)["state"]
    [over] = world.wait_for(running)
    taken = world.add("--", world.ledger.job("taken"))
    world.wait_for(taken)

    assert refused.status == 1, refused
    assert len(refused.stderr.splitlines()) == 2, refused.stderr
    assert (listed.status, meanwhile) == (0, "running")
    assert over["exit_code"] == 4
    assert world.ledger.started() == ["taken"]
    assert "Traceback" not in daemon.stderr
    world.dibs("daemon", "stop")
    _is_whole(world)
    world.assert_nothing_is_left()


# -- a damaged store ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "damage",
    [
        pytest.param(lambda store: store.write_bytes(b""), id="empty"),
        pytest.param(lambda store: os.truncate(store, store.stat().st_size // 2), id="cut"),
        pytest.param(lambda store: _overwrite(store, 0), id="header"),
        pytest.param(lambda store: _overwrite(store, 2 * 4096), id="middle"),
        pytest.param(lambda store: store.unlink(), id="gone"),
    ],
)
def test_a_damaged_store_is_refused_and_left_and_a_rebuild_brings_everything_back(
    world: World, damage: Any
) -> None:
    world.run_daemon(pool="0,1")
    world.write("jobs.txt", ["true", "exit 3", f"{HELD}; exit 5"])
    world.add("-f", "jobs.txt", "-J", "one of three")
    held = world.add("--hold", "-P", "project", "--tag", "word", "--", "echo 'later \udcff'")
    world.wait_for(1, 2)
    wait_until(lambda: (world.folder / "up-3").exists())
    before = _seen(world)
    world.dibs("daemon", "stop")
    store = world.state / "queue/store.db"

    damage(store)
    left = store.read_bytes() if store.exists() else None
    refused = world.dibs("add", "--", "true", env={"DIBS_NO_START": "0"})
    after = store.read_bytes() if store.exists() else None
    rebuilt = world.dibs("doctor", "--rebuild", "--yes")
    world.run_daemon(pool="0,1")
    again = _seen(world)
    world.write("go", "")
    [over] = world.wait_for(3)
    listed = world.dibs("ls", "--all")

    assert refused.status in (1, 69), refused
    assert len(refused.stderr.splitlines()) == 2, refused.stderr
    assert after == left
    assert rebuilt.status == 0, rebuilt
    assert again == before
    assert (over["exit_code"], over["attempts"]) == (5, 1)
    assert "one of three" in listed.stdout
    world.dibs("kill", str(held))
    world.dibs("daemon", "stop")
    world.assert_nothing_is_left()


def _overwrite(path: Path, place: int) -> None:
    with path.open("r+b") as file:
        file.seek(place)
        file.write(b"\xa5" * 4096)


def _seen(world: World) -> list[dict[str, Any]]:
    """What the API shows of every job, but for what grows while it runs."""
    jobs = sorted(world.client().jobs(), key=lambda job: job["id"])
    return [{name: value for name, value in job.items() if name != "ran_seconds"} for job in jobs]


def test_a_store_whose_log_was_lost_is_caught_up_from_the_journal(world: World) -> None:
    daemon = world.run_daemon()
    world.write("jobs.txt", ["true", "exit 3"])
    world.add("-f", "jobs.txt")
    world.wait_for(1, 2)
    world.add("--hold", "--", "later")
    before = _seen(world)
    daemon.kill()

    (world.state / "queue/store.db-wal").unlink()
    world.run_daemon()

    assert _seen(world) == before
    world.dibs("daemon", "stop")
    world.assert_nothing_is_left()


# -- a folder that is not as it should be ------------------------------------------------------------------


@needs_root
def test_the_state_folder_of_another_user_is_refused_and_left_as_it_is(world: World) -> None:
    world.state.mkdir(mode=0o700)
    os.chown(world.state, NOBODY, NOBODY)

    ended = [world.dibs("daemon", "run"), world.dibs("add", "--", "true"), world.dibs("daemon", "start")]

    for one in ended:
        assert one.status in (2, 69), one
        assert f"it belongs to uid {NOBODY}" in one.stderr
        assert "set DIBS_STATE" in one.stderr
        assert len(one.stderr.splitlines()) == 2
    assert list(world.state.iterdir()) == []
    world.assert_nothing_is_left()


def test_a_state_folder_that_is_open_to_others_is_closed_to_them(world: World) -> None:
    world.state.mkdir()
    world.state.chmod(0o777)

    world.run_daemon()

    assert stat.S_IMODE(world.state.stat().st_mode) == 0o700
    assert stat.S_IMODE((world.state / "queue").stat().st_mode) == 0o700
    world.dibs("daemon", "stop")
    world.assert_nothing_is_left()


def test_a_state_folder_that_others_opened_meanwhile_is_not_spoken_to(world: World) -> None:
    daemon = world.run_daemon()
    (world.state / "queue").chmod(0o777)

    refused = world.dibs("add", "--", world.ledger.job("refused"))
    (world.state / "queue").chmod(0o700)
    job = world.add("--", world.ledger.job("taken"))
    world.wait_for(job)

    assert refused.status not in (0, 130), refused
    assert len(refused.stderr.splitlines()) == 2, refused.stderr
    assert world.ledger.started() == ["taken"]
    assert daemon.process.poll() is None
    world.dibs("daemon", "stop")
    world.assert_nothing_is_left()


@pytest.mark.parametrize("kind", ["a file", "a link", "under a file"])
def test_a_state_folder_that_cannot_be_made_is_told_in_a_sentence(world: World, kind: str) -> None:
    place = world.folder.parent / "in the way"
    place.symlink_to("/nowhere") if kind == "a link" else place.write_text("kept")
    chosen = f"{place}/below" if kind == "under a file" else str(place)

    ended = [
        world.dibs(*words, env={"DIBS_STATE": chosen}) for words in (("daemon", "run"), ("add", "--", "true"))
    ]

    for one in ended:
        assert one.status in (2, 69), one
        assert len(one.stderr.splitlines()) == 2, one.stderr
        assert "Traceback" not in one.stderr
    assert place.is_symlink() or place.read_text() == "kept"
    world.assert_nothing_is_left()


def test_when_the_state_folder_vanishes_no_command_crashes_and_no_number_is_printed(world: World) -> None:
    daemon = world.run_daemon()
    world.add("--hold", "--", "true")
    gone = world.folder.parent / "moved away"
    (world.state / "queue").rename(gone)

    added = world.dibs("add", "--", world.ledger.job("no"))
    gone.rename(world.state / "queue")
    listed = world.dibs("ls", "--json")

    assert added.status == 69, added
    assert len(added.stderr.splitlines()) == 2, added.stderr
    assert (listed.status, listed.stdout.count('"id"')) == (0, 1)
    assert "Traceback" not in daemon.stderr
    world.dibs("daemon", "stop")
    world.assert_nothing_is_left()


# -- old logs ----------------------------------------------------------------------------------------------


def test_old_output_goes_with_its_jobs_and_never_that_of_running_ones(world: World) -> None:
    world.run_daemon(pool="0,1", env={"DIBS_RETENTION": "never"})
    big = "truncate -s 5G /dev/stdout; exit 0"
    world.write("jobs.txt", [big, big])
    world.add("-f", "jobs.txt")
    running = world.add("--", f"truncate -s 5G /dev/stdout; {HELD}")
    world.wait_for(1, 2)
    wait_until(lambda: (world.folder / f"up-{running}").exists())
    attempts = world.state / "queue/attempts/0"
    world.dibs("daemon", "stop")

    world.run_daemon(pool="0,1", env={"DIBS_RETENTION": "0.1s"})
    wait_until(lambda: len(list(attempts.iterdir())) == 1, show=lambda: list(attempts.iterdir()))
    kept = [path.name for path in attempts.iterdir()]
    world.write("go", "")
    world.wait_for(running)

    assert kept == [f"{running}.1"]
    assert [job["id"] for job in world.client().jobs()] == [running]
    world.dibs("daemon", "stop")
    world.assert_nothing_is_left()
