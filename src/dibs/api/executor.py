"""An Executor of concurrent.futures that runs each call as a job of the queue."""

import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor as StandardExecutor
from concurrent.futures import Future
from concurrent.futures import wait as wait_for
from contextlib import suppress
from functools import partial
from itertools import chain
from types import ModuleType, TracebackType
from typing import TYPE_CHECKING, Any, Literal, ParamSpec, TypeVar, Unpack

from dibs.api.call_submitter import CallSubmitter
from dibs.api.calls import Call
from dibs.api.connection import ask, say
from dibs.api.job import Job
from dibs.api.job_keywords import JobKeywords
from dibs.api.watch import News, the_watch
from dibs.errors import BadInput, DibsError

if TYPE_CHECKING:
    from dibs.api.inside import CallsInside

_P = ParamSpec("_P")
_T = TypeVar("_T")
_AT_ONCE = 5_000  # jobs in one request


class JobFuture(Future[_T]):
    """A future whose work is a job of the queue: `future.job`."""

    def __init__(self, job: Job, call: Call) -> None:
        super().__init__()
        self.job = job
        self._call = call
        self._turn = threading.Lock()  # `cancel` and `hear` may be called at the same time

    def cancel(self) -> bool:
        """Remove the job from the queue. False once it has started: `job.cancel` ends it then."""
        _withdraw([self])
        return self.cancelled()

    def withdraw(self) -> None:
        """Mark the future as cancelled, because its job will not start."""
        the_watch().remove(self.job.id, self.hear)
        self._call.remove()
        with self._turn:
            if super().cancel():
                self.set_running_or_notify_cancel()

    def hear(self, kind: str, news: News) -> None:
        """Handle an event of the watch about its job."""
        if kind == "started":
            self._begin()
            return
        value: Any = None
        failure: BaseException | None = None
        try:
            if isinstance(news, DibsError):
                raise news
            found = self._call.result(news["attempts"])
            value = self._call.value(self.job.refresh()) if found is None else found.get(self.job)
        except BaseException as error:  # anything that the function raised
            failure = error
        self._call.remove()  # first: no folder is left when the result is available
        self._end(value, failure)

    def _begin(self) -> None:
        with self._turn:
            if not self.running() and not self.done():  # not for the first time, or cancelled
                self.set_running_or_notify_cancel()

    def _end(self, value: Any, error: BaseException | None) -> None:
        with self._turn:
            if self.done():  # it was cancelled
                return
            if error is not None:
                self.set_exception(error)
            else:
                self.set_result(value)


class Executor(StandardExecutor):
    """Runs functions as jobs of the queue, each with these wishes, and `max_workers` of them at once.

    `python` is another interpreter of the same version; `by_value` are modules that a job cannot import; `runner`
    are words that precede the interpreter, such as those of a container. In a job, `nested="inside"` runs the
    calls as processes of that job, on its GPUs, `max_workers` (1) at a time, instead of as jobs for which it would
    wait. Leaving a `with` block waits for all jobs; Ctrl-C in it ends them.
    """

    def __init__(
        self,
        max_workers: int | None = None,
        *,
        python: str = "",
        runner: Sequence[str] = (),
        by_value: Iterable[ModuleType] = (),
        nested: Literal["queue", "inside"] = "queue",
        **wishes: Unpack[JobKeywords],
    ) -> None:
        if "once" in wishes:
            raise BadInput("once names one job, and an Executor makes many", remedy="leave it out")
        if max_workers is not None and max_workers < 1:
            raise ValueError("max_workers must be greater than 0")  # as other executors
        self._shipping = CallSubmitter(
            wishes, python=python, runner=runner, by_value=tuple(by_value), most=max_workers
        )
        if nested not in ("queue", "inside"):
            raise BadInput(
                f"cannot read {nested!r:.60} as nested",
                remedy="it is 'queue', or 'inside' for the GPUs of this job",
            )
        self._is_in_job = "DIBS_JOB_ID" in os.environ
        self._inside = _inside(max_workers) if nested == "inside" and self._is_in_job else None
        self._lock = threading.Lock()
        self._is_shut = False
        self._open: set[JobFuture[Any]] = set()

    def submit(self, fn: Callable[_P, _T], /, *args: _P.args, **kwargs: _P.kwargs) -> JobFuture[_T]:
        """Call a function in a job; the future gets its value or its exception. Inside a job it has no `job`."""
        return self._submit(fn, [(args, kwargs)])[0]

    def map(
        self, fn: Callable[..., _T], *iterables: Iterable[Any], timeout: float | None = None, chunksize: int = 1
    ) -> Iterator[_T]:
        """The results of a call for each set of arguments, in their order; `chunksize` of them are one job."""
        if chunksize < 1:
            raise ValueError("chunksize must be >= 1.")  # as other executors
        ends_at = None if timeout is None else time.monotonic() + timeout
        calls: list[tuple[Sequence[Any], Mapping[str, Any]]] = [
            (words, {}) for words in zip(*iterables, strict=False)
        ]
        if chunksize == 1:
            return self._results(self._submit(fn, calls), ends_at)
        chunks: list[JobFuture[Any]] = self._submit(fn, calls, chunk=chunksize)
        return chain.from_iterable(self._results(chunks, ends_at))

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Accept no more calls; `cancel_futures` cancels those whose jobs have not started."""
        with self._lock:
            self._is_shut = True
            futures = list(self._open)
        if self._inside is not None:
            self._inside.shutdown(wait=wait, cancel_futures=cancel_futures)
            return
        if cancel_futures:
            _withdraw(futures)
        if wait:
            wait_for(futures)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> bool | None:
        if isinstance(error, KeyboardInterrupt):
            self._end_all()
        try:
            self.shutdown(wait=True)
        except KeyboardInterrupt:  # while it waits at the end of the block
            self._end_all()
            self.shutdown(wait=True)
            raise
        return None

    def _end_all(self) -> None:
        with self._lock:
            self._is_shut = True
            if self._inside is not None:
                self._inside.end_all()
                self._inside.shutdown(wait=False, cancel_futures=True)
                return
            numbers = [future.job.id for future in self._open]
        for start in range(0, len(numbers), _AT_ONCE):
            ask(partial(_kill, jobs=numbers[start : start + _AT_ONCE]))

    def _submit(
        self, fn: Callable[..., _T], calls: Sequence[tuple[Sequence[Any], Mapping[str, Any]]], *, chunk: int = 1
    ) -> list[JobFuture[_T]]:
        with self._lock:
            if self._is_shut:
                raise RuntimeError("cannot schedule new futures after shutdown")
        if not calls:
            return []
        if self._inside is not None:
            with self._shipping.packed(fn, calls, chunk=chunk) as packed:
                return packed.begin_inside(self._inside)  # type: ignore[return-value]  # see `submit`
        futures: list[JobFuture[_T]] = []
        watch = the_watch()
        with self._shipping.packed(fn, calls, chunk=chunk) as packed, watch.listening():
            for job, call in packed.send():
                future: JobFuture[_T] = JobFuture(job, call)
                futures.append(future)
                watch.add(job.id, future.hear)
        with self._lock:
            self._open.update(futures)
        for future in futures:
            future.add_done_callback(self._forget)
        if self._is_in_job:
            self._is_in_job = False  # asked once
            _warn_if_it_waits_for_itself(futures[0].job)
        return futures

    def _forget(self, future: Future[Any]) -> None:
        with self._lock:
            self._open.discard(future)

    def _results(self, futures: list[JobFuture[_T]], ends_at: float | None) -> Iterator[_T]:
        try:
            futures.reverse()  # popped from the end, so that yielded results can be freed
            while futures:
                left = None if ends_at is None else max(0.0, ends_at - time.monotonic())
                value = futures[-1].result(left)
                futures.pop()
                yield value
        finally:
            _withdraw(futures)


def _inside(max_workers: int | None) -> "CallsInside":
    from dibs.api.inside import CallsInside  # most programs are no jobs

    return CallsInside(max_workers or 1)


def _withdraw(futures: Sequence[JobFuture[Any]]) -> None:
    """Cancel those whose jobs have not started, in few calls.

    They are held first, so that none can start in between, and killed last, so that no listener gets their end.
    """
    for future in futures:
        if not isinstance(future, JobFuture):  # it runs inside a job
            future.cancel()
    waiting = {
        future.job.id: future
        for future in futures
        if isinstance(future, JobFuture) and not future.done() and not future.running()
    }
    numbers = list(waiting)
    for start in range(0, len(numbers), _AT_ONCE):
        held = ask(partial(_hold, jobs=numbers[start : start + _AT_ONCE]))
        for number in held:
            waiting[number].withdraw()
        if held:
            ask(partial(_kill, jobs=held))


def _warn_if_it_waits_for_itself(job: Job) -> None:
    """Say in the log of this job that its own GPUs are what its calls wait for."""
    with suppress(DibsError):
        reason = ask(lambda client: client.why(job.id))["reason"] or {}
        if reason.get("code") == "nested":
            say(f"job {job.id} {reason['sentence']}")


def _hold(client: Any, *, jobs: Sequence[int]) -> list[int]:
    answer = client.act("hold", jobs)
    # The others were held already, or have started.
    others = [one["id"] for one in answer["unchanged"] if client.job(one["id"])["state"] == "held"]
    return [*answer["changed"], *others]


def _kill(client: Any, *, jobs: Sequence[int]) -> None:
    client.act("kill", jobs)
