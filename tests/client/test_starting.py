"""Who starts the daemon, and what it gets of its starter."""

import fcntl
import os
from pathlib import Path

import pytest

from client.fake import listening
from dibs.client import starting
from dibs.client.starting import daemon_environment, lock_is_held, start_daemon, start_for_a_command
from dibs.errors import NoDaemon
from dibs.paths import socket_path


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    return {"DIBS_STATE": str(tmp_path / "state"), "HOME": str(tmp_path), "PATH": os.environ["PATH"]}


@pytest.fixture
def spawned(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Instead of being started, a daemon is counted."""
    found: list[str] = []
    monkeypatch.setattr(starting, "_spawn", lambda environ, queue, until: found.append(queue))
    return found


def test_a_daemon_keeps_what_it_needs_and_nothing_else():
    needed = {"HOME": "h", "PATH": "p", "LANG": "C", "LC_ALL": "C", "XDG_RUNTIME_DIR": "r", "DIBS_STATE": "/s"}
    others = {
        "LD_PRELOAD": "x",
        "LD_LIBRARY_PATH": "x",
        "PYTHONPATH": "x",
        "BASH_ENV": "x",
        "IFS": "x",
        "SECRET": "x",
        "CUDA_VISIBLE_DEVICES": "0",
        "DIBS_GPUS": "0",
        "DIBS_JOB_ID": "7",
        "DIBS_READY_FD": "9",
    }

    assert daemon_environment({**needed, **others}) == needed


def test_a_daemon_is_told_by_the_long_way_what_we_call_by_a_short_one(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)

    kept = daemon_environment({"DIBS_STATE": "state", "DIBS_PROBE": "fake:cards.json", "DIBS_LEASES": "/leases"})

    assert kept == {
        "DIBS_STATE": f"{tmp_path}/state",
        "DIBS_PROBE": f"fake:{tmp_path}/cards.json",
        "DIBS_LEASES": "/leases",
    }


def test_where_one_listens_none_is_started(environ, spawned):
    os.makedirs(f"{environ['DIBS_STATE']}/queue", mode=0o700)

    with listening(socket_path(environ)):
        assert start_daemon(environ) is False

    assert spawned == []


def test_where_none_listens_one_is_started_in_folders_of_its_own(environ, spawned):
    assert start_daemon(environ) is True

    assert spawned == [f"{environ['DIBS_STATE']}/queue"]
    assert os.stat(environ["DIBS_STATE"]).st_mode & 0o077 == 0


def test_while_somebody_else_starts_one_it_is_waited_for(environ, spawned):
    queue = f"{environ['DIBS_STATE']}/queue"
    os.makedirs(queue, mode=0o700)
    handle = os.open(f"{queue}/start.lock", os.O_RDWR | os.O_CREAT)
    fcntl.flock(handle, fcntl.LOCK_EX)

    with pytest.raises(NoDaemon, match="another process has been starting"):
        start_daemon(environ, seconds=0.2)
    with listening(socket_path(environ)):
        assert start_daemon(environ) is False

    os.close(handle)
    assert spawned == []


def test_a_daemon_that_holds_the_lock_but_does_not_listen_is_not_joined_by_another(environ, spawned):
    queue = f"{environ['DIBS_STATE']}/queue"
    os.makedirs(queue, mode=0o700)
    handle = os.open(f"{queue}/lock", os.O_RDWR | os.O_CREAT)
    fcntl.flock(handle, fcntl.LOCK_EX)

    assert lock_is_held(queue)
    with pytest.raises(NoDaemon, match="does not listen"):
        start_daemon(environ, seconds=0.2)
    os.close(handle)

    assert not lock_is_held(queue)
    assert spawned == []


def test_a_command_inside_a_job_starts_none(environ, spawned):
    with pytest.raises(NoDaemon, match="would end with that job"):
        start_for_a_command({**environ, "DIBS_JOB_ID": "3"})

    assert spawned == []


def test_a_command_starts_none_where_that_is_turned_off(environ, spawned):
    with pytest.raises(NoDaemon, match="no_start"):
        start_for_a_command({**environ, "DIBS_NO_START": "1"})

    assert spawned == []


TELLS_WHY = """import json, os
told = {"error": {"message": "m", "remedy": "r"}}
os.write(int(os.environ["DIBS_READY_FD"]), json.dumps(told).encode() + b"\\n")
"""


@pytest.mark.parametrize(
    ("program", "says", "remedy"),
    [
        (TELLS_WHY, "cannot start the daemon: m", "r"),
        ("raise SystemExit('it is Sunday')", "ended at its start: it is Sunday", "daemon.log"),
        ("import time; time.sleep(60)", "does not listen", "daemon.log"),
    ],
)
def test_a_daemon_that_does_not_come_up_is_told_in_one_sentence(
    environ, tmp_path, monkeypatch, program, says, remedy
):
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\necho $$ > {tmp_path}/pid\nexec {starting.sys.executable} -c "$PROGRAM"\n')
    python.chmod(0o755)
    monkeypatch.setattr(starting.sys, "executable", str(python))
    monkeypatch.setattr(starting, "_KEPT", starting._KEPT | {"PROGRAM"})
    began = {**environ, "PROGRAM": program}

    with pytest.raises(NoDaemon, match=says) as error:
        start_daemon(began, seconds=2 if "sleep" in program else 60)

    assert error.value.exit_status == 69
    assert remedy in error.value.remedy
    if "sleep" in program:  # it may still come up, so it was left alone
        os.kill(int((tmp_path / "pid").read_text()), 9)
