"""Calls as processes of the job that makes them, on its GPUs: `dibs.Executor(nested="inside")`."""

import os
import subprocess
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from threading import Lock
from typing import Any, TypeVar

from dibs.api.calls import Call
from dibs.api.errors import JobFailed
from dibs.api.job import Job

_T = TypeVar("_T")


class CallsInside:
    """So many processes at a time. They end with the job at the latest, as all its processes do."""

    def __init__(self, most: int) -> None:
        self._threads = ThreadPoolExecutor(most, thread_name_prefix="dibs-inside")
        self._job = Job(int(os.environ["DIBS_JOB_ID"]))
        self._attempt = int(os.environ.get("DIBS_ATTEMPT", "1"))
        self._running: set[subprocess.Popen[bytes]] = set()
        self._lock = Lock()
        self._is_ending = False

    def begin(self, words: Sequence[str], call: Call) -> "Future[Any]":
        future: Future[Any] = self._threads.submit(self._run, words, call)
        future.add_done_callback(lambda _: call.remove())  # also of one that was cancelled
        return future

    def end_all(self) -> None:
        """End those that run; those that wait are cancelled by `shutdown`."""
        with self._lock:
            self._is_ending = True
            for process in self._running:
                process.terminate()

    def shutdown(self, *, wait: bool, cancel_futures: bool) -> None:
        self._threads.shutdown(wait=wait, cancel_futures=cancel_futures)

    def _run(self, words: Sequence[str], call: Call) -> Any:
        with self._lock:
            process = subprocess.Popen(words, stdin=subprocess.DEVNULL)
            self._running.add(process)
            if self._is_ending:
                process.terminate()
        try:
            status = process.wait()
        finally:
            with self._lock:
                self._running.discard(process)
        found = call.result(self._attempt)
        if found is not None:
            return found.get(self._job)
        how = f"signal {-status}" if status < 0 else f"exit code {status}"
        name = words[-2].lstrip("-").partition(":")[0]
        ending = {"exit_code": status} if status >= 0 else {"signal": -status}
        raise JobFailed(
            {"id": self._job.id, "state": "failed", **ending},
            message=f"a call of {name} inside job {self._job.id} ended without a result: {how}",
        )
