"""A Python file whose `yielder()` yields jobs, read one by one as they are needed."""

import os
import reprlib
import sys
import traceback
import types
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from itertools import count
from typing import cast

from dibs.errors import BadInput, DibsError
from dibs.inputs.checks import check_request
from dibs.inputs.entries import Entry, open_input, refuse
from dibs.inputs.lines import split_prefix
from dibs.inputs.wishes import apply_wishes, job_from
from dibs.model.jobs import Command, Request

_numbers = count()
# A job file that calls sys.exit() has failed; it must not end dibs.
_FAILURES = (Exception, SystemExit)


class GeneratorFailed(DibsError):
    """A `yielder()` raised an exception. The jobs it yielded before stay."""

    code = "generator-failed"
    exit_status = 2


def load_generator(
    path: str, defaults: Request, shell: str = "bash", *, environment_size: int = 0
) -> Iterator[Entry]:
    """Run the file now, and call its `yielder()` when the first job is needed.

    A file that cannot be run, or has no `yielder`, raises BadInput at once. When `yielder()` raises,
    GeneratorFailed follows the jobs that it has yielded.
    """
    yielder = _load(path)
    return _entries(path, yielder, defaults, shell, environment_size)


def _entries(
    path: str, yielder: Callable[[], object], defaults: Request, shell: str, environment_size: int
) -> Iterator[Entry]:
    for number, item in enumerate(_items(path, yielder), start=1):
        try:
            request = _request(item, defaults, shell)
            check_request(request, environment_size)
            entry: Entry = request
        except BadInput as error:
            shown = item if isinstance(item, str) else reprlib.repr(item)
            entry = refuse(shown, error, f"{path}, job {number}")
        yield entry


def _request(item: object, defaults: Request, shell: str) -> Request:
    if isinstance(item, Mapping):
        return job_from(item, defaults, shell)
    if isinstance(item, str):
        wishes, text = split_prefix(str(item))
        command = Command.line(text.removesuffix("\n"), shell)
        return replace(apply_wishes(defaults, wishes, shell), command=command)
    raise BadInput(f"cannot read {reprlib.repr(item)} as a job", remedy="yield a command as text, or a mapping")


def _items(path: str, yielder: Callable[[], object]) -> Iterator[object]:
    try:
        items = yielder()
        if not isinstance(items, Iterable) or isinstance(items, str | bytes):
            raise TypeError(f"yielder() returned {reprlib.repr(items)}, not jobs one after another")
        yield from items
    except _FAILURES as error:
        raise GeneratorFailed(_told(path, error), remedy="the jobs before it stay") from error


def _load(path: str) -> Callable[[], object]:
    with open_input(path) as file:
        source = file.read()
    # Under a unique name: `if __name__ == "__main__"` must not run, and no other module is replaced.
    # It stays in sys.modules, where dataclasses and pickle look for the classes of the file.
    module = types.ModuleType(f"_dibs_jobs_{next(_numbers)}")
    module.__file__ = os.path.abspath(path)
    sys.modules[module.__name__] = module
    try:
        with _importable(os.path.dirname(module.__file__)):
            exec(compile(source, module.__file__, "exec"), module.__dict__)
    except _FAILURES as error:
        del sys.modules[module.__name__]
        raise BadInput(_told(path, error), remedy="the file must run before it can yield jobs") from error
    yielder = getattr(module, "yielder", None)
    if not callable(yielder):
        raise BadInput(
            f"{path} has no function yielder()",
            remedy="define one that yields commands, or run the file as a job: dibs run -- python FILE",
        )
    return cast(Callable[[], object], yielder)


@contextmanager
def _importable(folder: str) -> Iterator[None]:
    """Put the folder first on the path, as for a script, and afterwards last.

    Modules that `yielder()` imports later are still found, but a `click.py` in that folder cannot replace click.
    """
    sys.path.insert(0, folder)
    try:
        yield
    finally:
        with suppress(ValueError):
            sys.path.remove(folder)
        if folder not in sys.path:
            sys.path.append(folder)


def _told(path: str, error: BaseException) -> str:
    """`jobs.py line 12: ZeroDivisionError: division by zero`."""
    text = error.msg if isinstance(error, SyntaxError) else str(error)
    line = _line_of(os.path.abspath(path), error)
    place = f"{path} line {line}" if line else path
    return ": ".join([place, type(error).__name__, *text.splitlines()[:1]])


def _line_of(path: str, error: BaseException) -> int | None:
    """The innermost line of this file in the traceback."""
    if isinstance(error, SyntaxError) and error.filename == path:
        return error.lineno
    line = None
    for frame, number in traceback.walk_tb(error.__traceback__):
        if frame.f_code.co_filename == path:
            line = number
    return line
