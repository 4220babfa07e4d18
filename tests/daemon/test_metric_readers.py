"""Files of jobs that do not answer: lists and other jobs do not wait for them."""

import asyncio
import threading
import time
from types import SimpleNamespace
from typing import Any

import pytest

from dibs.daemon import job_metrics, progress
from dibs.daemon.job_metrics import MetricReaders
from dibs.daemon.logs import output
from dibs.daemon.progress import ProgressBoard
from dibs.engine.launch.browse import BrowsableFolders
from dibs.errors import StoreUnusable
from dibs.metrics.progress import JobProgress, JobReport
from dibs.model.jobs import State

RESULTS = BrowsableFolders("")


def a_row(number: int, folder: str = "/x") -> Any:
    request = SimpleNamespace(output="", error="", metric_patterns=(), on="", workdir="", env=())
    job = SimpleNamespace(id=number, attempts=1, state=State.RUNNING, request=request)
    return SimpleNamespace(job=job, folder=f"{folder}/{number}", started_at=5.0, queued_at=1.0, node="")


def test_a_folder_that_does_not_answer_is_left_alone_for_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    hang, asked = threading.Event(), []

    def read(files: Any, began: float) -> JobReport:
        asked.append(files[0].path)
        if "/x/1/" in files[0].path:
            hang.wait(30)
        return JobReport(JobProgress(0.5, 7.0, None))

    monkeypatch.setattr(progress, "read_report", read)
    board = ProgressBoard(RESULTS)

    async def look_twice() -> float:
        await board.look([a_row(1)])
        begin = time.monotonic()
        await board.look([a_row(1), a_row(2)])
        return time.monotonic() - begin

    asyncio.run(look_twice())
    hang.set()

    assert asked == ["/x/1/metrics", "/x/2/metrics"]
    assert board.of(a_row(1)) == JobReport()
    assert board.of(a_row(2)) == JobReport(JobProgress(0.5, 7.0, None))


def test_only_one_thread_hangs_in_the_files_of_an_attempt(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(output, "_READ_WITHIN", 0.05)
    hang, begun = threading.Event(), []

    def look(*_: object, **__: object) -> None:
        begun.append(1)
        hang.wait(30)

    monkeypatch.setattr(job_metrics.AttemptMetrics, "look", look)
    readers = MetricReaders(RESULTS)
    job = a_row(1).job
    attempt = SimpleNamespace(key=(1, 1), folder="/x/1", opened_at=5.0, node="")
    row: Any = SimpleNamespace(attempt=attempt, outcome=None, ended_at=None)

    async def ask() -> int:
        for _ in range(3):
            with pytest.raises(StoreUnusable):
                await readers.look(job, row, lambda _: {})
        hanging = len(begun)
        hang.set()
        for _ in range(1000):  # until the thread has ended
            try:
                assert await readers.look(job, row, lambda _: {"a": 1}) == {"a": 1}
                return hanging
            except StoreUnusable:
                await asyncio.sleep(0.01)
        raise AssertionError("it hangs for good")

    assert asyncio.run(ask()) == 1
