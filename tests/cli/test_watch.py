"""`dibs ls` in front of a person: colours, the terminal's width, and a screen that is always fresh."""

import os
import re

import pytest

from cli.fake_daemon import a_job
from dibs.cli.output import columns
from stories.outside import Ledger, World, wait_until
from stories.terminal import Session


@pytest.fixture
def sit_down(daemon, tmp_path):
    """A person at a terminal, in front of the fake daemon."""
    sessions = []

    def start(*words, size=(24, 80), **env):
        world = World(tmp_path, {**os.environ, **env}, Ledger(tmp_path / "ledger"))
        sessions.append(Session(world, *words, size=size))
        return sessions[-1]

    yield start
    for session in sessions:
        session.close()


def lines_of(session):
    text = re.sub(rb"\x1b\[[0-9;?]*[a-zA-Z]", b"", session.text).decode()
    return text.replace("\r", "").splitlines()


def some_jobs(daemon):
    evil = "\x1b[2J训练\u202e"
    daemon.jobs = {
        1: a_job(1, "failed", project="p", name="a long name of a job", command="x" * 500),
        2: a_job(2, "running", name=evil, command=evil),
        3: a_job(3, "queued"),
    }
    daemon.reasons = {3: "waits for 2 GPUs: GPU 1 is held by job 12 of another user until about 14:30"}


@pytest.mark.parametrize("width", [20, 30, 40, 60, 80, 200])
def test_the_table_fits_the_terminal(daemon, sit_down, width):
    some_jobs(daemon)

    session = sit_down("ls", size=(24, width))

    assert session.wait() == 0
    lines = lines_of(session)
    assert len(lines) == 5
    assert [line.split()[0] for line in lines] == ["job", "2", "3", "waits", "1"]
    assert max(columns(line) for line in lines) <= width


def test_colours_are_for_terminals_that_want_them(daemon, sit_down):
    some_jobs(daemon)

    with_colours, without = sit_down("ls"), sit_down("ls", NO_COLOR="1")

    assert (with_colours.wait(), without.wait()) == (0, 0)
    assert b"\x1b[31m" in with_colours.text
    assert b"\x1b" not in without.text


def test_a_page_is_as_high_as_the_terminal(daemon, sit_down):
    daemon.jobs = {number: a_job(number, "succeeded") for number in range(1, 101)}

    session = sit_down("ls", size=(24, 80))

    assert session.wait() == 0
    lines = lines_of(session)
    assert 15 <= len(lines) <= 23
    assert lines[-1] == f"… {100 - len(lines) + 2} more over: `dibs ls --all`, --state, --limit"


def test_watching_shows_changes_and_leaves_with_ctrl_c_and_0(daemon, sit_down):
    daemon.jobs = {7: a_job(7)}

    session = sit_down("ls", "-w")
    session.expect("\x1b[?1049h")
    session.expect("queued")
    daemon.jobs = {7: a_job(7, "running")}
    session.expect("running")
    session.type("\x03")

    assert session.wait() == 0
    assert b"\x1b[?1049l" in session.text  # what was on the screen before is there again


@pytest.mark.parametrize("size", [(24, 20), (3, 20), (5, 200)])
def test_watching_never_writes_more_than_the_screen(daemon, sit_down, size):
    some_jobs(daemon)

    session = sit_down("ls", "-w", size=size)
    wait_until(lambda: len(daemon.queries("/v1/jobs")) > 5)  # three for each picture
    session.type("\x03")

    assert session.wait() == 0
    pictures = [picture.partition(b"\x1b[J")[0] for picture in session.text.split(b"\x1b[H")[1:]]
    assert pictures
    for picture in pictures:
        lines = re.sub(rb"\x1b\[[0-9;]*[a-zA-Z]", b"", picture).decode().split("\r\n")
        assert len(lines) <= size[0]
        assert all(columns(line) <= size[1] for line in lines)


def test_watching_follows_a_new_size_at_once(daemon, sit_down):
    daemon.jobs = {7: a_job(7, command="python " + "x" * 100)}

    session = sit_down("ls", "-w", size=(24, 40))
    session.expect("\x1b[J")
    session.resize(24, 180)

    session.expect("x" * 100)


def test_watching_says_when_the_daemon_is_away(daemon, sit_down):
    session = sit_down("ls", "-w")
    session.expect("no jobs yet")
    daemon.refusal = (503, "store-unusable", "the disk is full")

    session.expect("the disk is full")


def test_terminating_it_gives_the_screen_back(daemon, sit_down):
    session = sit_down("ls", "-w")
    session.expect("\x1b[J")

    os.kill(session.pid, 15)

    assert session.wait() == 143
    assert b"\x1b[?1049l" in session.text


def test_following_a_log_shows_a_progress_bar_as_it_grows(daemon, sit_down):
    daemon.jobs = {7: a_job(7, "running")}
    daemon.logs = {(7, "stdout"): b"begin\n 10%"}

    session = sit_down("log", "-f", "7")
    session.expect("begin\r\n")
    session.expect(" 10%")
    daemon.logs = {(7, "stdout"): b"begin\n 10%\r 20%"}
    session.expect("\r\x1b[K 20%")
    session.type("\x03")

    assert session.wait() == 0
    assert b"`dibs log -f 7` comes back to it" in session.text
