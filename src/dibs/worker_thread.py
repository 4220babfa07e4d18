"""Blocking work in a daemon thread, with a deadline.

The threads belong to no pool: one that hangs in a dead file system or driver is abandoned, and the end of the
process does not wait for it.
"""

import contextlib
import threading
import time
from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    import asyncio

_T = TypeVar("_T")
_SILENT = "its disk does not answer"

# The work, and what is called with its result. False where no thread can be started now.
Submit = Callable[[Callable[[], Any], Callable[[Any], Any]], bool]


class WorkerThread:
    """Does one piece of work after the other. The thread starts with the first.

    `post(callback, value)` calls back where results are wanted, for example `loop.call_soon_threadsafe`.
    """

    def __init__(self, post: Callable[[Callable[[Any], Any], Any], Any], name: str) -> None:
        self._post = post
        self._name = f"dibs-{name}"
        self._work: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._thread: threading.Thread | None = None

    def submit(self, work: Callable[[], _T], done: Callable[[_T], Any]) -> bool:
        """Have `done` called with the result of `work`; False where no thread can be started now.

        An error of `work` is raised where results are wanted, and `done` is not called.
        """

        def run() -> None:
            try:
                result = work()
            except Exception as error:
                self._call(_raise, error)
            else:
                self._call(done, result)

        if self._thread is None:
            thread = threading.Thread(target=self._run, name=self._name, daemon=True)
            try:
                thread.start()
            except RuntimeError:
                return False
            self._thread = thread
        self._work.put(run)
        return True

    @property
    def is_alive(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    def stop(self) -> None:
        """Begin nothing more."""
        self._work.put(None)

    def _run(self) -> None:
        while (run := self._work.get()) is not None:
            run()

    def _call(self, callback: Callable[[Any], Any], value: Any) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed: the thread may outlive it
            self._post(callback, value)


def future_of(work: Callable[[], _T], submit: Submit) -> "asyncio.Future[_T]":
    """The result of this work or its error, for the running loop. MemoryError where no thread can be started."""
    import asyncio  # by those only that have a loop

    answer: asyncio.Future[_T] = asyncio.get_running_loop().create_future()
    answer.add_done_callback(lambda done: done.cancelled() or done.exception())  # perhaps no caller waits any more

    def finish(outcome: tuple[_T | None, Exception | None]) -> None:
        result, error = outcome
        if answer.done():
            return
        if error is None:
            answer.set_result(result)  # type: ignore[arg-type]
        else:
            answer.set_exception(error)

    if not submit(lambda: _outcome(work), finish):
        raise MemoryError  # for the thread's stack
    return answer


async def run_in_thread(work: Callable[[], _T], seconds: float, name: str) -> _T:
    """The result of this work in a thread of its own, or TimeoutError after so many seconds."""
    import asyncio

    thread = WorkerThread(asyncio.get_running_loop().call_soon_threadsafe, name)
    try:
        return await asyncio.wait_for(future_of(work, thread.submit), seconds)
    finally:
        thread.stop()


def wait_in_thread(work: Callable[[], _T], seconds: float, name: str) -> _T:
    """The same for callers without a loop: they block until then."""
    thread = _waiting_thread(name)
    try:
        return _wait(thread, work, seconds)
    finally:
        thread.stop()


class PatientReader:
    """Reads folders that may not answer: with a deadline, and a folder that missed it is left alone for a while.

    The caller may be an event loop. A thread hangs in such a folder until it answers; of these there are at most
    `most_hanging`. Several threads may read at once.
    """

    def __init__(self, patience: float = 0.5, silent_for: float = 60.0, most_hanging: int = 16) -> None:
        self._patience = patience  # seconds
        self._silent_for = silent_for  # seconds
        self._most_hanging = most_hanging
        self._lock = threading.Lock()  # of what follows, never held while a folder is read
        self._silent: dict[str, float] = {}  # by folder: until when, by the monotonic clock
        self._idle: list[WorkerThread] = []  # one, unless several threads read at once
        self._hanging: list[WorkerThread] = []

    def read(self, folder: str, work: Callable[[], _T]) -> _T:
        """The result of this work on a folder, or TimeoutError."""
        now = time.monotonic()
        with self._lock:
            if now < self._silent.get(folder, 0.0):
                raise TimeoutError(_SILENT)
            self._hanging = [thread for thread in self._hanging if thread.is_alive]
            if len(self._hanging) >= self._most_hanging:
                raise TimeoutError("other disks do not answer")
            thread = self._thread()
        try:
            result = _wait(thread, work, self._patience)
        except MemoryError:
            raise TimeoutError("no thread can be started now") from None
        except _Late:
            thread.stop()
            with self._lock:
                self._hanging.append(thread)
                self._silent = {name: until for name, until in self._silent.items() if now < until}
                self._silent[folder] = now + self._silent_for
            raise TimeoutError(_SILENT) from None
        except BaseException:
            self._idle.append(thread)
            raise
        self._idle.append(thread)
        return result

    def __del__(self) -> None:
        for thread in self._idle:
            thread.stop()

    def _thread(self) -> WorkerThread:
        while self._idle:
            if (thread := self._idle.pop()).is_alive:  # not in a process that was forked since
                return thread
        return _waiting_thread("record")


class _Late(TimeoutError):
    """The deadline, and not an error of the work."""


def _waiting_thread(name: str) -> WorkerThread:
    """One whose results the caller waits for."""
    return WorkerThread(lambda put, outcome: put(outcome), name)


def _wait(thread: WorkerThread, work: Callable[[], _T], seconds: float) -> _T:
    outcomes: SimpleQueue[tuple[_T | None, Exception | None]] = SimpleQueue()
    if not thread.submit(lambda: _outcome(work), outcomes.put):
        raise MemoryError
    try:
        result, error = outcomes.get(timeout=seconds)
    except Empty:
        raise _Late from None
    if error is not None:
        raise error
    return result  # type: ignore[return-value]


def _outcome(work: Callable[[], _T]) -> tuple[_T | None, Exception | None]:
    try:
        return work(), None
    except Exception as error:  # raised again where the result is wanted
        return None, error


def _raise(error: Exception) -> None:
    raise error
