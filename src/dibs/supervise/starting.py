"""Starting a command: its folder, its streams, its environment, and why it could not be. Standard library only."""

import contextlib
import os
import signal
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from dibs.supervise.logs import Log, open_log
from dibs.supervise.plain import plain_words, shell_is_changed

# What Python changed in this process, and what the shell that started us all ignores, must not reach the command.
# Every signal, because the C library asks the kernel about each one that is not named here.
_RESET_SIGNALS = [int(number) for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}]


@dataclass(frozen=True, slots=True)
class Handed:
    """The descriptors that came with an attempt."""

    record: int  # locked
    stdin: int | None = None
    terminal: tuple[int, int, int] | None = None  # pty master, pty slave, pipe that ends with the front
    leases: tuple[int, ...] = ()  # locked; the command inherits them


class Environment:
    """A captured environment, ready for many starts: as bytes, which need no encoding at every one."""

    def __init__(self, variables: dict[str, str]) -> None:
        self.variables = _encoded(variables)
        self.changes_shell = shell_is_changed(self.variables)


# Starts words with these variables, after these actions of `posix_spawn`; returns the pid.
Spawn = Callable[[list[bytes], dict[bytes, bytes], list[Any]], int]


def start(
    spec: dict[str, Any], handed: Handed, inherited: Environment, logs: list[Log], spawn: Spawn | None = None
) -> int:
    """Start the command in a session of its own; `kill 0` in a job must not reach us.

    `logs` gets the files of its stdout and stderr, for the caller to close.
    """
    own = _encoded(spec["env"])
    environment = inherited.variables | own
    for name, value in _encoded(spec.get("unless_set", {})).items():
        environment.setdefault(name, value)
    os.umask(spec["umask"])
    try:
        os.chdir(spec["workdir"])
    except OSError as error:
        raise OSError(error.errno, f"cannot enter its folder: {os.strerror(error.errno or 0)}") from error
    for lease in handed.leases:
        os.set_inheritable(lease, True)
    os.putenv(b"PATH", environment.get(b"PATH", os.defpath.encode()))  # posix_spawnp looks in ours
    words = [word.encode("utf-8", "surrogateescape") for word in spec["words"]]
    streams = _streams(spec, handed, logs)
    plain = None if inherited.changes_shell or shell_is_changed(own) else plain_words(words)
    before = _bind_to(spec["cpus"], spec) if spec.get("cpus") else set()
    try:
        if spawn is not None:
            return spawn(words, environment, streams)
        if plain is not None:
            with contextlib.suppress(OSError):
                return _spawn(plain, environment, streams)
        return _spawn(words, environment, streams)
    finally:
        if before:  # the next job of this shim may run anywhere
            with contextlib.suppress(OSError):
                os.sched_setaffinity(0, before)


def _bind_to(cpus: list[int], spec: dict[str, Any]) -> set[int]:
    """Run on those of these CPUs that we may use, as the command then does; return where we ran before.

    Where we may use none of them nothing is changed: a job far from its card is better than none.
    """
    before = os.sched_getaffinity(0)
    try:
        os.sched_setaffinity(0, before.intersection(cpus))
    except OSError:  # none is left, or an admin has just taken them away
        note(spec, "it is not bound: it may use none of the CPUs near its GPUs")
        return set()
    return before


def _spawn(words: list[bytes], environment: dict[bytes, bytes], streams: list[Any]) -> int:
    return os.posix_spawnp(
        words[0], words, environment, file_actions=streams, setsid=True, setsigdef=_RESET_SIGNALS
    )


def _streams(spec: dict[str, Any], handed: Handed, logs: list[Log]) -> list[Any]:
    if handed.terminal:
        # The first terminal that a session leader opens becomes its controlling terminal.
        slave = os.ttyname(handed.terminal[1])
        return [
            (os.POSIX_SPAWN_OPEN, 0, slave, os.O_RDWR, 0),
            (os.POSIX_SPAWN_DUP2, 0, 1),
            (os.POSIX_SPAWN_DUP2, 0, 2),
        ]
    out = open_log(spec["stdout"])
    logs.append(out)
    err = out
    if spec["stderr"] != spec["stdout"]:
        err = open_log(spec["stderr"])
        logs.append(err)
    actions = [(os.POSIX_SPAWN_DUP2, out.fd, 1), (os.POSIX_SPAWN_DUP2, err.fd, 2)]
    if handed.stdin is not None:  # otherwise it gets ours, which is /dev/null
        actions.append((os.POSIX_SPAWN_DUP2, handed.stdin, 0))
    return actions


def start_error(spec: dict[str, Any], error: OSError) -> str:
    reason = os.strerror(error.errno) if error.errno else str(error)
    if error.strerror and error.strerror.startswith("cannot enter"):
        return f"{error.strerror}: {spec['workdir']}"
    what = os.fsdecode(error.filename or spec["words"][0])
    return f"cannot start {what}: {reason}"


def note(spec: dict[str, Any], message: str) -> None:
    """Say in the job's own log why it did not start, or not as it should."""
    with contextlib.suppress(OSError):  # the log itself may be what could not be opened
        log = open_log(spec["stderr"])
        try:
            os.write(log.fd, f"dibs: {message}\n".encode("utf-8", "surrogateescape"))
        finally:
            os.close(log.fd)


def _encoded(variables: dict[str, str]) -> dict[bytes, bytes]:
    return {
        name.encode("utf-8", "surrogateescape"): value.encode("utf-8", "surrogateescape")
        for name, value in variables.items()
    }
