"""kill -9 at random moments while jobs are forked from warm processes: the same promises."""

import os
import random
import signal
import sys
from contextlib import suppress
from pathlib import Path

from faults.campaign import JOBS, KILLS, Campaign
from faults.figures import record_figures
from stories.outside import World, wait_until

HEAVY = "import os, time\nopen('imports', 'a').write('x')\ntime.sleep(0.1)\n"
JOB = """
import heavy, os, sys, time
def sign(word):
    with open(os.environ["LEDGER"], "a") as ledger:
        ledger.write(f"{word} {sys.argv[1]} {os.environ['DIBS_GPUS']} {os.getpid()}\\n")
sign("start")
time.sleep(float(sys.argv[2]))
sign("end")
"""


class WarmCampaign(Campaign):
    """Python jobs that want a module which takes a moment to import."""

    def __init__(self, world: World, *, jobs: int, seconds: float) -> None:
        super().__init__(world, jobs=jobs, seconds=seconds)
        world.write("heavy.py", HEAVY)
        os.utime(world.folder / "heavy.py", (1e9, 1e9))
        world.write("job.py", JOB)
        world.write("jobs.txt", [f"[warm=heavy] {sys.executable} job.py {name} {seconds}" for name in self.jobs])

    def warm_ones(self) -> list[int]:
        """Warm processes and the shims that they forked."""
        return [pid for pid in self.world.processes() if _is_warm(pid)]

    def kill_a_warm_one_at_random(self, chance: random.Random) -> bool:
        running = self.start()
        wait_until(lambda: self.warm_ones() or running.process.poll() is not None, show=lambda: running.stderr)
        with suppress(Exception):
            running.process.wait(chance.uniform(0.0, 0.6))
        victims = self.warm_ones()
        if victims:
            with suppress(ProcessLookupError):
                os.kill(chance.choice(victims), signal.SIGKILL)
            with suppress(Exception):
                running.process.wait(chance.uniform(0.05, 0.4))
        running.kill()
        self.said.append(running.stderr)
        return bool(victims)


def test_random_kills_of_dibs_run_lose_nothing_and_run_nothing_twice(world: World) -> None:
    campaign = WarmCampaign(world, jobs=JOBS // 3, seconds=0.15)
    chance = random.Random(6)

    for _ in range(KILLS // 2):
        campaign.kill_engine_at_random(chance)
    status = campaign.finish()

    assert campaign.complaints() == []
    assert status == 0
    assert len((world.folder / "imports").read_text()) < len(campaign.jobs)  # they were forked, indeed
    record_figures(
        "`dibs run --warm` is killed",
        "`kill -9` at random moments, then `--resume`",
        times=KILLS // 2,
        jobs=JOBS // 3,
        result="none lost, none run twice, no GPU and no process left behind",
        seed=6,
    )


def test_random_kills_of_warm_processes_and_their_shims_lose_only_what_is_reported(world: World) -> None:
    campaign = WarmCampaign(world, jobs=JOBS // 3, seconds=0.2)
    chance = random.Random(7)
    killed = 0

    for _ in range(KILLS // 2):
        killed += campaign.kill_a_warm_one_at_random(chance)
    while campaign.finish() != 0:
        assert len(campaign.said) < 3 * KILLS

    assert killed > 0
    assert campaign.complaints(may_be_lost=killed) == []


def _is_warm(pid: int) -> bool:
    with suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes().startswith(b"dibs: warm")
    return False
