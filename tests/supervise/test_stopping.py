"""Ending a whole tree: ask, wait the grace, insist."""

import signal
import sys
import textwrap
import time
from pathlib import Path

import pytest

from dibs.supervise import folder
from stories.outside import processes_of, wait_until
from supervise.hands import Hands, is_alive

# Five descendants that do what they can to get away, each in its own way.
HOSTILE = textwrap.dedent(
    """
    import os, signal, sys, time
    def escape(number):
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        if number % 2:
            os.setsid()
        if os.fork():
            os._exit(0)
        if number > 2:
            os.setsid()
            if os.fork():
                os._exit(0)
        with open(sys.argv[1], "a") as file:
            file.write(f"{os.getpid()}\\n")
        if number > 3:
            os.closerange(0, 100)
            os.chdir("/")
            os.environ.clear()
        time.sleep(1000)
    for number in range(5):
        if os.fork() == 0:
            escape(number)
    while len(open(sys.argv[1]).readlines()) < 5:
        time.sleep(0.01)
    if len(sys.argv) > 2:
        time.sleep(1000)
    """
)


@pytest.fixture
def hostile(hands: Hands) -> list[str]:
    (hands.workdir / "hostile.py").write_text(HOSTILE)
    (hands.workdir / "pids").touch()
    return [sys.executable, "hostile.py", "pids"]


def _pids(hands: Hands) -> list[int]:
    return list(map(int, (hands.workdir / "pids").read_text().split()))


def test_a_process_that_left_its_session_is_gone_when_its_command_ends(hands: Hands, hostile: list[str]) -> None:
    record = hands.run(hostile)

    assert record["code"] == 0
    assert len(_pids(hands)) == 5
    assert [pid for pid in _pids(hands) if is_alive(pid)] == []


def test_a_hostile_tree_is_gone_after_a_stop(hands: Hands, hostile: list[str]) -> None:
    attempt = hands.start([*hostile, "stay"], grace=0.2)
    hands.turn_until(lambda: len(_pids(hands)) == 5)

    hands.tell(attempt, "stop")
    record = hands.record(attempt)

    assert record["by"] == "stop"
    assert [pid for pid in _pids(hands) if is_alive(pid)] == []


def test_a_fork_storm_comes_to_an_end(hands: Hands) -> None:
    """It forks as fast as it can while it is being stopped, and minds no TERM."""
    storm = "trap '' TERM; ulimit -u 2000; while :; do sleep 9 & (sleep 9 &) ; echo x >> count; done 2>/dev/null"
    attempt = hands.start(storm, grace=0.1)
    hands.turn_until(lambda: (hands.workdir / "count").exists() and (hands.workdir / "count").stat().st_size > 40)

    hands.tell(attempt, "stop")
    record = hands.record(attempt)

    assert record["by"] == "stop"
    wait_until(lambda: not _children_in(hands.workdir), show=lambda: _children_in(hands.workdir))
    assert hands.run("exit 6")["code"] == 6


def test_a_stop_is_a_term_to_every_process(hands: Hands) -> None:
    child = "trap 'sleep 0.1; echo child; exit 0' TERM; touch up; while :; do sleep 0.01; done"
    attempt = hands.start(f"trap 'echo parent; exit 0' TERM; ({child}) & wait")
    hands.turn_until((hands.workdir / "up").exists)

    hands.tell(attempt, "stop")
    record = hands.record(attempt)

    assert record["by"] == "stop"
    assert sorted(hands.log(attempt).split()) == ["child", "parent"]


def test_a_stopped_process_hears_the_stop_too(hands: Hands) -> None:
    attempt = hands.start("kill -STOP $$; sleep 1000")
    pid = hands.running(attempt)["pid"]
    hands.turn_until(lambda: Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[0] == b"T")

    hands.tell(attempt, "stop")

    assert hands.record(attempt)["signal"] == signal.SIGTERM


def test_a_kill_does_not_ask_first(hands: Hands) -> None:
    attempt = hands.start("trap '' TERM; touch up; while :; do sleep 1; done", grace=1000.0)
    hands.turn_until((hands.workdir / "up").exists)

    hands.tell(attempt, "stop")
    hands.tell(attempt, "kill")
    record = hands.record(attempt)

    assert (record["signal"], record["by"]) == (signal.SIGKILL, "stop")


def test_a_signal_is_passed_on(hands: Hands) -> None:
    attempt = hands.start("trap 'exit 7' USR2; touch up; while :; do sleep 0.01; done")
    hands.turn_until((hands.workdir / "up").exists)

    hands.tell(attempt, f"signal {int(signal.SIGUSR2)}")
    record = hands.record(attempt)

    assert (record["code"], record["by"]) == (7, "")


def test_a_word_for_another_attempt_changes_nothing(hands: Hands) -> None:
    """The shim of an attempt that has ended looks after the next one now."""
    first = hands.start("true")
    shim = hands.record(first)["shim"]
    second = hands.start("touch up; until test -e go; do sleep 0.01; done; exit 8")
    hands.turn_until((hands.workdir / "up").exists)
    (control,) = (hands.root / "control").iterdir()

    with control.open("wb") as fifo:
        fifo.write(b"kill 1.1\nstop 1.1\nsignal 9 1.1\nkill\nkill 2.2\nnonsense 2.1\n\xff\xfe\nsignal x 2.1\n")
    (hands.workdir / "go").touch()
    record = hands.record(second)

    assert (record["code"], record["shim"]) == (8, shim)


def test_a_signal_to_an_attempt_that_is_over_reaches_no_process(hands: Hands) -> None:
    attempt = hands.start("true")
    hands.record(attempt)

    hands.tell(attempt, "kill")

    assert hands.run("exit 2")["code"] == 2


def test_the_time_limit_is_a_term_the_grace_and_a_kill(hands: Hands) -> None:
    began = time.monotonic()

    attempt = hands.start("trap 'echo term' TERM; while :; do sleep 0.05; done", time_limit=2.0, grace=0.4)
    record = hands.record(attempt)

    assert (record["by"], record["signal"]) == ("time", signal.SIGKILL)
    assert "term" in hands.log(attempt)
    assert time.monotonic() - began >= 2.4
    assert record["seconds"] >= 2.4


def test_who_ends_within_the_grace_is_not_killed(hands: Hands) -> None:
    record = hands.run("trap 'exit 9' TERM; while :; do sleep 0.02; done", time_limit=2.0, grace=60.0)

    assert (record["by"], record["code"]) == ("time", 9)


def test_orphans_are_reaped_while_the_command_runs(hands: Hands) -> None:
    attempt = hands.start(
        "for i in 1 2 3 4 5; do (sleep 0.01 &); done; touch up; until test -e go; do sleep 0.05; done"
    )
    hands.turn_until((hands.workdir / "up").exists)
    shim = hands.running(attempt)["shim"]

    # The shim looks every few seconds, or when it is spoken to.
    def zombies() -> int:
        folder.tell(attempt.folder, "nothing")
        children = Path(f"/proc/{shim}/task/{shim}/children").read_text().split()
        return sum(not is_alive(int(child)) for child in children)

    hands.turn_until(lambda: zombies() == 0)
    (hands.workdir / "go").touch()

    assert hands.record(attempt)["code"] == 0


def _children_in(folder: Path) -> dict[int, str]:
    return {pid: line for pid, line in processes_of(str(folder)).items() if "sleep" in line}
