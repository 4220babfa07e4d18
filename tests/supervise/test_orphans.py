"""What is left of an attempt whose shim was killed: found, signalled and ended at its limit."""

import fcntl
import os
import signal
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dibs.model.jobs import Attempt, Command, Request
from dibs.worker_thread import wait_in_thread
from stories.outside import wait_until
from supervise.hands import Hands, is_alive

# What gives up one sign after the other; each prints its pid into the working folder and waits.
WAIT = "echo $$ > pid.new; mv pid.new pid; sleep 60"
BY_MARK = f"exec >/dev/null 2>&1; {WAIT}"
BY_OUTPUT = f"exec env -i PATH=$PATH bash -c '{WAIT}'"
BY_LEASE = f"exec env -i PATH=$PATH bash -c '{WAIT}' >/dev/null 2>&1"


def _orphan(hands: Hands, line: str, leases: tuple[int, ...] = ()) -> tuple[Attempt, int]:
    """An attempt whose shim was killed, and the pid that its command wrote."""
    number = hands._number + 1
    mark = {"DIBS_METRICS": f"{hands.root}/attempts/0/{number}.1/metrics"}
    attempt = hands.start(line, leases=leases, env=mark)
    hands.turn_until((hands.workdir / "pid").exists)
    os.kill(hands.running(attempt)["shim"], signal.SIGKILL)
    hands.wait(attempt)
    wait_until(lambda: not hands.facts(attempt).is_locked)
    return attempt, int((hands.workdir / "pid").read_text())


def _pids(hands: Hands, attempt: Attempt, **more: object) -> list[int]:
    return [process.pid for process in hands.look_after(attempt, **more).processes]  # type: ignore[arg-type]


@pytest.mark.parametrize(("line", "has_lease"), [(BY_MARK, False), (BY_OUTPUT, False), (BY_LEASE, True)])
def test_a_process_is_found_by_any_sign_that_it_kept(hands: Hands, line: str, has_lease: bool) -> None:
    lease = os.open(hands.root / "lease", os.O_RDWR | os.O_CREAT)
    fcntl.flock(lease, fcntl.LOCK_EX)
    attempt, pid = _orphan(hands, line, (lease,) if has_lease else ())

    found = _pids(hands, attempt, leases=[lease] if has_lease else [])

    assert pid in found
    assert os.getpid() not in found  # it has the lease too, but did not inherit it
    os.kill(pid, signal.SIGKILL)
    os.close(lease)


def test_what_a_found_process_started_is_found_below_it(hands: Hands) -> None:
    hidden = f"env -i setsid sh -c '{WAIT}' </dev/null >/dev/null 2>&1"
    attempt, pid = _orphan(hands, f"{hidden} & wait")

    assert pid in _pids(hands, attempt)
    hands.tell(attempt, "kill")
    wait_until(lambda: not is_alive(pid))


def test_a_program_that_reads_the_output_is_not_of_the_job(hands: Hands) -> None:
    attempt, pid = _orphan(hands, WAIT)
    reader = os.open(f"{attempt.folder}/stdout", os.O_RDONLY)
    tail = os.posix_spawn("/bin/sleep", ["sleep", "60"], {}, file_actions=[(os.POSIX_SPAWN_DUP2, reader, 0)])

    found = _pids(hands, attempt)

    assert pid in found and tail not in found
    for one in (pid, tail):
        os.kill(one, signal.SIGKILL)
    os.waitpid(tail, 0)
    os.close(reader)


def test_a_folder_that_does_not_answer_is_not_waited_for(hands: Hands, monkeypatch: pytest.MonkeyPatch) -> None:
    """A job can put a file system in the place of its folder that answers nothing."""
    attempt, pid = _orphan(hands, BY_MARK)
    limited = Request(command=Command.line("train"), time_limit=0.1)
    disk_answers = threading.Event()

    def hanging(ask: Callable[..., Any]) -> Callable[..., Any]:
        def hang(path: Any, *arguments: Any, **more: Any) -> Any:
            if os.fsdecode(path).startswith(attempt.folder):
                disk_answers.wait(60)
            return ask(path, *arguments, **more)

        return hang

    with monkeypatch.context() as patch:
        for name in ("open", "stat", "lstat"):
            patch.setattr(os, name, hanging(getattr(os, name)))
        try:
            found = wait_in_thread(lambda: hands.look_after(attempt, request=limited), 20, "test")
        finally:
            disk_answers.set()

    assert pid in [process.pid for process in found.processes]
    wait_until(lambda: hands.look_after(attempt, request=limited) and not is_alive(pid))


def test_a_kill_waits_for_the_grace_and_then_insists(hands: Hands) -> None:
    stubborn = Request(command=Command.line("train"), grace=0.2)
    attempt, pid = _orphan(hands, f"trap '' TERM; {WAIT.replace('sleep 60', 'while :; do sleep 0.05; done')}")
    hands.look_after(attempt, stubborn)

    told = hands.tell(attempt, "stop")
    was_alive = is_alive(pid)
    wait_until(lambda: not hands.look_after(attempt, stubborn).processes)

    assert (told, was_alive, is_alive(pid)) == (True, True, False)


def test_the_time_limit_goes_on_from_the_start_of_the_command(hands: Hands) -> None:
    limited = Request(command=Command.line("train"), time_limit=3600.0)
    attempt, pid = _orphan(hands, WAIT)
    before = hands.look_after(attempt, limited)
    again = Hands(hands.root)  # the next engine

    short = Request(command=Command.line("train"), time_limit=0.01)
    again.look_after(attempt, short)
    wait_until(lambda: not is_alive(pid))
    over = again.look_after(attempt, short)
    again.close()

    assert (bool(before.processes), before.ended_by) == (True, "")
    assert (over.processes, over.is_alive) == ((), False)


def test_what_is_left_once_the_end_is_recorded_is_killed_at_once(hands: Hands) -> None:
    attempt, pid = _orphan(hands, f"trap '' TERM; {WAIT}")

    hands.look_after(attempt, has_ended=True)

    wait_until(lambda: not is_alive(pid))


def test_a_shim_whose_fifo_was_deleted_is_still_reached(hands: Hands) -> None:
    attempt = hands.start("sleep 60")
    pid = hands.running(attempt)["pid"]
    for fifo in Path(hands.root / "control").iterdir():
        fifo.unlink()

    told = hands.tell(attempt, "stop")
    hands.wait(attempt)

    assert (told, is_alive(pid)) == (True, False)
    assert hands.facts(attempt).exit_record["by"] == "stop"  # type: ignore[index]
