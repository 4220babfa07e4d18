"""Functions as jobs: what an Executor and a decorated function have in common."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

from dibs.api.calls import Call, job_of, shown_call, write_call
from dibs.api.interpreter import check_interpreter, import_path
from dibs.api.job import Job
from dibs.api.runners import words_of
from dibs.api.submit import add
from dibs.api.wishes import read_wishes
from dibs.errors import BadInput

_Arguments = tuple[Sequence[Any], Mapping[str, Any]]
_AFTER = ("after", "after_any", "after_fail")


class Shipping:
    """How functions get into jobs: with these wishes, in this interpreter, by this runner. Checked at once."""

    def __init__(
        self,
        wishes: Mapping[str, Any],
        *,
        python: str = "",
        runner: Sequence[str] = (),
        by_value: Sequence[ModuleType] = (),
    ) -> None:
        # Jobs that come first may be named, and only the daemon knows the names: later.
        read_wishes({word: value for word, value in wishes.items() if word not in _AFTER})
        if python and not runner:  # what is called so behind a runner only the runner knows
            check_interpreter(python)
        self.wishes = dict(wishes)
        self._python = python
        self._path = import_path(python)
        self._by_value = by_value
        self._before = words_of(runner) if runner else ()

    @contextmanager
    def packed(self, function: Callable[..., Any], calls: Sequence[_Arguments]) -> "Iterator[Packed]":
        """Calls laid down for their jobs; removed again unless they are sent before the block ends."""
        if not callable(function):
            raise BadInput(f"cannot call {function!r:.60} in a job", remedy="give a function and its arguments")
        packed = Packed(self.wishes)
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
class Packed:
    """Calls that are ready to go."""

    wishes: Mapping[str, Any]
    calls: list[Call] = field(default_factory=list)
    jobs: list[dict[str, Any]] = field(default_factory=list)
    is_sent: bool = False

    def send(self) -> list[tuple[Job, Call]]:
        """Into the queue: all, or none."""
        sent = list(zip(add(self.jobs, self.wishes), self.calls, strict=True))
        self.is_sent = True
        for job, call in sent:
            call.keep(job.id)
        return sent
