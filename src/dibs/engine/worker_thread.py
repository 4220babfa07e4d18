"""A thread beside the loop, for what may take a while and must not make it wait."""

import asyncio
import contextlib
import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any, TypeVar

_T = TypeVar("_T")


class WorkerThread:
    """Does one thing after the other. Starts with the first; nobody waits for what hangs in it."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._work: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._thread: threading.Thread | None = None

    def __call__(self, work: Callable[[], _T], done: Callable[[_T], Any]) -> bool:
        """Have `done` called on the loop with what `work` finds; False where there can be no thread now.

        A bug in `work` falls on the loop, and `done` is not called then.
        """

        def do() -> None:
            try:
                found = work()
            except Exception as error:
                self._call(_fall, error)
            else:
                self._call(done, found)

        if self._thread is None:
            thread = threading.Thread(target=self._do_on, name="dibs-aside", daemon=True)
            try:
                thread.start()
            except RuntimeError:
                return False
            self._thread = thread
        self._work.put(do)
        return True

    def stop(self) -> None:
        """Nothing new is begun."""
        self._work.put(None)

    def _do_on(self) -> None:
        while (do := self._work.get()) is not None:
            do()

    def _call(self, callback: Callable[..., Any], value: Any) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed: we outlive it
            self._loop.call_soon_threadsafe(callback, value)


def _fall(error: Exception) -> None:
    raise error
