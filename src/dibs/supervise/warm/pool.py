"""The engine's side of warm processes: asks them for shims, and starts normally what cannot be forked.

Nothing here waits. An attempt is kept, locked, until a shim that was forked for it reports; before that the
attempt has not begun, and on any failure goes to another process or to an ordinary shim, with a note in the job's
log that says why. A warm process may be killed at any time: its shims and jobs go on.
"""

import json
import os
import socket
import time
from collections.abc import Callable, Sequence
from dataclasses import field, replace
from typing import Any

from dibs.dataclass import dataclass
from dibs.supervise.launcher import AddReader, Launcher, RemoveReader, WhenDone, shim_message
from dibs.supervise.warm.python_line import SCRIPT, PythonLine, read_line

MOST_PROCESSES = 4
_MOST_TRIES = 2  # warm processes that one attempt asks
_REFUSED = 60.0  # seconds until a process of a kind that was refused is tried again
_LONGEST_NOTE = 300  # characters
_NOTE = "not started warm: "
_ENDED = "its warm process ended"
_NO = b"no "

Key = tuple[str, int]  # a job, and which of its attempts


@dataclass(frozen=True, slots=True)
class Handover:
    """An attempt on its way to a shim."""

    key: Key
    spec: dict[str, Any]
    line: PythonLine
    control: str
    fds: tuple[int, ...]  # locked; our own copies until a shim has them
    when_done: WhenDone
    stdin: bool
    terminal: bool
    tries: int = 0


@dataclass(slots=True)
class _Process:
    """A warm process, or one that is about to be."""

    kind: str
    modules: tuple[str, ...]
    channel: socket.socket
    pid: int | None = None  # None: it imports
    line: list[Handover] = field(default_factory=list)  # not asked for yet
    waiting: dict[socket.socket, Handover] = field(default_factory=dict)  # by the channel of the asked shim
    idle: list[socket.socket] = field(default_factory=list)  # channels of shims that may take another attempt


class WarmProcesses:
    """A few processes, each for one interpreter, folder, environment and set of modules."""

    def __init__(
        self,
        launcher: Launcher,
        add_reader: AddReader,
        remove_reader: RemoveReader,
        clock: Callable[[], float] = time.monotonic,
        longest_idle: float = 300.0,  # seconds
    ) -> None:
        self._launcher = launcher
        self._add_reader = add_reader
        self._remove_reader = remove_reader
        self._clock = clock
        self._longest_idle = longest_idle
        self._processes: dict[str, _Process] = {}  # those used last stand last
        self._busy: dict[socket.socket, WhenDone] = {}
        self._offered: dict[socket.socket, Handover] = {}  # to shims that have not said whether they begin them
        self._refused: dict[str, tuple[str, float]] = {}

    @property
    def shown(self) -> list[tuple[tuple[str, ...], int | None]]:
        """The modules of each, and its pid once it has imported them."""
        return [(process.modules, process.pid) for process in self._processes.values()]

    def hand_over(
        self,
        spec: dict[str, Any],
        control: str,
        fds: Sequence[int],
        when_done: WhenDone,
        *,
        stdin: bool = False,
        terminal: bool = False,
    ) -> None:
        """Like `Launcher.hand_over`, for an attempt that wants to be forked from a warm process."""
        key = (str(spec["job"]), spec["attempt"])
        line = read_line([word.encode("utf-8", "surrogateescape") for word in spec["words"]])
        if isinstance(line, str):
            note = _NOTE + line
            self._launcher.hand_over(control, fds, when_done, stdin=stdin, terminal=terminal, note=note)
        else:
            self._place(Handover(key, spec, line, control, _copies(fds), when_done, stdin, terminal))

    def withdraw(self, key: Key) -> bool:
        """Take an attempt back that has not begun; False where it has, or is not here."""
        for process in self._processes.values():
            for shim, handover in [*process.waiting.items(), *((None, one) for one in process.line)]:
                if handover.key == key:
                    if shim is None:
                        process.line.remove(handover)
                    else:
                        del process.waiting[shim]
                        self._forget(shim)
                    _close(handover.fds)
                    handover.when_done(None)
                    return True
        return False

    def close(self) -> None:
        """Close all channels: shims end after their attempt, warm processes after their last shim."""
        for process in list(self._processes.values()):
            for shim in (*process.waiting, *process.idle):
                self._forget(shim)
            for handover in (*process.waiting.values(), *process.line):
                _close(handover.fds)
            self._forget(process.channel)
        self._processes.clear()
        for handover in self._offered.values():
            _close(handover.fds)
        for shim in (*self._busy, *self._offered):
            self._forget(shim)
        self._busy.clear()
        self._offered.clear()

    # -- finding a process -----------------------------------------------------------------------------

    def _place(self, handover: Handover, why: str = "") -> None:
        """Let it stand in line for a shim, or start it afresh; `why` says what the last process ended of."""
        order = _order(handover.spec, handover.line) | {"idle_seconds": self._longest_idle}
        kind = json.dumps(order)
        reason, until = self._refused.get(kind, ("", 0.0))
        if self._clock() < until:
            self._start_afresh(handover, reason)
        elif handover.tries >= _MOST_TRIES:
            self._start_afresh(handover, why)
        elif process := self._processes.pop(kind, None) or self._begin(kind, order):
            self._processes[kind] = process
            process.line.append(handover)
            self._ask(process)
        else:
            self._start_afresh(handover, f"{MOST_PROCESSES} others are being warmed up")

    def _begin(self, kind: str, order: dict[str, Any]) -> _Process | None:
        """Have the zygote fork one; in place of the one that was used longest ago where there are too many."""
        if len(self._processes) >= MOST_PROCESSES:
            idle = next((one for one in self._processes.values() if not one.waiting and not one.line), None)
            if idle is None:
                return None
            self._settle_soon(idle)
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        # By a file: an order may be longer than a message.
        paper = os.memfd_create("order", os.MFD_CLOEXEC)
        try:
            with theirs, open(paper, "wb", closefd=False) as file:
                file.write(kind.encode())
                file.flush()
                self._launcher.ask_zygote(b"w", [theirs.fileno(), paper])
        except OSError:
            ours.close()
            return None
        finally:
            os.close(paper)
        ours.setblocking(False)
        process = _Process(kind, tuple(order["modules"]), ours)
        self._add_reader(ours.fileno(), self._process_said, process)
        return process

    def _ask(self, process: _Process) -> None:
        """Ask for shims, once it can hear us; what it has no ear for now is asked when it has answered."""
        while process.line and process.pid is not None:
            handover = process.line[0]
            if self._offer(process, handover):
                process.line.pop(0)
                continue
            ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            with theirs:
                try:
                    socket.send_fds(process.channel, [b"?" + _target(handover)], [theirs.fileno()])
                except BlockingIOError:
                    ours.close()
                    return
                except OSError:
                    ours.close()
                    self._lose(process, _ENDED)
                    return
            process.waiting[ours] = process.line.pop(0)
            self._add_reader(ours.fileno(), self._shim_said, ours, process)

    def _offer(self, process: _Process, handover: Handover) -> bool:
        """Give an attempt to a shim that has run one before: forking a shim costs as much as a job's own start.

        It may refuse: our copies of the locked descriptors are kept until it has begun.
        """
        message = shim_message(handover.control, handover.stdin, handover.terminal)
        while process.idle:
            shim = process.idle.pop()
            try:
                socket.send_fds(shim, [_target(handover) + b"\0" + message], list(handover.fds))
            except OSError:
                self._forget(shim)
                continue
            self._offered[shim] = handover
            return True
        return False

    # -- hearing from them -----------------------------------------------------------------------------

    def _process_said(self, process: _Process) -> bool:
        """Hear one word; False where there is none."""
        try:
            said = process.channel.recv(4096)
        except BlockingIOError:
            return False
        except ConnectionResetError:
            return True  # it ended without hearing us out; its last word, if there is one, comes after this
        except OSError:
            said = b""
        word, _, rest = said.decode("utf-8", "replace").partition(" ")
        if word == "ready":
            process.pid = int(rest)
            self._ask(process)
        elif word == "no":
            self._lose(process, rest, is_final=True)
        elif word == "stale":
            self._lose(process, rest)
        elif process.pid is not None:
            self._lose(process, _ENDED)
        else:
            self._lose(process, f"importing {', '.join(process.modules)} ended the process", is_final=True)
        return True

    def _shim_said(self, shim: socket.socket, process: _Process) -> None:
        try:
            answer = shim.recv(4096)
        except OSError:
            answer = b""
        if when_done := self._busy.pop(shim, None):
            if answer and self._processes.get(process.kind) is process:
                process.idle.append(shim)
            else:
                self._forget(shim)
            when_done(answer or None)
            return
        if offered := self._offered.pop(shim, None):
            self._answered(shim, process, offered, answer)
            return
        handover = process.waiting.pop(shim, None)
        if handover is None:
            if shim in process.idle:  # it has waited for long enough
                process.idle.remove(shim)
                self._forget(shim)
            return
        if answer == b"+" and self._send(shim, handover):
            self._ask(process)
            return
        self._forget(shim)
        if answer.startswith(_NO):
            self._start_afresh(handover, _reason(answer))
            self._ask(process)
            return
        process.line.insert(0, handover)
        # What the process itself has to say comes first: it may know why.
        while process.line:
            if not self._process_said(process):
                self._lose(process, _ENDED)

    def _answered(self, shim: socket.socket, process: _Process, handover: Handover, answer: bytes) -> None:
        """Hear whether a shim has begun an attempt that it was offered."""
        if answer == b"+":
            _close(handover.fds)
            self._busy[shim] = handover.when_done
            return
        self._forget(shim)
        if answer.startswith(_NO):
            self._start_afresh(handover, _reason(answer))
            return
        why = _reason(answer) or _ENDED
        if answer and self._processes.get(process.kind) is process:  # its process is stale, too
            self._lose(process, why)
        self._place(replace(handover, tries=handover.tries + 1), why)

    def _send(self, shim: socket.socket, handover: Handover) -> bool:
        """From here on the shim has the attempt, and we none of it."""
        message = shim_message(handover.control, handover.stdin, handover.terminal)
        try:
            socket.send_fds(shim, [message], list(handover.fds))
        except OSError:
            return False
        _close(handover.fds)
        self._busy[shim] = handover.when_done
        return True

    # -- letting go ------------------------------------------------------------------------------------

    def _lose(self, process: _Process, why: str, *, is_final: bool = False) -> None:
        """Fork nothing more from it: attempts that wait for it go to another process."""
        self._settle_soon(process)
        if is_final:
            self._refused = {kind: said for kind, said in self._refused.items() if self._clock() < said[1]}
            self._refused[process.kind] = (why, self._clock() + _REFUSED)
        left = [*process.waiting.values(), *process.line]
        for shim in process.waiting:
            self._forget(shim)
        process.waiting, process.line = {}, []
        for handover in left:
            self._place(replace(handover, tries=handover.tries + 1), why)

    def _settle_soon(self, process: _Process) -> None:
        if self._processes.get(process.kind) is process:
            del self._processes[process.kind]
        for shim in process.idle:
            self._forget(shim)
        process.idle.clear()
        self._forget(process.channel)

    def _start_afresh(self, handover: Handover, why: str) -> None:
        note = (_NOTE + why)[:_LONGEST_NOTE]
        try:
            self._launcher.hand_over(
                handover.control,
                handover.fds,
                handover.when_done,
                stdin=handover.stdin,
                terminal=handover.terminal,
                note=note,
            )
        except OSError:
            handover.when_done(None)  # nothing was started: the engine queues it again
        finally:
            _close(handover.fds)

    def _forget(self, channel: socket.socket) -> None:
        if channel.fileno() >= 0:
            self._remove_reader(channel.fileno())
            channel.close()


def _order(spec: dict[str, Any], line: PythonLine) -> dict[str, Any]:
    """Everything that makes one warm process differ from another."""
    warm = spec["warm"]
    folder = line.imports_from.decode("utf-8", "surrogateescape")
    return {
        "interpreter": line.interpreter.decode("utf-8", "surrogateescape"),
        "flags": [flag.decode("utf-8", "surrogateescape") for flag in line.flags],
        "kind": line.kind,
        # Any script of this folder: they import from the same place.
        "script": f"{folder}/_" if line.kind == SCRIPT and folder else "_",
        "by_shell": line.by_shell,
        "modules": list(warm["modules"]),
        "workdir": spec["workdir"],
        "umask": spec["umask"],
        "environment": spec["environment"],
        "env": warm["env"],
        "cpus": list(spec.get("cpus", ())),
    }


def _target(handover: Handover) -> bytes:
    return handover.line.target[:2000]


def _reason(answer: bytes) -> str:
    """What follows the first word."""
    return answer.partition(b" ")[2].decode("utf-8", "replace")


def _copies(fds: Sequence[int]) -> tuple[int, ...]:
    found: list[int] = []
    try:
        found.extend(map(os.dup, fds))
    except OSError:
        _close(found)
        raise
    return tuple(found)


def _close(fds: Sequence[int]) -> None:
    for fd in fds:
        os.close(fd)
