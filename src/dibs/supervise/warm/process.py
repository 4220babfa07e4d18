"""A warm process: an interpreter that has imported a job's modules, and forks shims.

It runs in the job's own interpreter, folder and environment. A shim that it forks is the same as everywhere, but
forks its commands instead of executing them: whatever must not reach the job is closed by hand. It ends when the
engine is gone or has no use for it, when its files have changed, or when memory is short; its shims go on.

Standard library only, everything imported at the top, before any code of the user's.
"""

import contextlib
import fcntl
import gc
import os
import select
import signal
import socket
import stat
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from types import CodeType
from typing import Any

from dibs.supervise.command import AttemptDescriptors, reap, start
from dibs.supervise.logs import Log
from dibs.supervise.shim import MOST_DESCRIPTORS, Shim, receive
from dibs.supervise.warm.job import (
    ForkInputs,
    OpenedFiles,
    Parent,
    ProcessTitle,
    begin,
    changes,
    first_folder,
    set_streams,
)
from dibs.supervise.warm.python_line import SCRIPT, PythonLine, read_line
from dibs.supervise.warm.start import VARIABLE, Footprint, memory_is_short, read_order, refuse, variables_of

LONGEST_IMPORT = 120  # seconds; a fresh interpreter would need them as well
_IDLE_SHIM = 10.0  # seconds that a shim waits for another attempt
_STALE = b"stale "
_LOOK_AT_MEMORY = 15.0  # seconds between two looks, while it has no job
_MOST_SAID = 1 << 20  # bytes of what modules say while they are imported
# What a package imports when it is first used, and nearly every job uses it. To make an optimizer, for instance,
# PyTorch imports its compiler, which takes as long as all the rest.
_LATER = {"torch": ("torch._dynamo",)}
# The script that runs a function, of any dibs: the one that adds a job may be another than the daemon's. And what
# it imports.
_WORK = "/dibs/api/work.py"
_FOR_CALLS = ("json", "pickle", "cloudpickle", "threading")
_OOM_SCORE = "/proc/self/oom_score_adj"
_DEVICES = ("/dev/nvidia", "/dev/kfd", "/dev/dri/")


def main(channel_fd: int, order_fd: int) -> None:
    """Import, then fork for as long as the engine asks. Returns in a job, which Python then runs."""
    try:
        warm = _warm_up(channel_fd, order_fd)
    except Exception as error:  # a bug of ours: the jobs run all the same
        refuse(channel_fd, f"its warm process fails: {error!r}")
    born = warm.serve()
    try:
        begin(born, warm.parent, warm)
    except BaseException:  # likewise, but it is too late: the job must not seem to have run
        os.write(2, f"dibs: it could not be started warm\n{traceback.format_exc()}".encode("utf-8", "replace"))
        os._exit(127)


def _warm_up(channel_fd: int, order_fd: int) -> "_Warm":
    order = read_order(order_fd)
    os.close(order_fd)
    title = ProcessTitle(VARIABLE)
    began = time.time()
    first = first_folder(order["kind"], order["script"])
    work = f"{os.path.dirname(order['script'])}/work.py" if order["kind"] == SCRIPT else ""
    if not (work.endswith(_WORK) and os.path.isfile(work)):
        work = ""
    said, place = _import(order["modules"], _FOR_CALLS if work else (), first, channel_fd)
    if why := _unfit(channel_fd):
        refuse(channel_fd, f"importing {', '.join(order['modules'])} {why}")
    collects = gc.isenabled()
    gc.collect()
    gc.freeze()  # memory that is not written stays shared with the jobs
    gc.disable()
    interpreter = order["interpreter"].encode("utf-8", "surrogateescape")
    code = _compiled(work) if work else None
    footprint = Footprint(interpreter, first, order["workdir"], began, (work,) if work else ())
    fds = {fd: _opened(fd) for fd in _open_fds() - {0, 1, 2, channel_fd}}
    parent = Parent(
        fds, said, changes(variables_of(order), dict(os.environb)), first, place, collects, title, code
    )
    os.chdir("/")  # do not keep the job's folder in use
    title.set([b"dibs: warm", *(name.encode() for name in order["modules"])], {})
    return _Warm(socket.socket(fileno=channel_fd), order, first, footprint, parent)


class _Forked(BaseException):
    """Raised in the job, to leave the shim that forked it."""

    def __init__(self, born: ForkInputs) -> None:
        self.born = born


class _Shim(Shim):
    """Forks its commands from this process, and refuses each that the warm process would refuse by then."""

    def __init__(self, channel: socket.socket, refusal: Callable[[bytes], bytes], longest_idle: float) -> None:
        super().__init__(channel)
        self._refusal = refusal
        self._longest_idle = longest_idle
        self._is_first = True

    def _next(self, channel: socket.socket) -> tuple[bytes, list[int]]:
        if self._is_first:  # the warm process was asked, and has not refused it
            self._is_first = False
            channel.send(b"+")
            return receive(channel, MOST_DESCRIPTORS)
        poll = select.poll()
        poll.register(channel.fileno(), select.POLLIN)
        if not poll.poll(self._longest_idle * 1000):
            return b"", []
        message, fds = receive(channel, MOST_DESCRIPTORS)
        if not message:
            return b"", []
        script, _, attempt = message.partition(b"\0")
        why_not = self._refusal(script)
        # The engine keeps the attempt and its locks until this answer has come.
        channel.send(why_not or b"+")
        if why_not:
            for fd in fds:
                os.close(fd)
            return b"", []
        return attempt, fds

    def _start(self, spec: dict[str, Any], handed: AttemptDescriptors, logs: list[Log]) -> int:
        def fork(words: list[bytes], environment: dict[bytes, bytes], streams: list[Any]) -> int:
            line = read_line(words)
            assert isinstance(line, PythonLine)
            if pid := os.fork():
                return pid
            try:
                # As a spawned one would: its session first, a terminal that it opens is its own then.
                os.setsid()
                set_streams(streams)
            except BaseException:
                os._exit(127)  # there is one shim, and it is not this process
            raise _Forked(ForkInputs(line, spec["workdir"], environment, handed.leases))

        return start(spec, handed, self._environment(spec["environment"]), logs, fork)


class _Warm:
    """Answers the engine, which asks for a shim with one message and the shim's channel."""

    def __init__(
        self,
        channel: socket.socket,
        order: dict[str, Any],
        first: str | None,
        footprint: Footprint,
        parent: Parent,
    ) -> None:
        self._channel = channel
        self._order = order
        self._first = first
        self._footprint = footprint
        self.parent = parent
        self._shims: dict[int, int] = {}  # the reading end of a pipe that ends with each: its pid
        self._oom_score = _read_oom_score()
        self._left: BaseException | None = None

    def serve(self) -> ForkInputs:
        """Returns in a job alone."""
        _write_oom_score(min(1000, self._oom_score + 500))  # no job is to end before us when memory runs out
        self._channel.send(b"ready %d" % os.getpid())
        idle_since = time.monotonic()
        while True:
            ready = self._wait()
            if self._reap(ready) or self._shims:
                idle_since = time.monotonic()
            if self._channel.fileno() in ready:
                message, fds = receive(self._channel, 1)
                if not message:
                    break
                why = self._refusal(message[1:])
                if why.startswith(_STALE):
                    self._channel.send(why)
                    break
                if born := self._answer(why, fds[0]):
                    return born
                idle_since = time.monotonic()
            elif not self._shims and (self._is_idle(idle_since) or memory_is_short(0.05)):
                break
        self._channel.close()
        with contextlib.suppress(ChildProcessError):
            while True:
                os.wait()
        os._exit(0)

    def _is_idle(self, since: float) -> bool:
        longest: float = self._order["idle_seconds"]
        return time.monotonic() - since > longest

    def _wait(self) -> set[int]:
        longest = min(_LOOK_AT_MEMORY, self._order["idle_seconds"])
        poll = select.poll()
        for fd in (self._channel.fileno(), *self._shims):
            poll.register(fd, select.POLLIN)
        return {fd for fd, _ in poll.poll(None if self._shims else longest * 1000)}

    def _reap(self, ready: set[int]) -> bool:
        over = [fd for fd in ready if fd in self._shims]
        for fd in over:
            os.waitpid(self._shims.pop(fd), 0)
            os.close(fd)
        return bool(over)

    def _answer(self, why_not: bytes, shim_fd: int) -> ForkInputs | None:
        """Fork a shim, or say on its channel why not."""
        channel = socket.socket(fileno=shim_fd)
        if why_not:
            with contextlib.suppress(OSError):
                channel.send(why_not)
            channel.close()
            return None
        try:
            reading, writing = os.pipe()
            pid = os.fork()
        except OSError:
            channel.close()  # the engine asks another process
            return None
        if pid == 0:
            os.close(reading)
            return self._be_shim(channel)
        channel.close()
        os.close(writing)
        self._shims[reading] = pid
        return None

    def _refusal(self, script: bytes) -> bytes:
        """Why no job can be forked any more, or not this one; empty where it can."""
        if why := self._footprint.change():
            return _STALE + why.encode("utf-8", "replace")[:2000]
        why = self._objection(os.fsdecode(script))
        return b"no " + why.encode("utf-8", "replace") if why else b""

    def _objection(self, script: str) -> str:
        if self._order["kind"] != SCRIPT:
            return ""
        script = os.path.join(self._order["workdir"], script)
        if not os.path.isfile(script):
            return "its script is no file"
        return "its script is a link to another folder" if first_folder(SCRIPT, script) != self._first else ""

    def _be_shim(self, channel: socket.socket) -> ForkInputs:
        self._channel.close()
        for fd in self._shims:
            os.close(fd)
        _write_oom_score(self._oom_score)
        born = None
        try:
            _Shim(channel, self._refusal, min(_IDLE_SHIM, self._order["idle_seconds"])).serve()
        except _Forked as forked:
            self._left = forked  # to take its frames and the shim apart would copy memory
            born = forked.born
        finally:
            if born is None:
                os._exit(0)
        channel.close()
        return born


def _import(
    modules: list[str], also: Sequence[str], first: str | None, channel: int
) -> tuple[tuple[bytes, bytes], int]:
    """Import them as a job would, and `also` what is there of these.

    Returns what they wrote to stdout and stderr meanwhile, and where among the folders the job's own belongs.
    """
    said = (os.memfd_create("stdout"), os.memfd_create("stderr"))
    null = os.open(os.devnull, os.O_RDWR)
    for number, fd in enumerate(said, start=1):
        os.dup2(fd, number)
    if first is not None:
        sys.path.insert(0, first)
    signal.alarm(LONGEST_IMPORT)  # without a handler it ends us, and the engine goes on without
    try:
        for name in modules:
            try:
                __import__(name)
            except BaseException as error:
                refuse(channel, f"{name} cannot be imported: {_in_words(error)}")
        more = [later for name in modules for later in _LATER.get(name, ())]
        for later in (*more, *also):
            with contextlib.suppress(Exception):  # it is called otherwise in another version
                __import__(later)
        sys.stdout.flush()
        sys.stderr.flush()
    finally:
        signal.alarm(0)
    place = 0
    if first is not None and first in sys.path:
        place = sys.path.index(first)
        del sys.path[place]
    for number in (1, 2):
        os.dup2(null, number)
    texts = [os.pread(fd, _MOST_SAID, 0) for fd in said]
    for fd in (*said, null):
        os.close(fd)
    return (texts[0], texts[1]), place


def _compiled(path: str) -> CodeType:
    with open(path, "rb") as file:
        code: CodeType = compile(file.read(), path, "exec", dont_inherit=True)
    return code


def _in_words(error: BaseException) -> str:
    text = str(error).partition("\n")[0]
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def _unfit(channel: int) -> str:
    """What the modules did that no fork can take over; empty where they did nothing of the kind."""
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_initialized():
        return "initialises CUDA"
    for fd in _open_fds() - {channel}:
        if os.readlink(f"/proc/self/fd/{fd}").startswith(_DEVICES):
            return "opens the GPU's driver"
        if not _is_file(os.fstat(fd).st_mode):
            return "leaves a connection open, which jobs would share"
    if reap():
        return "starts processes"
    # A library may end its threads before a fork and start them again when they are needed: only a try tells.
    pid = os.fork()
    if pid == 0:
        os._exit(min(100, _threads()))
    _, status = os.waitpid(pid, 0)
    if os.waitstatus_to_exitcode(status) != 1 or _threads() != 1:
        return "starts threads, which a fork would lose"
    return ""


def _threads() -> int:
    return len(os.listdir("/proc/self/task"))


def _open_fds() -> frozenset[int]:
    found = frozenset(map(int, os.listdir("/proc/self/fd")))
    return frozenset(fd for fd in found if os.path.lexists(f"/proc/self/fd/{fd}"))  # less the listing's own


def _is_file(mode: int) -> bool:
    return stat.S_ISREG(mode) or stat.S_ISDIR(mode) or stat.S_ISCHR(mode)


def _opened(fd: int) -> OpenedFiles:
    flags, is_inheritable = fcntl.fcntl(fd, fcntl.F_GETFL), os.get_inheritable(fd)
    try:
        return OpenedFiles(flags, os.lseek(fd, 0, os.SEEK_CUR), is_inheritable)
    except OSError:
        return OpenedFiles(flags, 0, is_inheritable)


def _read_oom_score() -> int:
    try:
        with open(_OOM_SCORE) as file:
            return int(file.read())
    except (OSError, ValueError):
        return 0


def _write_oom_score(score: int) -> None:
    with contextlib.suppress(OSError), open(_OOM_SCORE, "w") as file:
        file.write(str(score))
