"""A run that is killed again and again, and a checker that is told nothing but what is left on disk."""

import os
import random
import signal
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from stories.outside import PATIENCE, Running, World, open_store, processes_of, wait_until

KILLS = int(os.environ.get("DIBS_FAULT_KILLS", "20"))
JOBS = int(os.environ.get("DIBS_FAULT_JOBS", "100"))


class Campaign:
    """A list of jobs over declared GPUs with one output folder, resumed until it is done."""

    slots = 1  # of each GPU

    def __init__(
        self, world: World, *, jobs: int, seconds: float, gpus: int = 3, program: Sequence[str] | None = None
    ) -> None:
        self.world = world
        self.jobs = [str(number) for number in range(jobs)]
        self.root = world.folder / "out/.dibs"
        self._gpus = ",".join(str(number) for number in range(gpus) for _ in range(self.slots))
        self._program = program
        self.said: list[str] = []
        world.write("jobs.txt", [world.ledger.job(name, seconds) for name in self.jobs])

    def start(self, **more: object) -> Running:
        """Start it, or go on with it where something of it is there."""
        resume = ["--resume"] if (self.root / "store.db").exists() else []
        return self.world.start(
            *("run", "--gpus", self._gpus, "-f", "jobs.txt", "--output-dir", "out", *resume),
            program=self._program,
            **more,
        )

    def finish(self) -> int:
        """Let it run to its end."""
        ended = self.start().wait(900)
        self.said.append(ended.stderr)
        return ended.status

    def shims(self) -> list[int]:
        """The processes that have a control FIFO of this run open."""
        control = str(self.root / "control")
        return [pid for pid in processes_of(control) if is_shim(pid)]

    def kill_engine_at_random(self, chance: random.Random) -> None:
        running = self.start()
        with suppress(Exception):
            running.process.wait(chance.uniform(0.05, 0.7))
        running.kill()
        self.said.append(running.stderr)

    def kill_a_shim_at_random(self, chance: random.Random) -> bool:
        """Kill one supervisor under a running engine, and let the engine see it."""
        running = self.start()
        wait_until(lambda: self.shims() or running.process.poll() is not None, show=lambda: running.stderr)
        with suppress(Exception):
            running.process.wait(chance.uniform(0.0, 0.3))
        victims = self.shims()
        if victims:
            with suppress(ProcessLookupError):
                os.kill(chance.choice(victims), signal.SIGKILL)
            with suppress(Exception):
                running.process.wait(chance.uniform(0.05, 0.3))
        running.kill()
        self.said.append(running.stderr)
        return bool(victims)

    def live_through_kills(self, chance: random.Random) -> int:
        """Kill engines and supervisors by turns, and let it come to its end; how many supervisors that were."""
        killed_shims = 0
        for _ in range(KILLS // 2):
            if chance.random() < 0.5:
                killed_shims += self.kill_a_shim_at_random(chance)
            else:
                self.kill_engine_at_random(chance)
        while self.finish() != 0:
            assert len(self.said) < 3 * KILLS
        return killed_shims

    # -- the checker -----------------------------------------------------------------------------------

    def complaints(self, *, may_be_lost: int = 0) -> list[str]:
        """What is wrong now that it is over; empty when every promise was kept."""
        world, found = self.world, []
        starts, ends = Counter(world.ledger.started()), Counter(world.ledger.ended())
        lost = self._lost()
        if sum(lost.values()) > may_be_lost:
            found.append(f"lost, though their supervisor was not killed: {lost}")
        for name in self.jobs:
            if starts[name] > 1 + lost[name]:
                found.append(f"job {name} was started {starts[name]} times and lost {lost[name]} times")
            if ends[name] < 1:
                found.append(f"job {name} has not run to its end")
        found += world.ledger.overlaps(self.slots)
        found += self._complaints_of_the_store()
        found += [f"GPU {holder.gpu} is still held" for holder in world.holders()]
        with suppress(AssertionError):
            wait_until(lambda: not world.processes())
        found += [f"process {pid} is left: {line}" for pid, line in world.processes().items()]
        found += [f"traceback: {text[-500:]}" for text in self.said if "Traceback" in text]
        return found

    def _lost(self) -> Counter[str]:
        with open_store(self.root) as store:
            rows = store.execute("select job from attempts where cause = 'lost'").fetchall()
        # The k-th line is the k-th job: the list was never changed.
        return Counter(self.jobs[number - 1] for (number,) in rows)

    def _complaints_of_the_store(self) -> list[str]:
        with open_store(self.root) as store:
            (health,) = store.execute("pragma integrity_check").fetchone()
            states = dict(store.execute("select state, count(*) from jobs group by state").fetchall())
            (open_ones,) = store.execute("select count(*) from attempts where ended_at is null").fetchone()
        found = [] if health == "ok" else [f"the store is damaged: {health}"]
        if states != {"succeeded": len(self.jobs)}:
            found.append(f"the store says {states} of {len(self.jobs)} jobs")
        if open_ones:
            found.append(f"{open_ones} attempts have no end")
        return found


class ShortCampaign(Campaign):
    """Jobs that are over at once in the slots of one card, and no output folder: the next ones wait at shims."""

    slots = 3

    def __init__(self, world: World, *, jobs: int, program: Sequence[str] | None = None) -> None:
        super().__init__(world, jobs=jobs, seconds=0, gpus=1, program=program)

    def start(self, **more: object) -> Running:
        runs = self.world.state / "runs"
        names = [path.parent.name for path in runs.glob("*/store.db")]
        resume = ["--resume", names[0]] if names else []
        running = self.world.start(
            *("run", "--gpus", self._gpus, "-f", "jobs.txt", *resume), program=self._program, **more
        )
        wait_until(lambda: list(runs.glob("*/store.db")) or running.process.poll() is not None)
        (self.root,) = [path.parent for path in runs.glob("*/store.db")]
        return running


def kill_everything(world: World) -> None:
    """What a power cut does: engine, zygote, shims and commands are gone at once."""
    place = str(world.folder.parent)
    until = time.monotonic() + PATIENCE
    while (left := processes_of(place)) and time.monotonic() < until:
        for pid in left:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
    assert not left


def is_shim(pid: int) -> bool:
    with suppress(OSError):
        return b"dibs.supervise.zygote" in Path(f"/proc/{pid}/cmdline").read_bytes()
    return False
