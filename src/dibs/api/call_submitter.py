"""Adds calls of functions to the queue as jobs, for `@dibs.job`, `dibs.Executor` and the plugins."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import field
from types import ModuleType
from typing import Any

from dibs.api.calls import Call, check_interpreter, import_path, job_of, shown_call, words_of, write_call
from dibs.api.job import Job
from dibs.api.submit import add
from dibs.api.wishes import read_wishes
from dibs.dataclass import dataclass
from dibs.errors import BadInput

_Arguments = tuple[Sequence[Any], Mapping[str, Any]]
_AFTER = ("after", "after_any", "after_fail")


class CallSubmitter:
    """Adds calls of functions as jobs, with these wishes, interpreter and runner, which are checked at once."""

    def __init__(
        self,
        wishes: Mapping[str, Any],
        *,
        python: str = "",
        runner: Sequence[str] = (),
        by_value: Sequence[ModuleType] = (),
    ) -> None:
        # Dependencies may be given by name, which only the daemon can resolve: they are checked later.
        read_wishes({word: value for word, value in wishes.items() if word not in _AFTER})
        if python and not runner:  # inside a runner's container it may be another interpreter
            check_interpreter(python)
        self.wishes = dict(wishes)
        self._python = python
        self._path = import_path(python)
        self._by_value = by_value
        self._before = words_of(runner) if runner else ()

    @contextmanager
    def packed(self, function: Callable[..., Any], calls: Sequence[_Arguments]) -> "Iterator[PackedCalls]":
        """Written calls; removed at the end of the block unless they were sent."""
        if not callable(function):
            raise BadInput(f"cannot call {function!r:.60} in a job", remedy="give a function and its arguments")
        packed = PackedCalls(self.wishes)
        try:
            for words, named in calls:
                call = write_call(function, words, named, by_value=self._by_value, path=self._path)
                packed.calls.append(call)
                packed.jobs.append(
                    job_of(
                        call,
                        function,
                        shown_call(function, words, named),
                        python=self._python,
                        before=self._before,
                        named=bool(self.wishes.get("name")),
                    )
                )
            yield packed
        finally:
            if not packed.is_sent:
                for call in packed.calls:
                    call.remove()


@dataclass(slots=True)
class PackedCalls:
    """Written calls and their jobs."""

    wishes: Mapping[str, Any]
    calls: list[Call] = field(default_factory=list)
    jobs: list[dict[str, Any]] = field(default_factory=list)
    is_sent: bool = False

    def send(self) -> list[tuple[Job, Call]]:
        """Add the jobs: all, or none."""
        sent = list(zip(add(self.jobs, self.wishes), self.calls, strict=True))
        self.is_sent = True
        for job, call in sent:
            call.keep(job.id)
        return sent
