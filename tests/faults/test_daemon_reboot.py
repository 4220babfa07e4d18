"""The machine stops under a queue, and comes back with another boot id, another name or another clock."""

import os
import signal
from collections.abc import Sequence
from pathlib import Path

import pytest

from faults.campaign import kill_everything
from faults.figures import record_figures
from stories.outside import DIBS, World, needs_root, open_store, wait_until

_ON_A_MACHINE_OF_ITS_OWN = ("unshare", "--pid", "--fork", "--mount-proc", "sh", "-c", '"$0" "$@"; true', DIBS)
OLD, NEW = {"DIBS_FAKE_BOOT_ID": "before"}, {"DIBS_FAKE_BOOT_ID": "after"}


def test_after_a_reboot_the_running_are_lost_the_queue_is_intact_and_the_gpus_are_free(world: World) -> None:
    world.run_daemon(pool="0,1", env=OLD)
    world.write("jobs.txt", [world.ledger.job(name, 60) for name in ("a", "b")])
    world.add("-f", "jobs.txt")
    world.write("later.txt", [world.ledger.job(name) for name in ("c", "d", "e")])
    world.add("-f", "later.txt")
    world.add("--hold", "--", world.ledger.job("held"))
    wait_until(lambda: len(world.ledger.started()) == 2)

    kill_everything(world)
    world.ledger.cut()
    # The locks of a killed process go a moment after everything else that can be seen of it.
    wait_until(lambda: not world.holders(), show=world.holders)
    world.run_daemon(pool="0,1", env=NEW)
    over = world.wait_for(1, 2, 3, 4, 5)
    listed = world.dibs("ls", "--all")
    held = world.client().job(6)
    world.dibs("daemon", "stop")

    assert [one["state"] for one in over] == ["lost", "lost", "succeeded", "succeeded", "succeeded"]
    assert "the machine stopped" in over[0]["message"]
    assert "lost" in listed.stdout
    assert held["state"] == "held"
    assert sorted(world.ledger.started()) == ["a", "b", "c", "d", "e"]
    assert world.ledger.overlaps() == []
    with open_store(world.state / "queue") as store:
        assert store.execute("pragma integrity_check").fetchone() == ("ok",)
    world.assert_nothing_is_left()


@needs_root
def test_when_the_kernel_ends_everything_at_once_nothing_acknowledged_is_lost(world: World) -> None:
    """As in a real reboot nothing is cleaned up: the first process of a PID namespace takes all others with it."""
    machine = world.run_daemon(pool="0,1", env=OLD, program=_ON_A_MACHINE_OF_ITS_OWN)
    world.write("jobs.txt", [world.ledger.job(name, 60 if name in "ab" else 0) for name in "abcde"])
    world.add("-f", "jobs.txt")
    wait_until(lambda: len(world.ledger.started()) == 2)

    children = Path(f"/proc/{machine.process.pid}/task/{machine.process.pid}/children").read_text()
    os.kill(int(children), signal.SIGKILL)
    machine.wait()
    world.ledger.cut()
    left = world.processes()
    wait_until(lambda: not world.holders(), show=world.holders)
    world.run_daemon(pool="0,1", env=NEW)
    over = world.wait_for(1, 2, 3, 4, 5)
    world.dibs("daemon", "stop")

    assert left == {}
    assert [one["state"] for one in over] == ["lost", "lost", "succeeded", "succeeded", "succeeded"]
    assert sorted(world.ledger.started()) == ["a", "b", "c", "d", "e"]
    assert world.ledger.overlaps() == []
    with open_store(world.state / "queue") as store:
        assert store.execute("pragma integrity_check").fetchone() == ("ok",)
    world.assert_nothing_is_left()
    record_figures(
        "the machine stops",
        "the first process of a PID namespace is killed, and with it all others; the boot id changes",
        times=1,
        jobs=5,
        result="what ran is `lost`, what waited runs",
    )


def test_only_restartable_jobs_are_queued_again_after_a_reboot(world: World) -> None:
    world.run_daemon(pool="0,1", env=OLD)
    once = "test -e {0} || {{ touch {0}; sleep 60; }}; exit 3"
    again = world.add("--restartable", "--", once.format("again"))
    never = world.add("--", once.format("never"))
    wait_until(lambda: all((world.folder / name).exists() for name in ("again", "never")))

    kill_everything(world)
    world.run_daemon(pool="0,1", env=NEW)
    over = world.wait_for(again, never)
    attempts = world.client().job(again)["attempts_list"]
    world.dibs("daemon", "stop")

    assert [(one["state"], one["exit_code"], one["attempts"]) for one in over] == [
        ("failed", 3, 2),
        ("lost", None, 1),
    ]
    assert [(one["cause"], one["boot_id"].split()[0]) for one in attempts] == [
        ("lost", "before"),
        ("exit code", "after"),
    ]
    world.assert_nothing_is_left()


def test_an_attempt_that_may_have_run_before_the_reboot_is_lost_even_without_a_trace(world: World) -> None:
    """After a power cut `started` may be missing though the command ran: it was never synced."""
    daemon = world.run_daemon(env=OLD | {"DIBS_FAULT": "after-intent"})
    job = world.add("--", world.ledger.job("only"))
    assert daemon.wait().status == -9

    world.run_daemon(env=NEW)
    [over] = world.wait_for(job)
    world.dibs("daemon", "stop")

    assert (over["state"], world.ledger.started()) == ("lost", [])
    world.assert_nothing_is_left()


def test_what_ended_before_the_reboot_keeps_its_exit_code(world: World) -> None:
    daemon = world.run_daemon(env=OLD)
    job = world.add("--", "touch up; until test -e go; do sleep 0.02; done; exit 6")
    wait_until(lambda: (world.folder / "up").exists())

    daemon.kill()
    world.write("go", "")
    wait_until(lambda: not world.processes(), show=world.processes)
    world.run_daemon(env=NEW)
    [over] = world.wait_for(job)
    world.dibs("daemon", "stop")

    assert (over["state"], over["exit_code"]) == ("failed", 6)
    world.assert_nothing_is_left()


# -- another name ------------------------------------------------------------------------------------------


@needs_root
def test_a_machine_that_is_called_otherwise_has_the_same_queue(world: World) -> None:
    world.run_daemon()
    job = world.add("--hold", "--", "true")
    world.dibs("daemon", "stop")

    world.run_daemon(program=_on_another_host(world))
    listed = world.dibs("ls", "--json", program=_on_another_host(world))
    world.dibs("release", str(job))
    [over] = world.wait_for(job)
    world.dibs("daemon", "stop")

    assert f'"id": {job}' in listed.stdout
    assert over["state"] == "succeeded"
    world.assert_nothing_is_left()


def _on_another_host(world: World) -> Sequence[str]:
    """dibs with another host name and, where there is one, another machine id."""
    other = world.folder.parent / "machine-id"
    other.write_text("0123456789abcdef0123456789abcdef\n")
    renamed = 'hostname elsewhere; test -e /etc/machine-id && mount --bind "$0" /etc/machine-id; exec "$@"'
    return ("unshare", "--uts", "--mount", "sh", "-c", renamed, str(other), DIBS)


# -- another clock -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("hours", [-24 * 3650, 1])
def test_a_clock_that_was_set_changes_no_limit_and_makes_no_negative_time(world: World, hours: int) -> None:
    """The daemon before and the daemon after it disagree about the time of day by so much."""
    world.run_daemon(pool="0,1")
    limited = world.add("-t", "1.5s", "--grace", "0.1s", "--", "exec sleep 60")
    free = world.add("--", "touch up; until test -e go; do sleep 0.02; done")
    wait_until(lambda: (world.folder / "up").exists())

    world.dibs("daemon", "stop")
    world.run_daemon(pool="0,1", program=_at_another_time(world, hours))
    queued = world.add("--", world.ledger.job("queued"))
    [over] = world.wait_for(limited)
    running = world.client().job(free)
    shown = world.dibs("ls")
    world.write("go", "")
    others = world.wait_for(free, queued)
    listed = world.dibs("ls", "--all")
    info = world.dibs("info", str(free))
    world.dibs("daemon", "stop")

    assert over["state"] == "timed_out"
    assert 1.5 <= over["seconds"] < 300
    assert [one["state"] for one in others] == ["succeeded", "succeeded"]
    assert all(0 <= one["seconds"] < 300 for one in others)
    assert (running["state"], (running["seconds"] or 0) >= 0) == ("running", True)
    assert (shown.status, listed.status, info.status) == (0, 0, 0)
    assert "-1" not in shown.stdout + listed.stdout
    assert "Traceback" not in info.stderr
    world.assert_nothing_is_left()


def _at_another_time(world: World, hours: int) -> Sequence[str]:
    """A daemon whose time of day is another one. What the kernel counts since its start is not touched."""
    code = (
        "import sys, time; real = time.time; "
        f"time.time = lambda: real() + {hours * 3600}; "
        "from dibs.cli.main import main; main()"
    )
    return (str(Path(DIBS).parent / "python"), "-c", code)


def test_a_clock_that_is_set_back_while_the_daemon_runs_holds_nothing_up(world: World) -> None:
    back = world.folder.parent / "back"
    code = (
        f"import os, time; real = time.time; time.time = lambda: real() - 3600 * os.path.exists({str(back)!r}); "
        "from dibs.cli.main import main; main()"
    )
    world.run_daemon(program=(str(Path(DIBS).parent / "python"), "-c", code))
    job = world.add("--retries", "2", "--", "echo x >> ran; exit 1")
    # Between two attempts, the first or the second: it waits for the next one, and not long.
    wait_until(lambda: (found := world.client().job(job))["attempts"] and found["state"] == "queued")

    back.write_text("")
    over = wait_until(lambda: (found := world.client().job(job))["state"] == "failed" and found)

    assert over["attempts"] == 3
    world.dibs("daemon", "stop")
    world.assert_nothing_is_left()
