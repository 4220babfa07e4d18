"""What the driver's checkpoint calls promise: the fake one's here, the real one's on a card (bench/on_gpu.py)."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from cuda.machine import FAKE_PROGRAM, GB, REAL_PROGRAM, FakeMachine, Program, goes_on, stands_still, wait_for
from dibs.gpus.cuda_checkpoint import (
    CheckpointFailed,
    CudaCheckpoint,
    ProcessState,
    find_cuda_checkpoint,
    why_not_suspend,
)
from dibs.supervise.orphans import process_at
from dibs.worker_thread import wait_in_thread

# On a machine with a card: DRIVER=real pytest --noconftest tests/contracts/test_cuda_checkpoint.py
IS_REAL = os.environ.get("DRIVER") == "real"
LIKE_A_REAL_ONE = ["--delay", "checkpoint=600", "--delay", "restore=300"]

Start = Callable[..., Program]
_ONE = (
    "import sys; from dibs.gpus.cuda_checkpoint import find_cuda_checkpoint; import os;"
    "driver = find_cuda_checkpoint(os.environ); getattr(driver, sys.argv[1])(int(sys.argv[2]))"
)


@pytest.fixture
def environ(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    if IS_REAL:
        return {}
    found = FakeMachine(tmp_path / "machine").environ
    for name, value in found.items():
        monkeypatch.setenv(name, value)
    return found


@pytest.fixture
def driver(environ: dict[str, str]) -> CudaCheckpoint:
    found = find_cuda_checkpoint(environ)
    assert found is not None, why_not_suspend(environ)
    return found


@pytest.fixture
def start(tmp_path: Path, environ: dict[str, str]) -> Iterator[Start]:
    programs: list[Program] = []

    def begin(*arguments: str) -> Program:
        ledger = tmp_path / f"ledger{len(programs)}"
        wanted = arguments if IS_REAL else (*LIKE_A_REAL_ONE, *arguments)
        programs.append(Program(REAL_PROGRAM if IS_REAL else FAKE_PROGRAM, ledger, environ, *wanted))
        return programs[-1]

    yield begin
    for program in programs:
        program.end()


def test_a_program_stands_still_while_it_is_off_the_card_and_goes_on_where_it_was(
    driver: CudaCheckpoint, start: Start
) -> None:
    program = start()
    states = [driver.state(program.pid)]

    for step in (partial(driver.lock, timeout_ms=10_000), driver.checkpoint, driver.restore):
        step(program.pid)
        states.append(driver.state(program.pid))
        assert stands_still(program.ledger)
    driver.unlock(program.pid)

    assert states == [
        ProcessState.RUNNING,
        ProcessState.LOCKED,
        ProcessState.CHECKPOINTED,
        ProcessState.LOCKED,
    ]
    assert goes_on(program.ledger) and driver.state(program.pid) == ProcessState.RUNNING


def test_a_step_that_does_not_fit_the_state_answers_401_and_changes_nothing(
    driver: CudaCheckpoint, start: Start
) -> None:
    pid = start().pid
    refused = []

    def refuses(step: Callable[[int], None]) -> None:
        before = driver.state(pid)
        with pytest.raises(CheckpointFailed) as failure:
            step(pid)
        refused.append((failure.value.code, driver.state(pid) == before))

    lock = partial(driver.lock, timeout_ms=1000)
    refuses(driver.unlock)
    lock(pid)
    refuses(lock)
    driver.checkpoint(pid)
    for step in (driver.checkpoint, driver.unlock):
        refuses(step)
    driver.restore(pid)
    refuses(driver.restore)

    assert refused == [(401, True)] * 5


def test_other_processes_are_told_from_cuda_programs_also_while_they_are_stopped(
    driver: CudaCheckpoint, start: Start
) -> None:
    worker = start("--workers", "1").children[0]
    other = subprocess.Popen(["sleep", "60"])
    ended = subprocess.Popen(["true"])
    ended.wait()

    pids = worker, other.pid
    running = [driver.state(pid) for pid in pids]
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    stopped = [wait_in_thread(partial(driver.state, pid), 10.0, "asked") for pid in pids]
    gone = driver.state(ended.pid)
    os.kill(worker, signal.SIGKILL)  # stopped, it would not see that its parent has ended
    other.kill()
    other.wait()

    assert (running, stopped, gone) == (
        [ProcessState.NOT_CUDA] * 2,
        [ProcessState.NOT_CUDA] * 2,
        ProcessState.GONE,
    )


def test_a_program_that_is_stopped_does_not_answer_until_it_goes_on(driver: CudaCheckpoint, start: Start) -> None:
    program = start()
    os.kill(program.pid, signal.SIGSTOP)
    wait_for(lambda: (found := process_at(program.pid)) and found.is_stopped, "all of its threads stand still")

    with pytest.raises(TimeoutError):
        wait_in_thread(partial(driver.state, program.pid), 1.0, "asked")
    os.kill(program.pid, signal.SIGCONT)

    assert driver.state(program.pid) == ProcessState.RUNNING
    assert goes_on(program.ledger)


def test_managed_memory_is_refused_with_801_and_an_unlock_brings_it_back(
    driver: CudaCheckpoint, start: Start
) -> None:
    program = start("--managed", "--bytes", str(2**26))
    driver.lock(program.pid, 10_000)

    with pytest.raises(CheckpointFailed, match="memory that cannot be moved") as failure:
        driver.checkpoint(program.pid)
    state = driver.state(program.pid)
    driver.unlock(program.pid)

    assert (failure.value.code, state) == (801, ProcessState.LOCKED)
    assert goes_on(program.ledger)


@pytest.mark.parametrize("step", ["checkpoint", "restore"])
def test_a_step_whose_caller_is_killed_is_ended_by_the_program_and_who_asks_meanwhile_waits(
    driver: CudaCheckpoint, start: Start, step: str
) -> None:
    size = str(12 * GB if IS_REAL else GB)  # as much as a real one takes some seconds for
    pid = start("--bytes", size, "--delay", "checkpoint=3000", "--delay", "restore=3000").pid
    driver.lock(pid, 10_000)
    if step == "restore":
        driver.checkpoint(pid)
    caller = subprocess.Popen([sys.executable, "-c", _ONE, step, str(pid)])

    with pytest.raises(subprocess.TimeoutExpired):
        caller.wait(1.5)
    caller.kill()
    caller.wait()

    after = ProcessState.CHECKPOINTED if step == "checkpoint" else ProcessState.LOCKED
    wait_for(lambda: driver.state(pid) == after, f"the {step} is done")


def test_a_program_that_is_off_the_card_can_be_killed(driver: CudaCheckpoint, start: Start) -> None:
    program = start()
    driver.lock(program.pid, 10_000)
    driver.checkpoint(program.pid)

    program.end()

    assert driver.state(program.pid) == ProcessState.GONE


def test_a_program_that_is_restored_into_a_full_card_is_lost(driver: CudaCheckpoint, start: Start) -> None:
    pid = start("--bytes", str(4 * GB)).pid
    driver.lock(pid, 10_000)
    driver.checkpoint(pid)
    start("--bytes", str(-2 * GB))

    codes = []
    for _ in range(2):
        with pytest.raises(CheckpointFailed) as failure:
            driver.restore(pid)
        codes.append(failure.value.code)

    assert codes == [2, 304]
