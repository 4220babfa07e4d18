"""kill -9 of the daemon, of the helper and of the shim at each named point of a suspension and of a resumption.

Real processes, a real daemon, and a driver that is a fake (tests/cuda).
"""

import os
import signal

import pytest

from faults.suspension_campaign import SuspensionCampaign
from stories.outside import wait_until
from stories.test_making_room import MovingWorld, moving

__all__ = ["moving"]


# Two seconds and a half are long for the fake driver.
IMPATIENT = """
    suspensions._LEAST_DEADLINE = 2.5
    suspensions._SLOWEST = 2**50
"""


@pytest.fixture
def campaign(moving: MovingWorld) -> SuspensionCampaign:
    return SuspensionCampaign(moving)


def _end(campaign: SuspensionCampaign, *jobs: int) -> None:
    campaign.moving.end(*jobs)
    assert campaign.complaints_at_the_end() == []


@pytest.mark.parametrize(
    ("suspending", "resuming"),
    [
        ("after-commit:2", "after-commit"),  # the first one is that of `add`
        ("after-move-intent", "after-lease-back"),
        ("after-helper", "after-move-intent"),
        ("after-answer", "after-helper"),
        ("after-move", "after-answer"),
        ("after-move", "after-move"),
    ],
)
def test_a_kill_of_the_daemon_at_these_points(
    campaign: SuspensionCampaign, suspending: str, resuming: str
) -> None:
    campaign.begin(suspending)
    train = campaign.add()

    campaign.ask("suspend", train)
    campaign.die()
    campaign.begin(resuming)
    assert campaign.complaints(train, "suspended") == []
    campaign.ask("resume", train)
    campaign.die()
    campaign.begin()

    assert campaign.complaints(train, "running") == []
    _end(campaign, train)


_STEPS = ("helper-lock", "helper-stop", "helper-checkpoint", "helper-restore", "helper-continue", "helper-unlock")


def test_helpers_that_are_killed_after_each_of_their_steps(campaign: SuspensionCampaign) -> None:
    """Each of them does one step and dies."""
    campaign.begin(",".join(_STEPS))
    train = campaign.add()

    campaign.ask("suspend", train)
    assert campaign.complaints(train, "suspended") == []
    campaign.ask("resume", train)

    assert campaign.complaints(train, "running") == []
    assert "its helper ended without an answer" in campaign.daemons[-1].stderr
    _end(campaign, train)


def test_helpers_that_are_killed_before_their_first_step_or_before_their_answer(
    campaign: SuspensionCampaign,
) -> None:
    """And their daemons with them: nobody else knows what they have done."""
    train = 0
    for verb, fault, state in (
        ("suspend", "helper-begun", "running"),
        ("", "helper-done", "checkpointed"),
        ("resume", "helper-done", "running"),
    ):
        daemon = campaign.begin(fault)
        train = train or campaign.add()
        if verb:
            campaign.ask(verb, train)
        wait_until(lambda daemon=daemon: "tried again" in daemon.stderr, show=lambda daemon=daemon: daemon.stderr)
        assert campaign.driver_says(state)
        daemon.kill()
        if fault == "helper-done":
            campaign.begin()
            settled = "suspended" if state == "checkpointed" else "running"
            assert campaign.complaints(train, settled) == []
            campaign.daemons[-1].kill()

    campaign.begin()
    _end(campaign, train)


def test_helpers_that_hang_after_each_of_their_steps_are_ended_at_their_deadline(moving: MovingWorld) -> None:
    campaign = SuspensionCampaign(moving, IMPATIENT)
    campaign.begin(",".join(f"{step}:1:stop" for step in _STEPS))
    train = campaign.add()

    campaign.ask("suspend", train)
    assert campaign.complaints(train, "suspended") == []
    campaign.ask("resume", train)

    assert campaign.complaints(train, "running") == []
    assert "the driver did not answer in time" in campaign.daemons[-1].stderr
    _end(campaign, train)


def test_calls_of_the_driver_that_take_longer_than_a_helper_may(moving: MovingWorld) -> None:
    """Its helper is killed in the middle of each; the driver goes on alone, and lets the next one wait."""
    campaign = SuspensionCampaign(moving, IMPATIENT)
    campaign.begin()
    train = campaign.add(delays="lock=3000 checkpoint=3000 restore=3000 unlock=3000")

    campaign.ask("suspend", train)
    assert campaign.complaints(train, "suspended") == []
    campaign.ask("resume", train)

    assert campaign.complaints(train, "running") == []
    assert campaign.calls() == ["lock", "checkpoint", "restore", "unlock"]
    _end(campaign, train)


@pytest.mark.parametrize(
    "point", ["helper-begun", "helper-lock", "helper-stop", "helper-checkpoint", "helper-done", *_STEPS[3:]]
)
def test_a_kill_of_the_shim_at_this_point(campaign: SuspensionCampaign, point: str) -> None:
    """The helper stops there meanwhile. What is left of the job is suspended and goes on without its shim."""
    campaign.begin(f"{point}:1:stop")
    train = campaign.add()
    verbs = ["suspend", "resume"]

    campaign.ask(verbs.pop(0), train)
    if point in _STEPS[3:]:
        assert campaign.complaints(train, "suspended") == []
        campaign.ask(verbs.pop(0), train)
    helper = campaign.stopped_helper()
    campaign.kill_shim()
    os.kill(helper, signal.SIGCONT)
    if verbs:
        if point == "helper-done":
            campaign.daemons[-1].kill()
            campaign.begin()
        assert campaign.complaints(train, "suspended") == []
        campaign.ask(verbs.pop(0), train)

    assert campaign.complaints(train, "running") == []
    _end(campaign, train)
