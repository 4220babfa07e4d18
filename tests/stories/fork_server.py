"""A process that has imported all of dibs and forks for each `dibs ...` that a test starts.

Importing the daemon takes longer than most tests. A forked dibs has the arguments, variables, folder, streams,
umask and session of an executed one, `ps` shows them, and its exit status comes back. It does not go through the
start of an interpreter: `can_fork` says when a test gets a real one without asking.

This file is both sides. Run as a program it is the server, which imports nothing of the tests.
"""

import atexit
import contextlib
import ctypes
import gc
import importlib
import io
import json
import os
import pkgutil
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import IO, Any

# Variables that the interpreter or the C library reads once, at its start. A fork has the server's.
_READ_AT_THE_START = ("PYTHON", "LC_", "LANG", "LD_", "MALLOC_", "GLIBC_")
_MOST_BYTES = 60_000  # of arguments and variables together; with more, a test is about the kernel's limits
_POPEN_OPTIONS = {"cwd", "env", "stdin", "stdout", "stderr", "umask", "start_new_session"}

# -- the tests' side -------------------------------------------------------------------------------------


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
        (self._handle,) = handles  # a pidfd: the number may be given to another process once the server has waited

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
                signal.pidfd_send_signal(self._handle, number)

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
            os.close(self._handle)
        return True


class ForkServer:
    """The server of this test process; it ends with this process."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._environment = dict(environment)
        self._connection, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        # Memory in which /proc later shows the arguments and variables of the forks.
        room = {"DIBS_TESTS_ROOM": " " * _MOST_BYTES}
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, __file__, str(theirs.fileno()), " " * _MOST_BYTES],
                env=self._environment | room,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                pass_fds=(theirs.fileno(),),
                cwd="/",
            )
        self.pid = self._process.pid
        atexit.register(self.close)

    def can_fork(self, arguments: Sequence[str], options: Mapping[str, Any]) -> bool:
        """Whether nothing in these options makes a difference between forking and executing."""
        environment = options["env"]
        size = sum(len(os.fsencode(word)) + 1 for word in (*arguments, *environment, *environment.values()))
        return (
            options.keys() <= _POPEN_OPTIONS
            and size < _MOST_BYTES
            and _start_of(environment) == _start_of(self._environment)
            and os.access(options["cwd"], os.X_OK)
        )

    def start(
        self,
        arguments: Sequence[str],
        *,
        cwd: Any,
        env: Mapping[str, str],
        stdin: Any = None,
        stdout: Any = None,
        stderr: Any = None,
        umask: int = -1,
        start_new_session: bool = False,
    ) -> ForkedProcess:
        """As `subprocess.Popen(arguments, ...)`."""
        request = {
            "argv": list(arguments),
            "cwd": os.fspath(cwd),
            "environment": dict(env),
            "umask": _umask() if umask < 0 else umask,
            "is_leader": start_new_session,
        }
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with contextlib.ExitStack() as stack:
            stack.enter_context(theirs)
            pipes: dict[str, IO[bytes] | None] = {}
            given: list[int] = []
            for number, (name, stream) in enumerate((("stdin", stdin), ("stdout", stdout), ("stderr", stderr))):
                fd, pipes[name] = _opened(stream, number, given, stack)
                given.append(fd)
            socket.send_fds(self._connection, [json.dumps(request).encode()], [theirs.fileno(), *given])
        return ForkedProcess(arguments, ours, pipes)

    def close(self) -> None:
        self._connection.close()
        self._process.wait()


def _opened(
    stream: Any, number: int, given: Sequence[int], stack: contextlib.ExitStack
) -> tuple[int, IO[bytes] | None]:
    """The descriptor for the process, and our end of it where it is a pipe."""
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


def _start_of(environment: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in environment.items() if name.startswith(_READ_AT_THE_START)}


def _umask() -> int:
    ours = os.umask(0o077)
    os.umask(ours)
    return ours


# -- the server --------------------------------------------------------------------------------------------

# Not imported: code that is sent to other hosts, code that runs in other processes, plugins of other packages.
_LEFT_OUT = ("dibs.__main__", "dibs.cluster.there", "dibs.supervise.warm", "dibs.plugins", "dibs.sweeps.adviser")


@dataclass(frozen=True)
class _Request:
    """What a fork becomes."""

    argv: list[str]
    cwd: str
    environment: dict[str, str]
    umask: int
    is_leader: bool
    streams: Sequence[int] = ()


def _serve(connection: socket.socket) -> _Request | None:
    """Fork until the test process ends; then return None. In each fork, return what it becomes."""
    poll = select.poll()
    poll.register(connection, select.POLLIN)
    children: dict[int, tuple[int, socket.socket]] = {}
    while True:
        for fd, _ in poll.poll():
            if fd in children:
                poll.unregister(fd)
                _report_end(fd, *children.pop(fd))
                continue
            message, fds, _, _ = socket.recv_fds(connection, 1 << 20, 4)
            if not message:
                return None
            channel = socket.socket(fileno=fds[0])
            pid = os.fork()
            if pid == 0:
                return _Request(**json.loads(message), streams=fds[1:])
            handle = os.pidfd_open(pid)
            poll.register(handle, select.POLLIN)
            children[handle] = (pid, channel)
            for stream in fds[1:]:
                os.close(stream)
            with contextlib.suppress(OSError):
                socket.send_fds(channel, [str(pid).encode()], [handle])


def _report_end(handle: int, pid: int, channel: socket.socket) -> None:
    os.close(handle)
    _, status = os.waitpid(pid, 0)
    with contextlib.suppress(OSError):  # the test has ended
        channel.send(str(os.waitstatus_to_exitcode(status)).encode())
    channel.close()


def _become(request: _Request) -> None:
    """Give this process everything that an executed dibs would have."""
    if request.is_leader:
        os.setsid()
    for number, stream in enumerate(request.streams):
        os.dup2(stream, number)
    os.closerange(3, 4096)
    os.umask(request.umask)
    os.chdir(request.cwd)
    os.environ.clear()
    os.environ.update(request.environment)
    time.tzset()
    _show(request)
    sys.argv[:] = request.argv
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


def _show(request: _Request) -> None:
    """Write the arguments and variables where /proc reads them. The C library has copies of what stood there."""
    with open("/proc/self/stat", "rb") as file:
        places = [int(word) for word in file.read().rpartition(b")")[2].split()[45:49]]
    variables = [f"{name}={value}" for name, value in request.environment.items()]
    # A script is shown with its interpreter before it.
    for words, start, end in (([sys.executable, *request.argv], *places[:2]), (variables, *places[2:])):
        content = b"".join(os.fsencode(word) + b"\0" for word in words)
        if start and len(content) <= end - start:
            ctypes.memmove(start, content.ljust(end - start, b"\0"), end - start)


def _load_dibs() -> None:
    from dibs.daemon.lean import load_fastapi

    load_fastapi()
    for name in ("pydantic.v1", "uvicorn.lifespan.off"):  # imported by the first route, the first server
        importlib.import_module(name)
    package = importlib.import_module("dibs")
    for module in pkgutil.walk_packages(package.__path__, "dibs."):
        if not module.name.startswith(_LEFT_OUT):
            importlib.import_module(module.name)


if __name__ == "__main__":
    # Ctrl-C reaches the whole process group. The server ends with the test process, and each fork unblocks these.
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM, signal.SIGHUP})
    sys.path[0] = os.path.dirname(sys.executable)  # as for the console script
    _load_dibs()
    gc.collect()
    gc.freeze()
    with socket.socket(fileno=int(sys.argv[1])) as connection:
        become = _serve(connection)
    if become is not None:
        _become(become)
        from dibs.cli.main import main

        main()
