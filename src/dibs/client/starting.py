"""Starting the daemon, by itself with the first command that needs it: one, however many ask at once."""

import contextlib
import fcntl
import json
import os
import select
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping

from dibs.client.connection import Connection, NoAnswer, NotListening, error_of
from dibs.errors import NoDaemon
from dibs.paths import OUTER_LEASES, make_private, queue_folder, socket_path, state_folder

READY_FD = "DIBS_READY_FD"  # tells a daemon on which descriptor its starter waits for a line
_PATIENCE = 20.0  # seconds until a daemon must listen
_PAUSE = 0.03  # seconds between two looks
_LONGEST_REPORT = 65_536  # bytes that a daemon may say on its way up

# What a daemon needs of its starter. Everything else stays behind: LD_PRELOAD or BASH_ENV of one shell must
# not rule over every job of a month, and CUDA_VISIBLE_DEVICES not over the queue's GPUs.
_KEPT = frozenset(
    (
        *("HOME", "PATH", "USER", "LOGNAME", "LANG", "LANGUAGE", "TZ", "TMPDIR", "DBUS_SESSION_BUS_ADDRESS"),
        *("http_proxy", "https_proxy", "no_proxy", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "SSL_CERT_FILE"),
        "SLURM_CONF",
    )
)
_KEPT_FAMILIES = ("DIBS_", "XDG_", "LC_")
# A job's own variables: a daemon that a job started is not that job.
_OF_A_JOB = frozenset(
    (
        *("DIBS_JOB_ID", "DIBS_JOB_NAME", "DIBS_ATTEMPT", "DIBS_GPUS", "DIBS_ARRAY_TASK_ID", "DIBS_METRICS"),
        *("DIBS_CHECKPOINT_DIR", "DIBS_NO_START", READY_FD, OUTER_LEASES),
    )
)
_PATHS = ("DIBS_STATE", "DIBS_LEASES", "DIBS_SOCKET", "SLURM_CONF")
_FAKE = "fake:"


def start_for_a_command(environ: Mapping[str, str]) -> None:
    """Start a daemon because a command needs one, unless that was turned off."""
    from dibs.settings import load_settings

    if load_settings(environ).no_start:
        raise NoDaemon(
            "there is no daemon, and none is started by itself (no_start is set)",
            remedy="start one: dibs daemon start",
        )
    if "DIBS_JOB_ID" in environ:
        # Whatever a job leaves behind is ended with it, and the queue would end with it too.
        raise NoDaemon(
            "there is no daemon, and one that is started inside a job would end with that job",
            remedy="start one outside of it: dibs daemon start",
        )
    start_daemon(environ)


def start_daemon(environ: Mapping[str, str], *, seconds: float = _PATIENCE) -> bool:
    """Return when a daemon listens; False where one did already. What keeps it from starting raises NoDaemon."""
    until = time.monotonic() + seconds
    make_private(state_folder(environ))
    queue = make_private(queue_folder(environ))
    with _the_only_starter(environ, f"{queue}/start.lock", until) as is_alone:
        if not is_alone or _wait_for_another(environ, queue, until):
            return False
        _spawn(environ, queue, until)
    return True


def listens(environ: Mapping[str, str]) -> bool:
    """Whether a daemon takes calls."""
    try:
        Connection(socket_path(environ), seconds=1.0).close()
    except NotListening:
        return False
    except NoAnswer:
        pass  # there is one, and it is busy
    return True


def lock_is_held(queue: str) -> bool:
    """Whether a daemon lives in this queue's folder, listening or not yet or not any more."""
    try:
        handle = os.open(f"{queue}/lock", os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError:
        return False
    try:
        # Shared: two processes that check at once do not block each other.
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(handle)
    return False


def daemon_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """What a daemon gets of its starter's environment."""
    kept = {
        name: value
        for name, value in environ.items()
        if (name in _KEPT or name.startswith(_KEPT_FAMILIES)) and name not in _OF_A_JOB
    }
    if OUTER_LEASES in environ:  # in such a block the leases are private; the queue uses the shared ones
        kept["DIBS_LEASES"] = environ[OUTER_LEASES]
    # It does not live in our folder: what we call by a short way it must be told by the long one.
    for name in _PATHS:
        if kept.get(name):
            kept[name] = os.path.abspath(kept[name])
    if kept.get("DIBS_PROBE", "").startswith(_FAKE):
        kept["DIBS_PROBE"] = _FAKE + os.path.abspath(kept["DIBS_PROBE"].removeprefix(_FAKE))
    return kept


@contextlib.contextmanager
def _the_only_starter(environ: Mapping[str, str], path: str, until: float) -> Iterator[bool]:
    """True for the process that may start a daemon; False once another process has started one."""
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        while not (is_ours := _take(handle)) and not listens(environ):
            _check_time(until, "another process has been starting the daemon for too long")
            time.sleep(_PAUSE)
        yield is_ours and not listens(environ)
    finally:
        os.close(handle)


def _take(handle: int) -> bool:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _wait_for_another(environ: Mapping[str, str], queue: str, until: float) -> bool:
    """Whether a daemon that does not listen yet listens now; False once it has ended, as after a stop."""
    while lock_is_held(queue):
        if listens(environ):
            return True
        _check_time(until, "a daemon is there that does not listen")
        time.sleep(_PAUSE)
    return False


def _spawn(environ: Mapping[str, str], queue: str, until: float) -> None:
    reader, writer = os.pipe()  # not inherited, except where it is named below
    try:
        log = _open_log(f"{queue}/daemon.log")
        try:
            process = subprocess.Popen(
                # -P: no module is taken from the folder it happens to start in.
                [sys.executable, "-P", "-m", "dibs", "daemon", "run"],
                env={**daemon_environment(environ), READY_FD: str(writer)},
                cwd="/",
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                pass_fds=(writer,),
                start_new_session=True,
                umask=0o077,
            )
        finally:
            os.close(log)
            os.close(writer)
        _wait_until_ready(environ, reader, until, queue)
        process.returncode = 0  # it goes on without us, and Popen need not mention that
    finally:
        os.close(reader)


def _wait_until_ready(environ: Mapping[str, str], reader: int, until: float, queue: str) -> None:
    said = b""
    poll = select.poll()
    poll.register(reader, select.POLLIN | select.POLLHUP)
    while b"\n" not in said and len(said) < _LONGEST_REPORT:
        left = until - time.monotonic()
        if left <= 0 or not poll.poll(left * 1000):
            raise NoDaemon(
                "the daemon was started but does not listen", remedy=f"its log tells more: {queue}/daemon.log"
            )
        piece = os.read(reader, 4096)
        if not piece:
            break
        said += piece
    if said.startswith(b"{"):
        _raise_told(said)
    if not said and not listens(environ):
        raise NoDaemon(
            f"the daemon ended at its start: {_last_line(f'{queue}/daemon.log')}",
            remedy=f"its log tells more: {queue}/daemon.log",
        )


def _raise_told(said: bytes) -> None:
    try:
        told = error_of(500, json.loads(said))
    except ValueError:
        return
    raise NoDaemon(f"cannot start the daemon: {told.message}", remedy=told.remedy)


def _open_log(path: str) -> int:
    try:
        return os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    except OSError as error:
        raise NoDaemon(
            f"cannot open the daemon's log {path}: {error.strerror}", remedy="`dibs doctor` looks at the folder"
        ) from error


def _last_line(path: str) -> str:
    try:
        with open(path, "rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - 4096))
            lines = file.read().decode("utf-8", "replace").split("\n")
    except OSError:
        return "it said nothing"
    return next((line.strip() for line in reversed(lines) if line.strip()), "it said nothing")


def _check_time(until: float, what: str) -> None:
    if time.monotonic() > until:
        raise NoDaemon(what, remedy="`dibs daemon status` and `dibs doctor` tell more")
