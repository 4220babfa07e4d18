"""What becomes of suspended jobs beside a crash: killed, rebooted, upgraded, or their store made again."""

import os

import pytest

from cuda.machine import GB, steps
from faults.campaign import kill_everything
from faults.suspension_campaign import SuspensionCampaign
from faults.test_upgrade import OLD_SHIMS, OLDER
from stories.outside import wait_until
from stories.test_making_room import MovingWorld, moving

__all__ = ["moving"]


@pytest.fixture
def campaign(moving: MovingWorld) -> SuspensionCampaign:
    return SuspensionCampaign(moving)


@pytest.mark.parametrize(
    ("point", "victims"),
    [
        ("helper-lock", "both"),
        ("helper-checkpoint", "daemon"),
        ("helper-checkpoint", "shim"),
        ("", "shim"),
        ("", "both"),
    ],
)
def test_a_job_can_be_killed_after_a_crash_however_far_its_suspension_is(
    campaign: SuspensionCampaign, point: str, victims: str
) -> None:
    campaign.begin(f"{point}:1:stop" if point else "")
    train = campaign.add()
    campaign.ask("suspend", train)
    if point:
        campaign.stopped_helper()
    else:
        assert campaign.complaints(train, "suspended") == []

    if victims != "daemon":
        campaign.kill_shim()
    if victims != "shim":
        campaign.daemons[-1].kill()
        campaign.begin()
    campaign.world.dibs("kill", str(train))
    (ended,) = campaign.world.wait_for(train)

    assert (ended["state"], ended["attempts"]) == ("cancelled", 1)
    assert campaign.complaints_at_the_end() == []


def test_a_daemon_that_is_stopped_leaves_a_half_suspended_job_to_the_next_one(
    campaign: SuspensionCampaign,
) -> None:
    """As `dibs daemon restart` does it for an upgrade."""
    campaign.begin("helper-checkpoint:1:stop")
    train = campaign.add()
    campaign.ask("suspend", train)
    helper = campaign.stopped_helper()

    campaign.world.dibs("daemon", "stop")
    wait_until(lambda: not os.path.exists(f"/proc/{helper}"))
    campaign.begin()

    assert campaign.complaints(train, "suspended") == []
    campaign.world.dibs("daemon", "stop")
    campaign.begin()
    campaign.ask("resume", train)
    assert campaign.complaints(train, "running") == []
    campaign.moving.end(train)
    assert campaign.complaints_at_the_end() == []


def test_a_suspended_job_is_lost_by_a_reboot_and_its_card_is_free(campaign: SuspensionCampaign) -> None:
    campaign.begin(DIBS_FAKE_BOOT_ID="before")
    train = campaign.add()
    campaign.ask("suspend", train)
    assert campaign.complaints(train, "suspended") == []

    kill_everything(campaign.world)
    wait_until(lambda: not campaign.world.holders(), show=campaign.world.holders)
    campaign.begin(DIBS_FAKE_BOOT_ID="after")
    (ended,) = campaign.world.wait_for(train)
    after = campaign.add("after", count=20)
    (next_one,) = campaign.world.wait_for(after)

    assert (ended["state"], next_one["state"]) == ("lost", "succeeded")
    assert campaign.complaints_at_the_end() == []


def _lose_the_store(campaign: SuspensionCampaign, *files: str) -> int:
    """A job is suspended, its daemon killed, and the store made again without these files."""
    campaign.begin()
    train = campaign.add()
    campaign.ask("suspend", train)
    assert campaign.complaints(train, "suspended") == []
    campaign.daemons[-1].kill()
    for name in files:
        (campaign.world.state / "queue" / name).unlink()
    (campaign.world.state / "queue" / "store.db").write_bytes(b"no store" * 999)
    rebuilt = campaign.world.dibs("doctor", "--rebuild", "--yes")
    assert (rebuilt.status == 0) == (not files), rebuilt
    campaign.begin()
    return train


def test_a_suspended_job_is_found_again_when_the_store_is_made_again(campaign: SuspensionCampaign) -> None:
    train = _lose_the_store(campaign)

    assert campaign.complaints(train, "suspended") == []
    suspension = campaign.moving.job(train)["suspension"]
    campaign.ask("resume", train)
    assert campaign.complaints(train, "running") == []
    assert (suspension["why"], suspension["held_bytes"]) == ("by you", 10 * GB)
    campaign.moving.end(train)
    assert campaign.complaints_at_the_end() == []


def test_a_suspended_job_of_which_the_journal_is_lost_too_can_be_killed(campaign: SuspensionCampaign) -> None:
    """Its folder tells neither its cards nor that it was suspended."""
    train = _lose_the_store(campaign, "journal.jsonl")

    before = campaign.moving.job(train)["state"]
    campaign.moving.end(train)

    assert before == "running"
    assert campaign.complaints_at_the_end() == []


def test_a_job_under_an_older_supervisor_is_suspended_and_goes_on(moving: MovingWorld) -> None:
    """It knows nothing of suspensions."""
    campaign = SuspensionCampaign(moving, OLD_SHIMS.format(folder=str(OLDER)))
    campaign.begin()
    train = campaign.add()

    assert any(str(OLDER) in line for line in campaign.world.processes().values())
    assert campaign._suspend(train) == []
    campaign.daemons[-1].kill()
    campaign.begin()
    assert campaign._resume(train) == []
    campaign.moving.end(train)
    assert campaign.complaints_at_the_end() == []


def test_a_time_limit_stands_still_also_without_the_shim_and_the_daemon(campaign: SuspensionCampaign) -> None:
    campaign.begin()
    train = campaign.add("train", "-t", "4s", "--grace", "0.1s")
    campaign.ask("suspend", train)
    assert campaign.complaints(train, "suspended") == []
    campaign.kill_shim()
    campaign.daemons[-1].kill()
    suspended_at = os.times().elapsed

    wait_until(lambda: os.times().elapsed > suspended_at + 4)  # its whole limit
    campaign.begin()
    assert campaign.complaints(train, "suspended") == []
    campaign.ask("resume", train)

    assert campaign.complaints(train, "running") == []
    (ended,) = campaign.world.wait_for(train)
    assert (ended["state"], ended["seconds"] < 60) == ("timed_out", True)
    assert campaign.complaints_at_the_end() == []


def test_an_urgent_job_begins_and_the_other_goes_on_though_the_daemon_dies_at_each_step(
    campaign: SuspensionCampaign,
) -> None:
    """What the urgent one needs is not on the card beside the other: it would find no memory there."""
    campaign.begin()
    train = campaign.add("train", "--preemptible")
    campaign.daemons[-1].kill()
    urgent = 0
    for point in ("after-move-intent", "after-answer", "after-move", "after-intent"):
        campaign.begin(point)
        urgent = urgent or campaign.add("urgent", "--urgent", count=100)
        campaign.die()
    for point in ("after-lease-back", "after-move-intent", "after-answer", "after-move"):
        campaign.begin(point)
        campaign.die()
    campaign.begin()

    assert campaign.complaints(train, "running") == []
    (ended,) = campaign.world.wait_for(urgent)
    assert (ended["state"], ended["attempts"], steps(campaign.moving.ledger("urgent"))) == ("succeeded", 1, 100)
    campaign.moving.end(train)
    assert campaign.complaints_at_the_end() == []
