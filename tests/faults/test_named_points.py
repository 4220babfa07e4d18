"""kill -9 of `dibs run` at each named point of the launch protocol."""

import pytest

from faults.campaign import Campaign, ShortCampaign
from stories.outside import World


@pytest.mark.parametrize("point", ["after-lease", "after-prepare", "after-intent", "after-launch"])
@pytest.mark.parametrize("times", [1, 4])
def test_a_kill_at_this_point_loses_nothing_and_runs_nothing_twice(world: World, point: str, times: int) -> None:
    campaign = Campaign(world, jobs=16, seconds=0.1)  # on three GPUs: in no less than six turns

    killed = campaign.start(env={"DIBS_FAULT": f"{point}:{times}"}).wait()
    status = campaign.finish()

    assert killed.status == -9
    assert status == 0
    assert campaign.complaints() == []


@pytest.mark.parametrize("point", ["after-lease", "after-prepare", "after-intent", "after-launch"])
def test_a_kill_at_this_point_at_every_start_still_comes_to_an_end(world: World, point: str) -> None:
    """Each resumed run dies at its second start: one job is done each time, or none twice."""
    campaign = Campaign(world, jobs=5, seconds=0.02, gpus=2)

    for _ in range(5):
        campaign.start(env={"DIBS_FAULT": f"{point}:2"}).wait()
    status = campaign.finish()

    assert status == 0
    assert campaign.complaints() == []


@pytest.mark.parametrize("point", ["after-lease", "after-prepare", "after-intent", "after-launch"])
def test_a_kill_between_short_jobs_that_follow_each_other(world: World, point: str) -> None:
    campaign = Campaign(world, jobs=60, seconds=0, gpus=1)

    for times in (2, 5, 9, 12):
        campaign.start(env={"DIBS_FAULT": f"{point}:{times}"}).wait()
    status = campaign.finish()

    assert status == 0
    assert campaign.complaints() == []


@pytest.mark.parametrize("point", ["after-lease", "after-prepare", "after-intent", "after-launch"])
def test_a_kill_among_many_short_jobs(world: World, point: str) -> None:
    campaign = ShortCampaign(world, jobs=200)

    killed = [campaign.start(env={"DIBS_FAULT": f"{point}:{times}"}).wait() for times in (1, 3, 7, 11)]
    status = campaign.finish()

    assert -9 in [ended.status for ended in killed]
    assert status == 0
    assert campaign.complaints() == []
