"""Starts a command, asks it to end, and signals and ends the processes below it.

The process tree is that of a subreaper: a process that loses its parent becomes our child, so killing children
again and again until none is left also ends double forks, own sessions and closed descriptors. Standard library
only.
"""

import contextlib
import errno
import os
import re
import select
import signal
import time
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple, Protocol

from dibs.supervise.folder import parent_of
from dibs.supervise.logs import Log, open_log

TICKS = os.sysconf("SC_CLK_TCK")  # in a second
# Signal handling changed by Python, or ignored by the shell that started us, must not reach the command.
# All signals are named, because the C library asks the kernel about each one that is not.
_RESET_SIGNALS = [int(number) for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}]
_PLAIN = re.compile(rb"[A-Za-z0-9_./][A-Za-z0-9_./:,@%+-]*(?:[ \t]+[A-Za-z0-9_./:,@%+=-]+)*[ \t]*")
_SHELLS = frozenset((b"bash", b"/bin/bash", b"/usr/bin/bash", b"sh", b"/bin/sh", b"/usr/bin/sh"))
# Without `true` and `false`: the programs of these names do the same as the builtins.
_BUILTINS = frozenset(
    b". : alias bg bind break builtin caller cd command compgen complete compopt continue declare dirs disown echo"
    b" enable eval exec exit export fc fg getopts hash help history jobs kill let local logout mapfile popd printf"
    b" pushd pwd read readarray readonly return set shift shopt source suspend test times trap type typeset ulimit"
    b" umask unalias unset wait if then else elif fi case esac for select while until do done in function time"
    b" coproc".split()
)

# What belongs to the one job that has it: a job that this job adds must not save over its checkpoint, or write
# into its run of W&B. Every other variable of a job is set anew for each.
_OF_ONE_JOB = frozenset(
    b"DIBS_CHECKPOINT_DIR DIBS_CHECKPOINT_SIGNAL DIBS_SWEEP DIBS_TRIAL DIBS_CONTINUES DIBS_POPULATION".split()
)
_OF_ONE_RUN = frozenset(
    b"WANDB_RUN_ID WANDB_SWEEP_ID WANDB_SWEEP_PARAM_PATH WANDB__TRANSACTION_LOG_FLUSH_INTERVAL".split()
)


class AttemptDescriptors(NamedTuple):
    """The descriptors that came with an attempt."""

    record: int  # locked
    stdin: int | None = None
    terminal: tuple[int, int, int] | None = None  # pty master, pty slave, pipe that closes when the front end ends
    leases: tuple[int, ...] = ()  # locked; the command inherits them


class Environment:
    """A captured environment as bytes, encoded once for many starts; without what is only of the job around it."""

    def __init__(self, variables: dict[str, str]) -> None:
        given = _encoded(variables)
        # A run that a trial was given; the user's own variables stay.
        is_ours = b"DIBS_TRIAL" in given and given.get(b"WANDB_RUN_ID", b"").startswith(b"dibs-")
        dropped = _OF_ONE_JOB | _OF_ONE_RUN if is_ours else _OF_ONE_JOB
        self.variables = {name: text for name, text in given.items() if name not in dropped}
        self.changes_shell = shell_is_changed(self.variables)


# Starts words with these variables, after these actions of `posix_spawn`; returns the pid.
Spawn = Callable[[list[bytes], dict[bytes, bytes], list[Any]], int]


def start(
    spec: dict[str, Any],
    handed: AttemptDescriptors,
    inherited: Environment,
    logs: list[Log],
    spawn: Spawn | None = None,
) -> int:
    """Start the command in a session of its own: `kill 0` in a job must not reach this process.

    `logs` gets the files of its stdout and stderr, for the caller to close.
    """
    if "refusal" in spec:
        raise OSError(spec["refusal"])
    environment = environment_of(spec, inherited)
    os.umask(spec["umask"])
    try:
        os.chdir(spec["workdir"])
    except OSError as error:
        raise OSError(error.errno, f"cannot enter its folder: {os.strerror(error.errno or 0)}") from error
    for variable, text in spec.get("files", {}).items():  # its environment has their paths
        _write(spec["env"][variable], text)
    for lease in handed.leases:
        os.set_inheritable(lease, True)
    os.putenv(b"PATH", environment.get(b"PATH", os.defpath.encode()))  # posix_spawnp uses our PATH
    words = encoded(spec["words"])
    streams = _streams(spec, handed, logs)
    plain = None if inherited.changes_shell or shell_is_changed(encoded(spec["env"])) else plain_words(words)
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


def environment_of(spec: dict[str, Any], inherited: Environment) -> dict[bytes, bytes]:
    """The variables of the command: the captured ones, and its own on top."""
    environment = inherited.variables | _encoded(spec["env"])
    for name, value in _encoded(spec.get("unless_set", {})).items():
        environment.setdefault(name, value)
    return environment


def encoded(words: Iterable[str]) -> list[bytes]:
    return [word.encode("utf-8", "surrogateescape") for word in words]


def _write(path: str, text: str) -> None:
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600), "w") as file:
        file.write(text)


def _bind_to(cpus: list[int], spec: dict[str, Any]) -> set[int]:
    """Bind this process, and so the command, to those of these CPUs that it may use; return the CPUs before.

    If it may use none of them nothing is changed: a job far from its card is better than none.
    """
    before = os.sched_getaffinity(0)
    try:
        os.sched_setaffinity(0, before.intersection(cpus))
    except OSError:  # none is left, or an admin has just removed them
        note(spec, "it is not bound: it may use none of the CPUs near its GPUs")
        return set()
    return before


def _spawn(words: list[bytes], environment: dict[bytes, bytes], streams: list[Any]) -> int:
    return os.posix_spawnp(
        words[0], words, environment, file_actions=streams, setsid=True, setsigdef=_RESET_SIGNALS
    )


def _streams(spec: dict[str, Any], handed: AttemptDescriptors, logs: list[Log]) -> list[Any]:
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
    if handed.stdin is not None:  # otherwise it inherits ours, /dev/null
        actions.append((os.POSIX_SPAWN_DUP2, handed.stdin, 0))
    return actions


def start_error(spec: dict[str, Any], error: OSError) -> str:
    reason = os.strerror(error.errno) if error.errno else str(error)
    if error.strerror and error.strerror.startswith("cannot enter"):
        return f"{error.strerror}: {spec['workdir']}"
    what = os.fsdecode(error.filename or spec["words"][0])
    return f"cannot start {what}: {reason}"


def note(spec: dict[str, Any], message: str) -> None:
    """Write a message to the job's own log: why it did not start, or not as it should."""
    with contextlib.suppress(OSError):  # the log itself may not open
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


def boottime() -> float:
    """Seconds since the machine started, including sleep."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


# What came of a signal: its processes had ended, or nobody listened and the command ignores it, as an interpreter
# that ends.
OVER, IGNORED, TOLD = range(3)


class Processes(Protocol):
    """The processes of an attempt, as those to signal."""

    def signal(self, number: int) -> None:
        """Send a signal to all of them."""

    def signal_listeners(self, number: int) -> int:
        """Send a signal to the topmost that listen: OVER, IGNORED or TOLD."""


class Stopping:
    """When and how the processes of an attempt are asked to end: ask, wait the grace, insist.

    A checkpoint is a signal before the time limit, on which the command saves its work. However it ends after
    that, it is queued again, unless it is stopped. One that ignored the signal has not saved, and is queued again
    only if the limit ends it. The same signal on request is a checkpoint if the command ends within the time that
    it has before the limit; one that goes on has only saved.
    """

    def __init__(self, grace: float, attempt: str, processes: Processes) -> None:
        self.grace = grace
        self._attempt = attempt
        self._processes = processes
        self.by = ""  # why it ends: "", "stop", "time", or "outside" for the batch system around us
        self.sent: set[int] = set()  # signals that were sent on request, without asking for its end
        self.limit: float | None = None  # on CLOCK_BOOTTIME, so that a sleeping laptop counts
        self.is_checkpointed = False
        self._is_deaf = False
        self._checkpoint_at: float | None = None
        self._checkpoint_signal = 0
        self._checkpoint_seconds = 0.0
        self._saved_by: float | None = None  # when a command that was sent the signal on request should have ended
        self._insist_at: float | None = None
        self._stood_still = 0.0  # seconds, before the present suspension
        self._still_since: float | None = None  # while it is suspended

    @property
    def stood_still(self) -> float:
        """The seconds in which it was suspended."""
        return self._stood_still + (0.0 if self._still_since is None else boottime() - self._still_since)

    def save_before_limit(self, number: int, seconds: float) -> None:
        """Send a signal so many seconds before the limit."""
        assert self.limit is not None
        self._checkpoint_at = self.limit - seconds
        self._checkpoint_signal, self._checkpoint_seconds = number, seconds

    def obey(self, commands: bytes) -> None:
        for line in commands.decode("ascii", "replace").splitlines():
            word, _, attempt = line.rpartition(" ")
            if attempt != self._attempt:
                continue  # for an attempt that is over
            if word == "stop":
                self.is_checkpointed = False
                self._ask("stop")
            elif word == "kill":
                self.is_checkpointed = False
                self.by = self.by or "stop"
                self._insist_at = boottime()
            elif word == "suspended":
                self._still_since = self._still_since or boottime()
            elif word == "resumed":
                self._resumed()
            elif word.startswith("outside "):
                # The batch system will kill us too: the end must be recorded by then.
                self.grace = min(self.grace, float(word[8:]))
                self._ask("outside")
            elif word.startswith("signal ") and word[7:].isdigit() and 0 < int(word[7:]) < signal.NSIG:
                self._send(int(word[7:]))

    def heard_late(self, commands: bytes) -> None:
        """What was said when the command had failed already: a batch system signals both of us at once."""
        lines = commands.decode("ascii", "replace").splitlines()
        if any(line.startswith("outside ") and line.endswith(f" {self._attempt}") for line in lines):
            self.by = self.by or "outside"

    def act(self) -> None:
        now = boottime()
        if self._still_since is None:
            self._keep_time(now)
        if self._insist_at is not None and now >= self._insist_at:
            self._processes.signal(signal.SIGKILL)
            self._insist_at = now + 0.1  # again: a child may have been forked meanwhile

    def _keep_time(self, now: float) -> None:
        if self._checkpoint_at is not None and now >= self._checkpoint_at:
            self._checkpoint_at = self._saved_by = None
            told = OVER if self.by else self._processes.signal_listeners(self._checkpoint_signal)
            self.is_checkpointed, self._is_deaf = told != OVER, told == IGNORED
        if self._saved_by is not None and now >= self._saved_by:
            self._saved_by = None
            self.is_checkpointed = False
        if self.limit is not None and now >= self.limit:
            self.limit = None
            self._ask("time")

    def _resumed(self) -> None:
        """The time in which it stood still does not count."""
        if self._still_since is None:
            return
        seconds = boottime() - self._still_since
        self._still_since = None
        self._stood_still += seconds
        self.limit = _later(self.limit, seconds)
        self._checkpoint_at = _later(self._checkpoint_at, seconds)
        self._saved_by = _later(self._saved_by, seconds)

    @property
    def has_saved(self) -> bool:
        """Whether a command that is over is to be queued again, if it ended well or at its limit."""
        return self.is_checkpointed and (self.by == "time" or not self._is_deaf)

    def why_not_saved(self, number: int) -> str:
        """About a command that a signal has ended; empty if it was not that of its checkpoint."""
        if self.by or number != self._checkpoint_signal:
            return ""
        name = signal.Signals(number).name if number in set(signal.Signals) else f"signal {number}"
        return f"{name}, its checkpoint signal, ended it: the program had no handler for it, or not yet"

    def give_grace_to_the_rest(self, control: int) -> None:
        """Give the processes that were asked to end with the command the rest of the grace."""
        poll = select.poll()
        poll.register(control, select.POLLIN)
        while self._insist_at is not None and boottime() < self._insist_at and reap():
            if poll.poll(self.timeout(0.02) * 1000):
                self.obey(os.read(control, 4096))

    def timeout(self, longest: float) -> float:
        moments = [self._insist_at]
        if self._still_since is None:
            moments += [self._checkpoint_at, self._saved_by, self.limit]
        soon = [at for at in moments if at is not None]
        return max(0.0, min([longest, *(at - boottime() for at in soon)]))

    def _send(self, number: int) -> None:
        """Send a signal on request."""
        self.sent.add(number)
        if number != self._checkpoint_signal or self.by or self.is_checkpointed:
            self._processes.signal(number)
        elif self._processes.signal_listeners(number) == TOLD:
            self.is_checkpointed = True
            self._saved_by = boottime() + self._checkpoint_seconds

    def _ask(self, by: str) -> None:
        self.by = self.by or by
        if self._insist_at is None:
            self._processes.signal(signal.SIGTERM)
            self._processes.signal(signal.SIGCONT)  # a stopped process would not receive it
            self._insist_at = boottime() + self.grace


def _later(moment: float | None, seconds: float) -> float | None:
    return None if moment is None else moment + seconds


def plain_words(words: list[bytes]) -> list[bytes] | None:
    """The words of `bash -c LINE` that can be executed without bash; None where bash is needed.

    Starting bash for `python train.py --lr 0.1` costs more than the rest of a job's start. As in make, a line of
    plain words is executed directly. Lines with shell syntax and builtins go to the shell; so does a program that
    cannot be started, for the shell's own message and exit code.
    """
    if len(words) != 3 or words[1] != b"-c" or words[0] not in _SHELLS or not _PLAIN.fullmatch(words[2]):
        return None
    found = words[2].split()
    return None if found[0] in _BUILTINS else found


def shell_is_changed(variables: Iterable[bytes]) -> bool:
    """Whether the environment gives bash files to read or functions: then bash is needed."""
    return any(name.startswith((b"BASH_ENV", b"BASH_FUNC_", b"BASHOPTS", b"SHELLOPTS")) for name in variables)


class ChildProcesses:
    """The command that this process has started, and everything below this process."""

    def __init__(self, command: int) -> None:
        self._command = command

    def signal(self, number: int) -> None:
        signal_tree(os.getpid(), number)

    def signal_listeners(self, number: int) -> int:
        return signal_listeners(self._command, number, os.getpid())


def descendants(root: int) -> dict[int, int]:
    """Every process below `root`, as {pid: parent}."""
    found: dict[int, int] = {}
    frontier = [root]
    while frontier:
        parent = frontier.pop()
        for child in children_of(parent):
            if child not in found:
                found[child] = parent
                frontier.append(child)
    return found


def signal_tree(root: int, number: int, *, but: int = 0) -> int:
    """Send a signal to every process below `root`, but for one of them; return how many were there."""
    tree = descendants(root)
    for pid, parent in tree.items():
        if pid != but:
            _signal_child_of(pid, parent, root, number)
    return len(tree)


def signal_listeners(command: int, number: int, parent: int | None) -> int:
    """Send a signal to the command, or to the topmost processes below it that listen.

    A shell without a trap would be ended by it, together with its program. The children of a process that listens
    do not get it: its workers inherit its handler, not its work. If no process listens, the command gets it, with
    the default action of the signal.
    """
    ours = os.getpid()
    top = ours if parent is None else parent
    heard = False
    frontier = [(command, top)]
    while frontier:
        pid, above = frontier.pop()
        if listens(pid, number):
            _signal_child_of(pid, above, ours, number)
            heard = True
        else:
            frontier += [(child, pid) for child in children_of(pid)]
    if heard:
        return TOLD
    if not _is_alive(command):
        return OVER
    if ignores(command, number):
        return IGNORED
    _signal_child_of(command, top, ours, number)
    return TOLD


def end_children() -> int:
    """Kill and reap all processes below this one; return how many were found at first.

    A process in uninterruptible sleep blocks this call: its GPU must not be used by another job.
    """
    if not reap():
        return 0
    # Stop first, so that a fork bomb cannot outrun the killing.
    found = signal_tree(os.getpid(), signal.SIGSTOP)
    pause = 0.0005
    while True:
        signal_tree(os.getpid(), signal.SIGKILL)
        if not reap():
            return found
        time.sleep(pause)
        pause = min(pause * 2, 0.05)


def reap() -> bool:
    """Collect ended children; return whether any child is left."""
    while True:
        try:
            pid, _ = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return False
        if pid == 0:
            return True


def _signal_child_of(pid: int, parent: int, root: int, number: int) -> None:
    """Signal exactly the process that was found, not another one that got its pid meanwhile."""
    try:
        handle = os.pidfd_open(pid)
    except OSError as error:
        if error.errno in (errno.ENOSYS, errno.EPERM):  # an old kernel or a strict container
            handle = -1
        else:
            return
    try:
        # Its parent is the same, or it became our child because its parent died.
        if parent_of(pid) in (parent, root):
            if handle >= 0:
                signal.pidfd_send_signal(handle, number)
            else:
                os.kill(pid, number)
    except (ProcessLookupError, PermissionError):
        pass  # it has ended, or runs as another user (sudo)
    finally:
        if handle >= 0:
            os.close(handle)


def children_of(pid: int) -> list[int]:
    """The processes that it started, and those that it adopted."""
    found: list[int] = []
    try:
        threads = os.listdir(f"/proc/{pid}/task")
    except OSError:
        return found
    for thread in threads:
        try:
            with open(f"/proc/{pid}/task/{thread}/children", "rb") as file:
                found += map(int, file.read().split())
        except FileNotFoundError:
            if os.path.exists(f"/proc/{pid}/task/{thread}/stat"):
                return _children_by_scan(pid)  # a kernel without CONFIG_PROC_CHILDREN, or gVisor
        except OSError:
            continue
    return found


def _children_by_scan(parent: int) -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit() and parent_of(int(name)) == parent]


def listens(pid: int, number: int) -> bool:
    """Whether a process catches a signal, or blocks it to fetch it later."""
    return _is_in(pid, number, (b"SigBlk:", b"SigCgt:"))


def ignores(pid: int, number: int) -> bool:
    """Whether a signal does nothing to a process."""
    return _is_in(pid, number, (b"SigIgn:",))


def _is_in(pid: int, number: int, sets: tuple[bytes, ...]) -> bool:
    bits = 0
    for line in status_of(pid):
        if line.startswith(sets):
            bits |= int(line.split()[1], 16)
    return bool(bits >> (number - 1) & 1)


def _is_alive(pid: int) -> bool:
    return not any(line.startswith((b"State:\tZ", b"State:\tX")) for line in status_of(pid) or [b"State:\tX"])


def status_of(pid: int) -> list[bytes]:
    """The lines of /proc/PID/status; none if it has ended."""
    try:
        with open(f"/proc/{pid}/status", "rb") as file:
            return file.read().splitlines()
    except OSError:
        return []


class ProcessStat(NamedTuple):
    """What /proc/PID/stat has of a process."""

    parent: int
    used: int  # ticks
    reaped: int  # ticks of children that it waited for
    begun: int  # ticks after the machine's start
    pages: int


def read_stat(pid: int) -> ProcessStat | None:
    """None if it has ended, or is hidden."""
    try:
        handle = os.open(f"/proc/{pid}/stat", os.O_RDONLY | os.O_CLOEXEC)
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return None
    try:
        # The name in parentheses may contain anything, parentheses too: count from its end.
        words = os.read(handle, 4096).rpartition(b")")[2].split()
        return ProcessStat(
            parent=int(words[1]),
            used=int(words[11]) + int(words[12]),
            reaped=int(words[13]) + int(words[14]),
            begun=int(words[19]),
            pages=int(words[21]),
        )
    except (ProcessLookupError, ValueError, IndexError):
        return None
    finally:
        os.close(handle)
