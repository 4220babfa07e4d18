"""A machine that slept: limits count the sleep, and what is late happens once (faults.md, row 40)."""

import signal
from dataclasses import dataclass, field

import pytest

from dibs.supervise import command
from dibs.supervise.command import TOLD, Stopping

HOUR = 3600.0
HEARTBEAT = 5.0
ASKED = [signal.SIGTERM, signal.SIGCONT]


@dataclass
class Machine:
    """Its CLOCK_BOOTTIME, turned by hand, and the signals that its one command got."""

    now: float = 1_000.0
    sent: list[int] = field(default_factory=list)

    def sleep(self, hours: float) -> None:
        self.now += hours * HOUR

    def look(self, stops: Stopping, times: int = 1) -> list[int]:
        """The shim looks so many times in a row; the signals that were sent."""
        self.sent.clear()
        for _ in range(times):
            stops.act()
        return list(self.sent)

    def signal(self, number: int) -> None:
        self.sent.append(number)

    def signal_listeners(self, number: int) -> int:
        self.sent.append(number)
        return TOLD


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    one = Machine()
    monkeypatch.setattr(command, "boottime", lambda: one.now)
    return one


@pytest.fixture
def stops(machine: Machine) -> Stopping:
    """A command with a limit of one hour and ten seconds of grace."""
    one = Stopping(grace=10.0, attempt="1.1", processes=machine)
    one.limit = machine.now + HOUR
    return one


def test_a_job_that_slept_past_its_limit_is_asked_to_end_once(machine: Machine, stops: Stopping) -> None:
    before = machine.look(stops, times=3)

    machine.sleep(hours=8)
    wait = stops.timeout(HEARTBEAT)
    sent = machine.look(stops, times=50)

    assert (before, wait, sent) == ([], 0.0, ASKED)
    assert stops.by == "time"


def test_the_grace_counts_from_waking(machine: Machine, stops: Stopping) -> None:
    machine.sleep(hours=8)
    machine.look(stops)

    machine.now += 9.9
    early = machine.look(stops, times=3)
    wait = stops.timeout(HEARTBEAT)
    machine.now += 0.2
    late = machine.look(stops, times=50)

    assert (early, late) == ([], [signal.SIGKILL])
    assert wait == pytest.approx(0.1)


def test_a_sleep_within_the_grace_ends_in_one_kill(machine: Machine, stops: Stopping) -> None:
    stops.obey(b"stop 1.1\n")

    machine.sleep(hours=8)
    sent = machine.look(stops, times=50)

    assert sent == [signal.SIGKILL]
    assert stops.by == "stop"


def test_a_job_that_slept_past_its_checkpoint_is_told_to_save_and_to_end_once(
    machine: Machine, stops: Stopping
) -> None:
    stops.save_before_limit(signal.SIGUSR1, 60.0)

    machine.sleep(hours=8)
    sent = machine.look(stops, times=50)

    assert sent == [signal.SIGUSR1, *ASKED]
    assert stops.is_checkpointed  # so that it is queued again


def test_a_sleep_within_the_limit_ends_nothing(machine: Machine, stops: Stopping) -> None:
    machine.sleep(hours=0.9)

    assert machine.look(stops, times=50) == []
    assert stops.timeout(HEARTBEAT) == HEARTBEAT  # however far the limit is, it looks again


def test_the_signal_of_a_checkpoint_on_request_is_one_if_the_command_ends_soon(
    machine: Machine, stops: Stopping
) -> None:
    stops.save_before_limit(signal.SIGUSR1, 60.0)

    stops.obey(b"signal 12 1.1\n")
    other = stops.is_checkpointed
    stops.obey(b"signal 10 1.1\n")
    asked = stops.is_checkpointed
    machine.now += 61.0
    machine.look(stops)

    assert (other, asked) == (False, True)
    assert not stops.is_checkpointed  # it has saved, and goes on
