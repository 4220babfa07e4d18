"""A Python job ends, is stopped and is found again in the same way whether it was forked or started afresh."""

import fcntl
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from dibs.backends.protocol import AttachedStreams
from dibs.supervise import folder
from stories.outside import wait_until
from supervise.hands import Hands, is_alive
from supervise.test_stopping import HOSTILE
from supervise.warmth import Pythons

SLEEP = "import time\nopen('up', 'w').close()\nwhile True: time.sleep(0.02)\n"
UNTIL_GO = "import os, time\nopen('up', 'w').close()\nwhile not os.path.exists('go'): time.sleep(0.01)\n"


@pytest.fixture(params=["fresh", "warm"])
def pythons(request: pytest.FixtureRequest, hands: Hands) -> Iterator[Pythons]:
    """A warm one that had been started afresh would pass all of this: that is looked at in the end."""
    yield Pythons(hands, None if request.param == "fresh" else ["json", "decimal"])
    for log in hands.root.glob("attempts/*/*/stderr"):
        assert "not started warm" not in log.read_text(errors="replace")


def test_every_exit_code_is_kept_exactly(pythons: Pythons) -> None:
    codes = [0, 1, 2, 77, 124, 127, 128, 254, 255]
    pythons.write("job.py", "import sys; sys.exit(int(sys.argv[1]))")
    attempts = [pythons.start("job.py", str(code)) for code in codes]

    records = [pythons.hands.record(attempt) for attempt in attempts]

    assert [record["code"] for record in records] == codes
    assert {(record["signal"], record["by"]) for record in records} == {(None, "")}


def test_every_signal_is_kept_exactly(pythons: Pythons) -> None:
    numbers = [signal.SIGTERM, signal.SIGKILL, signal.SIGINT, signal.SIGSEGV, signal.SIGUSR1, signal.SIGHUP, 40]
    pythons.write("job.py", "import os, sys; os.kill(os.getpid(), int(sys.argv[1]))")
    attempts = [pythons.start("job.py", str(int(number))) for number in numbers]

    records = [pythons.hands.record(attempt) for attempt in attempts]

    assert [(record["code"], record["signal"]) for record in records] == [(None, number) for number in numbers]


def test_what_was_used_is_recorded(pythons: Pythons) -> None:
    attempt = pythons.script("import time\nend = time.process_time() + 0.2\nwhile time.process_time() < end: pass")
    record = pythons.hands.record(attempt)

    assert 0.2 <= record["cpu"] < 20 and record["maxrss"] > 1_000_000
    assert record["seconds"] >= 0.2


def test_a_stop_is_a_term_the_grace_and_a_kill(pythons: Pythons) -> None:
    deaf = "import signal\nsignal.signal(signal.SIGTERM, lambda *_: print('asked', flush=True))\n"
    attempt = pythons.script(deaf + SLEEP, grace=3.0)
    pythons.hands.turn_until((pythons.workdir / "up").exists)

    pythons.hands.tell(attempt, "stop")
    record = pythons.hands.record(attempt)

    assert (record["signal"], record["by"]) == (signal.SIGKILL, "stop")
    assert pythons.hands.log(attempt) == "asked\n"


def test_a_stop_ends_what_has_no_handler(pythons: Pythons) -> None:
    attempt = pythons.script(SLEEP)
    pythons.hands.turn_until((pythons.workdir / "up").exists)

    pythons.hands.tell(attempt, "stop")

    assert pythons.hands.record(attempt)["signal"] == signal.SIGTERM


def test_an_interrupt_ends_it_as_an_interrupt(pythons: Pythons) -> None:
    attempt = pythons.script(SLEEP)
    pythons.hands.turn_until((pythons.workdir / "up").exists)

    pythons.hands.tell(attempt, f"signal {int(signal.SIGINT)}")
    record = pythons.hands.record(attempt)

    assert (record["code"], record["signal"]) == (None, signal.SIGINT)
    assert pythons.errors(attempt).rstrip().endswith("KeyboardInterrupt")


def test_the_time_limit_counts_from_its_own_start(pythons: Pythons) -> None:
    attempt = pythons.script(SLEEP, time_limit=0.3, grace=60.0)
    record = pythons.hands.record(attempt)

    assert (record["by"], record["signal"]) == ("time", signal.SIGTERM)
    assert record["seconds"] >= 0.3


def test_a_checkpoint_signal_is_heard(pythons: Pythons) -> None:
    saves = "import signal, sys\nsignal.signal(signal.SIGUSR1, lambda *_: sys.exit(3))\n"
    attempt = pythons.script(saves + SLEEP, time_limit=60.0, checkpoint=[int(signal.SIGUSR1), 55.0])
    record = pythons.hands.record(attempt)

    assert (record["code"], record["by"], record["checkpointed"]) == (3, "checkpoint", True)


def test_a_process_that_left_its_session_is_gone_when_it_ends(pythons: Pythons) -> None:
    (pythons.workdir / "pids").touch()
    record = pythons.hands.record(pythons.script(HOSTILE, "pids"))

    pids = list(map(int, (pythons.workdir / "pids").read_text().split()))
    assert (record["code"], len(pids)) == (0, 5)
    assert [pid for pid in pids if is_alive(pid)] == []


def test_it_has_a_session_of_its_own_below_its_shim(pythons: Pythons) -> None:
    attempt = pythons.script(SLEEP)
    record = pythons.hands.running(attempt)

    session, group = os.getsid(record["pid"]), os.getpgid(record["pid"])
    shim_session = os.getsid(record["shim"])
    pythons.hands.tell(attempt, "kill")
    pythons.hands.record(attempt)

    assert session == group == record["pid"]
    assert shim_session == record["shim"] != record["pid"]


def test_a_lease_is_held_by_the_job_and_free_at_its_end(pythons: Pythons) -> None:
    path = pythons.workdir / "lease"
    lease = os.open(path, os.O_RDWR | os.O_CREAT)
    fcntl.flock(lease, fcntl.LOCK_EX)
    attempt = pythons.script(UNTIL_GO, leases=[lease])
    os.close(lease)
    pythons.hands.turn_until((pythons.workdir / "up").exists)

    held = _is_locked(path)
    (pythons.workdir / "go").touch()
    pythons.hands.record(attempt)

    assert held
    assert not _is_locked(path)


def test_no_descriptor_reaches_it_but_its_leases(pythons: Pythons) -> None:
    leases = [os.open(pythons.workdir / f"lease{number}", os.O_RDWR | os.O_CREAT) for number in range(2)]
    pythons.write(
        "job.py",
        "import os\n"
        "fds = [fd for fd in os.listdir('/proc/self/fd') if os.path.lexists(f'/proc/self/fd/{fd}')]\n"
        "print(*sorted(os.path.basename(os.readlink(f'/proc/self/fd/{fd}')) for fd in fds))\n"
        "print([os.get_inheritable(int(fd)) for fd in fds if 'lease' in os.readlink(f'/proc/self/fd/{fd}')])\n",
    )

    plain = pythons.output("job.py")
    with_leases = pythons.output("job.py", leases=leases)

    assert plain == "null stderr stdout\n[]\n"
    assert with_leases == "lease0 lease1 null stderr stdout\n[True, True]\n"


def test_the_attempts_lock_is_the_shims_alone(pythons: Pythons) -> None:
    """Else a job whose shim was killed would look supervised."""
    attempt = pythons.script(UNTIL_GO)
    record = pythons.hands.running(attempt)

    os.kill(record["shim"], signal.SIGKILL)
    pythons.hands.wait(attempt)
    wait_until(lambda: not folder.facts(attempt.folder).is_locked)

    assert is_alive(record["pid"])
    (pythons.workdir / "go").touch()
    wait_until(lambda: not is_alive(record["pid"]))


def test_a_job_whose_shim_was_killed_keeps_its_lease_and_can_be_stopped(pythons: Pythons) -> None:
    path = pythons.workdir / "lease"
    lease = os.open(path, os.O_RDWR | os.O_CREAT)
    fcntl.flock(lease, fcntl.LOCK_EX)
    pythons.write("job.py", SLEEP)
    number = pythons.hands._number + 1  # its folder is the mark by which its processes are found
    mark = {"DIBS_METRICS": f"{pythons.hands.root}/attempts/0/{number}.1/metrics"}
    attempt = pythons.start("job.py", leases=[lease], env=mark)
    os.close(lease)
    record = pythons.hands.running(attempt)
    os.kill(record["shim"], signal.SIGKILL)
    pythons.hands.wait(attempt)
    wait_until(lambda: not folder.facts(attempt.folder).is_locked)

    held = _is_locked(path)
    left = pythons.hands.look_after(attempt)
    told = pythons.hands.tell(attempt, "stop")
    wait_until(lambda: not is_alive(record["pid"]))

    assert (held, told) == (True, True)
    assert record["pid"] in [process.pid for process in left.processes]
    assert not _is_locked(path)


def test_another_engine_adopts_it_and_hears_the_end(pythons: Pythons) -> None:
    attempt = pythons.script(UNTIL_GO + "raise SystemExit(17)")
    pythons.hands.running(attempt)
    pythons.hands.close()
    other = Hands(pythons.hands.root)

    assert other.adopt(attempt)
    (pythons.workdir / "go").touch()
    record = other.record(attempt)
    other.close()

    assert record["code"] == 17


def test_an_adopted_one_can_be_stopped(pythons: Pythons) -> None:
    attempt = pythons.script(SLEEP)
    pythons.hands.running(attempt)
    pythons.hands.close()
    other = Hands(pythons.hands.root)

    assert other.adopt(attempt)
    other.tell(attempt, "stop")
    record = other.record(attempt)
    other.close()

    assert (record["signal"], record["by"]) == (signal.SIGTERM, "stop")


def test_stdin_is_empty_or_what_was_attached(pythons: Pythons) -> None:
    pythons.write("job.py", "import sys; print(repr(sys.stdin.read()))")
    empty = pythons.output("job.py")
    reading, writing = os.pipe()
    attempt = pythons.start("job.py", attached=AttachedStreams(stdin=reading))
    os.close(reading)
    os.write(writing, b"hello\r\nyou")
    os.close(writing)
    pythons.hands.record(attempt)

    assert empty == "''\n"
    assert pythons.hands.log(attempt) == "'hello\\r\\nyou'\n"


def test_a_terminal_is_its_own(pythons: Pythons) -> None:
    pythons.write(
        "job.py",
        "import os, sys\n"
        "print(sys.stdin.isatty(), sys.stdout.line_buffering, os.ctermid(), open('/dev/tty').isatty())\n"
        "print(input('name? '), file=sys.stderr)\n",
    )
    master, slave = os.openpty()
    reading, writing = os.pipe()
    attempt = pythons.start("job.py", attached=AttachedStreams(terminal=(master, slave, reading)))
    os.close(reading)
    os.write(master, b"me\n")

    record = pythons.hands.record(attempt)
    os.set_blocking(master, False)
    seen = os.read(master, 4096)
    for fd in (master, slave, writing):
        os.close(fd)

    assert record["code"] == 0, seen
    assert b"True True /dev/tty True\r\n" in seen
    assert seen.endswith(b"name? me\r\n")


def test_both_streams_may_go_to_one_file_and_are_appended(pythons: Pythons) -> None:
    log = pythons.workdir / "log"
    log.write_text("before\n")

    pythons.hands.record(
        pythons.script(
            "import sys\nprint('a', flush=True)\nprint('b', file=sys.stderr)\nprint('c')",
            stdout=str(log),
            stderr=str(log),
        )
    )

    assert log.read_text() == "before\na\nb\nc\n"


def test_the_folder_and_the_umask_are_its_own(pythons: Pythons) -> None:
    pythons.write("here/job.py", "import os; open('made', 'w').close(); print(os.getcwd())")

    text = pythons.output("job.py", workdir=str(pythons.workdir / "here"), umask=0o027)

    assert text == f"{pythons.workdir}/here\n"
    assert (pythons.workdir / "here/made").stat().st_mode & 0o777 == 0o640


def test_a_bound_one_runs_on_its_cpus(pythons: Pythons) -> None:
    one = min(os.sched_getaffinity(0))
    pythons.write("job.py", "import os; print(*os.sched_getaffinity(0))")

    assert pythons.output("job.py", cpus=[one]) == f"{one}\n"
    assert len(pythons.output("job.py").split()) == len(os.sched_getaffinity(0))


def test_a_folder_that_is_gone_is_a_start_error(pythons: Pythons) -> None:
    gone = pythons.workdir / "gone"
    attempt = pythons.start("job.py", workdir=str(gone), stderr="/dev/null")
    record = pythons.hands.record(attempt)

    assert record["by"] == "start"
    assert "cannot enter its folder" in record["message"]


def test_a_script_that_is_missing_is_pythons_own_error(pythons: Pythons) -> None:
    attempt = pythons.start("missing.py", stderr=str(pythons.workdir / "said"))
    record = pythons.hands.record(attempt)

    assert record["code"] == 2
    assert "can't open file" in (pythons.workdir / "said").read_text()


def _is_locked(path: Path) -> bool:
    with path.open("rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False
