"""`dibs web`."""

import json
import os
import pty
import stat
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from stories.outside import DIBS, World, wait_until

ENTRY = {"address": "http://127.0.0.1:8265/", "code": "abcd-efgh-jkmn", "expires_at": "2026-11-15T16:53:54.308Z"}


@pytest.fixture
def opening(daemon, monkeypatch):
    """A daemon that opens its page, and a terminal at no screen."""
    for name in ("DISPLAY", "WAYLAND_DISPLAY", "SSH_CONNECTION"):
        monkeypatch.delenv(name, raising=False)
    daemon.page = ENTRY
    return daemon


def asked(daemon) -> list[tuple[str, Any]]:
    return [(path, body) for _, path, _, body in daemon.calls]


@pytest.mark.parametrize(
    ("words", "body"),
    [
        ([], {}),
        (["--no-open"], {}),
        (["--port", "9000"], {"port": 9000}),
        (["--read-only"], {"read_only": True}),
        (["--host", "gpu1"], {"host": "gpu1"}),
    ],
)
def test_the_address_is_printed_with_a_code_behind_the_hash(opening, typed, words, body):
    done = typed("web", *words)

    assert (done.status, done.stdout) == (0, "http://127.0.0.1:8265/#code=abcd-efgh-jkmn\n")
    assert asked(opening) == [("/v1/web", body)]
    assert "dibs web --stop" in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_files_are_named_as_the_daemon_can_find_them(opening, typed, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    typed("web", "--host", "gpu1", "--tls-cert", "cert.pem", "--tls-key", "/keys/key.pem")

    wanted = {"host": "gpu1", "certificate": f"{tmp_path}/cert.pem", "key": "/keys/key.pem"}
    assert asked(opening) == [("/v1/web", wanted)]


def test_json_is_the_entry(opening, typed):
    assert json.loads(typed("web", "--json").stdout) == ENTRY


def test_over_ssh_it_says_how_to_come_here(opening, typed, monkeypatch):
    monkeypatch.setenv("SSH_CONNECTION", "10.0.0.1 1 10.0.0.2 22")

    done = typed("web")

    assert "ssh -L 8265:127.0.0.1:8265 " in done.stderr
    assert done.stdout.count("\n") == 1


def test_a_new_token_is_made_before_the_code(opening, typed):
    typed("web", "--new-token")

    assert asked(opening) == [("/v1/web/renew", {}), ("/v1/web", {})]


def test_stop_closes_the_page(opening, typed):
    done = typed("web", "--stop")

    assert (done.status, done.stdout, done.stderr) == (0, "", "the page is closed\n")
    assert asked(opening) == [("/v1/web/close", {})]
    assert json.loads(typed("web", "--stop", "--json").stdout) == {"changed": True}


@pytest.mark.parametrize(
    "words",
    [
        *(
            ["--port", "0"],
            ["--port", "65536"],
            ["--port", "x"],
            ["--stop", "--read-only"],
            ["--stop", "--port", "1"],
        ),
        *(["--stop", "--new-token"], ["--stop", "--host", "x"], ["more"]),
    ],
)
def test_what_cannot_be_meant_is_refused(opening, typed, words):
    assert typed("web", *words).status == 2
    assert opening.calls == []


def test_without_a_daemon_there_is_nothing_to_stop(socket, typed):
    assert typed("web", "--stop").status == 69


# -- with a real daemon ------------------------------------------------------------------------------------


@pytest.fixture
def queue(world: World, one_listener_for_a_test: None):
    daemon = world.run_daemon()
    yield world
    daemon.process.terminate()
    daemon.wait()


def test_a_port_that_is_taken_is_one_sentence(queue: World):
    import socket

    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = queue.dibs("web", "--port", str(port))

    assert (done.status, done.stdout) == (2, "")
    assert done.stderr.splitlines()[0] == f"dibs: error: cannot listen at 127.0.0.1:{port}: another program does"


def test_the_network_needs_tls(queue: World):
    done = queue.dibs("web", "--host", "0.0.0.0")

    assert (done.status, done.stdout) == (2, "")
    assert "--tls-cert" in done.stderr


def test_the_whole_way_from_the_terminal_to_the_queue(queue: World):
    import urllib.error
    import urllib.request

    address, _, code = queue.dibs("web").stdout.strip().partition("#code=")
    kind = {"Content-Type": "application/json"}
    request = urllib.request.Request(f"{address}v1/web/session", json.dumps({"code": code}).encode(), kind)
    with urllib.request.urlopen(request) as answer:
        token = json.load(answer)["token"]
    asking = urllib.request.Request(f"{address}v1/status", headers={"Authorization": f"Bearer {token}"})
    with urllib.request.urlopen(asking) as answer:
        assert json.load(answer)["gpus"] == "0"

    assert queue.dibs("web", "--stop").stderr == "the page is closed\n"
    with pytest.raises(urllib.error.URLError):
        urllib.request.urlopen(asking)
    assert queue.dibs("web", "--stop").stderr == "the page was not open\n"


@pytest.mark.parametrize(
    ("words", "environment", "opens"),
    [
        ([], {"DISPLAY": ":0"}, True),
        ([], {"WAYLAND_DISPLAY": "wayland-0"}, True),
        ([], {}, False),
        (["--no-open"], {"DISPLAY": ":0"}, False),
    ],
)
def test_a_browser_is_opened_where_somebody_sits_at_a_screen(
    queue: World, tmp_path: Path, words, environment, opens
):
    browser = tmp_path / "browser"
    browser.write_text(
        f'#!/bin/sh\necho "$1" > {tmp_path}/opened.new; mv {tmp_path}/opened.new {tmp_path}/opened\n'
    )
    browser.chmod(browser.stat().st_mode | stat.S_IXUSR)
    environ = queue.environ | environment | {"BROWSER": str(browser), "TERM": "dumb"}
    ours, theirs = pty.openpty()
    done = subprocess.run([DIBS, "web", *words], env=environ, stdin=theirs, stdout=theirs, stderr=subprocess.PIPE)
    printed = os.read(ours, 10_000).decode().strip()
    os.close(ours)
    os.close(theirs)

    assert done.returncode == 0, done.stderr
    if opens:
        wait_until((tmp_path / "opened").exists)
        assert (tmp_path / "opened").read_text().strip() == printed
    else:
        time.sleep(0.2)
        assert not (tmp_path / "opened").exists()


def test_without_a_terminal_no_browser_is_opened(queue: World, tmp_path: Path):
    environ = {"DISPLAY": ":0", "BROWSER": f"touch {tmp_path}/opened %s"}

    assert queue.dibs("web", env=environ).status == 0

    assert not (tmp_path / "opened").exists()
