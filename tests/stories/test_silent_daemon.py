"""A daemon that does not answer, or whose socket is gone: what is said, and how to go on."""

import os
import signal
import time
from collections.abc import Callable

import pytest

from cli.conftest import Typed, typed
from dibs.cli import daemon as daemon_commands
from dibs.client import connection
from stories.outside import World, wait_until

__all__ = ["typed"]
_SOON = 0.2  # seconds, in place of the real deadlines


@pytest.fixture
def here(world: World, typed: Typed, monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[int, str, float]]:
    """Types a command in this process, with short deadlines; its status, what it said, and how long it took."""
    world.environ["DIBS_POOL"] = "0"
    for name, value in world.environ.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(connection, "_LOOK_AFTER", _SOON)
    monkeypatch.setattr(daemon_commands, "_KILL_AFTER", _SOON)

    def run(*words: str) -> tuple[int, str, float]:
        began = time.monotonic()
        ended = typed(*words)
        return ended.status, " ".join(ended.stderr.split()), time.monotonic() - began

    return run


def test_a_stopped_daemon_is_reported_soon_and_a_restart_replaces_it(world: World, here) -> None:
    job = world.dibs("add", "--quiet", "--", "until test -e go; do sleep 0.05; done").stdout.strip()
    wait_until(lambda: world.client().job(int(job))["state"] == "running")
    stuck = world.daemon_pid()
    os.kill(stuck, signal.SIGSTOP)

    status, said, seconds = here("ls")
    assert (status, seconds < 20 * _SOON) == (69, True), said
    assert "the daemon has not answered for" in said
    status, said, _ = here("add", "--", "true")
    assert status == 69
    assert "the job may have been added all the same" in said
    status, said, _ = here("daemon", "restart")

    assert status == 0, said
    assert "the daemon does not answer: it is killed, and running jobs go on" in said
    assert world.daemon_pid() != stuck
    assert world.client().job(int(job))["state"] == "running"
    world.write("go", "")
    assert world.dibs("wait", job).status == 0
    world.dibs("daemon", "stop")


def test_a_socket_that_was_deleted_is_made_again(world: World) -> None:
    world.environ["DIBS_POOL"] = "0"
    job = world.dibs("add", "--quiet", "--hold", "--", "true").stdout.strip()
    pid = world.daemon_pid()
    (world.state / "queue" / "socket").unlink()

    ended = world.dibs("kill", job)

    assert (ended.status, world.daemon_pid()) == (0, pid), ended
    assert "is there again" in (world.state / "queue" / "daemon.log").read_text()
    world.dibs("daemon", "stop")
