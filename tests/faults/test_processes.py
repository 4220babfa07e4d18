"""What a job's processes may do, seen from outside (faults.md, rows 5 and 17 to 28)."""

import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dibs.supervise import folder
from stories.outside import DIBS, World, make_world, needs_root, processes_of, wait_until
from supervise.hands import is_alive

STRANGER = 64_321  # an unused uid: `kill -9 -1` must not reach the other tests


def _outcomes(world: World, lines: list[str], *more: str, **others: Any) -> dict[int, dict[str, Any]]:
    """Run lines to their end; how each job ended, by its number."""
    world.write("jobs.txt", lines)
    ended = world.dibs("run", "--json", "--gpus", "0,1,2,3", "-f", "jobs.txt", *more, **others)
    assert "Traceback" not in ended.stderr
    return {event["job"]: event for event in ended.events if event["event"] == "ended"}


def test_every_exit_code_is_kept_exactly(world: World) -> None:
    outcomes = _outcomes(world, [f"exit {code}" for code in range(256)])

    assert [outcomes[code + 1]["exit_code"] for code in range(256)] == list(range(256))
    assert {outcome["signal"] for outcome in outcomes.values()} == {None}
    assert [outcomes[code + 1]["cause"] for code in (0, 1, 255)] == [None, "exit code", "exit code"]


def test_every_signal_is_kept_exactly(world: World) -> None:
    harmless = {signal.SIGCHLD, signal.SIGCONT, signal.SIGURG, signal.SIGWINCH}
    stopping = {signal.SIGSTOP, signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU}
    others = {signal.SIGQUIT, 32, 33}  # bash minds it not; the C library's own
    numbers = [number for number in range(1, 65) if number not in harmless | stopping | others]

    outcomes = _outcomes(world, [f"ulimit -c 0; kill -{number} $$; sleep 60" for number in numbers])

    assert [outcomes[place]["signal"] for place in range(1, len(numbers) + 1)] == numbers
    assert {outcome["exit_code"] for outcome in outcomes.values()} == {None}
    assert {outcome["cause"] for outcome in outcomes.values()} == {"signal", "killed"}
    killed = {outcome["signal"] for outcome in outcomes.values() if outcome["cause"] == "killed"}
    assert killed == {signal.SIGHUP, signal.SIGINT, signal.SIGKILL, signal.SIGTERM}


@pytest.mark.parametrize(
    ("program", "content", "mode", "reason"),
    [
        ("./no-such-file", None, 0, "No such file or directory"),
        ("./no-x-bit", "#!/bin/sh\n", 0o644, "Permission denied"),
        ("./bad-interpreter", "#!/no/such/interpreter\n", 0o755, "No such file or directory"),
        ("./no-format", "\x01\x02\x03", 0o755, "Exec format error"),
    ],
)
def test_what_cannot_start_says_why_and_the_gpu_is_free(
    world: World, program: str, content: str | None, mode: int, reason: str
) -> None:
    if content is not None:
        (world.folder / world.write(program, content)).chmod(mode)

    ended = world.dibs("run", "--gpus", "0", "--output-dir", "out", "--", program)

    assert ended.status == 127, ended
    assert f"cannot start {program}: {reason}" in ended.stderr
    assert world.read("out/job_1/stderr") == f"dibs: cannot start {program}: {reason}\n"
    assert "cause: start error" in world.read("out/job_1/info")
    world.assert_nothing_is_left()


def test_a_job_whose_folder_is_gone_cannot_start_and_the_next_one_can(world: World) -> None:
    (world.folder / "gone").mkdir()
    lines = ["until test -e go; do sleep 0.02; done", "[workdir=gone] echo never", "echo next"]
    world.write("jobs.txt", lines)
    running = world.start("run", "--json", "--gpus", "0", "-f", "jobs.txt", "--output-dir", "out")
    wait_until(lambda: '"started"' in running.stdout, show=lambda: running.stderr)

    (world.folder / "gone").rmdir()
    world.write("go", "")
    ended = running.wait()

    found = {event["job"]: event for event in ended.events if event["event"] == "ended"}
    assert (found[2]["cause"], found[2]["exit_code"]) == ("start error", 127)
    assert "cannot enter its folder: No such file or directory" in found[2]["message"]
    assert "cannot enter its folder" in world.read("out/job_2/stderr")
    assert found[3]["exit_code"] == 0
    world.assert_nothing_is_left()


# Five descendants that do what they can to get away, each in its own way.
HOSTILE = textwrap.dedent(
    """
    import os, signal, sys, time
    for number in range(5):
        if os.fork() == 0:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            if number % 2:
                os.setsid()
            if os.fork():
                os._exit(0)
            if number > 2:
                os.setsid()
                if os.fork():
                    os._exit(0)
            with open("pids", "a") as file:
                file.write(f"{os.getpid()}\\n")
            if number == 4:
                os.closerange(0, 100)
                os.chdir("/")
                os.execve("/bin/sleep", ["an innocent name", "1000"], {})
            time.sleep(1000)
    while len(open("pids").readlines()) < 5:
        time.sleep(0.01)
    """
)


def test_descendants_that_try_to_get_away_are_gone_before_the_gpu_is_given_on(world: World) -> None:
    world.write("hostile.py", HOSTILE)
    world.write("pids", "")
    look = "for pid in $(cat pids); do kill -0 $pid && echo $pid; done > alive 2>/dev/null; true"

    ended = world.dibs("run", "--gpus", "0", "-q", "-", input=f"{sys.executable} hostile.py\n{look}\n")

    assert ended.status == 0
    assert len(world.read("pids").split()) == 5
    assert world.read("alive") == ""
    world.assert_nothing_is_left()


def test_who_ignores_term_is_killed_after_the_grace(world: World) -> None:
    world.write("jobs.txt", ["trap '' TERM; touch up; while :; do sleep 0.05; done", "echo next >> next"])
    running = world.start("run", "--gpus", "0", "--grace", "0.3s", "-f", "jobs.txt")
    wait_until((world.folder / "up").exists, show=lambda: running.stderr)

    for words in ("nothing more", "asking 1 job"):
        running.signal(signal.SIGTERM)
        wait_until(lambda words=words: words in running.stderr, show=lambda: running.stderr)
    ended = running.wait()

    assert ended.status == 143
    assert "job 1 was stopped (SIGKILL)" in ended.stderr
    assert not (world.folder / "next").exists()
    world.assert_nothing_is_left()


def test_a_fork_storm_comes_to_an_end_and_dibs_still_answers(world: World) -> None:
    storm = "trap '' TERM; ulimit -u 3000; while :; do sleep 9 & (sleep 9 &); echo x >> count; done 2>/dev/null"
    world.write("jobs.txt", [f"[time=1s] {storm}", "echo next >> next"])

    ended = world.dibs("run", "--gpus", "0", "--grace", "0.1s", "-f", "jobs.txt")

    assert ended.status == 1
    assert "job 1 ran out of time" in ended.stderr
    assert world.read("next") == "next\n"
    assert len(world.read("count")) > 20
    world.assert_nothing_is_left()


FREEZER = Path("/sys/fs/cgroup/freezer")


@pytest.fixture
def freezer() -> Iterator[Path]:
    """A cgroup of the old kind: what is frozen in it does not even hear a SIGKILL."""
    group = FREEZER / f"dibs-test-{os.getpid()}"
    try:
        group.mkdir()
    except OSError:
        pytest.skip("no freezer of the old kind here")
    yield group
    (group / "freezer.state").write_text("THAWED")
    wait_until(lambda: not (group / "cgroup.procs").read_text())
    group.rmdir()


@needs_root
def test_a_job_that_cannot_be_killed_keeps_its_gpu(world: World, freezer: Path) -> None:
    world.write("jobs.txt", ["[time=3s] echo $$ > pid; exec sleep 1000", "echo next >> next"])
    running = world.start("run", "--gpus", "0", "--grace", "0.1s", "-f", "jobs.txt")
    pid = wait_until(lambda: (world.folder / "pid").exists() and world.read("pid").strip())

    (freezer / "cgroup.procs").write_text(pid)
    (freezer / "freezer.state").write_text("FROZEN")
    wait_until(lambda: _is_condemned(int(pid)), show=lambda: running.stderr)
    held, early = world.holders(), (world.folder / "next").exists()
    (freezer / "freezer.state").write_text("THAWED")
    ended = running.wait()

    assert ([holder.gpu for holder in held], early) == (["index-0"], False)
    assert ended.status == 1
    assert world.read("next") == "next\n"
    world.assert_nothing_is_left()


def _is_condemned(pid: int) -> bool:
    """Whether a SIGKILL waits for it."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    pending = [int(line.split()[1], 16) for line in lines if line.startswith(("SigPnd:", "ShdPnd:"))]
    return any(bits >> (signal.SIGKILL - 1) & 1 for bits in pending)


@pytest.fixture
def common() -> Iterator[World]:
    """A world that a stranger may enter."""
    place = Path(tempfile.mkdtemp(prefix="dibs stranger ", dir="/tmp"))
    place.chmod(0o755)
    world = make_world(place)
    world.folder.chmod(0o777)
    for made in (world.state, world.leases):
        made.mkdir()
        os.chown(made, STRANGER, STRANGER)
    yield world
    world.clean_up()
    shutil.rmtree(place)


@needs_root
def test_a_job_that_kills_everything_its_owner_has_is_lost_and_the_list_goes_on(common: World) -> None:
    stranger: dict[str, Any] = {"user": STRANGER, "group": STRANGER, "extra_groups": []}
    common.write("jobs.txt", ["echo ran >> ran; kill -9 -1", "echo next >> next"])
    arguments = ("run", "--gpus", "0", "-f", "jobs.txt", "--output-dir", "out")

    killed = common.dibs(*arguments, **stranger)
    common.write("jobs.txt", ["echo next >> next"])
    again = common.dibs(*arguments, "--resume", **stranger)

    assert killed.status == -signal.SIGKILL
    assert again.status == 0, again
    assert "lost" in again.stderr
    assert (common.read("ran"), common.read("next")) == ("ran\n", "next\n")
    common.assert_nothing_is_left()


def test_a_job_that_kills_its_parent_is_lost_and_the_others_are_not(world: World) -> None:
    outcomes = _outcomes(world, ["kill -9 $PPID; sleep 0.2; touch survived", "sleep 0.1; exit 3", "true"])

    assert [outcomes[job]["cause"] for job in (1, 2, 3)] == ["lost", "exit code", None]
    assert outcomes[2]["exit_code"] == 3
    assert (world.folder / "survived").exists()
    world.assert_nothing_is_left()


def test_a_supervisor_killed_before_it_began_has_its_job_started_by_another(world: World) -> None:
    running = world.start("run", "--gpus", "0", "--json", "-", stdin=subprocess.PIPE)
    running.say(f"{world.ledger.job('first')}\n")
    wait_until(lambda: '"ended"' in running.stdout, show=lambda: running.stderr)
    (shim,) = [pid for pid in processes_of(str(world.state)) if _has_control(pid)]
    os.kill(shim, signal.SIGSTOP)

    running.say(f"{world.ledger.job('second')}\n")
    (attempt,) = wait_until(lambda: list(world.state.glob("runs/*/attempts/0/2.1")), show=lambda: running.stderr)
    wait_until(lambda: folder.facts(str(attempt)).is_locked)
    started = folder.facts(str(attempt)).has_started
    os.kill(shim, signal.SIGKILL)
    ended = running.wait()

    assert not started
    assert ended.status == 0
    assert world.ledger.started() == ["first", "second"]
    world.assert_nothing_is_left()


def _has_control(pid: int) -> bool:
    links = [Path(f"/proc/{pid}/fd/{fd}") for fd in os.listdir(f"/proc/{pid}/fd")]
    return any("/control/" in os.readlink(link) for link in links if link.is_symlink())


def test_a_job_may_call_itself_what_it_likes(world: World) -> None:
    """The name of a process stands in the middle of its line in /proc, parentheses and all."""
    name = "printf ') R 1 1 (' > /proc/self/comm"
    child = f'bash -c "{name}; echo \\$\\$ >> pids; sleep 1000; true" &'
    world.write("jobs.txt", [f"[time=3s] {name}; {child} {child} sleep 1000; true", "echo next >> next"])

    ended = world.dibs("run", "--gpus", "0", "--grace", "5s", "-f", "jobs.txt")

    assert ended.status == 1
    assert [pid for pid in map(int, world.read("pids").split()) if is_alive(pid)] == []
    assert len(world.read("pids").split()) == 2
    assert world.read("next") == "next\n"
    world.assert_nothing_is_left()


@needs_root
def test_a_stranger_who_gets_the_number_of_an_ended_job_is_left_alone(world: World) -> None:
    """In a PID namespace of our own every job sets the counter back: the same numbers come again and again."""
    back = "echo 200 > /proc/sys/kernel/ns_last_pid"
    world.write("jobs.txt", [f"{back}; setsid sleep 300 & sleep 0.01" if n % 2 else back for n in range(40)])
    world.write(
        "all.sh",
        f"sleep 1000 & stranger=$!; '{DIBS}' run -q --gpus 0,1,2,3 -f jobs.txt; echo $? > status\n"
        f"{back}; sleep 1001 & other=$!; '{DIBS}' run -q --gpus 0,1 -f jobs.txt; echo $? >> status\n"
        "kill -0 $stranger && kill -0 $other && echo alive > alive\nkill $stranger $other\n",
    )

    world.dibs("all.sh", program=("unshare", "--pid", "--fork", "--mount-proc", "bash"))

    assert (world.read("status"), world.read("alive")) == ("0\n0\n", "alive\n")


MEMORY = Path("/sys/fs/cgroup/memory")


@pytest.fixture
def little_memory() -> Iterator[Path]:
    """A memory cgroup of 96 MB below our own, of either kind."""
    lines = [line.split(":", 2) for line in Path("/proc/self/cgroup").read_text().splitlines()]
    old = next((path for _, kind, path in lines if "memory" in kind.split(",")), None)
    place = Path("/sys/fs/cgroup") / next((path for _, kind, path in lines if not kind), "/").lstrip("/")
    name, limit = f"dibs-test-{os.getpid()}", "memory.max"
    if old is not None:
        place, limit = MEMORY / old.lstrip("/"), "memory.limit_in_bytes"
    group = place / name
    try:
        group.mkdir()
    except OSError:
        pytest.skip("no memory cgroup can be made here")
    try:
        (group / limit).write_text(str(96 << 20))
        yield group
    except OSError:
        pytest.skip("the memory of a cgroup cannot be limited here")
    finally:
        wait_until(lambda: not (group / "cgroup.procs").read_text())
        group.rmdir()


@needs_root
def test_a_job_for_which_the_machines_memory_does_not_suffice_says_so(world: World, little_memory: Path) -> None:
    eat = f'{sys.executable} -c "a = bytearray(1 << 30); a[:] = bytes(1 << 30)"'
    join = ("bash", "-c", f'echo $$ > {little_memory}/cgroup.procs; exec "$0" "$@"', DIBS)

    outcomes = _outcomes(
        world, [f"exec {eat}", f"{eat}; exit $?", "kill -9 $$", "exit 3"], "--gpus", "0", program=join
    )

    assert [(outcomes[job]["cause"], outcomes[job]["state"]) for job in (1, 2)] == [("host-oom", "failed")] * 2
    assert (outcomes[1]["signal"], outcomes[2]["exit_code"]) == (signal.SIGKILL, 137)
    assert [outcomes[job]["cause"] for job in (3, 4)] == ["killed", "exit code"]
    world.assert_nothing_is_left()


def test_what_a_card_says_of_itself_is_the_cause(world: World) -> None:
    outcomes = _outcomes(
        world,
        [
            "echo 'torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.' >&2; exit 1",
            "echo 'RuntimeError: CUDA error: uncorrectable ECC error encountered' >&2; exit 1",
            "echo 'CUDA out of memory, trying a smaller batch'",
        ],
    )

    assert [outcomes[job]["cause"] for job in (1, 2, 3)] == ["gpu-oom", "gpu-fault", None]
    assert "CUDA out of memory" in outcomes[1]["message"]


def test_a_list_says_of_each_failure_what_is_known_and_what_helps(world: World) -> None:
    python = f"{sys.executable} -c"
    world.write("jobs.txt", [f"{python} 'import nonesuch'", "echo x > /dev/full", "kill -9 $$", "exit 3"])

    ended = world.dibs("run", "--gpus", "0", "-f", "jobs.txt")

    assert "No module named 'nonesuch': is the environment active where dibs was called?" in ended.stderr
    assert "No space left on device: `df -h` shows which disk is full" in ended.stderr
    assert "SIGKILL ended it, and dibs did not send it" in ended.stderr
    assert [word in ended.stderr for word in ("job 1 failed (import-error)", "job 4 failed (exit code 3)")] == [
        True
    ] * 2


def test_a_core_dump_changes_nothing_about_the_signal(world: World) -> None:
    if resource.getrlimit(resource.RLIMIT_CORE)[1] == 0:
        pytest.skip("no core dumps may be written here")

    outcomes = _outcomes(world, ["ulimit -c unlimited; kill -ABRT $$", "ulimit -c 0; kill -ABRT $$"])

    assert [outcomes[job]["signal"] for job in (1, 2)] == [signal.SIGABRT] * 2
