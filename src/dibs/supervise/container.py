"""The container of an attempt, as its shim sees it: its processes, signals for them, how it ended, its removal.

Podman's processes are below the shim; docker's are below its daemon. All of them carry the attempt's mark in their
environment, as every process of a job does, and are found by it. Standard library only.
"""

import contextlib
import os
import re
import select
import signal
import time
from typing import Any

from dibs.supervise.command import (
    ChildProcesses,
    children_of,
    descendants,
    encoded,
    signal_listeners,
    signal_tree,
)
from dibs.supervise.container_usage import (
    ContainerUsage,
    FindProcesses,
    numbers_elsewhere,
    numbers_inside,
    without_usage,
)
from dibs.supervise.folder import is_marked, parent_of
from dibs.supervise.logs import Log

_DEADLINE = 30.0  # seconds for one command of the engine
_TRIES = 5  # to remove a container of which no process is left
_LONGEST_PAUSE = 2.0  # seconds between them
_NEVER = "0001-"  # the year in which a container was started that never was
_OF_THE_ENGINE = (125, 126, 127)  # exit codes of the engine's own failures; a command may have them too
_NO_PROGRAM = re.compile(rb"(?:\[FATAL tini \(\d+\)\] exec|ERROR \(catatonit:\d+\): failed to exec)[^\n]*\s*\Z")
# Slurm's own words on stderr; the program's name where it is not in the image.
_OF_SLURM = re.compile(rb"^slurmstepd[^\n]*: error: (?:(execve\(\): )|pyxis: )([^\n]+)", re.MULTILINE)
_NO_DAEMON = b"annot connect to the Docker daemon"
_LAST = 2000  # bytes of a log in which the engine says why it failed


class Container:
    """The container in which the command of a spec runs."""

    def __init__(self, spec: dict[str, Any], environment: dict[bytes, bytes]) -> None:
        self._facts: dict[str, Any] = spec["container"]
        self._folder = os.path.dirname(spec["env"]["DIBS_METRICS"])
        # Without the mark: a command of the engine is no process of the container.
        self._environment = {name: value for name, value in environment.items() if name != b"DIBS_METRICS"}
        self._find = _how_to_find(self._folder, self._facts)
        # Those that are found below the engine's client are measured with it, which waits for them.
        self.usage = ContainerUsage(self._find) if self._find is not _nothing else None

    def processes(self, client: int) -> "ContainerProcesses":
        return ContainerProcesses(client, self._folder, self._facts, self._find)

    def outcome(self, ended: dict[str, Any], logs: list[Log]) -> dict[str, Any]:
        """How the command ended, from how the engine's own process did: it has the command's exit code.

        128+n is a signal, as a shell would tell it. What a client used is not what the command did, unless the
        command was below it.
        """
        found = dict(ended) if self.usage is None else without_usage(ended) | self.usage.found
        code = found["code"]
        if code is None or found["by"]:
            return found
        said = _last_of(logs)
        if code and (failure := self._failure_of_slurm(said)):
            return found | failure
        no_program = _NO_PROGRAM.search(said) is not None
        is_its_own = code not in _OF_THE_ENGINE or no_program or self._is_of_the_command(code, said)
        if no_program or not is_its_own:
            line = said.strip().rpartition(b"\n")[2].decode("utf-8", "replace")[-300:]
            engine, why = self._facts["engine"], line or f"exit code {code}"
            if is_its_own is False:
                message = f"its end was not seen: {engine} failed: {why}"
                return found | {"code": None, "cause": "lost", "message": message}
            message = f"{engine} could not start it: {why}"
            return found | {"by": "start", "code": 127 if no_program else code, "message": message}
        if 128 < code < 128 + 32:
            return found | {"code": None, "signal": code - 128}
        return found

    def _failure_of_slurm(self, said: bytes) -> dict[str, Any]:
        """Why Slurm, which starts the command, could not; nothing where a process of the command was seen."""
        if not self._facts.get("is_elsewhere") or self.usage is None or self.usage.is_seen:
            return {}
        if (failure := _OF_SLURM.search(said)) is None:
            return {}
        why = failure[2].decode("utf-8", "replace")[:300]
        code = {"code": 127} if failure[1] else {}
        return code | {"by": "start", "message": f"{self._facts['engine']} could not start it: {why}"}

    def remove(self) -> str:
        """End the container and remove it; returns why that could not be done, once no process of it is left.

        While a process is left this goes on: its GPU must not be used by another job.
        """
        words = self._facts["remove"]
        pause, tries = 0.05, 0
        while words:
            code, said = _execute(words, self._environment)
            if code == 0 or b"no such container" in said.lower():
                break
            tries += 1
            if tries >= _TRIES and not numbers_inside(self._folder):
                return said.decode("utf-8", "replace").strip().rpartition("\n")[2][-300:]
            time.sleep(pause)
            pause = min(pause * 2, _LONGEST_PAUSE)
        return ""

    def _is_of_the_command(self, code: int, client_said: bytes) -> bool | None:
        """Whether an exit code of the engine's client is the command's; None where that was never started.

        Where the engine's own process was killed the client fails, while the container may even go on.
        """
        if not self._facts["state"]:
            return True
        answered, said = _execute(self._facts["state"], self._environment)
        if answered != 0:
            is_unborn = b"no such container" in said.lower() or _NO_DAEMON in client_said
            return None if is_unborn else False
        status, its_code, started = [*said.decode("utf-8", "replace").split(maxsplit=2), "", "", ""][:3]
        if started.startswith(_NEVER):
            return None
        return status != "running" and not (status == "exited" and its_code != str(code))


class ContainerProcesses(ChildProcesses):
    """The processes of a command in a container, without those of the engine itself.

    Each process of the command gets a signal once. An init program, and runc, hand on what they get, so they get
    none; the clients of podman and docker hand nothing on. A container that has not started yet has no processes:
    then the client is signalled.
    """

    def __init__(self, client: int, folder: str, facts: dict[str, Any], find: FindProcesses) -> None:
        super().__init__(client)
        self._folder = folder
        self._find = find
        self._has_init: bool = facts["has_init"]
        self._hands_signals_on: bool = facts["hands_signals_on"]

    def signal(self, number: int) -> None:
        there = self._find()
        for pid, number_inside in there.items():
            if number == signal.SIGKILL or not (self._has_init and number_inside == 1):
                with contextlib.suppress(OSError):  # it has ended
                    _signal_marked(pid, self._folder, number)
        if not there:
            is_spared = self._hands_signals_on and number != signal.SIGKILL and len(descendants(os.getpid())) > 1
            signal_tree(os.getpid(), number, but=self._command if is_spared else 0)

    def signal_listeners(self, number: int) -> int:
        there = self._find()
        commands = [pid for pid in there if self._is_command(pid, there)]
        if self._hands_signals_on:
            commands = children_of(self._command)
        if not commands:
            return super().signal_listeners(number)
        return max(signal_listeners(pid, number, parent_of(pid)) for pid in commands)

    def _is_command(self, pid: int, there: dict[int, int]) -> bool:
        """Whether it is the topmost process, or the one below the init program."""
        if self._has_init:
            return there.get(parent_of(pid) or 0) == 1
        return there[pid] == 1


def _how_to_find(folder: str, facts: dict[str, Any]) -> FindProcesses:
    if facts.get("is_elsewhere"):
        return lambda: numbers_elsewhere(folder)
    return (lambda: numbers_inside(folder)) if facts["has_own_pids"] else _nothing


def _nothing() -> dict[int, int]:
    return {}


def _signal_marked(pid: int, folder: str, number: int) -> None:
    """Signal exactly the process that was found, not another one that got its pid meanwhile."""
    handle = os.pidfd_open(pid)
    try:
        if is_marked(pid, folder):
            signal.pidfd_send_signal(handle, number)
    finally:
        os.close(handle)


def _last_of(logs: list[Log]) -> bytes:
    """The last lines of stderr; of stdout where both are one file."""
    if not logs:
        return b""
    try:
        with open(f"/proc/self/fd/{logs[-1].fd}", "rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - _LAST))
            return file.read(_LAST)
    except OSError:
        return b""


def _execute(words: list[str], environment: dict[bytes, bytes]) -> tuple[int, bytes]:
    """Run a command of the engine to its end: its exit code, -1 where it has none, and what it said."""
    out, into = os.pipe2(os.O_CLOEXEC)
    try:
        streams = [(os.POSIX_SPAWN_DUP2, into, 1), (os.POSIX_SPAWN_DUP2, into, 2)]
        pid = os.posix_spawnp(words[0], encoded(words), environment, file_actions=streams, setsid=True)
    except OSError as error:
        os.close(out)
        return -1, str(error).encode()
    finally:
        os.close(into)
    said = b""
    until = time.monotonic() + _DEADLINE
    poll = select.poll()
    poll.register(out, select.POLLIN)
    while poll.poll(max(0.0, until - time.monotonic()) * 1000):
        data = os.read(out, 65536)
        if not data:
            break
        said = (said + data)[-_LAST:]
    else:
        os.kill(pid, signal.SIGKILL)  # our own child: its number is not used again before we have waited for it
        said += b"\nit did not answer in time"
    os.close(out)
    _, status = os.waitpid(pid, 0)
    code = os.waitstatus_to_exitcode(status)
    return (code if code >= 0 else -1), said
