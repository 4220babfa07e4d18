"""kill -9 of the daemon at random moments and at each named point: no job lost, none twice."""

import os
import random
import signal
from contextlib import suppress

import pytest

from faults.campaign import KILLS
from faults.figures import record_figures
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
    record_figures(
        "the daemon is killed",
        "`kill -9` at random moments while jobs are added",
        times=kills,
        jobs=len(campaign.acknowledged),
        result="none lost, none run twice, no GPU and no process left behind",
        seed=7,
    )


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
    record_figures(
        "supervisors of jobs are killed, and the daemon half of the time",
        "`kill -9` at random moments while a job runs",
        times=killed,
        jobs=len(campaign.acknowledged),
        result="no more jobs `lost` than supervisors killed; none run twice; each GPU kept while its job lived",
        seed=3,
    )


@pytest.mark.parametrize("point", ["after-lease", "after-prepare", "after-intent", "after-launch", "after-commit"])
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
    record_figures(
        "the daemon is killed between two steps of a start",
        "`kill -9` by itself at a named point of the launch protocol",
        times=1,
        jobs=6,
        result="none lost, none run twice, no GPU and no process left behind",
    )
