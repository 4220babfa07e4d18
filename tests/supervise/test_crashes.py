"""kill -9 of a shim, of the zygote, and the package gone: what the folder tells afterwards."""

import contextlib
import fcntl
import os
import resource
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import dibs
from dibs.model.jobs import Attempt
from dibs.supervise import folder
from dibs.supervise.folder import RECORD_SIZE, encode_record
from stories.outside import World, needs_root, wait_until
from supervise.hands import Hands, is_alive, parent_of


def _zygotes() -> list[int]:
    """Ours: the children of this process that fork shims."""
    children = Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
    return [int(pid) for pid in children if b"zygote" in Path(f"/proc/{pid}/cmdline").read_bytes()]


def test_a_shim_killed_while_its_command_runs_leaves_no_record_and_the_command_alive(hands: Hands) -> None:
    attempt = hands.start("touch up; until test -e go; do sleep 0.01; done; touch gone")
    record = hands.running(attempt)
    hands.turn_until((hands.workdir / "up").exists)

    os.kill(record["shim"], signal.SIGKILL)
    hands.wait(attempt)
    facts = hands.facts(attempt)

    assert (facts.is_locked, facts.exit_record, facts.has_started) == (False, None, True)
    assert is_alive(record["pid"])
    (hands.workdir / "go").touch()
    wait_until((hands.workdir / "gone").exists)
    assert hands.run("exit 3")["code"] == 3


def test_a_shim_killed_before_the_start_leaves_an_attempt_that_never_ran(hands: Hands) -> None:
    """It is stopped while it waits for its next attempt, so that it dies with the attempt in its inbox."""
    shim = hands.run("true")["shim"]
    os.kill(shim, signal.SIGSTOP)
    attempt = hands.start("touch ran")

    locked = folder.facts(attempt.folder)
    os.kill(shim, signal.SIGKILL)
    hands.wait(attempt)
    # The kernel tells of the death a moment before it drops what was in the inbox; the engine looks again.
    wait_until(lambda: not folder.facts(attempt.folder).is_locked)
    facts = hands.facts(attempt)

    assert (locked.is_locked, locked.has_started) == (True, False)
    assert (facts.is_locked, facts.exit_record, facts.has_started) == (False, None, False)
    assert not (hands.workdir / "ran").exists()


def test_a_shim_killed_after_the_end_has_left_the_exit_code(hands: Hands) -> None:
    """The command leaves a straggler that cannot be killed at once: the record is there before it is gone."""
    attempt = hands.start("exit 11")
    shim = hands.record(attempt)["shim"]

    os.kill(shim, signal.SIGKILL)
    wait_until(lambda: not is_alive(shim))

    record = folder.facts(attempt.folder).exit_record
    assert record is not None and record["code"] == 11
    assert hands.run("exit 12")["code"] == 12


def test_shims_go_on_without_their_zygote_and_the_next_job_gets_a_new_one(hands: Hands) -> None:
    attempt = hands.start("touch up; until test -e go; do sleep 0.01; done; exit 13")
    hands.turn_until((hands.workdir / "up").exists)
    (zygote,) = _zygotes()

    os.kill(zygote, signal.SIGKILL)
    wait_until(lambda: not is_alive(zygote))
    other = hands.start("exit 14")
    assert hands.record(other)["code"] == 14
    (hands.workdir / "go").touch()

    assert hands.record(attempt)["code"] == 13
    assert is_alive(parent_of(folder.facts(other.folder).record["shim"]))  # type: ignore[index]


def test_a_zygote_killed_with_an_attempt_in_its_inbox_starts_nothing(hands: Hands) -> None:
    hands.run("true")
    (zygote,) = _zygotes()
    busy = hands.start("until test -e go; do sleep 0.01; done")
    os.kill(zygote, signal.SIGSTOP)
    attempt = hands.start("touch ran")

    os.kill(zygote, signal.SIGKILL)
    hands.wait(attempt)
    wait_until(lambda: not folder.facts(attempt.folder).is_locked)
    facts = hands.facts(attempt)
    (hands.workdir / "go").touch()

    assert (facts.is_locked, facts.exit_record, facts.has_started) == (False, None, False)
    assert hands.record(busy)["code"] == 0
    assert hands.run("exit 15")["code"] == 15


def test_the_zygote_ends_after_its_last_shim_once_its_engine_is_gone(hands: Hands) -> None:
    attempt = hands.start("touch up; until test -e go; do sleep 0.01; done; exit 16")
    hands.turn_until((hands.workdir / "up").exists)
    zygotes = _zygotes()

    hands.close()
    (hands.workdir / "go").touch()
    wait_until(lambda: not folder.facts(attempt.folder).is_locked)

    record = folder.facts(attempt.folder).exit_record
    assert record is not None and record["code"] == 16
    wait_until(lambda: not any(map(is_alive, zygotes)), show=lambda: zygotes)


def test_another_engine_adopts_and_hears_the_end(hands: Hands) -> None:
    attempt = hands.start("touch up; until test -e go; do sleep 0.01; done; exit 17")
    hands.turn_until((hands.workdir / "up").exists)
    hands.running(attempt)
    hands.close()
    other = Hands(hands.root)

    assert other.adopt(attempt)
    (hands.workdir / "go").touch()
    record = other.record(attempt)
    other.close()

    assert record["code"] == 17


def test_an_adopted_attempt_can_be_stopped(hands: Hands) -> None:
    attempt = hands.start(["sleep", "1000"])
    hands.running(attempt)
    hands.close()
    other = Hands(hands.root)

    assert other.adopt(attempt)
    other.tell(attempt, "stop")
    record = other.record(attempt)
    other.close()

    assert (record["signal"], record["by"]) == (signal.SIGTERM, "stop")


def test_an_adopted_attempt_can_be_killed_though_it_minds_no_stop(hands: Hands) -> None:
    attempt = hands.start("trap '' TERM; touch up; while :; do sleep 0.05; done", grace=1000.0)
    hands.turn_until((hands.workdir / "up").exists)
    hands.running(attempt)
    hands.close()
    other = Hands(hands.root)

    assert other.adopt(attempt)
    told = [other.tell(attempt, word) for word in ("stop", "kill")]
    record = other.record(attempt)
    other.close()

    assert told == [True, True]
    assert (record["signal"], record["by"]) == (signal.SIGKILL, "stop")


def test_an_adopted_attempt_gets_a_signal_and_goes_on(hands: Hands) -> None:
    attempt = hands.start("trap 'echo heard' USR2; touch up; until test -e go; do sleep 0.01; done; exit 21")
    hands.turn_until((hands.workdir / "up").exists)
    hands.running(attempt)
    hands.close()
    other = Hands(hands.root)

    assert other.adopt(attempt)
    assert other.tell(attempt, f"signal {int(signal.SIGUSR2)}")
    other.turn_until(lambda: other.log(attempt) == "heard\n")
    (hands.workdir / "go").touch()
    record = other.record(attempt)
    other.close()

    assert (record["code"], record["by"]) == (21, "")


def test_an_attempt_that_is_over_cannot_be_adopted(hands: Hands) -> None:
    attempt = hands.start("true")
    hands.record(attempt)
    wait_until(lambda: not folder.facts(attempt.folder).is_locked)

    assert not hands.adopt(attempt)


def test_the_package_may_be_deleted_while_a_shim_runs(world: World) -> None:
    copy = world.folder.parent / "copy"
    shutil.copytree(Path(dibs.__file__).parent, copy / "dibs", ignore=shutil.ignore_patterns("__pycache__"))
    start = f"import sys; sys.path.insert(0, {str(copy)!r}); from dibs.cli.main import main; main()"
    world.write("jobs.txt", ["touch up; until test -e go; do sleep 0.01; done; (setsid sleep 100 &); exit 18"])
    arguments = ("run", "--gpus", "0", "-f", "jobs.txt", "--output-dir", "out")
    running = world.start(*arguments, program=(sys.executable, "-c", start))
    wait_until((world.folder / "up").exists, show=lambda: running.stderr)

    shutil.rmtree(copy)
    running.kill()
    world.write("go", "")
    wait_until(lambda: not world.processes(), show=world.processes)
    ended = world.dibs("run", "--gpus", "0", "--output-dir", "out", "--resume", "--max-failures", "1")

    assert ended.status == 1
    assert "exit_code: 18" in world.read("out/job_1/info")


@needs_root
@pytest.mark.parametrize("when", ["before", "while"])
def test_a_full_disk_loses_no_exit_code(world: World, when: str) -> None:
    """Before: nothing is started without room for its record. While: the record is there already."""
    disk = world.folder / "disk"
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(disk)], check=True)
    hands = Hands(disk)
    try:
        hands.run("true")
        if when == "before":
            _fill(disk)
            with pytest.raises(OSError, match="No space left"):
                hands.start("touch /dev/null")
            (disk / "ballast").unlink()
            record = hands.run("exit 19")
        else:
            attempt = hands.start(
                "touch up; until test -e ballast2; do sleep 0.01; done; exit 19", workdir=str(disk)
            )
            hands.turn_until((disk / "up").exists)
            (disk / "up").rename(disk / "spare")
            _fill(disk)
            (disk / "spare").rename(disk / "ballast2")
            record = hands.record(attempt)
    finally:
        hands.close()
        subprocess.run(["umount", "-l", str(disk)], check=True)

    assert record["code"] == 19


def test_a_record_that_can_never_be_written_keeps_no_lease(hands: Hands, tmp_path: Path) -> None:
    """As on a file system that has died: the engine hears of the end, and the supervisor gives up."""
    lease = os.open(tmp_path / "lease", os.O_RDWR | os.O_CREAT)
    fcntl.flock(lease, fcntl.LOCK_EX)
    attempt = hands.start("prlimit --pid $PPID --fsize=0: && exit 19", leases=[lease])
    os.close(lease)

    record = hands.record(attempt)

    assert record["code"] == 19
    assert not hands.facts(attempt).is_locked
    with open(tmp_path / "lease", "rb") as again:
        fcntl.flock(again, fcntl.LOCK_EX | fcntl.LOCK_NB)


def _fill(disk: Path) -> None:
    with (disk / "ballast").open("ab", buffering=0) as file:
        for size in (1 << 16, 1 << 12, 1):
            try:
                while file.write(b"x" * size) == size:
                    pass
            except OSError:
                continue


def test_a_bug_in_the_shim_is_a_start_error_with_its_traceback(hands: Hands) -> None:
    attempt = hands.start(["true"], environment="/no/such/environment.json")
    record = hands.record(attempt)

    assert record["by"] == "start"
    assert len(encode_record(record)) == RECORD_SIZE
    assert hands.run("exit 20")["code"] == 20


def test_more_descriptors_than_the_kernel_passes_are_refused_and_not_tried_for_ever(hands: Hands) -> None:
    with pytest.raises(OSError):
        hands.start("true", leases=[0] * 300)

    assert hands.run("exit 4")["code"] == 4


def _submit_again(hands: Hands, attempt: Attempt, words: str) -> dict[str, Any] | None:
    hands.submit(attempt, hands.spec(words, attempt))
    hands.wait(attempt)
    return hands.facts(attempt).exit_record


def test_a_shim_that_could_not_be_reached_starts_nothing(hands: Hands) -> None:
    """Without its FIFO the command could not be stopped. The engine finds that it never ran, and tries again."""
    (hands.root / "control").rmdir()
    (hands.root / "control").touch()  # a folder that is missing would be made again
    attempt = hands.start("touch ran; exit 22")
    hands.wait(attempt)
    wait_until(lambda: not folder.facts(attempt.folder).is_locked)

    facts = hands.facts(attempt)
    ran = (hands.workdir / "ran").exists()
    (hands.root / "control").unlink()
    record = _submit_again(hands, attempt, "exit 22")

    assert (facts.exit_record, facts.has_started, ran) == (None, False, False)
    assert record is not None and record["code"] == 22


def _open_files(pid: int) -> dict[int, str]:
    found = {}
    for fd in os.listdir(f"/proc/{pid}/fd"):
        with contextlib.suppress(FileNotFoundError):  # closed meanwhile
            found[int(fd)] = os.readlink(f"/proc/{pid}/fd/{fd}")
    return found


@pytest.mark.parametrize("room", [0, 1, 2])
def test_a_shim_without_descriptors_starts_nothing_and_takes_its_fence_away(hands: Hands, room: int) -> None:
    """With none left not even the attempt arrives; with two its environment can be read, its logs not opened."""
    first = hands.start("true")
    shim = hands.record(first)["shim"]
    wait_until(lambda: f"{first.folder}/{folder.RECORD}" not in _open_files(shim).values())
    used = _open_files(shim).keys()
    free = [fd for fd in range(max(used) + 4) if fd not in used]
    before = resource.prlimit(shim, resource.RLIMIT_NOFILE)
    resource.prlimit(shim, resource.RLIMIT_NOFILE, (free[room], before[1]))
    attempt = hands.start("touch ran; exit 23")
    hands.wait(attempt)
    wait_until(lambda: not folder.facts(attempt.folder).is_locked)

    facts = hands.facts(attempt)
    ran = (hands.workdir / "ran").exists()
    if is_alive(shim):
        resource.prlimit(shim, resource.RLIMIT_NOFILE, before)
    record = _submit_again(hands, attempt, "exit 23")

    assert (facts.exit_record, facts.has_started, ran) == (None, False, False)
    assert record is not None and record["code"] == 23
    assert is_alive(shim) == (room > 0)


def test_an_attempt_whose_leases_did_not_all_arrive_is_not_started(hands: Hands) -> None:
    """Whatever the receiver has no room for is dropped: the command would run on a GPU that it does not hold."""
    lease = os.open(hands.workdir / "lease", os.O_RDWR | os.O_CREAT)

    attempt = hands.start("touch ran", leases=[lease] * 252)  # with the record as many as the kernel passes
    hands.wait(attempt)
    wait_until(lambda: not folder.facts(attempt.folder).is_locked)
    facts = hands.facts(attempt)
    os.close(lease)

    assert (facts.exit_record, facts.has_started) == (None, False)
    assert not (hands.workdir / "ran").exists()
    assert hands.run("exit 24")["code"] == 24


def test_a_shim_whose_attempt_has_no_words_for_it_is_not_asked(hands: Hands) -> None:
    """The record of a bug of ours may name no FIFO; the next engine must read it all the same."""
    attempt = hands.start("until test -e go; do sleep 0.01; done")
    hands.running(attempt)
    path = f"{attempt.folder}/record"
    whole = Path(path).read_bytes()
    with open(path, "r+b") as file:
        file.write(encode_record({"v": 1, "state": "ended", "by": "start", "message": "x"}))

    watched = folder.watch(attempt.folder)
    with open(path, "r+b") as file:
        file.write(whole)
    (hands.workdir / "go").touch()

    assert watched is None
    assert hands.record(attempt)["code"] == 0
