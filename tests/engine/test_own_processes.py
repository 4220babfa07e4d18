"""Whether a process belongs to a job: also where the job's folder does not answer."""

import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from dibs.engine.watch import own_processes
from dibs.engine.watch.own_processes import is_of_a_running_job
from dibs.supervise.folder import encode_record
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


@pytest.mark.parametrize("where", ["attempts", "q1a2b3c4d/attempts"])
@pytest.mark.parametrize(("state", "is_ours"), [("running", True), ("ended", False), ("", False)])
def test_the_record_of_its_attempt_tells(
    tmp_path: Path, process_in: Callable[[Path], int], where: str, state: str, is_ours: bool
):
    folder = tmp_path / where / "0" / "1.1"
    folder.mkdir(parents=True)
    if state:
        (folder / "record").write_bytes(encode_record({"v": 1, "state": state}))

    assert is_of_a_running_job(process_in(folder)) is is_ours


def test_a_folder_that_does_not_answer_counts_as_running_after_a_short_wait(
    tmp_path: Path, process_in: Callable[[Path], int], monkeypatch: pytest.MonkeyPatch
):
    folder = tmp_path / "q1a2b3c4d" / "attempts" / "0" / "1.1"
    folder.mkdir(parents=True)
    disk_answers = threading.Event()
    monkeypatch.setattr(own_processes, "record_of", lambda folder: disk_answers.wait(60))
    pid = process_in(folder)
    answers: list[bool] = []
    asking = threading.Thread(
        target=lambda: answers.extend(is_of_a_running_job(pid) for _ in range(20)), daemon=True
    )

    asking.start()
    asking.join(60)

    assert answers == [True] * 20
    hanging = [one for one in threading.enumerate() if one.name == "dibs-record"]
    assert len(hanging) == 1, "it is not asked again and again"
    disk_answers.set()
    hanging[0].join(60)
