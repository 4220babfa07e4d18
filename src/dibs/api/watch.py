"""One thread per process that receives the events of the queue's jobs, for futures and for `await job`."""

import os
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, Any

from dibs.api.connection import ask, patient, say
from dibs.client.client import Client, connect
from dibs.client.events import listen
from dibs.errors import DibsError, NoDaemon, NoSuchJob
from dibs.model.jobs import State
from dibs.paths import socket_path

if TYPE_CHECKING:
    from dibs.api.job import Job

News = Mapping[str, Any] | DibsError
Listener = Callable[[str, News], None]  # `started` or `over` with what is known, or `error`
_AT_ONCE = 500  # jobs in one question


class Watch:
    """Calls listeners, from its thread, at each start of a job and once when it is over.

    The thread runs while there are listeners. It never delays the end of the program.
    """

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._environ = environ
        self._lock = threading.RLock()
        self._listeners: dict[int, list[Listener]] = {}  # by job
        self._coming = 0  # callers that are about to add a listener
        self._connected = threading.Event()
        self._error: DibsError | None = None
        self._thread: threading.Thread | None = None

    @contextmanager
    def listening(self) -> Iterator[None]:
        """No listener is called in this block, so that jobs added in it cannot end before they have one."""
        with self._lock:
            self._coming += 1
            if self._thread is None:
                self._connected.clear()
                self._error = None
                self._thread = threading.Thread(target=self._run, name="dibs-watch", daemon=True)
                self._thread.start()
        try:
            self._connected.wait()
            if self._error is not None:
                raise self._error
            with self._lock:
                yield
        finally:
            with self._lock:
                self._coming -= 1

    def add(self, job: int, listener: Listener) -> None:
        """Only while listening."""
        self._listeners.setdefault(job, []).append(listener)

    def remove(self, job: int, listener: Listener) -> None:
        with self._lock:
            left = [one for one in self._listeners.get(job, ()) if one != listener]
            if left:
                self._listeners[job] = left
            else:
                self._listeners.pop(job, None)

    def look(self, jobs: Iterable[int]) -> None:
        """Call the listeners of those jobs that are over, or were removed."""
        numbers = list(jobs)
        for start in range(0, len(numbers), _AT_ONCE):
            asked = numbers[start : start + _AT_ONCE]
            try:
                answer = ask(partial(_those_over, jobs=asked), start=False, environ=self._environ)
            except NoSuchJob as error:
                self._over(asked[0], error)
                continue
            for about in answer["jobs"]:
                self._over(about["id"], about)
            for number in set(asked) - set(answer["waiting"]) - {about["id"] for about in answer["jobs"]}:
                self._over(number, NoSuchJob(number))

    # -- in the thread ----------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            # Starts a daemon where there is none; one that is stopped later is not started again.
            ask(lambda client: client.status(), environ=self._environ)
            last: int | None = None
            while True:
                client = connect(self._environ, start=False, notice=say)
                try:
                    for event in listen(client, last, patience=0):
                        last = event.get("id", last) if event is not None else last
                        self._hear(event)
                        if self._is_idle():
                            return
                except NoDaemon:
                    # It may restart in a moment; one that has crashed is started again.
                    if self._is_idle():
                        return
                    with patient(self._environ) as daemon:
                        daemon.ask(lambda client: client.status())
                finally:
                    client.close()
        except DibsError as error:
            self._give_up(error)
        except BaseException as error:
            self._give_up(DibsError(f"cannot listen to the daemon: {error!r}"))
            raise

    def _hear(self, event: Mapping[str, Any] | None) -> None:
        if event is None or event["kind"] in ("events.missed", "jobs.removed"):
            with self._lock:
                numbers = list(self._listeners)
            self.look(numbers)
            self._connected.set()
        elif event["kind"] == "job.started":
            with self._lock:
                listeners = list(self._listeners.get(event["job"], ()))
            for listener in listeners:
                listener("started", event)
        elif event["kind"] == "job.ended" and State(event["state"]).is_over:
            self._over(event["job"], {**event, "attempts": event.get("attempt", 0)})

    def _over(self, job: int, news: News) -> None:
        with self._lock:
            listeners = self._listeners.pop(job, ())
        for listener in listeners:
            listener("error" if isinstance(news, DibsError) else "over", news)

    def _is_idle(self) -> bool:
        with self._lock:
            if self._listeners or self._coming:
                return False
            self._thread = None
            return True

    def _give_up(self, error: DibsError) -> None:
        with self._lock:
            self._thread = None
            self._error = error
            by_job, self._listeners = self._listeners, {}
            self._connected.set()
        for listeners in by_job.values():
            for listener in listeners:
                listener("error", error)


def _those_over(client: Client, *, jobs: Sequence[int]) -> Mapping[str, Any]:
    return client.wait(jobs, seconds=0)


_ours: dict[str, Watch] = {}  # by the daemon's socket
_making = threading.Lock()


def the_watch() -> Watch:
    """The watch of this process, for the daemon of its environment."""
    path = socket_path(os.environ)
    with _making:
        if path not in _ours:
            _ours[path] = Watch(dict(os.environ))
        return _ours[path]


def _begin_anew() -> None:
    """After a fork the thread does not exist, and a lock may be held without an owner."""
    global _making
    _making = threading.Lock()
    _ours.clear()


os.register_at_fork(after_in_child=_begin_anew)


async def result_of(job: "Job") -> Any:
    """What `job.result()` returns, without a thread that waits for the job."""
    import asyncio  # slow to import, and an Executor does not need it

    over: Future[None] = Future()
    watch = the_watch()

    def hear(kind: str, news: News) -> None:
        if kind == "started" or not over.set_running_or_notify_cancel():
            return
        if isinstance(news, DibsError):
            over.set_exception(news)
        else:
            over.set_result(None)

    def begin() -> None:
        with watch.listening():
            watch.add(job.id, hear)
        with suppress(NoDaemon):  # the watch looks again when the daemon is back
            watch.look([job.id])  # it may be over already

    try:
        await asyncio.to_thread(begin)
        await asyncio.wrap_future(over)
    finally:
        watch.remove(job.id, hear)
    return await asyncio.to_thread(job.result)
