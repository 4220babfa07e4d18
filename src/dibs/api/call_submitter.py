"""Adds calls of functions to the queue as jobs, for `@dibs.job`, `dibs.Executor` and the plugins."""

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import field
from types import ModuleType
from typing import TYPE_CHECKING, Any

from dibs.api.calls import Call, check_interpreter, import_path, job_of, name_of, shown_call, words_of, write_call
from dibs.api.job import Job
from dibs.api.submit import LimitedArray, add
from dibs.api.wishes import read_wishes
from dibs.dataclass import dataclass
from dibs.errors import BadInput

if TYPE_CHECKING:
    from concurrent.futures import Future

    from dibs.api.inside import CallsInside

_Arguments = tuple[Sequence[Any], Mapping[str, Any]]
_AFTER = ("after", "after_any", "after_fail")


class CallSubmitter:
    """Adds calls of functions as jobs, with these wishes, interpreter and runner, which are checked at once.

    `most` of them run at once: they are the tasks of one array.
    """

    def __init__(
        self,
        wishes: Mapping[str, Any],
        *,
        python: str = "",
        runner: Sequence[str] = (),
        by_value: Sequence[ModuleType] = (),
        most: int | None = None,
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
        self._array = None if most is None else LimitedArray(most)

    @contextmanager
    def packed(
        self, function: Callable[..., Any], calls: Sequence[_Arguments], *, chunk: int = 1
    ) -> "Iterator[PackedCalls]":
        """Written calls; removed at the end of the block unless they were sent.

        With a larger `chunk`, so many calls by position are one job, whose value is the list of theirs.
        """
        if not callable(function):
            raise BadInput(f"cannot call {function!r:.60} in a job", remedy="give a function and its arguments")
        if _is_importing_the_script():
            raise BadInput(
                f"cannot send {name_of(function)} to a job: multiprocessing imports this script once more in each "
                "process that it spawns, and each would add the jobs again",
                remedy="put the part that adds jobs behind `if __name__ == '__main__':`",
            )
        packed = PackedCalls(self.wishes, self._array)
        shown = [shown_call(function, words, named) for words, named in calls[::chunk]]
        if chunk > 1:
            parts = [[words for words, _ in calls[at : at + chunk]] for at in range(0, len(calls), chunk)]
            shown = [_with_others(text, len(part)) for text, part in zip(shown, parts, strict=True)]
            calls = [(part, {}) for part in parts]
        try:
            for (words, named), text in zip(calls, shown, strict=True):
                call = write_call(
                    function, words, named, by_value=self._by_value, path=self._path, is_chunk=chunk > 1
                )
                packed.calls.append(call)
                packed.jobs.append(
                    job_of(
                        call,
                        function,
                        text,
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
    array: LimitedArray | None = None
    calls: list[Call] = field(default_factory=list)
    jobs: list[dict[str, Any]] = field(default_factory=list)
    is_sent: bool = False

    def begin_inside(self, inside: "CallsInside") -> "list[Future[Any]]":
        """Run the calls as processes of this job instead."""
        self.is_sent = True
        return [inside.begin(job["words"], call) for job, call in zip(self.jobs, self.calls, strict=True)]

    def send(self) -> list[tuple[Job, Call]]:
        """Add the jobs: all, or none."""
        jobs = add(self.jobs, self.wishes) if self.array is None else self.array.add(self.jobs, self.wishes)
        sent = list(zip(jobs, self.calls, strict=True))
        self.is_sent = True
        for job, call in sent:
            call.keep(job.id)
        return sent


def _with_others(shown: str, number: int) -> str:
    return shown if number == 1 else f"{shown} and {number - 1} more"


def _is_importing_the_script() -> bool:
    """Whether this is a spawned process of multiprocessing that has not begun its work."""
    process = sys.modules.get("multiprocessing.process")
    return process is not None and getattr(process.current_process(), "_inheriting", False)
