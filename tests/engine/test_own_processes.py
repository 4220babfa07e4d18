"""Whether a process belongs to a job: also where the job's folder does not answer."""

import os
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import pytest

from dibs.engine.watch import own_processes
from dibs.engine.watch.own_processes import attempt_of, is_of_a_running_job
from dibs.engine.watch.survey import pid_of
from dibs.leases.leases import Lease, Leases
from dibs.supervise.folder import encode_record
from dibs.worker_thread import wait_in_thread
from leases.claims import a_claim
from stories.outside import wait_until


@pytest.fixture
def process_in() -> Iterator[Callable[[Path], int]]:
    """Starts one that says that it is of the attempt in a folder."""
    started: list[subprocess.Popen[bytes]] = []

    def start(folder: Path) -> int:
        environment = {"DIBS_JOB_ID": "1", "DIBS_METRICS": f"{folder}/metrics"}
        one = subprocess.Popen(["/bin/sleep", "600"], env=environment)
        started.append(one)
        wait_until(lambda: Path(f"/proc/{one.pid}/environ").read_bytes())  # while it becomes `sleep` it has none
        return one.pid

    yield start
    for one in started:
        one.kill()
        one.wait()


@pytest.mark.parametrize(("state", "is_ours"), [("running", True), ("ended", False), ("", False)])
def test_the_record_of_its_attempt_tells(
    tmp_path: Path, process_in: Callable[[Path], int], state: str, is_ours: bool
):
    folder = tmp_path / "attempts" / "0" / "1.1"
    folder.mkdir(parents=True)
    if state:
        (folder / "record").write_bytes(encode_record({"v": 1, "state": state}))

    assert is_of_a_running_job(process_in(folder)) is is_ours


def test_a_process_whose_supervisor_was_killed_counts_only_while_a_claim_is_held_for_it(
    tmp_path: Path, process_in: Callable[[Path], int]
):
    """As of docker, whose processes inherit no lock: without a claim nothing else would keep its card."""
    folder = tmp_path / "attempts" / "0" / "1.1"
    folder.mkdir(parents=True)
    os.mkfifo(tmp_path / "4711-abc")
    with ended_at_exit("sleep", "600") as (shim, _):
        record = {"v": 1, "state": "running", "shim": shim, "control": "4711-abc"}
        (folder / "record").write_bytes(encode_record(record))
        pid = process_in(folder)

        assert not is_of_a_running_job(pid)  # another process has the number of the shim
        assert is_of_a_running_job(pid, leased=[str(folder)])
    fifo = os.open(tmp_path / "4711-abc", os.O_RDWR)
    with ended_at_exit("sleep", "600", pass_fds=[fifo]) as (shim, _):
        (folder / "record").write_bytes(encode_record({**record, "shim": shim}))

        assert is_of_a_running_job(pid)
    assert not is_of_a_running_job(pid)
    os.close(fifo)


def running_attempt(tmp_path: Path) -> Path:
    folder = tmp_path / "attempts" / "0" / "1.1"
    folder.mkdir(parents=True)
    (folder / "record").write_bytes(encode_record({"v": 1, "state": "running"}))
    return folder


def test_a_process_with_an_empty_environment_belongs_to_the_job_whose_claim_it_inherited(tmp_path: Path):
    folder = running_attempt(tmp_path)
    leases = Leases(str(tmp_path), uid=os.geteuid(), user="me")
    lease = leases.take([a_claim()], job="1", folder=str(folder), since=0.0)
    assert isinstance(lease, Lease)

    with (
        ended_at_exit("sleep", "600", env={}, pass_fds=lease.fds) as (pid, _),
        ended_at_exit("sleep", "600", env={}) as (other, _),
    ):
        assert (attempt_of(pid), is_of_a_running_job(pid)) == (str(folder), True)
        assert (attempt_of(other), is_of_a_running_job(other)) == (None, False)
    lease.close()


def test_a_process_that_closed_its_descriptors_too_belongs_to_the_job_of_the_process_above_it(tmp_path: Path):
    folder = running_attempt(tmp_path)
    environment = {"PATH": "/usr/bin:/bin", "DIBS_JOB_ID": "1", "DIBS_METRICS": f"{folder}/metrics"}

    with ended_at_exit("sh", "-c", "env -i sleep 600 & echo $!; wait", env=environment) as (above, said):
        pid = int(said.readline())
        wait_until(lambda: not Path(f"/proc/{pid}/environ").read_bytes())  # it was forked with that of the shell

        assert attempt_of(above) == attempt_of(pid) == str(folder)
        os.kill(pid, signal.SIGKILL)


@contextmanager
def ended_at_exit(*words: str, **more: Any) -> Iterator[tuple[int, IO[bytes]]]:
    """A process that is alive inside of the block, and its output."""
    one = subprocess.Popen(words, stdout=subprocess.PIPE, **more)
    assert one.stdout is not None
    try:
        yield one.pid, one.stdout
    finally:
        one.kill()
        one.wait()
        one.stdout.close()


def test_a_folder_that_does_not_answer_counts_as_running_after_a_short_wait(
    tmp_path: Path, process_in: Callable[[Path], int], monkeypatch: pytest.MonkeyPatch
):
    folder = tmp_path / "attempts" / "0" / "1.1"  # the job can have put a link in its place
    folder.mkdir(parents=True)
    disk_answers, asked = threading.Event(), []

    def hang(folder: str) -> None:
        asked.append(threading.current_thread())
        disk_answers.wait(60)

    monkeypatch.setattr(own_processes, "record_of", hang)
    pid = process_in(folder)
    answers: list[bool] = []
    asking = threading.Thread(
        target=lambda: answers.extend(is_of_a_running_job(pid) for _ in range(20)), daemon=True
    )

    asking.start()
    asking.join(60)

    assert answers == [True] * 20
    assert len(asked) == 1, "it is not asked again and again"
    disk_answers.set()
    asked[0].join(60)


def test_a_folder_that_does_not_answer_is_not_waited_for_by_the_table_of_gpus(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    folder = running_attempt(tmp_path)  # the job can have put a file system in its place
    leases = Leases(str(tmp_path), uid=os.geteuid(), user="me")
    lease = leases.take([a_claim()], job="1", folder=str(folder), since=0.0)
    assert isinstance(lease, Lease)
    (holder,) = leases.holders()
    disk_answers, opened = threading.Event(), os.open

    def hang(path: Any, *arguments: Any, **more: Any) -> int:
        if str(path).startswith(str(folder)):
            disk_answers.wait(60)
        return opened(path, *arguments, **more)

    with monkeypatch.context() as patch:
        patch.setattr(os, "open", hang)
        try:
            pids = wait_in_thread(lambda: [pid_of(holder) for _ in range(20)], 20, "test")
        finally:
            disk_answers.set()

    lease.close()
    assert pids == [holder.pid] * 20
