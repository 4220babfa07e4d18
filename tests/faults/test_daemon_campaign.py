"""kill -9 of the daemon at random moments and at each named point: no job lost, none twice."""

import os
import random
import signal
from contextlib import suppress

import pytest

from faults.campaign import KILLS
from faults.queue_campaign import QueueCampaign, pause
from stories.outside import World, wait_until

JOBS = int(os.environ.get("DIBS_FAULT_JOBS", "200"))


def test_random_kills_of_the_daemon_lose_nothing_and_run_nothing_twice(world: World) -> None:
    campaign = QueueCampaign(world, seconds=0.02)
    chance = random.Random(7)
    kills = 0

    while kills < KILLS:
        call = campaign.add(max(1, JOBS // KILLS))
        pause(chance, 0.8)
        kills += campaign.kill_daemon()
        call.end()
    campaign.finish()

    assert campaign.complaints() == []
    assert len(campaign.acknowledged) >= JOBS // 2


def test_random_kills_of_supervisors_lose_only_what_is_reported_as_lost(world: World) -> None:
    campaign = QueueCampaign(world, seconds=0.3)
    chance = random.Random(3)
    killed = 0

    for _ in range(max(3, KILLS // 6)):
        call = campaign.add(5)
        call.end()
        wait_until(lambda: campaign.shims(), show=lambda: world.processes())
        pause(chance, 0.3)
        if victims := campaign.shims():
            with suppress(ProcessLookupError):
                os.kill(chance.choice(victims), signal.SIGKILL)
                killed += 1
        if chance.random() < 0.5:
            campaign.kill_daemon()
    campaign.finish()

    assert killed > 0
    assert campaign.complaints(may_be_lost=killed) == []


@pytest.mark.parametrize("point", ["after-lease", "after-intent", "after-launch", "after-commit"])
@pytest.mark.parametrize("times", [1, 3])
def test_a_kill_at_this_point_loses_nothing_and_runs_nothing_twice(world: World, point: str, times: int) -> None:
    campaign = QueueCampaign(world, seconds=0.1)
    daemon = world.start("daemon", "run", env={"DIBS_FAULT": f"{point}:{times}"})
    wait_until(lambda: (campaign.root / "socket").exists(), show=lambda: daemon.stderr)

    for _ in range(3):
        campaign.add(2).end()
    wait_until(lambda: daemon.process.poll() is not None, show=lambda: campaign.said)
    campaign.finish()

    assert daemon.process.returncode == -9
    assert campaign.complaints() == []
    assert len(campaign.acknowledged) == 6
