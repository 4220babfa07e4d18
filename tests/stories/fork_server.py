"""A process that has imported all of dibs, or an adviser, and forks for each of them that a test starts.

Importing the daemon takes longer than most tests. A forked dibs has the arguments, variables, folder, descriptors,
umask and session of an executed one, `ps` shows them, and its exit status comes back. A daemon that a forked
command starts is forked too, and so is an adviser that a forked daemon starts, where `ADVISERS` names the server
for those. What a fork leaves out is the start of an interpreter: `can_fork` says when a test
gets a real one without asking.

This file is both sides. Run as a program it is the server, which imports nothing of the tests.
"""

import asyncio
import atexit
import contextlib
import ctypes
import fcntl
import gc
import importlib
import importlib.util
import inspect
import io
import marshal
import os
import pkgutil
import runpy
import select
import shlex
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any
from unittest.mock import MagicMock

_BIN = os.path.dirname(sys.executable)
# The console scripts, and the modules whose `main` they call.
_COMPAT = ("simple_gpu_scheduler", "simple_hypersearch", "hog", "schedule")
_SCRIPTS = {f"{_BIN}/dibs": "dibs.cli.main", **{f"{_BIN}/{name}": f"dibs.compat.{name}" for name in _COMPAT}}
_MODULE = (sys.executable, "-P", "-m", "dibs")
_ADVISER = (sys.executable, "-P", "-m", "dibs.sweeps.adviser_process")
DIBS_MAIN, ADVISER_MAIN = "dibs.cli.main", "dibs.sweeps.adviser_process"  # the modules whose `main` a fork calls
# Variables that the interpreter or the C library reads once, at its start. A fork has the server's.
_READ_AT_THE_START = ("PYTHON", "LC_", "LANG", "LD_", "MALLOC_", "GLIBC_")
_MOST_BYTES = 60_000  # of arguments and variables together; with more, a test is about the kernel's limits
PLANTED = "planted.py"  # a program by this name changes what is imported, and calls a `main`
ADVISERS = "DIBS_TESTS_ADVISERS"  # the variable with the address of the server that has imported the adviser
_POPEN_OPTIONS = {"cwd", "env", "stdin", "stdout", "stderr", "umask", "start_new_session", "pass_fds"}
_FIRST_FREE = 1000  # a descriptor above those that a fork is given

# -- the tests' side -------------------------------------------------------------------------------------


class ForkServer:
    """The server of this test process; it ends with this process."""

    def __init__(self, environment: Mapping[str, str], main: str = DIBS_MAIN) -> None:
        # Memory in which /proc later shows the arguments and variables of the forks.
        room = " " * _MOST_BYTES
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
            listener.bind("")
            listener.listen(64)
            self.forks = Forks(listener.getsockname(), environment, main)
            self.name = listener.getsockname()[1:].decode()  # without the NUL of an abstract address
            reader, self._life = os.pipe()
            self._process = subprocess.Popen(
                [sys.executable, __file__, str(listener.fileno()), str(reader), main, room],
                env={**environment, "DIBS_TESTS_ROOM": room},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                pass_fds=(listener.fileno(), reader),
                cwd="/",
            )
            os.close(reader)
        self.pid = self._process.pid
        atexit.register(self.close)

    def put_commands(self, folder: str) -> None:
        """Write programs with the names of our console scripts into a folder for a PATH; they are forked."""
        starter = [sys.executable, "-IS", f"{os.path.dirname(__file__)}/forked_command.py"]
        for script in _SCRIPTS:
            words = [*starter, self.forks.address[1:].decode(), script]
            path = f"{folder}/{os.path.basename(script)}"
            with open(path, "w") as file:
                file.write(f'#!/bin/sh\nexec {shlex.join(words)} "$@"\n')
            os.chmod(path, 0o755)

    def close(self) -> None:
        os.close(self._life)
        self._process.wait()


class Forks:
    """Starts what the server has imported as a fork of it, and anything else as `subprocess` does.

    It stands in for that module where a test, or a forked command, starts a process.
    """

    DEVNULL = subprocess.DEVNULL

    def __init__(self, address: bytes, environment: Mapping[str, str], main: str) -> None:
        self.address = address
        self._main = main
        self._at_the_start = _at_the_start(environment)

    def can_fork(self, words: Sequence[str], options: Mapping[str, Any]) -> bool:
        """Whether the server has imported this, and no option makes a difference between forking and executing."""
        environment = options["env"]
        size = sum(len(os.fsencode(word)) + 1 for word in (*words, *environment, *environment.values()))
        return (
            (program := _Program.of(words)) is not None
            and program.server == self._main
            and options.keys() <= _POPEN_OPTIONS
            and size < _MOST_BYTES
            and _at_the_start(environment) == self._at_the_start
            and os.access(options["cwd"], os.X_OK)
        )

    def Popen(self, words: Sequence[str], **options: Any) -> "subprocess.Popen[bytes] | ForkedProcess":
        if self.can_fork(words, options):
            return self._fork(words, **options)
        return subprocess.Popen(words, **options)

    def _fork(
        self,
        words: Sequence[str],
        *,
        cwd: Any,
        env: Mapping[str, str],
        stdin: Any = None,
        stdout: Any = None,
        stderr: Any = None,
        umask: int = -1,
        start_new_session: bool = False,
        pass_fds: Sequence[int] = (),
    ) -> "ForkedProcess":
        pipes: dict[str, IO[bytes] | None] = {}
        given: list[int] = []
        with contextlib.ExitStack() as stack:
            streams = {"stdin": stdin, "stdout": stdout, "stderr": stderr}
            for number, (name, stream) in enumerate(streams.items()):
                fd, pipes[name] = _opened(stream, number, given, stack)
                given.append(fd)
            request = {
                "words": list(words),
                "cwd": os.fspath(cwd),
                "environment": dict(env),
                "umask": _umask() if umask < 0 else umask,
                "is_leader": start_new_session,
                "numbers": [0, 1, 2, *pass_fds],
            }
            channel = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            channel.connect(self.address)
            socket.send_fds(channel, [marshal.dumps(request)], [*given, *pass_fds])
            return ForkedProcess(words, channel, pipes)


class ForkedProcess:
    """A forked dibs, with the part of `subprocess.Popen` that tests use."""

    def __init__(self, args: Sequence[str], channel: socket.socket, pipes: Mapping[str, IO[bytes] | None]) -> None:
        self.args = args
        self.returncode: int | None = None
        self.stdin, self.stdout, self.stderr = (pipes[name] for name in ("stdin", "stdout", "stderr"))
        self._channel = channel
        message, handles, _, _ = socket.recv_fds(channel, 64, 1)
        assert message, "the fork server has ended; what it said is among the captured output"
        self.pid = int(message)
        # A pidfd: once the server has waited, the number may be given to another process.
        self._handle = io.FileIO(handles[0])

    def poll(self) -> int | None:
        return self.returncode if self._has_ended(0) else None

    def wait(self, timeout: float | None = None) -> int:
        if not self._has_ended(timeout):
            assert timeout is not None
            raise subprocess.TimeoutExpired(self.args, timeout)
        assert self.returncode is not None
        return self.returncode

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._handle.fileno(), number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def _has_ended(self, timeout: float | None) -> bool:
        if self.returncode is None:
            poll = select.poll()
            poll.register(self._channel, select.POLLIN)
            if not poll.poll(None if timeout is None else max(0.0, timeout * 1000)):
                return False
            self.returncode = int(self._channel.recv(64))
            self._channel.close()
            self._handle.close()
        return True


class ForkedAdviser:
    """A forked adviser, with the part of `asyncio.subprocess.Process` that a daemon uses."""

    def __init__(self, process: ForkedProcess, stdin: asyncio.StreamWriter, stdout: asyncio.StreamReader) -> None:
        self.pid, self.stdin, self.stdout = process.pid, stdin, stdout
        self.kill, self._process = process.kill, process

    @property
    def returncode(self) -> int | None:
        return self._process.poll()

    async def wait(self) -> int:
        while (code := self.returncode) is None:
            await asyncio.sleep(0.005)
        return code


def fork_advisers() -> None:
    """Have the advisers that this very process starts forked, where there is a server for them."""
    if address := os.environ.pop(ADVISERS, ""):
        importlib.import_module("dibs.sweeps.adviser")._start_child = adviser_forks(address, os.environ)  # type: ignore[attr-defined]


def adviser_forks(
    address: str, environment: Mapping[str, str]
) -> Callable[[Path | None], Awaitable[ForkedAdviser]]:
    """Stands in for the function of `dibs.sweeps.adviser` that starts an adviser with a log for its errors."""
    adviser: Any = importlib.import_module("dibs.sweeps.adviser")

    async def start(log: Path | None) -> ForkedAdviser:
        variables = {**environment, **adviser._ENVIRONMENT}
        forks = Forks(b"\0" + address.encode(), variables, ADVISER_MAIN)
        with open(log, "ab") if log else contextlib.nullcontext() as errors:
            process = forks.Popen(
                _ADVISER,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                start_new_session=True,
                cwd=os.getcwd(),
                env=variables,
            )
        assert isinstance(process, ForkedProcess)
        loop = asyncio.get_running_loop()
        reader = asyncio.StreamReader(limit=adviser._LONGEST_ANSWER)
        await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), process.stdout)
        transport, protocol = await loop.connect_write_pipe(asyncio.streams.FlowControlMixin, process.stdin)
        return ForkedAdviser(process, asyncio.StreamWriter(transport, protocol, None, loop), reader)

    return start


def _opened(
    stream: Any, number: int, given: Sequence[int], stack: contextlib.ExitStack
) -> tuple[int, IO[bytes] | None]:
    """The descriptor for the process, and the other end of it where it is a pipe."""
    if stream is None:
        return number, None
    if stream == subprocess.STDOUT:
        return given[1], None
    if stream == subprocess.DEVNULL:
        fd = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
        stack.callback(os.close, fd)
        return fd, None
    if stream == subprocess.PIPE:
        reader, writer = os.pipe()
        theirs, ours = (reader, writer) if number == 0 else (writer, reader)
        stack.callback(os.close, theirs)
        return theirs, open(ours, "wb" if number == 0 else "rb")
    return stream if isinstance(stream, int) else stream.fileno(), None


def _at_the_start(environment: Mapping[str, str]) -> dict[str, str]:
    found = {name: value for name, value in environment.items() if name.startswith(_READ_AT_THE_START)}
    if not found.keys() & {"LANG", "LC_ALL"}:
        found.setdefault("LC_CTYPE", "C.UTF-8")  # as the interpreter does where there is no locale
    return found


def _umask() -> int:
    ours = os.umask(0o077)
    os.umask(ours)
    return ours


# -- the server --------------------------------------------------------------------------------------------

# Not imported: code that is sent to other hosts, code that runs in other processes, plugins of other packages.
_LEFT_OUT = (
    *("dibs.__main__", "dibs.cluster.on_host", "dibs.supervise.warm", ADVISER_MAIN),
    *("dibs.plugins", "dibs.integrations"),  # they import packages that need not be there
)


@dataclass(frozen=True)
class _Program:
    """One of the ways in which something of dibs is started."""

    server: str  # the module whose server has imported it
    main: str  # the module whose `main` it calls, or the path of a program
    argv: Sequence[str]
    shown: Sequence[str]  # by `ps`
    path: Sequence[str]  # before the rest of `sys.path`

    @classmethod
    def of(cls, words: Sequence[str]) -> "_Program | None":
        if main := _SCRIPTS.get(words[0]):
            return cls(DIBS_MAIN, main, words, (sys.executable, *words), (_BIN,))
        if tuple(words[:4]) == _MODULE:
            return cls(DIBS_MAIN, DIBS_MAIN, (_file_of("dibs.__main__"), *words[4:]), words, ())
        if words[0] == sys.executable and os.path.basename(words[1]) == PLANTED:
            return cls(DIBS_MAIN, words[1], words[1:], words, (os.path.dirname(words[1]),))
        if tuple(words) == _ADVISER:
            return cls(ADVISER_MAIN, ADVISER_MAIN, (_file_of(ADVISER_MAIN),), words, ())
        return None


def _file_of(module: str) -> str:
    found = importlib.util.find_spec(module)
    assert found is not None and found.origin is not None
    return found.origin


@dataclass(frozen=True)
class _Request:
    """What a fork becomes."""

    words: Sequence[str]
    cwd: str
    environment: Mapping[str, str]
    umask: int
    is_leader: bool
    numbers: Sequence[int]  # of its descriptors
    received: Sequence[int] = ()  # those descriptors, by the numbers they have here


def _serve(listener: socket.socket, life: int, forks: Forks) -> _Request | None:
    """Fork until the test process ends; then return None. In each fork, return what it becomes."""
    poll = select.poll()
    poll.register(listener, select.POLLIN)
    poll.register(life, select.POLLHUP)
    children: dict[int, tuple[int, socket.socket]] = {}
    while True:
        for fd, _ in poll.poll():
            if fd == life:
                return None
            if fd in children:
                poll.unregister(fd)
                _report_end(fd, *children.pop(fd))
                continue
            channel, _ = listener.accept()
            request = _receive(channel, forks)
            if request is None:
                channel.close()
                continue
            pid = os.fork()
            if pid == 0:
                return request
            handle = os.pidfd_open(pid)
            poll.register(handle, select.POLLIN)
            children[handle] = (pid, channel)
            for one in request.received:
                os.close(one)
            with contextlib.suppress(OSError):
                socket.send_fds(channel, [str(pid).encode()], [handle])


def _receive(channel: socket.socket, forks: Forks) -> _Request | None:
    """The request, unless another user or nothing is at the other end, or what is wanted must be executed."""
    _, uid, _ = struct.unpack("3i", channel.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
    message, received, _, _ = socket.recv_fds(channel, 1 << 20, 16)
    if message and uid == os.geteuid():
        request = _Request(**marshal.loads(message), received=received)
        if forks.can_fork(request.words, {"cwd": request.cwd, "env": request.environment}):
            return request
    for one in received:
        os.close(one)
    return None


def _report_end(handle: int, pid: int, channel: socket.socket) -> None:
    os.close(handle)
    _, status = os.waitpid(pid, 0)
    with contextlib.suppress(OSError):  # the test, or the command that started this daemon, has ended
        channel.send(str(os.waitstatus_to_exitcode(status)).encode())
    channel.close()


def _become(request: _Request, program: _Program) -> None:
    """Give this process everything that an executed one would have."""
    if request.is_leader:
        os.setsid()
    kept = [fcntl.fcntl(fd, fcntl.F_DUPFD, _FIRST_FREE) for fd in request.received]
    os.closerange(3, _FIRST_FREE)
    for number, fd in zip(request.numbers, kept, strict=True):
        os.dup2(fd, number)
    os.closerange(_FIRST_FREE, 2 * _FIRST_FREE)
    os.umask(request.umask)
    os.chdir(request.cwd)
    os.environ.clear()
    os.environ.update({**_at_the_start(request.environment), **request.environment})
    time.tzset()
    _show(program.shown, request.environment)
    sys.argv[:] = program.argv
    sys.path[:1] = program.path
    sys.stdin, sys.stdout, sys.stderr = map(_text_stream, range(3), (sys.stdin, sys.stdout, sys.stderr))
    sys.__stdin__, sys.__stdout__, sys.__stderr__ = sys.stdin, sys.stdout, sys.stderr  # type: ignore[misc]
    atexit._clear()  # registered by imports that most commands do not make
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())


def _text_stream(number: int, servers: Any) -> Any:
    """A standard stream as the interpreter creates it."""
    is_input = number == 0
    raw = io.FileIO(number, "rb" if is_input else "wb", closefd=False)
    raw.name = servers.name  # type: ignore[misc]
    buffer = io.BufferedReader(raw) if is_input else io.BufferedWriter(raw)
    text = io.TextIOWrapper(
        buffer,
        encoding=servers.encoding,
        errors=servers.errors,
        newline=None if is_input else "\n",
        line_buffering=number == 2 or raw.isatty(),
    )
    text.mode = "r" if is_input else "w"
    return text


def _show(words: Sequence[str], environment: Mapping[str, str]) -> None:
    """Write the arguments and variables where /proc reads them. The C library has copies of what stood there."""
    with open("/proc/self/stat", "rb") as file:
        places = [int(word) for word in file.read().rpartition(b")")[2].split()[45:49]]
    variables = [f"{name}={value}" for name, value in environment.items()]
    for texts, start, end in ((words, *places[:2]), (variables, *places[2:])):
        content = b"".join(os.fsencode(text) + b"\0" for text in texts)
        if start and len(content) <= end - start:
            ctypes.memmove(start, content.ljust(end - start, b"\0"), end - start)


def _leave(status: int) -> None:
    """End without the interpreter's cleanup, which visits every module and so copies what the server shares."""
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError, AttributeError):
            stream.flush()
    os._exit(status)


def _load(main: str) -> None:
    if main == ADVISER_MAIN:
        for name in (ADVISER_MAIN, "cmaes", "numpy.random", "scipy.stats"):  # the samplers import these when used
            importlib.import_module(name)
        return
    from dibs.daemon.memory import load_fastapi

    load_fastapi()
    for name in ("pydantic.v1", "uvicorn.lifespan.off"):  # imported by the first route, the first server
        importlib.import_module(name)
    package = importlib.import_module("dibs")
    for module in pkgutil.walk_packages(package.__path__, "dibs."):
        if not module.name.startswith(_LEFT_OUT):
            importlib.import_module(module.name)
    _keep_type_adapters()
    importlib.import_module("dibs.daemon.app").make_app(MagicMock())
    inspect.getsource(
        _load
    )  # FastAPI reads the source of a route at its first request: its expressions are compiled


def _keep_type_adapters() -> None:
    """Have FastAPI make the validators of equal parameters and bodies once, and not for every app again."""
    fields: Any = importlib.import_module("fastapi._compat.v2")
    make = fields.TypeAdapter
    made: dict[str, tuple[Any, Any]] = {}  # with the type: while it lives, another has another address in its text

    def type_adapter(kind: Any, *, config: Any = None) -> Any:
        text = f"{kind!r} {config!r}"
        if text not in made:
            made[text] = kind, make(kind, config=config)
        return made[text][1]

    fields.TypeAdapter = type_adapter


if __name__ == "__main__":
    # Ctrl-C reaches the whole process group. The server ends with the test process, and each fork unblocks these.
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM, signal.SIGHUP})
    sys.path[0] = _BIN  # as for the console script
    _load(sys.argv[3])
    gc.collect()
    gc.freeze()
    with socket.socket(fileno=int(sys.argv[1])) as listener:
        forks = Forks(listener.getsockname(), os.environ, sys.argv[3])
        wanted = _serve(listener, int(sys.argv[2]), forks)
    if wanted is not None and (program := _Program.of(wanted.words)) is not None:
        _become(wanted, program)
        if program.server == DIBS_MAIN:  # a command may start a daemon, and a daemon an adviser
            importlib.import_module("dibs.client.starting").subprocess = forks  # type: ignore[attr-defined]
            fork_advisers()
        status: Any = 0
        try:
            if os.path.isabs(program.main):
                runpy.run_path(program.main, run_name="__main__")
            else:
                importlib.import_module(program.main).main()
        except SystemExit as end:
            if not isinstance(end.code, int | None):
                raise
            status = end.code or 0
        _leave(status)
