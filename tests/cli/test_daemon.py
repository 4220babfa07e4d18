"""`dibs daemon`: what is said about it, its log, and the unit for systemd."""

import fcntl
import json
import os
import shlex
from pathlib import Path

import pytest

from cli.conftest import Typed
from client.fake import Answer, Asked, listening
from dibs.cli import systemd
from dibs.cli.output import show_moment

STATUS = {
    "version": "0.1.0",
    "api": 1,
    "pid": 7,
    "started_at": "2026-11-15T12:00:00Z",
    "user": "ann",
    "state_folder": "/s",
    "paused": True,
    "paused_projects": ["a"],
    "gpus": "0, 1",
    "driver": "",
    "counts": {"queued": 3, "running": 0, "failed": 1},
}


@pytest.fixture
def queue_folder(socket: str) -> Path:
    folder = Path(os.environ["DIBS_STATE"]) / "queue"
    folder.mkdir(parents=True, mode=0o700)
    return folder


@pytest.fixture
def config(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, socket: str) -> Path:
    """Where units go; systemctl fails and says so."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "systemctl").write_text(
        f'#!/bin/sh\necho "$@" >> {tmp_path}/asked\n[ "$1" = --version ] && echo "systemd 255 (255.4)" && exit 0\n'
        "[ -e $0.works ] && exit 0\necho 'Failed to connect to bus' >&2; exit 1\n"
    )
    (tmp_path / "bin" / "systemctl").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:{os.environ['PATH']}")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    return tmp_path


def test_status_tells_how_the_queue_stands(socket, typed: Typed):
    with listening(socket, lambda asked: Answer(STATUS)):
        ended = typed("daemon", "status")

    assert ended.stdout.splitlines() == [
        f"daemon   version 0.1.0, pid 7, since {show_moment('2026-11-15T12:00:00Z')}",
        "jobs     3 queued, 1 failed",
        "queue    paused; paused projects: a",
        "gpus     0, 1",
        "state    /s",
    ]


def test_status_tells_of_a_silent_slurm_and_of_warm_processes(socket, typed: Typed):
    silent = {
        "name": "slurm",
        "attempts": 2,
        "trouble": "cannot reach Slurm's controller: no answer within 15 seconds",
        "remedy": "`scontrol ping` shows more",
        "silent_since_at": "2026-11-15T12:30:00Z",
    }
    well = {"name": "other", "attempts": 1, "trouble": "", "remedy": "", "silent_since_at": None}
    warm = [{"modules": ["torch", "numpy"], "pid": 9}, {"modules": ["jax"], "pid": None}]
    with listening(socket, lambda asked: Answer({**STATUS, "backends": [silent, well], "warm": warm})):
        told = typed("daemon", "status").stdout.splitlines()
        as_json = json.loads(typed("daemon", "status", "--json").stdout)

    since = show_moment("2026-11-15T12:30:00Z")
    assert (
        f"slurm    has 2 jobs, and has not answered since {since}: cannot reach Slurm's controller: no answer"
        " within 15 seconds; `scontrol ping` shows more"
    ) in told
    assert "other    has 1 job" in told
    assert "warm     torch, numpy (pid 9); jax (imports them now)" in told
    assert (as_json["backends"], as_json["warm"]) == ([silent, well], warm)


def test_status_without_a_daemon_ends_with_69_and_starts_none(socket, typed: Typed, monkeypatch):
    monkeypatch.delenv("DIBS_NO_START")

    ended = typed("daemon", "status", "--json")

    assert (ended.status, ended.stdout) == (69, "")


def test_stop_waits_until_the_lock_is_free(socket, queue_folder, typed: Typed):
    lock = os.open(queue_folder / "lock", os.O_RDWR | os.O_CREAT)
    fcntl.flock(lock, fcntl.LOCK_EX)
    asked: list[Asked] = []

    def stop(one: Asked) -> Answer:
        asked.append(one)
        os.close(lock)
        return Answer({})

    with listening(socket, stop):
        ended = typed("daemon", "stop", "--jobs")

    assert ended.status == 0
    assert [(one.target, one.body) for one in asked] == [("/v1/stop", {"jobs": True})]


def test_stop_without_a_daemon_is_no_error(socket, typed: Typed):
    ended = typed("daemon", "stop")

    assert (ended.status, ended.stderr) == (0, "there is no daemon to stop\n")


def test_the_log_shows_its_end_and_obeys_nothing_in_it(queue_folder, typed: Typed):
    (queue_folder / "daemon.log").write_text(
        "".join(f"line {number}\n" for number in range(99)) + "\x1b]0;evil\x07x\n"
    )

    ended = typed("daemon", "log", "--lines", "2")

    assert ended.stdout == "line 98\nx\n"
    assert len(typed("daemon", "log").stdout.splitlines()) == 50
    assert typed("daemon", "log", "--lines", "0").stdout == ""


def test_a_log_that_is_not_there_is_one_sentence(queue_folder, typed: Typed):
    ended = typed("daemon", "log")

    assert ended.status == 2
    assert "daemon.log: no such file" in ended.stderr


def test_install_writes_a_unit_that_leaves_jobs_alone_and_says_what_is_next(config, typed: Typed, monkeypatch):
    monkeypatch.setenv("DIBS_STATE", '/a "b" %h $c')

    ended = typed("daemon", "install")

    text = (config / "config/systemd/user/dibs.service").read_text()
    assert ended.status == 0
    assert "KillMode=process\nRestart=on-failure\n" in text
    assert 'Environment="DIBS_STATE=/a \\"b\\" %%h $c"\n' in text
    assert "systemctl --user enable --now dibs.service" in ended.stderr
    assert "loginctl enable-linger" in ended.stderr
    assert "systemd 255" in ended.stderr
    command = text.split("ExecStart=")[1].splitlines()[0]
    assert shlex.split(command)[1:] == ["-P", "-m", "dibs", "daemon", "run"]


def test_install_now_says_what_systemd_said(config, typed: Typed):
    ended = typed("daemon", "install", "--now")

    assert ended.status == 1
    assert "Failed to connect to bus" in ended.stderr
    assert "dibs daemon start" in ended.stderr


def test_install_now_enables_and_starts_it(config, typed: Typed):
    (config / "bin" / "systemctl.works").touch()

    ended = typed("daemon", "install", "--now")

    assert ended.status == 0, ended
    assert (config / "asked").read_text().splitlines()[:2] == [
        "--user daemon-reload",
        "--user enable --now dibs.service",
    ]


def test_uninstall_removes_the_unit_even_where_systemd_is_away(config, typed: Typed):
    typed("daemon", "install")

    first, second = typed("daemon", "uninstall"), typed("daemon", "uninstall")

    assert (first.status, second.status) == (0, 0)
    assert not (config / "config/systemd/user/dibs.service").exists()
    assert "there is no unit" in second.stderr


def test_a_unit_for_an_administrator_names_the_user(config, typed: Typed):
    ended = typed("daemon", "install", "--system")

    assert "\nUser=" in ended.stdout
    assert "WantedBy=multi-user.target" in ended.stdout
    assert not (config / "config").exists()


def test_another_systemd_is_not_warned_about(config, monkeypatch):
    monkeypatch.setattr(systemd, "version", lambda environ: 252)
    monkeypatch.setattr(systemd, "_LINGER", str(config))
    (config / "root").touch()

    assert [one for one in systemd.warnings(os.environ) if "255" in one] == []
