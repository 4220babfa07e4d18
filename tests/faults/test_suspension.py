"""kill -9 of the daemon, of the helper and of the shim at each named point of a suspension and of a resumption.

Real processes, a real daemon, and a driver that is a fake (tests/cuda); bench/on_gpu.py has a real one.
"""

import random

import pytest

from cuda.machine import stands_still
from faults.campaign import KILLS
from faults.figures import record_figures
from faults.suspension_campaign import POINTS_OF_DAEMONS, POINTS_OF_SHIMS, SuspensionCampaign
from stories.test_making_room import MovingWorld, moving

__all__ = ["moving"]

# Two seconds and a half are long for the fake driver.
IMPATIENT = """
    suspensions._LONGEST_LOOK = 2.5
    suspensions.longest_move = lambda size: 2.5
"""


@pytest.fixture
def campaign(moving: MovingWorld) -> SuspensionCampaign:
    return SuspensionCampaign(moving)


@pytest.mark.parametrize(("suspending", "resuming"), POINTS_OF_DAEMONS)
def test_a_kill_of_the_daemon_at_these_points(
    campaign: SuspensionCampaign, suspending: str, resuming: str
) -> None:
    assert campaign.kill_daemon_at(suspending, resuming) == []


def test_helpers_that_are_killed_after_each_of_their_steps(campaign: SuspensionCampaign) -> None:
    assert campaign.hurt_helpers() == []
    assert "its helper ended without an answer" in campaign.daemons[-1].stderr


def test_helpers_that_are_killed_before_their_first_step_or_their_answer(campaign: SuspensionCampaign) -> None:
    assert campaign.kill_helpers_at_the_edges() == []


def test_helpers_that_hang_after_each_of_their_steps_are_ended_at_their_deadline(moving: MovingWorld) -> None:
    campaign = SuspensionCampaign(moving, IMPATIENT)

    assert campaign.hurt_helpers(":1:stop") == []
    assert "the driver did not answer in time" in campaign.daemons[-1].stderr


def test_calls_of_the_driver_that_take_longer_than_a_helper_may(moving: MovingWorld) -> None:
    """The helper is killed in the middle of each; the driver goes on alone, and lets the next one wait."""
    campaign = SuspensionCampaign(moving, IMPATIENT)

    assert campaign.hurt_helpers(delays="lock=3000 checkpoint=3000 restore=3000 unlock=3000") == []
    assert "the driver did not answer in time" in campaign.daemons[-1].stderr


@pytest.mark.parametrize("point", POINTS_OF_SHIMS)
def test_a_kill_of_the_shim_at_this_point(campaign: SuspensionCampaign, point: str) -> None:
    assert campaign.kill_shim_at(point) == []


@pytest.mark.parametrize("point", ["after-answer", "after-move-intent:2", "after-answer:2", "after-move:2"])
def test_a_job_that_only_a_signal_can_stop_outlives_its_daemon(campaign: SuspensionCampaign, point: str) -> None:
    """The driver cannot move it, so that it is stopped; then the driver would not answer about it any more."""
    campaign.begin(point)
    train = campaign.add(more="--managed")
    ledger = campaign.moving.ledger("train")

    campaign.ask("suspend", train)
    campaign.die()
    campaign.begin()
    campaign.moving.wait_for_state(train, "suspended")
    still = stands_still(ledger)
    suspension = campaign.moving.job(train)["suspension"]
    campaign.ask("resume", train)

    assert still
    assert (suspension["rung"], suspension["frees_cards"]) == ("stop", False)
    assert "memory that cannot be moved" in suspension["why_not"]
    assert campaign.complaints(train, "running") == []
    campaign.moving.end(train)
    assert campaign.complaints_at_the_end() == []


def test_random_kills_while_a_job_is_suspended_and_resumed_among_others(campaign: SuspensionCampaign) -> None:
    complaints, killed = campaign.live_through_kills(random.Random(21), max(6, KILLS // 4))

    assert complaints == []
    assert killed.total() > killed["nobody"]
    record_figures(
        "jobs are suspended and resumed",
        "`kill -9` of the daemon, of the helper that asks the driver, or of the supervisor, at random moments",
        times=killed.total() - killed["nobody"],
        jobs=1 + max(6, KILLS // 4),
        result="each step of the programs done once; nothing locked, the card held by one, no memory left",
        seed=21,
    )
