"""`@dibs.job(num_gpus=1)`: a function that can be called here, and sent to the queue."""

import functools
import sys
from collections.abc import Callable, Iterable, Sequence
from types import MethodType, ModuleType
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, TypeVar, Unpack, overload

from dibs.api.job import Job
from dibs.api.job_keywords import JobKeywords

if TYPE_CHECKING:
    from dibs.api.call_submitter import CallSubmitter

_P = ParamSpec("_P")
_T = TypeVar("_T")


class Submitter(Generic[_P, _T]):
    """A function with wishes. A call runs it here; `submit` and `map` run it in jobs."""

    def __init__(self, function: Callable[_P, _T], wishes: dict[str, Any], options: dict[str, Any]) -> None:
        functools.update_wrapper(self, function)  # first: if the function is a Submitter, this copies its fields
        self._function = function
        self._wishes = wishes
        self._options = options  # python, runner, by_value
        self._made: CallSubmitter | None = None

    def __call__(self, /, *args: _P.args, **kwargs: _P.kwargs) -> _T:
        return self._function(*args, **kwargs)

    def submit(self, /, *args: _P.args, **kwargs: _P.kwargs) -> Job:
        """Call it in a job of the queue; `job.result()` is what it returns."""
        with self._shipping().packed(self, [(args, kwargs)]) as packed:
            return packed.send()[0][0]

    def map(self, *iterables: Iterable[Any]) -> list[Job]:
        """A job for each set of arguments, in their order."""
        calls: list[tuple[tuple[Any, ...], dict[str, Any]]] = [
            (words, {}) for words in zip(*iterables, strict=False)
        ]
        if not calls:
            return []
        with self._shipping().packed(self, calls) as packed:
            return [job for job, _ in packed.send()]

    def wishing(self, **wishes: Unpack[JobKeywords]) -> "Submitter[_P, _T]":
        """The same function with other wishes: `train.wishing(num_gpus=2).submit(cfg)`."""
        return Submitter(self._function, {**self._wishes, **wishes}, self._options)

    def _shipping(self) -> "CallSubmitter":
        if self._made is None:
            from dibs.api.call_submitter import CallSubmitter

            self._made = CallSubmitter(self._wishes, **self._options)
        return self._made

    def __get__(self, owner: object, kind: type | None = None) -> Any:
        """Bind it as a method, which can be called and submitted."""
        return self if owner is None else Submitter(MethodType(self, owner), self._wishes, self._options)

    def __reduce__(self) -> Any:
        """Pickle it by name where a job can import it, otherwise by value."""
        if _can_be_imported(self):
            return self.__qualname__  # type: ignore[attr-defined]  # given by update_wrapper
        return Submitter, (self._function, self._wishes, self._options)


@overload
def job(function: Callable[_P, _T], /) -> Submitter[_P, _T]: ...


@overload
def job(
    *,
    python: str = ...,
    runner: Sequence[str] = ...,
    by_value: Iterable[ModuleType] = ...,
    **wishes: Unpack[JobKeywords],
) -> Callable[[Callable[_P, _T]], Submitter[_P, _T]]: ...


def job(
    function: Callable[..., Any] | None = None,
    /,
    *,
    python: str = "",
    runner: Sequence[str] = (),
    by_value: Iterable[ModuleType] = (),
    **wishes: Unpack[JobKeywords],
) -> Any:
    """Let a function be submitted to the queue, with these wishes: `@dibs.job(num_gpus=1)`."""
    options = {"python": python, "runner": runner, "by_value": tuple(by_value)}

    def decorate(function: Callable[..., Any]) -> Submitter[..., Any]:
        return Submitter(function, dict(wishes), options)

    return decorate if function is None else decorate(function)


def _can_be_imported(submitter: Submitter[..., Any]) -> bool:
    if submitter.__module__ == "__main__":
        return False
    found: Any = sys.modules.get(submitter.__module__)
    for part in submitter.__qualname__.split("."):  # type: ignore[attr-defined]  # given by update_wrapper
        found = getattr(found, part, None)
    return found is submitter
