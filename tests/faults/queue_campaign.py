"""A queue whose daemon is killed again and again, and a checker that is told only what people were told."""

import os
import random
import signal
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from faults.campaign import is_shim
from stories.outside import Running, World, open_store, processes_of, wait_until


class QueueCampaign:
    """Jobs that are added in small calls while daemons come and go. A client starts a daemon where none is."""

    def __init__(
        self, world: World, *, seconds: float, gpus: int = 3, program: Sequence[str] | None = None
    ) -> None:
        self.world = world
        self.root = world.state / "queue"
        self.acknowledged: dict[str, int] = {}  # the job's name in the ledger, and its number
        self.unsure: set[str] = set()  # no number was printed
        self.said: list[str] = []
        self._seconds = seconds
        self._calls = 0
        self._program = program
        world.environ |= {"DIBS_POOL": ",".join(map(str, range(gpus))), "DIBS_MAX_QUICK_FAILURES": "0"}

    def add(self, jobs: int, **more: object) -> "Call":
        """Begin a call of `dibs add` with so many lines."""
        self._calls += 1
        names = [f"{self._calls}.{number}" for number in range(jobs)]
        path = self.world.write(
            f"{self._calls}.txt", [self.world.ledger.job(name, self._seconds) for name in names]
        )
        running = self.world.start("add", "--parsable", "-f", path, program=self._program, **more)
        return Call(self, names, running)

    def daemon(self) -> int:
        """The pid of the daemon that is there now, or 0."""
        with suppress(OSError, ValueError):
            pid = int((self.root / "lock").read_text())
            if b"daemon" in Path(f"/proc/{pid}/cmdline").read_bytes():
                return pid
        return 0

    def kill_daemon(self) -> bool:
        if pid := self.daemon():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
                return True
        return False

    def shims(self) -> list[int]:
        return [pid for pid in processes_of(str(self.root / "control")) if is_shim(pid)]

    def finish(self) -> None:
        """Let everything come to its end, and the daemon with it."""
        numbers = sorted(self.acknowledged.values())
        waited = self.world.dibs("wait", f"{numbers[0]}-{numbers[-1]}", program=self._program, timeout=300)
        self.said.append(waited.stderr)
        stopped = self.world.dibs("daemon", "stop", program=self._program)
        self.said.append(stopped.stderr)
        wait_until(lambda: not self.world.processes(), show=self.world.processes)

    def complaints(self, *, may_be_lost: int = 0) -> list[str]:
        """What is wrong now that it is over; empty when every promise was kept."""
        starts, ends = Counter(self.world.ledger.started()), Counter(self.world.ledger.ended())
        with open_store(self.root) as store:
            (health,) = store.execute("pragma integrity_check").fetchone()
            states = dict(store.execute("select id, state from jobs").fetchall())
            open_ones = store.execute("select job from attempts where ended_at is null").fetchall()
        found = [] if health == "ok" else [f"the store is damaged: {health}"]
        lost = sum(state == "lost" for state in states.values())
        if lost > may_be_lost:
            found.append(f"{lost} jobs are lost, though only {may_be_lost} supervisors were killed")
        for name, number in self.acknowledged.items():
            state = states.get(number, "not there")
            if state not in ("succeeded", "lost"):
                found.append(f"job {number} was acknowledged and is {state}")
            if starts[name] != 1:
                found.append(f"job {number} was started {starts[name]} times")
            if state == "succeeded" and ends[name] != 1:
                found.append(f"job {number} succeeded, but ended {ends[name]} times")
        found += [f"{name} was started {starts[name]} times" for name in self.unsure if starts[name] > 1]
        found += [f"the attempt of job {number} has no end" for (number,) in open_ones]
        found += self.world.ledger.overlaps()
        found += [f"GPU {holder.gpu} is still held" for holder in self.world.holders()]
        found += [f"process {pid} is left: {line}" for pid, line in self.world.processes().items()]
        log = self.root / "daemon.log"
        said = [*self.said, log.read_text(errors="replace") if log.exists() else ""]
        found += [f"traceback: {text[-800:]}" for text in said if "Traceback" in text]
        return found


class Call:
    """One call of `dibs add` that may lose its daemon."""

    def __init__(self, campaign: QueueCampaign, names: list[str], running: Running) -> None:
        self._campaign = campaign
        self._names = names
        self.running = running

    def end(self) -> int:
        """Wait for it, and take down what it was told."""
        ended = self.running.wait(60)
        self._campaign.said.append(ended.stderr)
        if ended.status == 0:
            first = int(ended.stdout.split("-")[0])
            self._campaign.acknowledged |= {name: first + at for at, name in enumerate(self._names)}
        else:
            self._campaign.unsure.update(self._names)
        return ended.status


def pause(chance: random.Random, longest: float) -> None:
    time.sleep(chance.uniform(0.0, longest))  # a random moment is what is tested here
