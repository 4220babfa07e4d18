"""The daemon is short of descriptors, processes, an environment or a wide terminal: it waits, and goes on."""

import fcntl
import os
import pty
import re
import resource
import shutil
import signal
import struct
import subprocess
import tempfile
import termios
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pytest

from faults.refusing import FORKS, needs_strace, refusing
from stories.outside import DIBS, NOBODY, Running, World, make_world, needs_root, wait_until

HELD = "touch up-$DIBS_JOB_ID; until test -e go; do sleep 0.02; done"


def _descriptors(pid: int) -> int:
    return len(os.listdir(f"/proc/{pid}/fd"))


@contextmanager
def _few_descriptors(daemon: Running, more: int) -> Iterator[None]:
    """The daemon may have so many more than it has now."""
    most = _descriptors(daemon.pid) + more
    _, hard = before = resource.prlimit(daemon.pid, resource.RLIMIT_NOFILE)
    resource.prlimit(daemon.pid, resource.RLIMIT_NOFILE, (most, hard))
    try:
        yield
    finally:
        resource.prlimit(daemon.pid, resource.RLIMIT_NOFILE, before)


# -- descriptors -------------------------------------------------------------------------------------------


def test_with_few_descriptors_fewer_jobs_run_at_once_and_each_request_is_answered(world: World) -> None:
    daemon = world.run_daemon(pool="0,1,2,3,4,5,6,7")
    world.write("jobs.txt", [f"{HELD}; {world.ledger.job(number)}" for number in range(8)])

    with _few_descriptors(daemon, 7):
        world.add("-f", "jobs.txt")
        wait_until(lambda: "too many open files" in daemon.stderr, show=lambda: daemon.stderr)
        answered = [world.dibs(*words) for words in (("ls",), ("gpus",), ("why", "8"), ("daemon", "status"))]
        counts = world.client().status()["counts"]
    world.write("go", "")
    over = world.wait_for(*range(1, 9))

    assert [one.status for one in answered] == [0, 0, 0, 0], answered
    assert counts["running"] < 8
    assert counts["failed"] == 0
    assert {one["state"] for one in over} == {"succeeded"}
    assert sorted(world.ledger.ended()) == [str(number) for number in range(8)]
    assert world.ledger.overlaps() == []
    assert "Traceback" not in daemon.stderr
    world.dibs("daemon", "stop")
    world.assert_nothing_is_left()


def test_without_a_descriptor_no_number_is_printed_and_then_all_is_well(world: World) -> None:
    daemon = world.run_daemon()

    with _few_descriptors(daemon, 1):
        refused = world.dibs("add", "--", world.ledger.job("refused"))
    taken = world.add("--", world.ledger.job("taken"))
    world.wait_for(taken)

    assert refused.status == 1, refused
    assert len(refused.stderr.splitlines()) == 2
    assert "Too many open files" in refused.stderr
    assert world.ledger.started() == ["taken"]
    assert "Traceback" not in daemon.stderr
    world.dibs("daemon", "stop")
    world.assert_nothing_is_left()


# -- processes ---------------------------------------------------------------------------------------------


def _no_more_processes(daemon: Running) -> AbstractContextManager[None]:
    """Let the kernel refuse every fork of the process that makes supervisors. Root has no limit of its own."""
    (zygote,) = Path(f"/proc/{daemon.pid}/task/{daemon.pid}/children").read_text().split()
    return refusing(int(zygote), f"{FORKS}:error=EAGAIN")


@needs_strace
def test_a_job_that_could_not_be_forked_is_started_a_moment_later(world: World) -> None:
    daemon = world.run_daemon()

    with _no_more_processes(daemon):
        job = world.add("--", world.ledger.job("only"))
        answered = world.dibs("ls")
    [over] = world.wait_for(job)

    assert answered.status == 0
    assert (over["state"], over["attempts"]) == ("succeeded", 1)
    assert world.ledger.started() == ["only"]
    world.dibs("daemon", "stop")
    world.assert_nothing_is_left()


@needs_strace
def test_jobs_wait_for_as_long_as_there_are_no_processes(world: World) -> None:
    daemon = world.run_daemon(pool="0,1")

    with _no_more_processes(daemon):
        world.write("jobs.txt", [world.ledger.job(number) for number in range(4)])
        world.add("-f", "jobs.txt")
        with pytest.raises(AssertionError):  # five attempts take four seconds
            wait_until(lambda: world.client().status()["counts"]["failed"], seconds=5)
    over = world.wait_for(1, 2, 3, 4)

    assert {one["state"] for one in over} == {"succeeded"}


# -- many --------------------------------------------------------------------------------------------------

MANY = 20_000


def test_a_waiting_job_is_a_row_and_nothing_else(world: World) -> None:
    program = ["bash", "-c", f'ulimit -n 256; exec {DIBS} "$@"', "-"]
    daemon = world.run_daemon(program=program)
    world.dibs("pause")
    world.add("--", "true")
    descriptors, files = _descriptors(daemon.pid), _files(world)
    world.write("jobs.txt", [f"echo {number}" for number in range(MANY)])

    added = world.dibs("add", "--parsable", "-f", "jobs.txt")
    counts = world.client().status()["counts"]
    listed = world.dibs("ls")

    assert added.stdout == f"2-{MANY + 1}\n", added
    assert counts["queued"] == MANY + 1
    assert listed.status == 0
    assert _files(world) <= files
    assert _descriptors(daemon.pid) <= descriptors + 2
    world.dibs("daemon", "stop")
    world.assert_nothing_is_left()


def _files(world: World) -> set[Path]:
    """Everything in the state folder but the log of the store, which comes and goes."""
    return {path for path in world.state.rglob("*") if not path.name.startswith("store.db-")}


# -- surroundings ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "env",
    [
        pytest.param(
            dict.fromkeys(("HOME", "XDG_RUNTIME_DIR", "USER", "LOGNAME", "PATH", "LANG")), id="nearly nothing"
        ),
        pytest.param(
            dict.fromkeys(("HOME", "XDG_RUNTIME_DIR", "XDG_CONFIG_HOME", "PATH", "TMPDIR"), "/nowhere")
            | {"TZ": "Nowhere/Nothing", "NO_COLOR": "1", "FORCE_COLOR": "1"},
            id="nowhere",
        ),
        pytest.param({"LC_ALL": "C", "LANG": "C", "TERM": "weird", "COLUMNS": "0"}, id="C"),
        pytest.param({"LC_ALL": "tlh_XX.latin-17", "TERM": "", "COLUMNS": "x", "LINES": "-1"}, id="Klingon"),
        pytest.param(
            {"PYTHONOPTIMIZE": "2", "PYTHONIOENCODING": "ascii", "PYTHONPATH": "/nowhere"}, id="Python's"
        ),
    ],
)
def test_the_daemon_and_its_commands_need_little_of_an_environment(
    world: World, env: dict[str, str | None]
) -> None:
    daemon = world.run_daemon(env=env)

    job = world.add("-J", "é\udcff", "--", "/bin/echo", "hi é", env=env)
    world.wait_for(job)
    ended = [
        world.dibs(*words, env=env) for words in (("ls",), ("info", "1"), ("log", "1"), ("gpus",), ("why", "1"))
    ]
    stopped = world.dibs("daemon", "stop", env=env)

    assert [one.status for one in (*ended, stopped)] == [0] * 6, ended
    assert "hi" in ended[2].stdout
    assert not any("Traceback" in one.stderr for one in (*ended, stopped))
    assert "Traceback" not in daemon.stderr
    world.assert_nothing_is_left()


@pytest.mark.parametrize("columns", [1, 20, 10_000])
def test_a_table_fits_whatever_terminal_there_is(world: World, columns: int) -> None:
    world.run_daemon()
    world.add("--hold", "-J", "a name that is wide 日本語", "-P", "project", "--", "echo", "x" * 200)
    job = world.add("--", "true")
    world.wait_for(job)

    for words in (("ls",), ("ls", "--all"), ("info", "1"), ("gpus",), ("why", "1")):
        status, text = _on_terminal(world, columns, *words)
        assert status == 0, (words, text)
        assert "Traceback" not in text
        if words[0] == "ls" and columns >= 20:
            assert all(len(line) <= columns for line in text.splitlines()), text
    world.dibs("daemon", "stop")
    world.assert_nothing_is_left()


def _on_terminal(world: World, columns: int, *words: str) -> tuple[int, str]:
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    running = world.start(*words, env={"TERM": "weird"}, stdin=theirs, stdout=theirs, stderr=theirs)
    os.close(theirs)
    said = b""
    while True:
        try:
            piece = os.read(ours, 65536)
        except OSError:  # EIO: it has ended
            break
        said += piece
    os.close(ours)
    return running.wait().status, re.sub("\x1b\\[[0-9;]*m", "", said.decode("utf-8", "replace"))


def test_the_queue_is_there_after_a_logout_and_for_cron(world: World) -> None:
    runtime, home = world.folder.parent / "run", world.folder.parent / "home"
    runtime.mkdir(mode=0o700)
    home.mkdir()
    world.environ |= {"XDG_RUNTIME_DIR": str(runtime), "HOME": str(home), "DIBS_STATE": "", "DIBS_POOL": "0"}
    assert world.dibs("add", "--", "true").status == 0

    cron = world.start("ls", env={"XDG_RUNTIME_DIR": None})
    shutil.rmtree(runtime)  # what a logout does, and the next login makes a new one
    runtime.mkdir(mode=0o700)
    again = world.start("ls")
    ended = [cron.wait(), again.wait()]

    assert [one.status for one in ended] == [0, 0], ended


# -- another user ------------------------------------------------------------------------------------------


@pytest.fixture
def common() -> Iterator[World]:
    """A world into whose folder others may look, though not into ours."""
    place = Path(tempfile.mkdtemp(prefix="dibs common ", dir="/tmp"))
    place.chmod(0o755)
    world = make_world(place)
    yield world
    world.clean_up()
    shutil.rmtree(place)


@needs_root
def test_another_user_can_neither_talk_to_the_daemon_nor_look_into_its_folder(common: World) -> None:
    common.run_daemon()
    job = common.add("--env", "SECRET=canary", "--", "echo canary")
    common.wait_for(job)
    look = (
        "import os, socket, sys\n"
        "queue = sys.argv[1]\n"
        "os.chdir('/')\n"
        "def ask():\n"
        "    one = socket.socket(socket.AF_UNIX); one.connect(queue + '/socket'); return 'connected'\n"
        "for act in (lambda: os.listdir(queue), lambda: open(queue + '/store.db').read(1), ask,\n"
        "            lambda: os.listdir(os.path.dirname(queue)), lambda: open(queue + '/daemon.log').read(1)):\n"
        "    try: print(act())\n"
        "    except OSError as error: print(type(error).__name__)\n"
    )
    stranger = {"user": NOBODY, "group": NOBODY, "extra_groups": []}

    seen = subprocess.run(
        ["/usr/bin/python3", "-c", look, str(common.state / "queue")], capture_output=True, text=True, **stranger
    )
    typed = [common.dibs(*words, cwd="/", **stranger) for words in (("ls",), ("add", "--", "true"), ("kill", "1"))]

    assert seen.stdout.splitlines() == ["PermissionError"] * 5, seen
    for one in typed:
        assert one.status not in (0, 130), one
        assert len(one.stderr.splitlines()) == 2, one.stderr
        assert "canary" not in one.stdout + one.stderr
    assert common.client().status()["counts"]["succeeded"] == 1
    common.dibs("daemon", "stop")
    common.assert_nothing_is_left()


# -- an odd shell ------------------------------------------------------------------------------------------


def test_a_shell_that_ignores_signals_does_not_make_every_job_ignore_them(world: World) -> None:
    names = "HUP INT TERM PIPE CHLD QUIT USR1 USR2 ALRM"
    odd = f"trap '' {names}; umask 777; exec {DIBS} \"$@\""
    world.environ["DIBS_POOL"] = "0"
    added = world.dibs("add", "--", "grep SigIgn /proc/self/status", program=["bash", "-c", odd, "-"])
    assert added.status == 0, added
    world.wait_for(1)
    bits = int(world.client().log(1).data.split()[1], 16)
    pid = world.daemon_pid()
    assert pid is not None
    os.kill(pid, signal.SIGTERM)
    wait_until(lambda: world.daemon_pid() is None)
    world.assert_nothing_is_left()
    assert [name for name in names.split() if bits >> (signal.Signals[f"SIG{name}"] - 1) & 1] == []
