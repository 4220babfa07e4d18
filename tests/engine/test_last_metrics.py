"""The last numbers of attempts that have ended, where a disk does not answer."""

import asyncio
import threading
from types import SimpleNamespace
from typing import Any

from dibs.engine.watch import last_metrics
from dibs.engine.watch.last_metrics import LastMetrics
from dibs.worker_thread import PatientReader


class Store:
    """Knows no job that ended before, and keeps what it is given."""

    def __init__(self) -> None:
        self.kept: list[tuple[int, int, Any]] = []
        self.listing = None
        self.reported = SimpleNamespace(ended_without=lambda most: [], put=self.kept.extend)
        self.events = SimpleNamespace(write=lambda *event: None)

    def turn(self) -> threading.Lock:
        return threading.Lock()


def test_attempts_behind_one_whose_disk_does_not_answer_are_read(monkeypatch):
    answers, asked = threading.Event(), []

    def numbers_of(job: Any, ran: Any, results: object) -> dict[str, float]:
        asked.append(job.id)
        if job.id == 1:
            answers.wait(60)
        return {"loss": float(job.id)}

    monkeypatch.setattr(last_metrics, "numbers_of", numbers_of)
    store = Store()

    async def scenario() -> None:
        read = asyncio.Event()
        metrics = LastMetrics(store, None, read.set)  # type: ignore[arg-type]
        metrics._folders = PatientReader(patience=0.05)
        for number in (1, 2, 3):
            job = SimpleNamespace(id=number, request=SimpleNamespace(once=""))
            attempt = SimpleNamespace(number=1, folder=f"/{number}", opened_at=0.0)
            metrics.add([(SimpleNamespace(job=job, attempt=attempt, outcome=None), 1.0)])  # type: ignore[list-item]
        task = asyncio.ensure_future(metrics.run())
        await asyncio.wait_for(read.wait(), 60)
        task.cancel()

    asyncio.run(scenario())

    answers.set()
    assert asked == [1, 2, 3]
    assert store.kept == [(2, 1, {"loss": 2.0}), (3, 1, {"loss": 3.0})]
