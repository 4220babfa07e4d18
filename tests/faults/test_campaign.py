"""kill -9 at random moments, again and again, until the list is done."""

import random

from faults.campaign import JOBS, KILLS, Campaign, ShortCampaign
from faults.figures import record_figures
from stories.outside import World


def test_random_kills_of_dibs_run_lose_nothing_and_run_nothing_twice(world: World) -> None:
    campaign = Campaign(world, jobs=JOBS, seconds=0.15)
    chance = random.Random(20)

    for _ in range(KILLS):
        campaign.kill_engine_at_random(chance)
    status = campaign.finish()

    assert campaign.complaints() == []
    assert status == 0
    record_figures(
        "`dibs run` is killed",
        "`kill -9` at random moments, then `--resume`",
        times=KILLS,
        jobs=JOBS,
        result="none lost, none run twice, no GPU and no process left behind",
        seed=20,
    )


def test_random_kills_of_supervisors_too_lose_only_what_is_reported_as_lost(world: World) -> None:
    campaign = Campaign(world, jobs=JOBS // 3, seconds=0.2)

    killed_shims = campaign.live_through_kills(random.Random(4))

    assert killed_shims > 0
    assert campaign.complaints(may_be_lost=killed_shims) == []
    record_figures(
        "`dibs run` and supervisors of its jobs are killed",
        "`kill -9` at random moments, then `--resume`",
        times=killed_shims,
        jobs=JOBS // 3,
        result="no more jobs `lost` than supervisors killed; none run twice",
        seed=4,
    )


def test_random_kills_between_short_jobs(world: World) -> None:
    campaign = ShortCampaign(world, jobs=10 * JOBS)

    killed_shims = campaign.live_through_kills(random.Random(11))

    assert killed_shims > 0
    assert campaign.complaints(may_be_lost=killed_shims) == []
    record_figures(
        "the same among jobs of milliseconds",
        "`kill -9` at random moments, then `--resume`",
        times=killed_shims,
        jobs=10 * JOBS,
        result="no more jobs `lost` than supervisors killed; none run twice",
        seed=11,
    )
