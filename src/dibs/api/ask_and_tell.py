"""A search by a strategy of one's own: `dibs.ask_and_tell` runs the points that a program names."""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from queue import SimpleQueue
from types import TracebackType
from typing import Any, Unpack

from dibs.api.executor import Executor
from dibs.api.job import Job
from dibs.api.job_keywords import JobKeywords
from dibs.api.submit import LimitedArray, add
from dibs.api.watch import News, the_watch
from dibs.api.wishes import read_wishes
from dibs.client.adding import command_of
from dibs.dataclass import dataclass
from dibs.errors import BadInput, DibsError
from dibs.model.jobs import Command
from dibs.sweeps.template import LineTemplate, WordsTemplate


@dataclass(frozen=True, slots=True)
class EndedPoint:
    """A point that has been run: its value, or what was raised instead."""

    params: Mapping[str, Any]
    value: Any  # the metric of a command, what a function returned; None where it failed
    error: BaseException | None
    job: Job


class AskAndTell:
    """Runs points: `add` puts one into the queue, and a loop gives them as they end.

    The loop ends when none is left; more may be added in it. Leaving a `with` block ends those that run.
    """

    def __init__(
        self,
        what: Callable[..., Any] | str | Sequence[str],
        *,
        metric: str = "",
        max_workers: int | None = None,
        **wishes: Unpack[JobKeywords],
    ) -> None:
        if not callable(what) and not metric:
            raise BadInput("a command needs a metric", remedy="metric='loss', which it reports in $DIBS_METRICS")
        self._what = what
        self._metric = metric
        self._wishes = wishes
        self._executor = Executor(max_workers, **wishes) if callable(what) else None
        if self._executor is None:
            read_wishes({word: wish for word, wish in wishes.items() if not word.startswith("after")})
        self._array = LimitedArray(max_workers) if max_workers is not None else None
        self._open: dict[int, Job] = {}
        self._ended: SimpleQueue[EndedPoint] = SimpleQueue()

    def add(self, params: Mapping[str, Any]) -> Job:
        """Run a point: a function is called with these keywords, in a command they replace `{lr}`."""
        params = dict(params)
        job = self._call(params) if self._executor is not None else self._command(params)
        self._open[job.id] = job
        return job

    def __iter__(self) -> Iterator[EndedPoint]:
        while self._open:
            point = self._ended.get()
            self._open.pop(point.job.id, None)
            yield point

    def __enter__(self) -> "AskAndTell":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for job in self._open.values():
            job.cancel()

    def _call(self, params: dict[str, Any]) -> Job:
        assert self._executor is not None and callable(self._what)
        future = self._executor.submit(self._what, **params)
        job = future.job

        def tell(_: Any) -> None:
            error = DibsError(f"job {job.id} was cancelled") if future.cancelled() else future.exception()
            value = None if error is not None else future.result()
            self._ended.put(EndedPoint(params, value, error, job))

        future.add_done_callback(tell)
        return job

    def _command(self, params: dict[str, Any]) -> Job:
        texts = {name: str(value) for name, value in params.items()}
        if isinstance(self._what, str):
            command = Command.line(LineTemplate(self._what, list(texts)).expand(texts))
        else:
            words = [os.fspath(word) for word in self._what]  # type: ignore[union-attr]
            command = Command.exact(WordsTemplate(words, list(texts)).expand(texts))
        new = [command_of(command)]
        watch = the_watch()
        with watch.listening():
            [job] = add(new, self._wishes) if self._array is None else self._array.add(new, self._wishes)

            def hear(kind: str, news: News) -> None:
                if kind == "started":
                    return
                value, error = None, None
                try:
                    value = job.metric(self._metric)
                except Exception as failure:
                    error = failure
                self._ended.put(EndedPoint(params, value, error, job))

            watch.add(job.id, hear)
        return job


ask_and_tell = AskAndTell
