"""Attempts that are handed to a shim while another runs there: run right after it, or given back unrun."""

import fcntl
import os
import signal
import socket
import time
from pathlib import Path

import pytest

from dibs.supervise import folder
from dibs.supervise.launcher import Launcher
from stories.outside import wait_until
from supervise.hands import Hands, is_alive, is_locked

NEVER_RAN = (False, None, False)


def _seen(path: str) -> tuple[object, ...]:
    facts = folder.facts(path)
    return facts.is_locked, facts.record, facts.has_started


@pytest.fixture
def after_a_short_one(hands: Hands):
    """Runs a line and others behind it. A machine that is too busy for a short job to be short may try again."""

    def run(line: str, *others: str):
        for _ in range(30):
            first = hands.start(line)
            behind = [hands.start_behind(first, other) for other in others]
            for attempt in (first, *behind):
                assert attempt is not None
                hands.wait(attempt)
            if _seen(behind[0].folder) != NEVER_RAN:
                break
        return first, *behind

    return run


def test_one_that_waits_behind_another_runs_after_it_under_the_same_shim(hands: Hands, after_a_short_one) -> None:
    first, second = after_a_short_one("true", "exit 4")

    before, after = hands.record(first), hands.record(second)

    assert (before["code"], after["code"]) == (0, 4)
    assert before["shim"] == after["shim"]
    assert before["ended"] <= after["began"]


def test_several_run_in_the_order_in_which_they_came(hands: Hands, after_a_short_one) -> None:
    after_a_short_one("echo >> said", "echo 1 >> said", "echo 2 >> said", "echo 3 >> said")

    assert (hands.workdir / "said").read_text().replace("\n", "").endswith("123")


@pytest.mark.parametrize("line", ["exit 3", "kill -9 $$", "no-such-program"])
def test_after_one_that_did_not_end_well_nobody_behind_it_runs(hands: Hands, line: str) -> None:
    first = hands.start(line)
    behind = [hands.start_behind(first, "touch ran") for _ in range(2)]

    for attempt in (first, *behind):
        assert attempt is not None
        hands.wait(attempt)

    assert [_seen(attempt.folder) for attempt in behind if attempt] == [NEVER_RAN, NEVER_RAN]
    assert not (hands.workdir / "ran").exists()
    assert hands.run("exit 5")["code"] == 5  # the next one, which waits behind nobody, does


def test_behind_one_that_takes_longer_nobody_waits_for_more_than_a_moment(hands: Hands) -> None:
    first = hands.start("until test -e go; do sleep 0.01; done")
    behind = [hands.start_behind(first, "touch ran") for _ in range(3)]
    for attempt in behind:
        assert attempt is not None
        hands.wait(attempt)
    assert first.key not in hands._done
    late = hands.start_behind(first, "touch ran")  # nobody had told us yet that it takes longer
    assert late is not None
    hands.wait(late)

    assert [_seen(attempt.folder) for attempt in (*behind, late) if attempt] == [NEVER_RAN] * 4
    (hands.workdir / "go").touch()
    assert hands.record(first)["code"] == 0
    assert not (hands.workdir / "ran").exists()
    assert hands.start_behind(first, "touch ran") is None  # it is over
    assert hands.run("exit 5")["code"] == 5


def test_one_that_was_turned_away_can_be_started_in_the_same_folder(hands: Hands) -> None:
    first = hands.start("until test -e go; do sleep 0.01; done")
    second = hands.start_behind(first, "exit 6")
    assert second is not None
    hands.wait(second)
    hands.backend.clear(second)
    assert not os.path.exists(second.folder)

    hands._done.clear()
    hands.backend.submit(second, hands.spec("exit 6", second), (), lambda: hands._done.add(second.key))

    assert hands.record(second)["code"] == 6
    (hands.workdir / "go").touch()


def test_whoever_is_turned_away_keeps_no_lock(hands: Hands, tmp_path: Path) -> None:
    lease = os.open(tmp_path / "lease", os.O_RDWR | os.O_CREAT)
    fcntl.flock(lease, fcntl.LOCK_EX)
    first = hands.start("until test -e go; do sleep 0.01; done")
    second = hands.start_behind(first, "true", leases=[lease])
    assert second is not None
    os.close(lease)

    hands.wait(second)

    wait_until(lambda: not is_locked(tmp_path / "lease"))
    (hands.workdir / "go").touch()


def test_a_shim_that_is_killed_takes_nobody_behind_with_it(hands: Hands) -> None:
    hands.run("true")  # the shim that the next ones get
    first = hands.start("touch up; sleep 600")
    behind = hands.start_behind(first, "touch ran")
    assert behind is not None
    hands.turn_until((hands.workdir / "up").exists)
    record = folder.record_of(first.folder)
    assert record is not None

    os.kill(record["shim"], signal.SIGKILL)
    hands.wait(first)
    hands.wait(behind)

    wait_until(lambda: _seen(behind.folder) == NEVER_RAN)
    assert folder.facts(first.folder).has_started
    assert not (hands.workdir / "ran").exists()


def test_what_a_shim_said_before_it_was_killed_is_heard() -> None:
    """The kernel reports the reset of a channel, with somebody waiting in it, before what was said there."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    heard: list[tuple[str, bytes | None]] = []
    launcher = Launcher(lambda *args: None, lambda fd: None)
    launcher._idle.append(ours)
    shim = launcher.hand_over("control", [], lambda answer: heard.append(("first", answer)))
    assert shim is ours and theirs.recv(100)
    assert launcher.hand_behind(ours, "control", [], lambda answer: heard.append(("second", answer)))

    theirs.send(b"a record")
    theirs.close()
    while len(heard) < 2:
        launcher._heard(ours)

    assert heard == [("first", b"a record"), ("second", None)]


def test_when_the_engine_is_gone_nobody_behind_is_started(hands: Hands) -> None:
    """What another engine finds must not begin by itself meanwhile."""
    first = hands.start("touch up; until test -e go; do sleep 0.001; done")
    behind = hands.start_behind(first, "touch ran")
    assert behind is not None
    record = hands.turn_until(lambda: folder.record_of(first.folder))
    hands.close()

    (hands.workdir / "go").touch()
    wait_until(lambda: not is_alive(record["shim"]))
    time.sleep(0.1)

    found = folder.facts(first.folder).exit_record
    assert found is not None and found["code"] == 0
    assert _seen(behind.folder) == NEVER_RAN
    assert not (hands.workdir / "ran").exists()
