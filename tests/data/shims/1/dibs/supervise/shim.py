"""The shim: a process that starts one command at a time, waits for it and writes down how it ended.

It is forked by the zygote and outlives everybody else. What it does is found again from the attempt's folder:
`record` (records.py) says what to run, that it runs and how it ended, and is locked while a shim looks after it.
It names a FIFO that takes `stop`, `kill` and `signal N`, each followed by the attempt it is meant for.

After an attempt the shim waits for the next one, because forking an interpreter for every job costs more than the
job's own start. It still looks after one attempt at a time: whoever kills it harms no other.

Standard library only, everything imported at the top: the package may be deleted while we run.
"""

import contextlib
import ctypes
import json
import os
import select
import signal
import socket
import time
import traceback
from array import array
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from dibs.supervise import records, tree
from dibs.supervise.plain import plain_words, shell_is_changed
from dibs.supervise.stopping import Stopping, boottime

MOST_DESCRIPTORS = 250  # the kernel passes at most 253 at once

_PR_SET_CHILD_SUBREAPER = 36
_libc = ctypes.CDLL(None, use_errno=True)
# What Python changed in this process must not reach the command.
_RESET_SIGNALS = [signal.SIGPIPE, signal.SIGXFSZ, signal.SIGCHLD]
# How often we look for orphans that ended, and for limits after the machine slept.
_HEARTBEAT = 5.0


@dataclass(frozen=True, slots=True)
class Handed:
    """The descriptors that came with an attempt."""

    record: int  # locked
    stdin: int | None = None
    terminal: tuple[int, int, int] | None = None  # pty master, pty slave, pipe that ends with the front
    leases: tuple[int, ...] = ()  # locked; the command inherits them


class Shim:
    """Runs attempts one after another until the engine is gone."""

    def __init__(self, channel: socket.socket) -> None:
        self._channel = channel
        self._control = -1
        self._control_path = ""
        self._facts: dict[str, Any] = {}
        self._starting = b""
        self._environments: dict[str, dict[bytes, bytes]] = {}

    def serve(self) -> None:
        """A message is `{"control", "stdin", "terminal"}` with the descriptors in the order of `Handed`.

        The answer is the record as it stands at the end, sent when nothing of the attempt is left.
        """
        os.setsid()
        _libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        while True:
            message, fds = receive(self._channel, MOST_DESCRIPTORS)
            if not message:
                break
            record, *others = fds
            answer = self._serve_one(json.loads(message), fds)
            # Closing, never LOCK_UN, which would free the locks of others too.
            for fd in others:
                os.close(fd)
            try:
                self._channel.send(answer)
            except OSError:
                # The engine is gone. It would have synced the outcome into its store before anybody heard of it;
                # now this record is all there is until a new one comes.
                _sync(record)
                break
            finally:
                os.close(record)
        if self._control_path:
            with contextlib.suppress(OSError):
                os.unlink(self._control_path)

    def _serve_one(self, wanted: dict[str, Any], fds: list[int]) -> bytes:
        record, *rest = fds
        stdin = rest.pop(0) if wanted["stdin"] else None
        terminal = (rest.pop(0), rest.pop(0), rest.pop(0)) if wanted["terminal"] else None
        handed = Handed(record, stdin, terminal, tuple(rest))
        try:
            if self._control < 0:
                self._open_control(wanted["control"])
            return self._run(handed)
        except Exception:
            # A bug of ours is a start error of this attempt, with its traceback, and never a silent loss.
            tree.end_children()
            return _write_record(
                record, {"v": 1, "state": "ended", "by": "start", "message": traceback.format_exc()}
            )

    def _open_control(self, folder: str) -> None:
        self._control_path = f"{folder}/{os.getpid()}-{os.urandom(4).hex()}"
        os.mkfifo(self._control_path, 0o600)
        # Both ways, so that a writer who goes away is no hang-up.
        self._control = os.open(self._control_path, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
        # By its name alone: the record is small and a path may be long.
        control = os.path.basename(self._control_path)
        self._facts = {"v": 1, "shim": os.getpid(), "control": control, "message": ""}
        self._starting = records.encode(self._facts | {"state": "starting"})

    def _run(self, handed: Handed) -> bytes:
        """Run one attempt to its end. Returns when nothing below this process is left."""
        content = os.pread(handed.record, os.fstat(handed.record).st_size, 0)
        if not records.is_blank(content):
            return b"!"  # somebody ran this attempt before us
        spec: dict[str, Any] = json.loads(content[records.SIZE :])
        # The fence against a second start. Only a kill -9 must not undo it, so it is not synced.
        os.pwrite(handed.record, self._starting, 0)
        record: dict[str, Any] = self._facts | {"began": time.time()}
        clock = boottime()
        try:
            pid = _start(spec, handed, self._environment(spec["environment"]))
        except OSError as error:
            message = _start_error(spec, error)
            _note(spec, message)
            record |= {"by": "start", "message": message, "ended": time.time()}
            stopping = None
        else:
            record |= {"state": "running", "pid": pid}
            os.pwrite(handed.record, records.encode(record), 0)
            ended, stopping = _wait(pid, spec, handed, self._control, clock)
            record |= ended
        record |= {"state": "ended", "seconds": boottime() - clock}
        written = _write_record(handed.record, record)
        # The record comes first: if the stragglers cannot be killed, the outcome is known all the same.
        if stopping is not None:
            stopping.give_grace_to_the_rest(self._control)
        tree.end_children()
        os.chdir("/")  # pin nobody's folder while we are idle
        return written

    def _environment(self, path: str) -> dict[bytes, bytes]:
        """A captured environment, read once. As bytes, which need no encoding at every start."""
        if path not in self._environments:
            if len(self._environments) > 8:
                self._environments.clear()
            with open(path, "rb") as file:
                self._environments[path] = _encoded(json.loads(file.read()))
        return self._environments[path]


def receive(channel: socket.socket, most: int) -> tuple[bytes, list[int]]:
    """A message and its descriptors, which no command inherits.

    Not `socket.recv_fds`: it takes flags and forgets them, and a command that inherits its attempt's lock would
    look like a living shim.
    """
    size = array("i").itemsize
    message, ancillary, _, _ = channel.recvmsg(4096, socket.CMSG_LEN(most * size), socket.MSG_CMSG_CLOEXEC)
    fds = array("i")
    for level, kind, data in ancillary:
        if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
            fds.frombytes(data[: len(data) - len(data) % size])
    return message, list(fds)


def _start(spec: dict[str, Any], handed: Handed, inherited: dict[bytes, bytes]) -> int:
    """Start the command in a session of its own; `kill 0` in a job must not reach us."""
    environment = inherited | _encoded(spec["env"])
    os.umask(spec["umask"])
    try:
        os.chdir(spec["workdir"])
    except OSError as error:
        raise OSError(error.errno, f"cannot enter its folder: {os.strerror(error.errno or 0)}") from error
    for lease in handed.leases:
        os.set_inheritable(lease, True)
    os.putenv(b"PATH", environment.get(b"PATH", os.defpath.encode()))  # posix_spawnp looks in ours
    words = [word.encode("utf-8", "surrogateescape") for word in spec["words"]]
    opened: list[int] = []
    try:
        streams = _streams(spec, handed, opened)
        plain = None if shell_is_changed(environment) else plain_words(words)
        if plain is not None:
            with contextlib.suppress(OSError):
                return _spawn(plain, environment, streams)
        return _spawn(words, environment, streams)
    finally:
        for fd in opened:
            os.close(fd)


def _spawn(words: list[bytes], environment: dict[bytes, bytes], streams: list[Any]) -> int:
    return os.posix_spawnp(
        words[0], words, environment, file_actions=streams, setsid=True, setsigdef=_RESET_SIGNALS
    )


def _streams(spec: dict[str, Any], handed: Handed, opened: list[int]) -> list[Any]:
    if handed.terminal:
        # The first terminal that a session leader opens becomes its controlling terminal.
        slave = os.ttyname(handed.terminal[1])
        return [
            (os.POSIX_SPAWN_OPEN, 0, slave, os.O_RDWR, 0),
            (os.POSIX_SPAWN_DUP2, 0, 1),
            (os.POSIX_SPAWN_DUP2, 0, 2),
        ]
    first = 0 if handed.stdin is None else handed.stdin  # our own is /dev/null
    out = _open_log(spec["stdout"])
    opened.append(out)
    err = out
    if spec["stderr"] != spec["stdout"]:
        err = _open_log(spec["stderr"])
        opened.append(err)
    return [
        (os.POSIX_SPAWN_DUP2, first, 0),
        (os.POSIX_SPAWN_DUP2, out, 1),
        (os.POSIX_SPAWN_DUP2, err, 2),
    ]


def _open_log(path: str) -> int:
    # Appending, so that a log that somebody truncates goes on at its new end.
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)


def _wait(
    pid: int, spec: dict[str, Any], handed: Handed, control: int, clock: float
) -> tuple[dict[str, Any], Stopping]:
    """Wait for the command, obey the control FIFO and the time limit; return how it ended."""
    poll = select.poll()
    poll.register(control, select.POLLIN)
    heartbeat = _HEARTBEAT
    try:
        pidfd = os.pidfd_open(pid)
    except OSError:
        pidfd = -1
        heartbeat = 0.02  # no pidfd here (an old kernel, a strict container): look often instead
    else:
        poll.register(pidfd, select.POLLIN)
    if handed.terminal:
        poll.register(handed.terminal[2], 0)  # hang-up is always reported
    stopping = Stopping(grace=spec["grace"], attempt=f"{spec['job']}.{spec['attempt']}")
    if spec["time_limit"] is not None:
        stopping.limit = clock + spec["time_limit"]
    while True:
        ready = poll.poll(stopping.timeout(heartbeat) * 1000)
        ended, status, usage = os.wait4(pid, os.WNOHANG)
        if ended:
            break
        _reap_orphans(pid)
        for fd, events in ready:
            if fd == control:
                stopping.obey(os.read(fd, 4096))
            elif handed.terminal and fd == handed.terminal[2]:
                poll.unregister(fd)
                poll.register(handed.terminal[0], select.POLLIN)
            elif handed.terminal and fd == handed.terminal[0]:
                _drain_terminal(fd, spec["stdout"])
                if not events & select.POLLIN:
                    poll.unregister(fd)  # the command closed its terminal; a hang-up would wake us for ever
        stopping.act()
    if pidfd >= 0:
        os.close(pidfd)
    if handed.terminal and _front_is_gone(handed.terminal[2]):
        _drain_terminal(handed.terminal[0], spec["stdout"])
    code = os.waitstatus_to_exitcode(status)
    outcome = {
        "code": code if code >= 0 else None,
        "signal": -code if code < 0 else None,
        "core": os.WCOREDUMP(status),
        "by": stopping.by,
        "ended": time.time(),
        "cpu": usage.ru_utime + usage.ru_stime,
        "maxrss": usage.ru_maxrss * 1024,
    }
    return outcome, stopping


def _reap_orphans(pid: int) -> None:
    """Collect ended children other than the command itself, whose status `wait4` must still see."""
    while True:
        try:
            found = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        except ChildProcessError:
            return
        if found is None or found.si_pid == pid:
            return
        os.waitpid(found.si_pid, os.WNOHANG)


def _front_is_gone(lifeline: int) -> bool:
    check = select.poll()
    check.register(lifeline, 0)
    return bool(check.poll(0))


def _drain_terminal(master: int, log: str) -> None:
    """Nobody watches the terminal any more: keep the command going and its output in the log.

    A part of a flood at a time: the command must still hear a stop.
    """
    os.set_blocking(master, False)
    out = _open_log(log)
    try:
        for _ in range(16):
            os.write(out, os.read(master, 65536))
    except OSError:
        pass  # EAGAIN: nothing more now; EIO: the other side is closed
    finally:
        os.close(out)


def _start_error(spec: dict[str, Any], error: OSError) -> str:
    reason = os.strerror(error.errno) if error.errno else str(error)
    if error.strerror and error.strerror.startswith("cannot enter"):
        return f"{error.strerror}: {spec['workdir']}"
    what = os.fsdecode(error.filename or spec["words"][0])
    return f"cannot start {what}: {reason}"


def _note(spec: dict[str, Any], message: str) -> None:
    """Say in the job's own log why it did not start."""
    try:
        with open(spec["stderr"], "a", errors="surrogateescape") as file:
            file.write(f"dibs: {message}\n")
    except OSError:
        pass  # the log itself may be what could not be opened


def _write_record(fd: int, record: dict[str, Any]) -> bytes:
    data = records.encode(record)
    _insist(lambda: os.pwrite(fd, data, 0))
    return data


def _sync(fd: int) -> None:
    _insist(lambda: os.fdatasync(fd))


def _insist(act: Callable[[], Any]) -> None:
    """Only a copy-on-write file system can be too full for an overwrite. The lock stays ours meanwhile."""
    while True:
        try:
            act()
            return
        except OSError:
            time.sleep(0.5)


def _encoded(variables: dict[str, str]) -> dict[bytes, bytes]:
    return {
        name.encode("utf-8", "surrogateescape"): value.encode("utf-8", "surrogateescape")
        for name, value in variables.items()
    }
