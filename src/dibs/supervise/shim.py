"""The shim: a process that starts one command at a time, waits for it and records how it ended.

It is forked by the zygote and may outlive the engine. Its state is in the attempt's folder: `record` (folder.py)
says what to run, that it runs and how it ended, and is locked while a shim runs the attempt. It names a FIFO that
takes `stop`, `kill` and `signal N`, each followed by the attempt it is for.

After an attempt the shim waits for the next one, because forking an interpreter for every job costs more than the
job's own start. It still runs one attempt at a time: killing it affects no other. Attempts come over its channel
from the engine, with their locked descriptors; records go back.

Standard library only, everything imported at the top: the package may be deleted while we run.
"""

import contextlib
import ctypes
import fcntl
import json
import os
import select
import socket
import time
import traceback
from array import array
from collections.abc import Callable, Sequence
from errno import EAGAIN, EDQUOT, EMFILE, ENFILE, ENOMEM, ENOSPC
from functools import lru_cache
from typing import Any

from dibs.supervise.command import (
    AttemptDescriptors,
    ChildProcesses,
    Environment,
    Processes,
    Stopping,
    boottime,
    end_children,
    environment_of,
    note,
    start,
    start_error,
)
from dibs.supervise.container import Container
from dibs.supervise.container_usage import ContainerUsage
from dibs.supervise.folder import RECORD_SIZE, encode_record, identity_in, may_be_taken
from dibs.supervise.logs import BoundedLogs, KernelKills, Log, diagnose, open_log

_PR_SET_CHILD_SUBREAPER = 36
_libc = ctypes.CDLL(None, use_errno=True)
# Seconds before `running` is recorded: most short commands have ended by then, which saves a write.
_SHORT = 0.05
# Seconds between two checks for ended orphans, and for limits after the machine slept.
_HEARTBEAT = 5.0
# Errors that may pass: too many processes or files, a full disk.
_PASSING = frozenset({EAGAIN, EMFILE, ENFILE, ENOSPC, EDQUOT})
# Seconds for which a record that cannot be written is tried again, where an engine hears of the end all the same:
# a file system that has died does not come back to those who have a file of it open.
_DEAD_AFTER = 10.0
_OUT_OF_MEMORY = "its supervisor cannot run it: Cannot allocate memory"
MOST_DESCRIPTORS = 250  # the kernel passes at most 253 at once
NOT_RUN = b"!"  # sent instead of a record

_CUT_SHORT = int(socket.MSG_CTRUNC)  # an int: `&` with an enum flag takes longer than the system call


class NotStarted(Exception):
    """Nothing was started and the record is blank: the engine queues the attempt again."""


class Shim:
    """Runs attempts: one after another until the engine has ended (`serve`), or a single one (`take`).

    `given` are variables of the machine where it runs; captured ones that begin with a word of `forget` belong
    to another machine and are dropped.
    """

    def __init__(
        self,
        channel: socket.socket | None = None,
        *,
        given: dict[str, str] | None = None,
        forget: tuple[str, ...] = (),
    ) -> None:
        self._channel = channel
        self._given = given or {}
        self._forget = forget
        self._control = -1
        self._control_path = ""
        self._facts: dict[str, Any] = {}
        self._identity: dict[str, Any] = {}  # of the attempt at hand
        self._environments: dict[str, Environment] = {}
        self._kernel_kills = KernelKills()

    def serve(self) -> None:
        """A message is `{"control", "stdin", "terminal"}` with descriptors in the order of `AttemptDescriptors`.

        It may contain a `note` for the job's log. The answer is the final record, sent when no process of the
        attempt is left.
        """
        assert self._channel is not None
        os.setsid()
        _adopt_orphans()
        while True:
            message, fds = self._next(self._channel)
            if not message:
                break
            record, *others = fds
            answer = self._serve_one(wishes_in(message), fds)
            # Close, never LOCK_UN, which would free the locks of the engine too.
            for fd in others:
                os.close(fd)
            # The record's lock is ours alone, and the engine may reuse the folder as soon as it has the answer.
            fcntl.flock(record, fcntl.LOCK_UN)
            try:
                self._channel.send(answer)
            except OSError:
                # The engine has ended. It would have synced the outcome into its store before reporting it;
                # until a new engine starts, this record is the only copy.
                _sync(record)
                break
            finally:
                os.close(record)
        if self._control_path:
            with contextlib.suppress(OSError):
                os.unlink(self._control_path)

    def _next(self, channel: socket.socket) -> tuple[bytes, list[int]]:
        """The next attempt; an empty message when there will be none."""
        return receive(channel, MOST_DESCRIPTORS)

    def _serve_one(self, wanted: dict[str, Any], fds: list[int]) -> bytes:
        record, *rest = fds
        stdin = rest.pop(0) if wanted["stdin"] else None
        terminal = (rest.pop(0), rest.pop(0), rest.pop(0)) if wanted["terminal"] else None
        handed = AttemptDescriptors(record, stdin, terminal, tuple(rest))
        return self.take(handed, wanted["control"], wanted.get("note", ""))

    def take(self, handed: AttemptDescriptors, control: str = "", remark: str = "") -> bytes:
        """Run one attempt to its end; return its record, or NOT_RUN where nothing was started.

        `control` is the folder for a FIFO of our own, unless `listen` was called. A remark goes into the job's
        log.
        """
        try:
            if self._control < 0:
                self._open_control(control)
            return self._run(handed, remark)
        except NotStarted:
            return NOT_RUN
        except Exception as error:
            # A bug of dibs is a start error of this attempt, with its traceback, and never a silent loss.
            end_children()
            message = _OUT_OF_MEMORY if isinstance(error, MemoryError) else traceback.format_exc()
            return self.write_end(handed.record, {"by": "start", "message": message})

    def write_end(self, record: int, facts: dict[str, Any]) -> bytes:
        """Record that an attempt ended without having run."""
        return self._write_record(record, self._facts | self._identity | {"state": "ended"} | facts)

    def _write_record(self, fd: int, record: dict[str, Any]) -> bytes:
        data = encode_record(record)
        insist(lambda: os.pwrite(fd, data, 0), None if self._channel is None else _DEAD_AFTER)
        return data

    def listen(self, control: int, **facts: str) -> None:
        """Take commands from this descriptor, without an engine; the record contains these facts."""
        _adopt_orphans()
        self._control = control
        self._introduce(facts)

    def _open_control(self, folder: str) -> None:
        path = f"{folder}/{os.getpid()}-{os.urandom(4).hex()}"
        try:
            os.makedirs(folder, mode=0o700, exist_ok=True)  # it may have been deleted
            os.mkfifo(path, 0o600)
            # For reading and writing, so that there is no hang-up when a writer closes it.
            self._control = os.open(path, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError as error:
            with contextlib.suppress(OSError):
                os.unlink(path)
            raise NotStarted from error  # without it the command could not be stopped
        self._control_path = path
        # Only its name: the record is small and a path may be long.
        self._introduce({"control": os.path.basename(self._control_path)})

    def _introduce(self, facts: dict[str, str]) -> None:
        self._facts = {"v": 1, "shim": os.getpid(), "message": "", **facts}

    def _run(self, handed: AttemptDescriptors, remark: str) -> bytes:
        """Run one attempt to its end. Returns when no process below this one is left."""
        self._identity = {}
        content = os.pread(handed.record, os.fstat(handed.record).st_size, 0)
        if not may_be_taken(content):
            return NOT_RUN  # this attempt was run before
        spec: dict[str, Any] = json.loads(content[RECORD_SIZE:].decode())
        self._identity = identity_in(spec)
        if self._given:
            spec["env"] = spec["env"] | self._given
        if node := self._facts.get("node"):  # who made the names did not know it
            spec |= {stream: spec[stream].replace("%N", node.partition(".")[0]) for stream in ("stdout", "stderr")}
        # The fence against a second start. It must survive kill -9 only, so it is not synced.
        try:
            os.pwrite(handed.record, encode_record(self._facts | self._identity | {"state": "starting"}), 0)
        except OSError as error:
            raise NotStarted from error
        if remark:
            note(spec, remark)
        logs: list[Log] = []
        try:
            return self._run_command(spec, handed, logs, content[:RECORD_SIZE])
        finally:
            for log in logs:
                os.close(log.fd)
            os.chdir("/")  # do not keep the job's folder in use while idle

    def _run_command(
        self, spec: dict[str, Any], handed: AttemptDescriptors, logs: list[Log], blank: bytes
    ) -> bytes:
        clock = boottime()
        record: dict[str, Any] = self._facts | self._identity | {"began": time.time(), "clock": clock}
        kernel_kills = self._kernel_kills.look()
        stopping = bounded = container = None
        try:
            if "container" in spec:
                container = Container(spec, environment_of(spec, self._environment(spec["environment"])))
            pid = self._start(spec, handed, logs)
        except (OSError, MemoryError) as fault:
            error = fault if isinstance(fault, OSError) else OSError(ENOMEM, os.strerror(ENOMEM))
            if error.errno in _PASSING:
                # We hold the lock, and no command was started: the fence may be removed again.
                insist(lambda: os.pwrite(handed.record, blank, 0))
                raise NotStarted from error
            message = start_error(spec, error)
            note(spec, message)
            record |= {"by": "start", "message": message, "ended": time.time()}
        else:
            record |= {"state": "running", "pid": pid}
            if logs and spec.get("log_limit"):
                bounded = BoundedLogs(logs, spec["log_limit"])
            processes = ChildProcesses(pid) if container is None else container.processes(pid)
            usage = None if container is None else container.usage
            watched = [one for one in (bounded, usage) if one is not None]
            ended, stopping = _wait(record, spec, handed, self._control, clock, watched, processes)
            record |= ended if container is None else container.outcome(ended, logs)
            if record["code"] != 0 and not record["by"] and "cause" not in record:
                record |= self._diagnosis(record, logs, kernel_kills, boottime() - clock, stopping.sent)
        still = 0.0 if stopping is None else stopping.stood_still
        record |= {"state": "ended", "seconds": boottime() - clock - still}
        written = self._write_record(handed.record, record)
        # The record comes first: if remaining processes cannot be killed, the outcome is known nevertheless.
        if stopping is not None:
            stopping.give_grace_to_the_rest(self._control)
        if container is not None and (why_not := container.remove()):
            note(spec, f"its container could not be removed: {why_not}")
        end_children()
        if bounded is not None:
            bounded.cut()
        return written

    def _start(self, spec: dict[str, Any], handed: AttemptDescriptors, logs: list[Log]) -> int:
        return start(spec, handed, self._environment(spec["environment"]), logs)

    def _diagnosis(
        self, record: dict[str, Any], logs: list[Log], kernel_kills: bytes, seconds: float, sent: set[int]
    ) -> dict[str, str]:
        kills = self._kernel_kills
        found = diagnose(
            record["code"],
            record["signal"],
            logs,
            kernel_killed=kills.happened_since(kernel_kills) if kills.are_seen else None,
            seconds=seconds,
            sent=sent,
        )
        return {} if found is None else {"cause": found[0], "message": found[1]}

    def _environment(self, path: str) -> Environment:
        """A captured environment, read once."""
        if path not in self._environments:
            if len(self._environments) > 8:
                self._environments.clear()
            with open(path, "rb") as file:
                captured = json.loads(file.read())
            if self._forget:
                captured = {name: captured[name] for name in captured if not name.startswith(self._forget)}
            self._environments[path] = Environment(captured)
        return self._environments[path]


def _adopt_orphans() -> None:
    """Become the parent of processes below us that lose their own."""
    _libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def _wait(
    record: dict[str, Any],
    spec: dict[str, Any],
    handed: AttemptDescriptors,
    control: int,
    clock: float,
    watched: "Sequence[BoundedLogs | ContainerUsage]",
    processes: Processes,
) -> tuple[dict[str, Any], Stopping]:
    """Wait for the command, obey the control FIFO and the time limit; return how it ended.

    The record that it runs is written only if it runs longer than a moment.
    """
    pid: int = record["pid"]
    poll = select.poll()
    poll.register(control, select.POLLIN)
    heartbeat = _HEARTBEAT
    is_recorded = False
    try:
        pidfd = os.pidfd_open(pid)
    except OSError:
        pidfd = -1
        heartbeat = 0.02  # no pidfd here (an old kernel, a strict container): poll instead
    else:
        poll.register(pidfd, select.POLLIN)
    if handed.terminal:
        poll.register(handed.terminal[2], 0)  # a hang-up is always reported
    stopping = Stopping(spec["grace"], f"{spec['job']}.{spec['attempt']}", processes)
    if spec["time_limit"] is not None:
        stopping.limit = clock + spec["time_limit"]
        if spec.get("checkpoint"):
            stopping.save_before_limit(*spec["checkpoint"])
    while True:
        longest = heartbeat if is_recorded else min(heartbeat, _SHORT)
        for one in watched:
            longest = min(longest, one.seconds_left)
        ready = poll.poll(stopping.timeout(longest) * 1000)
        ended, status, usage = os.wait4(pid, os.WNOHANG)
        if ended:
            break
        if not is_recorded:
            is_recorded = True
            with contextlib.suppress(OSError):  # it runs: a full copy-on-write disk must not end it
                os.pwrite(handed.record, encode_record(record), 0)
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
                    poll.unregister(fd)  # the command closed its terminal: the hang-up would be reported for ever
        stopping.act()
        for one in watched:
            one.look()
    if status and any(fd == control for fd, _ in poll.poll(0)):
        stopping.heard_late(os.read(control, 4096))
    if pidfd >= 0:
        os.close(pidfd)
    if handed.terminal and _front_has_ended(handed.terminal[2]):
        _drain_terminal(handed.terminal[0], spec["stdout"])
    code = os.waitstatus_to_exitcode(status)
    outcome = {
        "code": code if code >= 0 else None,
        "signal": -code if code < 0 else None,
        "core": os.WCOREDUMP(status),
        "by": stopping.by or ("checkpoint" if stopping.has_saved else ""),
        "ended": time.time(),
        "cpu": usage.ru_utime + usage.ru_stime,
        "maxrss": usage.ru_maxrss * 1024,
    }
    if stopping.has_saved:
        outcome |= {"checkpointed": True, "message": stopping.why_not_saved(-code)}
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


def _front_has_ended(lifeline: int) -> bool:
    check = select.poll()
    check.register(lifeline, 0)
    return bool(check.poll(0))


def _drain_terminal(master: int, log: str) -> None:
    """Copy the output of a terminal without a front end to the log, so that the command can go on.

    Only a limited part at a time: a stop must still be obeyed.
    """
    os.set_blocking(master, False)
    out = open_log(log).fd
    try:
        for _ in range(16):
            os.write(out, os.read(master, 65536))
    except OSError:
        pass  # EAGAIN: no more now; EIO: the other side is closed
    finally:
        os.close(out)


def _sync(fd: int) -> None:
    insist(lambda: os.fdatasync(fd), _DEAD_AFTER)


def insist(act: Callable[[], Any], patience: float | None = None) -> None:
    """Repeat until it succeeds: only a copy-on-write file system can be too full for an overwrite.

    An error that does not pass like that one is borne for so many seconds (None: no limit).
    """
    until = None if patience is None else time.monotonic() + patience
    while True:
        try:
            act()
            return
        except OSError as error:
            if error.errno not in _PASSING and until is not None and time.monotonic() > until:
                return
            time.sleep(0.5)


def receive(channel: socket.socket, most: int) -> tuple[bytes, list[int]]:
    """A message and its descriptors, which no command inherits.

    Not `socket.recv_fds`: it takes flags and forgets them, and a command that inherits its attempt's lock would
    look like a living shim.
    """
    fds = array("i")
    room = socket.CMSG_LEN(most * fds.itemsize)
    message, ancillary, flags, _ = channel.recvmsg(4096, room, socket.MSG_CMSG_CLOEXEC)
    for level, kind, data in ancillary:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            fds.frombytes(data[: len(data) - len(data) % fds.itemsize])
    if flags & _CUT_SHORT:
        # A lock may be among those that did not arrive. The receiver ends here, and nothing was started.
        for fd in fds:
            os.close(fd)
        raise OSError(EMFILE, os.strerror(EMFILE))
    return message, list(fds)


@lru_cache(maxsize=8)
def wishes_in(message: bytes) -> dict[str, Any]:
    """Cached: the same for nearly every attempt."""
    found: dict[str, Any] = json.loads(message)
    return found
