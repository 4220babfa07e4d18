"""From a fork of the warm process to a job: everything around it as a fresh interpreter would find it.

Python itself runs the job, at the end of its own start (hook/sitecustomize.py). It was started to run a module; we
stand in for the one that it asks to do so, and give it C functions of its own to call: no frame of ours is below
the job's, in no traceback and no stack. Standard library only.
"""

import atexit
import contextlib
import ctypes
import functools
import gc
import io
import os
import sys
from dataclasses import dataclass
from types import CodeType
from typing import Any

from dibs.supervise.warm.python_line import CODE, MODULE, SCRIPT, PythonLine


@dataclass(frozen=True, slots=True)
class ForkInputs:
    """What a fork needs to know to become its job."""

    line: PythonLine
    workdir: str
    environment: dict[bytes, bytes]
    leases: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class OpenedFiles:
    """An open file: its flags and its offset."""

    flags: int
    offset: int
    is_inheritable: bool


@dataclass(frozen=True, slots=True)
class Parent:
    """What the warm process remembers for its jobs."""

    fds: "dict[int, OpenedFiles]"  # opened by the modules while they were imported
    said: tuple[bytes, bytes]  # what they wrote to stdout and stderr
    changed: "dict[bytes, tuple[bytes | None, bytes | None]]"  # variables that Python or the modules changed
    first: str | None  # the folder of its scripts
    place: int  # of the job's own folder in `sys.path`
    collects: bool  # whether the garbage collector is on
    title: "ProcessTitle"
    work: CodeType | None  # the script that runs functions, compiled: half of what a short call takes


_left: list[object] = []  # by those who began a job, and kept: to take it apart would copy what all jobs share


def set_streams(actions: list[Any]) -> None:
    """Do what `posix_spawn` does with its file actions."""
    for action in actions:
        if action[0] == os.POSIX_SPAWN_OPEN:
            _, number, path, flags, mode = action
            fd = os.open(path, flags, mode)
            os.dup2(fd, number)
            if fd != number:
                os.close(fd)
        else:
            os.dup2(action[1], action[2])


def begin(born: ForkInputs, parent: Parent, kept: object) -> None:
    """Set up this process; when the caller has returned to Python, it runs the job.

    `kept` is what the caller leaves behind.
    """
    _close_all_but({0, 1, 2, *parent.fds, *born.leases})
    for fd, opened in parent.fds.items():
        _open_again(fd, opened)
    os.chdir(born.workdir)
    _set_environment(born.environment, parent)
    parent.title.set(born.line.words, born.environment)
    sys.argv[:] = map(os.fsdecode, born.line.argv)
    sys.orig_argv[:] = map(os.fsdecode, born.line.words)
    for number, said in enumerate(parent.said, start=1):
        _write(number, said)
    _open_streams()
    _renew_modules()
    _left.append(kept)
    # What was frozen to be shared is never collected. Some libraries count at the end what is left, and complain.
    atexit.register(gc.unfreeze)
    if parent.collects:
        gc.enable()
    sys.modules["runpy"] = _Runner(born.line, parent)  # type: ignore[assignment]


def changes(
    before: dict[bytes, bytes], after: dict[bytes, bytes]
) -> "dict[bytes, tuple[bytes | None, bytes | None]]":
    """The variables that differ, each before and after."""
    pairs = {name: (before.get(name), after.get(name)) for name in before.keys() | after.keys()}
    return {name: pair for name, pair in pairs.items() if pair[0] != pair[1]}


def _set_environment(wanted: dict[bytes, bytes], parent: Parent) -> None:
    """The job's variables, with whatever Python and the modules change at every start."""
    variables = dict(wanted)
    for name, (before, after) in parent.changed.items():
        if wanted.get(name) == before:
            variables.pop(name, None)
            if after is not None:
                variables[name] = after
    # Most are those of the warm process: to set only what differs copies less. The order is that of a fresh start.
    present: Any = os.environ._data  # type: ignore[attr-defined]
    for name in present.keys() - variables.keys():
        os.unsetenv(name)
    for name, value in variables.items() - present.items():
        os.putenv(name, value)
    present.clear()
    present.update(variables)


def _close_all_but(kept: set[int]) -> None:
    for fd in map(int, os.listdir("/proc/self/fd")):
        if fd not in kept:
            with contextlib.suppress(OSError):  # the listing's own
                os.close(fd)


def _open_again(fd: int, opened: OpenedFiles) -> None:
    """Give a file that the modules opened a place to read of its own: a fork shares it with all other jobs."""
    with contextlib.suppress(OSError):
        flags = opened.flags & ~(os.O_CREAT | os.O_EXCL | os.O_TRUNC)
        own = os.open(f"/proc/self/fd/{fd}", flags | os.O_CLOEXEC)
        if opened.offset:
            os.lseek(own, opened.offset, os.SEEK_SET)
        os.dup2(own, fd, opened.is_inheritable)
        os.close(own)


def _write(fd: int, text: bytes) -> None:
    with contextlib.suppress(OSError):
        while text:
            text = text[os.write(fd, text) :]


def _open_streams() -> None:
    """Make Python's streams anew, in place: what modules took hold of writes to the job's log as well."""
    streams: tuple[Any, ...] = (sys.__stdin__, sys.__stdout__, sys.__stderr__)
    is_direct = not hasattr(streams[1].buffer, "raw")  # -u
    for fd, stream in enumerate(streams):
        mode = "r" if fd == 0 else "w"
        raw: Any = io.FileIO(fd, f"{mode}b", closefd=False)
        raw.name = stream.name
        buffer = raw
        if hasattr(stream.buffer, "raw"):
            buffer = stream.buffer
            size = os.fstat(fd).st_blksize
            buffer.__init__(raw, size if size > 1 else io.DEFAULT_BUFFER_SIZE)
        stream.__init__(
            buffer,
            encoding=stream.encoding,
            errors=stream.errors,
            newline="\n",
            line_buffering=not is_direct and (fd == 2 or raw.isatty()),
            write_through=is_direct,
        )
        stream.mode = mode


def _renew_modules() -> None:
    """What a module does once per process when it is imported, where a fork would give all jobs the same.

    `random` sees to itself. PyTorch begins with the same seed in every process.
    """
    modules: dict[str, Any] = sys.modules
    with contextlib.suppress(Exception):
        if "numpy.random" in modules:
            modules["numpy.random"].seed()
        if "multiprocessing.process" in modules:
            modules["multiprocessing.process"].current_process().authkey = os.urandom(32)
        if "threading" in modules:
            modules["threading"].main_thread()._set_native_id()
        if "logging" in modules:
            logging, clock = modules["logging"], modules["time"]
            is_new = isinstance(logging._startTime, int)
            logging._startTime = clock.time_ns() if is_new else clock.time()


class _Runner:
    """Stands where Python looks for `runpy`, once: it is asked for the function that runs a module."""

    def __init__(self, line: PythonLine, parent: Parent) -> None:
        self._line = line
        self._parent = parent
        self._before = sys.modules.get("runpy")
        self._path = len(sys.path)

    def __getattr__(self, name: str) -> Any:
        if name != "_run_module_as_main":
            raise AttributeError(name)
        del sys.modules["runpy"]
        if self._before is not None:
            sys.modules["runpy"] = self._before
        kind, target = self._line.kind, os.fsdecode(self._line.target)
        if len(sys.path) > self._path:  # Python has put the folder of a module there, before everything else
            del sys.path[0]
        # That of a script was found when the warm process was asked whether it takes it.
        if (folder := self._parent.first if kind == SCRIPT else first_folder(kind, target)) is not None:
            sys.path.insert(self._parent.place, folder)
        if kind == MODULE:
            import runpy

            return _call_module(runpy, target)
        work = self._parent.work
        if work is not None and target == work.co_filename:
            return _call_work(work)
        return _call_code(self._line.target) if kind == CODE else _call_script(self._line)


def first_folder(kind: str, target: str) -> str | None:
    """What stands first in `sys.path`; None where nothing is put there (-P)."""
    if sys.flags.safe_path:
        return None
    if kind == CODE:
        return ""
    return os.getcwd() if kind == MODULE else os.path.dirname(os.path.realpath(target))


# Python calls what it gets from us with a name and True. A C function does not see arguments it does not take.


def _call_module(runpy: Any, name: str) -> Any:
    call = ctypes.pythonapi.PyObject_Call
    call.restype = ctypes.py_object
    call.argtypes = [ctypes.py_object, ctypes.py_object, ctypes.c_void_p]
    return functools.partial(call, runpy._run_module_as_main, (name, True), None)


def _call_code(code: bytes) -> Any:
    call = ctypes.pythonapi.PyRun_SimpleStringFlags
    if sys.version_info >= (3, 13):
        # It shows the lines of such code in tracebacks, where it knows them. What cannot be read is refused below.
        with contextlib.suppress(Exception):
            import linecache

            text = os.fsdecode(code) + "\n"
            compiled = compile(text, "<string>", "exec", dont_inherit=True)
            by_code = hasattr(linecache, "_interactive_cache")  # by their name in the first ones
            linecache._register_code(compiled if by_code else "<string>", text, "<string>")  # type: ignore[attr-defined]
            return _call_compiled(compiled)
    call.restype = ctypes.c_int
    call.argtypes = [ctypes.c_char_p, ctypes.c_void_p]
    call.errcheck = _fail  # type: ignore[assignment]
    return functools.partial(call, code + b"\n", None)


_eval = ctypes.pythonapi.PyEval_EvalCode  # made once: in each job it would cost a tenth of its time
_eval.restype = ctypes.py_object
_eval.argtypes = [ctypes.py_object] * 3


def _call_compiled(code: CodeType) -> Any:
    variables = vars(sys.modules["__main__"])
    return functools.partial(_eval, code, variables, variables)


def _call_work(code: CodeType) -> Any:
    main = vars(sys.modules["__main__"])
    main["__file__"] = code.co_filename
    main["_IS_FORKED"] = True
    return _call_compiled(code)


def _call_script(line: PythonLine) -> Any:
    libc = ctypes.CDLL(None, use_errno=True)
    libc.fopen.restype = ctypes.c_void_p
    path = os.path.join(os.getcwdb(), line.target)
    file = libc.fopen(path, b"rbe")
    if not file:
        number = ctypes.get_errno()
        reason = f"can't open file {os.fsdecode(path)!r}: [Errno {number}] {os.strerror(number)}\n"
        _write(2, os.fsencode(f"{os.fsdecode(line.interpreter)}: {reason}"))
        os._exit(2)
    call = ctypes.pythonapi.PyRun_SimpleFileExFlags
    call.restype = ctypes.c_int
    call.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_int, ctypes.c_void_p]
    call.errcheck = _fail  # type: ignore[assignment]
    return functools.partial(call, file, path, 1, None)


def _fail(result: int, function: Any, arguments: Any) -> None:
    """It ended with an exception, and Python has shown it."""
    if result != 0:
        raise SystemExit(1)


class ProcessTitle:
    """The memory in which /proc shows a process's command and variables.

    The variables of its start stay: code may have pointers to them. Only the room that was left free is written.
    """

    def __init__(self, variable: str) -> None:
        with open("/proc/self/stat", "rb") as file:
            words = file.read().rpartition(b")")[2].split()
        self._arguments = (int(words[45]), int(words[46]))
        start, end = int(words[47]), int(words[48])
        with open("/proc/self/environ", "rb") as environ:
            content = environ.read()
        found = content.find(variable.encode() + b"=")
        is_there = found >= 0 and end > start
        self._variables = (start + found, start + content.find(b"\0", found)) if is_there else (0, 0)

    def set(self, words: list[bytes], environment: dict[bytes, bytes]) -> None:
        """Show this command, and what this job has for itself."""
        # A last byte that is no NUL tells the kernel that the command is one text from here on.
        _fill(self._arguments, b" ".join(words), last=b".")
        # The mark by which the processes of a job are found comes first.
        names = sorted(environment, key=lambda name: (name != b"DIBS_METRICS", not name.startswith(b"DIBS_")))
        _fill(self._variables, b"".join(name + b"=" + environment[name] + b"\0" for name in names))


def _fill(room: tuple[int, int], content: bytes, last: bytes = b"\0") -> None:
    start, end = room
    size = end - start
    if start > 0 and size > 1:
        ctypes.memmove(start, content[: size - 2].ljust(size - 1, b"\0") + last, size)
