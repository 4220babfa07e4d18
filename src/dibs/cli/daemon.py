"""`dibs daemon`: the queue's process, started, stopped and looked at by hand."""

import contextlib
import json
import math
import os
import signal
import sys
import time
from typing import Any

import click

from dibs.cli import systemd
from dibs.cli.options import count
from dibs.cli.output import harmless, one_line, say, show_moment
from dibs.client.client import connect
from dibs.client.connection import ConnectionBroken, NoAnswer, NotListening
from dibs.client.starting import lock_is_held, start_daemon
from dibs.errors import BadInput, DibsError, NoDaemon
from dibs.paths import queue_folder

_LOOK_EVERY = 0.05  # seconds
_LOOK_AT_LOG_EVERY = 0.2  # seconds
_STOP_WITHIN = 30.0  # seconds for a daemon that ends no jobs
_KILL_AFTER = 2.0  # seconds for one that does not answer
_GONE_WITHIN = 5.0  # seconds for one that was killed
_SAY_AFTER = 2.0  # seconds of waiting before we say for what

_EPILOG = """\b
Examples:
  dibs daemon status         whether it runs, since when, and what is queued
  dibs daemon restart        after an upgrade; running jobs are left alone
  dibs daemon stop --jobs    end what runs, then the daemon
  dibs daemon log -f         its log, as it grows
"""


@click.group(epilog=_EPILOG, invoke_without_command=True)
@click.pass_context
def daemon(context: click.Context, /) -> None:
    """Start, stop and watch the queue's daemon. It starts by itself with the first command that needs it."""
    if context.invoked_subcommand is None:
        click.echo(context.get_help())


@daemon.command()
def run() -> int:
    """Run the daemon here, in the foreground."""
    ready = _ready_fd()
    try:
        from dibs.daemon.memory import load_fastapi

        load_fastapi()
        from dibs.daemon.service import serve

        return int(serve(os.environ, detached=ready is not None) or 0)
    except DibsError as error:
        _report(ready, error)
        if error.code == "daemon-runs":
            error.exit_status = 2  # unlike a bug, it does not go away when systemd tries again
        raise


@daemon.command()
def start() -> int:
    """Start the daemon, unless it runs already."""
    is_new = start_daemon(os.environ)
    status = connect(os.environ, start=False).status()
    say(f"the daemon {'runs' if is_new else 'runs already'} (pid {status['pid']})")
    return 0


@daemon.command()
@click.option("--jobs", is_flag=True, help="End the running jobs too.")
def stop(jobs: bool) -> int:
    """Stop the daemon. Running jobs are left alone, and the next daemon takes them over."""
    if not _stop(jobs):
        say("there is no daemon to stop")
    else:
        say("the daemon has stopped" if jobs else "the daemon has stopped; running jobs go on")
    return 0


@daemon.command()
def restart() -> int:
    """Stop the daemon and start it again, as after an upgrade. Running jobs are left alone."""
    _stop(jobs=False)
    start_daemon(os.environ)
    status = connect(os.environ, start=False).status()
    say(f"the daemon runs (pid {status['pid']}, version {status['version']})")
    return 0


@daemon.command()
@click.option("--json", "as_json", is_flag=True, help="Print it as JSON.")
def status(as_json: bool) -> int:
    """Say whether the daemon runs, and what is queued. Ends with 69 where it does not run."""
    found = connect(os.environ, start=False).status()
    if as_json:
        click.echo(json.dumps(found, indent=2))
    else:
        click.echo("\n".join(f"{name:<8} {text}" for name, text in _told(found)))
    return 0


@daemon.command()
@click.option("-f", "--follow", is_flag=True, help="Go on as it grows.")
@click.option("--lines", type=count(0), default=50, metavar="N", help="Show the last N lines (default 50).")
def log(follow: bool, lines: int) -> int:
    """Show the log of the daemon."""
    path = f"{queue_folder(os.environ)}/daemon.log"
    try:
        file = open(path, "rb")  # noqa: SIM115  # closed below, after it was followed
    except OSError as error:
        reason = (error.strerror or "").lower()
        raise BadInput(f"cannot read {path}: {reason}", remedy="dibs daemon start") from error
    _write(harmless(_end_of(file, lines)))
    while follow:
        if piece := file.read():
            _write(harmless(piece))
        elif _is_the_same(path, file.fileno()):
            time.sleep(_LOOK_AT_LOG_EVERY)
        elif os.path.exists(path):  # a new one was begun
            file.close()
            file = open(path, "rb")  # noqa: SIM115
        else:
            break
    file.close()
    return 0


@daemon.command()
@click.option("--now", is_flag=True, help="Enable and start it too.")
@click.option("--system", is_flag=True, help="Print a unit for /etc/systemd/system instead, for an administrator.")
def install(now: bool, system: bool) -> int:
    """Write a systemd user unit, so that the daemon starts at boot or login."""
    if system:
        click.echo(systemd.system_unit(os.environ), nl=False)
        return 0
    say(f"wrote {systemd.write(os.environ)}")
    if now:
        _stop(jobs=False)
        systemd.systemctl("daemon-reload")
        systemd.systemctl("enable", "--now", systemd.NAME)
        say("the daemon runs, and starts by itself from now on")
    else:
        say(f"next: systemctl --user daemon-reload && systemctl --user enable --now {systemd.NAME}")
    for warning in systemd.warnings(os.environ):
        say(f"dibs: {warning}")
    return 0


@daemon.command()
def uninstall() -> int:
    """Remove the systemd user unit. A daemon that runs goes on."""
    path = systemd.remove(os.environ)
    say(f"removed {path}" if path else "there is no unit to remove")
    return 0


def _ready_fd() -> int | None:
    """The descriptor on which the starting process waits; no job may inherit it."""
    text = os.environ.get("DIBS_READY_FD", "")
    if not text.isdigit():
        return None
    try:
        os.set_inheritable(int(text), False)
    except OSError:
        return None
    return int(text)


def _report(ready: int | None, error: Any) -> None:
    """Tell the starting process why the daemon ends, so that it can show the error."""
    if ready is not None:
        told = {"error": {"code": error.code, "message": error.message, "remedy": error.remedy}}
        with contextlib.suppress(OSError):
            os.write(ready, json.dumps(told).encode("ascii") + b"\n")


def _stop(jobs: bool) -> bool:
    """Stop the daemon and wait until its lock is free; False where there is none."""
    queue = queue_folder(os.environ)
    client = connect(os.environ, start=False)
    try:
        client.stop(jobs=jobs)
    except ConnectionBroken:
        pass  # it ended before it could answer
    except (NotListening, NoAnswer) as error:
        if not lock_is_held(queue):
            return False
        if jobs:
            raise NoDaemon(
                "the daemon does not answer, so its jobs cannot be ended", remedy="dibs daemon restart"
            ) from error
        _send(queue, signal.SIGTERM)
        if not _has_ended(queue, _KILL_AFTER if isinstance(error, NoAnswer) else _STOP_WITHIN):
            # Nothing is lost by it: what was acknowledged is on the disk, and jobs have supervisors of their own.
            say("the daemon does not answer: it is killed, and running jobs go on")
            _send(queue, signal.SIGKILL)
            if not _has_ended(queue, _GONE_WITHIN):
                raise NoDaemon(
                    "the daemon does not end, although it was killed",
                    remedy="a disk may not answer (`dmesg`); the daemon ends when the disk does",
                ) from error
    client.close()
    if not _has_ended(queue, _SAY_AFTER):
        say("waiting until the running jobs have ended" if jobs else "waiting until the daemon has ended")
        if not _has_ended(queue, math.inf if jobs else _STOP_WITHIN):
            raise NoDaemon(
                f"the daemon has not ended within {_STOP_WITHIN:g} seconds", remedy="`dibs daemon log` tells more"
            )
    return True


def _has_ended(queue: str, seconds: float) -> bool:
    """Whether the daemon has ended within this time."""
    until = time.monotonic() + seconds
    while lock_is_held(queue):
        if time.monotonic() > until:
            return False
        time.sleep(_LOOK_EVERY)
    return True


def _send(queue: str, number: signal.Signals) -> None:
    """Send a signal to the process that holds the daemon's lock, whose pid is in it."""
    with contextlib.suppress(OSError, ValueError):
        with open(f"{queue}/lock") as file:
            pid = int(file.read(20).split()[0])
            lock = os.fstat(file.fileno())
        handle = os.pidfd_open(pid)
        try:
            # Checked with the pidfd open: a pid may be reused, but that process would not have the lock open.
            if _has_open(pid, lock) and lock_is_held(queue):
                signal.pidfd_send_signal(handle, number)
        finally:
            os.close(handle)


def _has_open(pid: int, wanted: os.stat_result) -> bool:
    for name in os.listdir(f"/proc/{pid}/fd"):
        with contextlib.suppress(OSError):
            if os.path.samestat(os.stat(f"/proc/{pid}/fd/{name}"), wanted):
                return True
    return False


def _told(found: dict[str, Any]) -> list[tuple[str, str]]:
    counts = ", ".join(f"{number} {state}" for state, number in found["counts"].items() if number)
    paused = "paused" if found["paused"] else ""
    if found["paused_projects"]:
        paused = "; ".join(filter(None, [paused, f"paused projects: {', '.join(found['paused_projects'])}"]))
    rows = [
        ("daemon", f"version {found['version']}, pid {found['pid']}, since {show_moment(found['started_at'])}"),
        ("jobs", counts or "none"),
        ("queue", paused),
        ("trouble", one_line(found.get("trouble") or "", 600)),
        ("gpus", str(found["gpus"])),
        *((one["name"], _standing(one)) for one in found.get("backends", ())),
        ("warm", "; ".join(map(_warm, found.get("warm", ())))),
        ("state", str(found["state_folder"])),
    ]
    return [(name, text) for name, text in rows if text]


def _standing(one: dict[str, Any]) -> str:
    """What another system has of ours, and since when it does not answer."""
    has = f"has {one['attempts']} job{'' if one['attempts'] == 1 else 's'}"
    if not one["trouble"]:
        return has
    why = "; ".join(filter(None, [one["trouble"], one["remedy"]]))
    return f"{has}, and has not answered since {show_moment(one['silent_since_at'])}: {one_line(why, 600)}"


def _warm(one: dict[str, Any]) -> str:
    """`torch, numpy (pid 4711)`."""
    how = "imports them now" if one["pid"] is None else f"pid {one['pid']}"
    return f"{', '.join(one['modules'])} ({how})"


def _is_the_same(path: str, fd: int) -> bool:
    try:
        return os.path.samestat(os.stat(path), os.fstat(fd))
    except OSError:
        return False


def _end_of(file: Any, lines: int) -> bytes:
    """The last lines of a file, found from its end; the file is left there."""
    size = os.fstat(file.fileno()).st_size
    data = b""
    while data.count(b"\n") <= lines and len(data) < size:
        step = min(65_536, size - len(data))
        file.seek(size - len(data) - step)
        data = file.read(step) + data
    file.seek(size)
    return b"".join(data.splitlines(keepends=True)[-lines:]) if lines else b""


def _write(data: bytes) -> None:
    sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()
