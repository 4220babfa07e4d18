"""Becoming a warm process: a fork of the zygote that turns into the job's own interpreter.

Here, and not in the engine, because whatever looks at folders of the user may take its time. Standard library
only.
"""

import fcntl
import json
import os
import signal
import stat
import sys
import time
from collections.abc import Iterable, Mapping
from typing import Any, NoReturn

from dibs.supervise.command import Environment, shell_is_changed

NAME = "dibs_warm_start"  # there is no such module: an interpreter that does not let us take hold ends at once
VARIABLE = "DIBS_WARM"
_HOOK = os.path.join(os.path.dirname(os.path.abspath(__file__)), "hook")
_FIRST_OWN = 200  # our descriptors are out of the way of those that modules open
_ROOM = 8192  # bytes for the command and for the variables that a job will show in /proc
_Mark = tuple[int, int, int, int] | None


class WarmStartRefused(Exception):
    """There can be no warm process of this kind; the sentence says why."""


def become_warm(channel: int, order_fd: int) -> NoReturn:
    """Execute the interpreter of an order, or tell the engine why that cannot be."""
    try:
        order = read_order(order_fd)
        _execute(order, channel, order_fd)
    except WarmStartRefused as refused:
        refuse(channel, str(refused))
    except OSError as error:
        refuse(channel, f"its interpreter cannot be started: {os.strerror(error.errno or 0)}")
    except Exception as error:  # a bug of ours: the job runs all the same
        refuse(channel, f"its interpreter cannot be started: {error!r}")


def refuse(channel: int, why: str) -> NoReturn:
    """Say that jobs of this kind are to be started afresh, and end without a trace."""
    os.write(channel, b"no " + why.encode("utf-8", "replace")[:2000])
    os._exit(0)


def read_order(fd: int) -> dict[str, Any]:
    order: dict[str, Any] = json.loads(os.pread(fd, os.fstat(fd).st_size, 0))
    return order


def variables_of(order: dict[str, Any]) -> dict[bytes, bytes]:
    """The environment in which modules are imported: the job's own, less what tells one attempt from another."""
    with open(order["environment"], "rb") as file:
        return Environment(json.loads(file.read())).variables | Environment(order["env"]).variables


def find_program(name: bytes, path: bytes, workdir: bytes) -> bytes | None:
    """The path of a command, searched from this folder as `execvp` does."""
    if b"/" in name:
        return os.path.join(workdir, name)
    for folder in path.split(b":"):
        candidate = os.path.join(workdir, folder, name)
        if os.access(candidate, os.X_OK) and os.path.isfile(candidate):
            return candidate
    return None


def memory_is_short(least: float = 0.1) -> bool:
    """Whether less than this part of the machine's memory is left."""
    found = {}
    try:
        with open("/proc/meminfo", "rb") as file:
            for line in file:
                name, _, rest = line.partition(b":")
                found[name] = int(rest.split()[0])
        return found[b"MemAvailable"] < found[b"MemTotal"] * least
    except (OSError, KeyError, ValueError, IndexError):
        return False


def _execute(order: dict[str, Any], channel: int, order_fd: int) -> NoReturn:
    environment = variables_of(order)
    if order["by_shell"] and shell_is_changed(environment):
        raise WarmStartRefused("its environment changes what bash does")
    interpreter = order["interpreter"].encode("utf-8", "surrogateescape")
    os.umask(order["umask"])
    os.chdir(order["workdir"])
    program = find_program(interpreter, environment.get(b"PATH", os.defpath.encode()), os.getcwdb())
    if program is None or not _is_program(program):
        raise WarmStartRefused(f"{order['interpreter']} is no interpreter, but a script or missing")
    if memory_is_short():
        raise WarmStartRefused("the machine's memory is short")
    if order["cpus"]:
        os.sched_setaffinity(0, os.sched_getaffinity(0).intersection(order["cpus"]))
    os.setsid()
    for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
        signal.signal(number, signal.SIG_DFL)
    fds = [_moved(channel), _moved(order_fd)]
    path = environment.get(b"PYTHONPATH", b"")
    environment[b"PYTHONPATH"] = os.fsencode(_HOOK) + (b":" + path if path else b"")
    # The blanks are room for the job's own command and variables, as /proc shows them.
    environment[VARIABLE.encode()] = f"{fds[0]} {fds[1]}".encode().ljust(_ROOM)
    flags = [flag.encode("utf-8", "surrogateescape") for flag in order["flags"]]
    os.execve(program, [interpreter, *flags, b"-m", NAME.encode(), b" " * _ROOM], environment)


def _is_program(path: bytes) -> bool:
    """Whether it is machine code: a script would change the environment before it starts the interpreter."""
    if not stat.S_ISREG(os.stat(path).st_mode):
        return False
    with open(path, "rb") as file:
        return file.read(4) == b"\x7fELF"


def _moved(fd: int) -> int:
    return fcntl.fcntl(fd, fcntl.F_DUPFD, _FIRST_OWN)


class Footprint:
    """Taken after the imports; `change` tells what is different now."""

    def __init__(
        self, interpreter: bytes, first: str | None, workdir: str, began: float, also: Iterable[str] = ()
    ) -> None:
        self._interpreter = interpreter
        self._first = first
        self._workdir = workdir
        self._program = self._found()
        self._names = {name.partition(".")[0] for name in sys.modules}
        files = {*_module_files(), *_mapped_files(), *_homes(), sys.executable, *also}
        self._marks: Mapping[str, _Mark] = {path: _mark(path) for path in files}
        self._shadows = self._visible()
        # A file may have been written after it was read. A time in the future proves nothing.
        now = time.time()
        self._was_late = next(
            (path for path, mark in self._marks.items() if mark is not None and began < mark[2] / 1e9 <= now), ""
        )

    def change(self) -> str:
        """A sentence about the first difference; empty where there is none."""
        if self._was_late:
            return f"{self._was_late} was changed"
        if self._found() != self._program:
            return "its interpreter is another one"
        for path, mark in self._marks.items():
            if _mark(path) != mark:
                return f"{path} was changed"
        if self._visible() != self._shadows:
            return "another module came before one that was imported"
        return ""

    def _found(self) -> tuple[bytes | None, _Mark]:
        """Where the interpreter is found now, as its command names it."""
        path = os.environb.get(b"PATH", os.defpath.encode())
        program = find_program(self._interpreter, path, os.fsencode(self._workdir))
        return program, None if program is None else _mark(os.fsdecode(program))

    def _visible(self) -> frozenset[tuple[str, str]]:
        """Names that we imported, as they stand in the folders that people work in."""
        found = []
        for folder in {folder for folder in (self._first, *sys.path) if folder is not None}:
            if not folder.startswith((sys.base_prefix, sys.prefix)):
                names = _listed(os.path.join(self._workdir, folder))
                found += [(folder, name) for name in names if _module_in(name) in self._names]
        return frozenset(found)


def _module_in(name: str) -> str:
    """What a file or folder of this name could be imported as; empty where it could not."""
    stem, dot, _ = name.partition(".")
    return stem if not dot or name.endswith((".py", ".pyc", ".so")) else ""


def _listed(folder: str) -> list[str]:
    try:
        return os.listdir(folder)
    except OSError:
        return []


def _module_files() -> Iterable[str]:
    for module in list(sys.modules.values()):
        path = getattr(module, "__file__", None)
        if isinstance(path, str) and path.startswith("/"):
            yield path


def _mapped_files() -> Iterable[str]:
    """Shared libraries, which Python does not know of."""
    with open("/proc/self/maps", errors="surrogateescape") as file:
        for line in file:
            words = line.rstrip("\n").split(maxsplit=5)
            if len(words) == 6 and words[5].startswith("/") and ".so" in words[5]:
                yield words[5]


def _homes() -> Iterable[str]:
    """Folders that change when something is installed."""
    yield os.path.join(sys.prefix, "pyvenv.cfg")
    for folder in sys.path:
        if folder.endswith(("site-packages", "dist-packages")):
            yield folder


def _mark(path: str) -> _Mark:
    try:
        seen = os.stat(path)
    except OSError:
        return None
    return seen.st_dev, seen.st_ino, seen.st_mtime_ns, seen.st_size
