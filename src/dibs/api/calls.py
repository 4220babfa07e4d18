"""Calls of functions in jobs: a folder with the pickled call, to which the job adds its result.

The folders are private, beside the queue. Collecting a result removes its folder; the others are removed some days
after the end of the job.
"""

import contextlib
import functools
import io
import json
import os
import pickle
import re
import shutil
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache, partial
from types import ModuleType
from typing import TYPE_CHECKING, Any, NoReturn

from dibs.api.connection import ask
from dibs.api.errors import RemoteTraceback
from dibs.api.work import CALL, result_path
from dibs.dataclass import dataclass
from dibs.errors import BadInput, DibsError, NoSuchJob
from dibs.files import replace_file
from dibs.model.jobs import Command, folder_of_call
from dibs.model.units import parse_moment
from dibs.paths import make_private, queue_folder, state_folder
from dibs.supervise.folder import NotOurFile, open_own_file

if TYPE_CHECKING:
    from dibs.api.job import Job
    from dibs.client.client import Client

_CACHED: Any = functools._lru_cache_wrapper
_CACHE_INFO: Any = functools._CacheInfo
_WORK = os.path.join(os.path.dirname(os.path.abspath(__file__)), "work.py")
_JOB = "job"  # a file with the number of the call's job
_RUNNER = "--runner"
_UNCLAIMED = 86_400.0  # seconds after which a call without a job was left by a process that died
_KEPT = 7 * 86_400.0  # seconds that an uncollected result stays after the end of its job
_TIDY_EVERY = 3_600.0  # seconds
_AT_ONCE = 500  # jobs in one request
_LONGEST_SHOWN = 200  # characters of a call


@dataclass(frozen=True, slots=True)
class CallResult:
    """The result that a job added to its call: a value, an exception, or why there is neither."""

    head: Mapping[str, Any]
    data: bytes

    def get(self, job: "Job") -> Any:
        """The value. Raises the function's exception, and JobFailed for every other failure."""
        if self.head["kind"] == "value":
            try:
                return pickle.loads(self.data)
            except Exception as error:
                raise job.failure(f"cannot read what job {job.id} returned: {error!r}") from error
        cause = RemoteTraceback(self.head["traceback"]) if self.head.get("traceback") else None
        raised: BaseException | None = None
        if self.data:
            with contextlib.suppress(Exception):  # then only its text is shown
                raised = pickle.loads(self.data)
        raise raised or job.failure(f"job {job.id}: {self.head['message']}") from cause


@dataclass(frozen=True, slots=True)
class Call:
    """A function with its arguments, in a folder."""

    folder: str

    @classmethod
    def of(cls, about: Mapping[str, Any]) -> "Call | None":
        """The call of a job in the queue; None for a command."""
        words: Sequence[str] = about["words"]
        folder = folder_of_call(words)
        return None if not folder or words[-2].startswith(_RUNNER) else cls(folder)

    def keep(self, job: int) -> None:
        """Record the job of this call."""
        with contextlib.suppress(OSError):
            replace_file(f"{self.folder}/{_JOB}", str(job), sync=False)

    def result(self, attempt: int) -> CallResult | None:
        """The result of this attempt; None where it has none."""
        try:
            with open(open_own_file(result_path(self.folder, attempt)), "rb") as file:
                return CallResult(json.loads(file.readline()), file.read())
        except (FileNotFoundError, NotOurFile):
            return None

    def value(self, job: "Job") -> Any:
        """The value that the function returned, for a job that is over."""
        found = self.result(job.about["attempts"])
        if found is not None:
            return found.get(job)
        job.check()
        why = (
            "it ended by itself before it could return one"
            if os.path.exists(f"{self.folder}/{CALL}")
            else "it was collected before, or removed because it was not collected for days"
        )
        raise job.failure(f"job {job.id} has no value to give back: {why}")

    def remove(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)


def write_call(
    function: Callable[..., Any] | str,
    words: Sequence[Any] = (),
    named: Mapping[str, Any] | None = None,
    *,
    by_value: Iterable[ModuleType] = (),
    is_runner: bool = False,
    is_chunk: bool = False,
    path: Sequence[str] | None = None,
) -> Call:
    """Write a call for a job; the text `module:function` is imported in the job.

    The words of a chunk are the words of several calls.
    `by_value`: modules that the job cannot import, which are pickled by value. `path`: its module search path.
    """
    if isinstance(function, str):
        data = pickle.dumps((None, tuple(words), dict(named or {})))
    else:
        data = _pickled(function, tuple(words), dict(named or {}), tuple(by_value))
    head = {
        "python": list(sys.version_info[:2]),
        "path": list(import_path("") if path is None else path),
        "name": name_of(function),
        "function": function if isinstance(function, str) else "",
        "is_runner": is_runner,
        "is_chunk": is_chunk,
        "main": _script(),
    }
    shelf = _shelf()
    _tidy(shelf)
    folder = f"{shelf}/{os.urandom(12).hex()}"
    os.mkdir(folder, 0o700)
    try:
        with open(f"{folder}/{CALL}", "wb") as file:
            file.write(json.dumps(head).encode("ascii") + b"\n" + data)
            file.flush()
            os.fsync(file.fileno())  # an acknowledged job must find it after a power cut
    except BaseException as error:
        shutil.rmtree(folder, ignore_errors=True)
        if isinstance(error, OSError):
            raise DibsError(
                f"cannot write the call of a job to {folder}: {error.strerror}",
                remedy="free some space, or set DIBS_STATE to another disk",
            ) from error
        raise
    return Call(folder)


def job_of(
    call: Call,
    function: Callable[..., Any] | str,
    shown: str,
    *,
    python: str = "",
    before: Sequence[str] = (),
    named: bool = False,
    is_runner: bool = False,
) -> dict[str, Any]:
    """The new job of this call, as the API takes it; `before` are words that precede its command.

    Its name is that of the function, unless it is `named` already.
    """
    name = name_of(function)
    label = f"{_RUNNER}:{name}" if is_runner else label_of(function)
    words = [*before, python or sys.executable, _WORK, label, call.folder]
    return {"words": words, "command": shown} | ({} if is_runner or named else {"name": name})


def shown_call(function: Callable[..., Any], words: Sequence[Any], named: Mapping[str, Any]) -> str:
    """`train(0.1, layers=3)`: the job's command in lists."""
    import reprlib

    parts = [reprlib.repr(word) for word in words]
    parts += [f"{name}={reprlib.repr(word)}" for name, word in named.items()]
    text = " ".join(f"{name_of(function)}({', '.join(parts)})".split())
    text = text.encode("utf-8", "replace").decode().replace("\0", "")
    return text if len(text) <= _LONGEST_SHOWN else text[: _LONGEST_SHOWN - 2] + "…)"


def name_of(function: object) -> str:
    """The name of a function; of a partial, that of its function, and of a callable object, that of its class."""
    if isinstance(function, str):
        return function
    inner = getattr(function, "func", function)
    name = getattr(inner, "__name__", "") or type(inner).__name__
    return "".join(letter for letter in name if letter.isalnum() or letter == "_") or "call"


def label_of(function: object) -> str:
    """An argument that gives each function its own job shape: `--train:/data/ann/net/train.py`."""
    return f"--{name_of(function)}:{_home_of(function)}"


def _script() -> str:
    """The path of the program, which spawned processes import; empty where it is no file, as in Jupyter."""
    file = getattr(sys.modules.get("__main__"), "__file__", None)
    return os.path.abspath(file) if file and os.path.isfile(file) else ""


def _home_of(function: object) -> str:
    """The file of a function: functions of the same name in other files have other needs."""
    from inspect import unwrap

    inner: Any = getattr(function, "func", function)
    code = getattr(unwrap(inner), "__code__", None)
    return str(getattr(code, "co_filename", "")) or type(inner).__module__


def _pickled(
    function: Callable[..., Any], words: tuple[Any, ...], named: dict[str, Any], modules: Sequence[ModuleType]
) -> bytes:
    try:
        import cloudpickle
    except ImportError:
        raise DibsError(
            "cannot send a function to a job: cloudpickle is not installed",
            remedy="pip install 'dibs[python]', or submit a command instead",
        ) from None
    dumps = _dumps(cloudpickle.Pickler)
    with _by_value(modules):
        try:
            data = dumps((function, words, named))
        except Exception as error:
            _say_what_cannot_be_sent(dumps, function, words, named, error)
    return data


@cache
def _dumps(base: Any) -> Callable[[Any], bytes]:
    """Pickles as cloudpickle does, and cached functions of a script by value, as its other functions."""

    class Pickler(base):  # type: ignore[misc]
        def reducer_override(self, one: Any) -> Any:
            if type(one) is _CACHED and one.__module__ == "__main__":
                known = one.cache_parameters()
                make = one.__wrapped__, known["maxsize"], known["typed"], _CACHE_INFO
                return _CACHED, make, dict(vars(one))
            return super().reducer_override(one)

    def dumps(one: Any) -> bytes:
        with io.BytesIO() as file:
            Pickler(file).dump(one)
            return file.getvalue()

    return dumps


def _say_what_cannot_be_sent(
    dumps: Callable[[Any], bytes],
    function: Callable[..., Any],
    words: tuple[Any, ...],
    named: dict[str, Any],
    error: Exception,
) -> NoReturn:
    parts = [("the function itself", function)]
    parts += [(f"its argument {place}", word) for place, word in enumerate(words, 1)]
    parts += [(f"its argument {name}", word) for name, word in named.items()]
    for what, part in parts:
        try:
            dumps(part)
        except Exception as culprit:
            raise BadInput(
                f"cannot send {name_of(function)} to a job: {what} cannot be pickled ({culprit})",
                remedy="pass a path or plain values, and open files, locks and connections inside the function",
            ) from culprit
    raise BadInput(f"cannot send {name_of(function)} to a job: {error}", remedy="pass plain values") from error


@contextlib.contextmanager
def _by_value(modules: Sequence[ModuleType]) -> Iterator[None]:
    if not modules:
        yield
        return
    from cloudpickle import list_registry_pickle_by_value, register_pickle_by_value, unregister_pickle_by_value

    known = list_registry_pickle_by_value()
    ours = [module for module in modules if module.__name__ not in known]
    for module in ours:
        register_pickle_by_value(module)
    try:
        yield
    finally:
        for module in ours:
            unregister_pickle_by_value(module)


def _shelf() -> str:
    make_private(state_folder(os.environ))
    return make_private(f"{make_private(queue_folder(os.environ))}/calls")


_tidied_at: dict[str, float] = {}  # by shelf


def _tidy(shelf: str) -> None:
    """Remove results that will not be collected, once an hour at most. Never raises."""
    now = time.time()
    if now - _tidied_at.get(shelf, 0.0) < _TIDY_EVERY:
        return
    _tidied_at[shelf] = now
    numbers: dict[int, str] = {}
    with contextlib.suppress(OSError):
        for entry in os.scandir(shelf):
            if now - entry.stat(follow_symlinks=False).st_mtime < _UNCLAIMED:
                continue
            number = _number_in(entry.path)
            if number is None:
                shutil.rmtree(entry.path, ignore_errors=True)
            else:
                numbers[number] = entry.path
    with contextlib.suppress(DibsError):
        for number in _forgotten(list(numbers), now):
            shutil.rmtree(numbers[number], ignore_errors=True)


def _number_in(folder: str) -> int | None:
    try:
        with open(open_own_file(f"{folder}/{_JOB}")) as file:
            return int(file.read(100))
    except (OSError, ValueError):
        return None


def _forgotten(numbers: Sequence[int], now: float) -> Iterator[int]:
    """The jobs that were removed, or have been over for days."""
    for start in range(0, len(numbers), _AT_ONCE):
        asked = numbers[start : start + _AT_ONCE]
        try:
            answer = ask(partial(_those_over, jobs=asked))
        except NoSuchJob:  # raised for a single job
            yield from asked
            continue
        over = {job["id"]: job["ended_at"] for job in answer["jobs"]}
        for number in asked:
            if number in answer["waiting"]:
                continue
            ended_at = over.get(number)
            if ended_at is None or now - parse_moment(ended_at) > _KEPT:
                yield number


def _those_over(client: "Client", *, jobs: Sequence[int]) -> Mapping[str, Any]:
    return client.wait(jobs, seconds=0)


Runner = Sequence[str] | Callable[[str | list[str]], int | None] | str

_NAMED = re.compile(r"[\w.]+:[\w.]+")


def run_by(runner: Runner, command: Command) -> tuple[dict[str, Any], Call | None]:
    """The new job that runs a command with a runner, and its call where the runner is a function.

    A line is appended to the runner's words as one word, words as they are. A function, or `module:function`, gets
    the line as text or the words as a list; it returns the exit code.
    """
    is_line = len(command.words) == 3 and command.words[1:] == ("-c", command.shown)
    given: str | list[str] = command.shown if is_line else list(command.words)
    if callable(runner) or (isinstance(runner, str) and _NAMED.fullmatch(runner)):
        call = write_call(runner, (given,), is_runner=True)
        return job_of(call, runner, command.shown, is_runner=True), call
    words = words_of(runner)
    return {"words": [*words, *([given] if isinstance(given, str) else given)], "command": command.shown}, None


def words_of(runner: object) -> list[str]:
    """The words of a runner that is not a function."""
    is_words = isinstance(runner, Sequence) and not isinstance(runner, str | bytes)
    if is_words and runner and all(isinstance(word, str) and word for word in runner):  # type: ignore[attr-defined]
        return list(runner)  # type: ignore[call-overload, no-any-return]
    raise BadInput(
        f"cannot read {runner!r:.60} as a runner",
        remedy="it is words like ['apptainer', 'exec', 'image.sif'], a function, or 'module:function'",
    )


_PATIENCE = 30.0  # seconds; the first start of an interpreter on a network disk is slow
_PROBE = "import sys; print(*sys.version_info[:2]); import cloudpickle"


def import_path(python: str) -> Sequence[str]:
    """The module search path for a job; for another interpreter without the folders of this installation."""
    places = [os.path.abspath(place) if place else os.getcwd() for place in sys.path]
    if not python:
        return places
    ours = tuple(f"{prefix.rstrip('/')}/" for prefix in {sys.prefix, sys.base_prefix})
    return [place for place in places if not place.startswith(ours)]


@cache
def check_interpreter(python: str) -> None:
    """Raise BadInput for an interpreter that cannot load functions pickled by this one."""
    import subprocess

    try:
        asked = subprocess.run(
            [python, "-c", _PROBE], capture_output=True, text=True, timeout=_PATIENCE, stdin=subprocess.DEVNULL
        )
    except (OSError, subprocess.TimeoutExpired, ValueError) as error:
        raise BadInput(
            f"cannot use {python!r} as python: {error}", remedy="name an interpreter by its path"
        ) from error
    ours = f"{sys.version_info[0]} {sys.version_info[1]}"
    theirs = asked.stdout.strip()
    if theirs != ours:
        shown = theirs.replace(" ", ".") or "of an unknown version"
        raise BadInput(
            f"cannot send functions to {python}: it is Python {shown}, and this is {ours.replace(' ', '.')}",
            remedy="a pickled function can be read by the same version only; submit a command instead",
        )
    if asked.returncode:
        raise BadInput(
            f"cannot send functions to {python}: it cannot import cloudpickle",
            remedy=f"{python} -m pip install cloudpickle",
        )
