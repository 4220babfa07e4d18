"""A job that is suspended and resumed while everything of dibs is killed, and a checker of what can be seen.

That is the driver's state of each process, the memory of the card, the lease files, the steps that the
program itself has counted, and the store once no daemon has it.
"""

import os
import random
import shlex
import signal
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path
from textwrap import dedent

from cuda.machine import stands_still, steps
from dibs.errors import DibsError
from dibs.supervise.command import children_of
from faults.campaign import is_shim
from faults.test_plants import planted
from stories.outside import PATIENCE, Running, open_store, processes_of, wait_until
from stories.test_making_room import MovingWorld

# The daemon's own pauses are meant for real drivers.
HASTE = """
    from dibs.engine.launch import suspensions
    suspensions._PAUSE = 0.2
"""
# After each of these a helper can be killed, or stopped; the first three are those of a suspension.
STEPS = ("helper-lock", "helper-stop", "helper-checkpoint", "helper-restore", "helper-continue", "helper-unlock")
POINTS_OF_DAEMONS = (
    ("after-commit:2", "after-commit"),  # the first one is that of `add`
    ("after-move-intent", "after-lease-back"),
    ("after-helper", "after-move-intent"),
    ("after-answer", "after-helper"),
    ("after-move", "after-answer"),
    ("after-move", "after-move"),
)
POINTS_OF_SHIMS = ("helper-begun", *STEPS[:3], "helper-done", *STEPS[3:])
SETTLED = {"running": "running", "suspended": "checkpointed"}  # where the driver must have its process


class SuspensionCampaign:
    """A queue on one card. Its program has a shell above it, which no driver can move."""

    def __init__(self, moving: MovingWorld, *plants: str, patience: float = PATIENCE) -> None:
        self.moving, self.world = moving, moving.world
        self.machine = moving.machine
        self.daemons: list[Running] = []
        self._patience = patience
        self._program = planted(self.world, "".join(map(dedent, (HASTE, *plants))))

    # -- what happens ----------------------------------------------------------------------------------

    def begin(self, fault: str = "", **more: str) -> Running:
        """A daemon, with something that is to happen to it, perhaps before we look."""
        self.world.environ |= {"DIBS_POOL": "0", "DIBS_NO_START": "1"}
        daemon = self.world.start("daemon", "run", program=self._program, env={"DIBS_FAULT": fault, **more})
        self.daemons.append(daemon)
        wait_until(lambda: "listens at" in daemon.stderr or daemon.process.poll(), show=lambda: daemon.stderr)
        return daemon

    def add(self, name: str = "train", *options: str, delays: str = "", count: int = 0, more: str = "") -> int:
        """A program that counts, and ends after so many steps if at all. Returns when it has begun."""
        words = [*self.moving.program(name, self.machine.gigabytes, count), *more.split()]
        for delay in delays.split():
            words += ["--delay", delay]
        job = self.world.add("-J", name, *options, "--", f"{shlex.join(words)}; true")
        if "--urgent" not in options:
            wait_until(lambda: steps(self.moving.ledger(name)))
        return job

    def ask(self, verb: str, job: int) -> None:
        """Ask for it, and do not mind whether the daemon lives to answer."""
        self.world.dibs(verb, str(job), "--no-wait")

    def die(self) -> None:
        """Wait for the daemon that kills itself."""
        assert self.daemons[-1].wait(self._patience).status == -9, self.daemons[-1].stderr

    def helpers(self) -> list[int]:
        return [pid for pid in children_of(self.daemons[-1].pid) if "suspender" in read(f"/proc/{pid}/cmdline")]

    def stopped_helper(self) -> int:
        """The helper, once it has come to the point at which it stops."""

        def stopped() -> list[int]:
            return [pid for pid in self.helpers() if state_of(pid) == "T"]

        return int(wait_until(stopped, show=lambda: self.daemons[-1].stderr)[0])

    def driver_says(self, state: str, name: str = "train") -> bool:
        return [self.machine.state(pid) for pid in self._programs(name)] == [state]

    def program(self, name: str = "train") -> int:
        """The process of this job that uses CUDA."""
        (pid,) = self._programs(name)
        return pid

    def shims(self) -> list[int]:
        return [pid for pid in processes_of(str(self.world.state / "queue" / "control")) if is_shim(pid)]

    def kill_shim(self) -> None:
        """And let whoever looks at its lock see that it is gone."""
        (shim,) = [pid for pid in self.shims() if children_of(pid)]
        os.kill(shim, signal.SIGKILL)
        wait_until(lambda: state_of(shim) in ("", "Z"))

    # -- what is lived through; each returns what there is to complain of --------------------------------

    def live_without_crash(self) -> list[str]:
        self.begin()
        train = self.add()
        return self._suspend(train) or self._resume(train) or self._end(train)

    def kill_daemon_at(self, suspending: str, resuming: str) -> list[str]:
        """It kills itself at these points."""
        self.begin(suspending)
        train = self.add()
        self.ask("suspend", train)
        self.die()
        self.begin(resuming)
        if found := self.complaints(train, "suspended"):
            return found
        self.ask("resume", train)
        self.die()
        self.begin()
        return self.complaints(train, "running") or self._end(train)

    def hurt_helpers(self, how: str = "", delays: str = "") -> list[str]:
        """Each of them does one step, and dies, or hangs. `how` is what DIBS_FAULT has after the point."""
        self.begin("" if delays else ",".join(f"{step}{how}" for step in STEPS))
        train = self.add(delays=delays)
        return self._suspend(train) or self._resume(train) or self._end(train)

    def kill_helpers_at_the_edges(self) -> list[str]:
        """Before their first step or before their answer; and daemons with them, as nobody else knows of it."""
        daemon = self.begin("helper-begun")
        train = self.add()
        self.ask("suspend", train)
        self._let_helpers_die(daemon)
        found = [] if self.driver_says("running") else ["it was touched at once"]
        for verb, state in (("", "suspended"), ("resume", "running")):
            self.daemons[-1].kill()
            daemon = self.begin("helper-done")
            if verb:
                self.ask(verb, train)
            self._let_helpers_die(daemon)
            daemon.kill()
            self.begin()
            if found := found or self.complaints(train, state):
                return found
        return self._end(train)

    def kill_shim_at(self, point: str) -> list[str]:
        """The helper stops there meanwhile. What is left of the job is suspended and goes on without its shim."""
        self.begin(f"{point}:1:stop")
        train = self.add()
        is_resuming = point in STEPS[3:]
        if is_resuming and (found := self._suspend(train)):
            return found
        self.ask("resume" if is_resuming else "suspend", train)
        helper = self.stopped_helper()
        self.kill_shim()
        os.kill(helper, signal.SIGCONT)
        if is_resuming:
            return self.complaints(train, "running") or self._end(train)
        if point == "helper-done":  # and nobody hears of it
            self.daemons[-1].kill()
            self.begin()
        return self.complaints(train, "suspended") or self._resume(train) or self._end(train)

    def live_through_kills(self, chance: random.Random, rounds: int) -> tuple[list[str], Counter[str]]:
        """Who was killed how often, at random moments of suspensions and resumptions.

        Other jobs want the card. They find no memory there beside the first one, nor would it find any.
        """
        killed: Counter[str] = Counter()
        self.begin()
        train = self.add(delays="checkpoint=50 restore=50")
        others = {f"other{number}": self._queue_other(f"other{number}") for number in range(rounds)}
        found: list[str] = []
        for number in range(rounds):
            verb, state = (("suspend", "suspended"), ("resume", "running"))[number % 2]
            self.ask(verb, train)
            time.sleep(chance.uniform(0.0, 0.4))  # a random moment is what is tested here
            killed[self._kill_at_random(chance, may_kill_shim=not killed["shim"] and number > rounds // 2)] += 1
            if sum(holder.share for holder in self.world.holders()) > 1:
                found.append(f"the card is leased twice: {self.world.holders()}")
            if found := found or self.complaints(train, state):
                return found, killed
        self.world.dibs("kill", str(train))
        self.world.dibs("wait", *map(str, others.values()), timeout=10 * PATIENCE)
        for name, job in others.items():
            told = self.moving.job(job)
            if (told["state"], told["attempts"], steps(self.moving.ledger(name))) != ("succeeded", 1, 20):
                found.append(f"job {job} is {told['state']} in attempt {told['attempts']}: {told['message']}")
        return found or self._end(train), killed

    def _queue_other(self, name: str) -> int:
        words = self.moving.program(name, self.machine.gigabytes + 2, 20)
        return self.world.add("-J", name, "--", shlex.join(words))

    def _kill_at_random(self, chance: random.Random, *, may_kill_shim: bool) -> str:
        who = chance.choice(["daemon", "daemon", "helper", "shim" if may_kill_shim else "helper"])
        victims = {
            "daemon": lambda: [self.daemons[-1].pid],
            "helper": self.helpers,
            "shim": lambda: [parent_of(parent_of(self.program()))],
        }[who]()
        for pid in victims[:1]:
            os.kill(pid, signal.SIGKILL)
        if who == "daemon":
            self.daemons[-1].process.wait()
            self.begin()
        return who if victims else "nobody"

    def _suspend(self, job: int) -> list[str]:
        self.ask("suspend", job)
        return self.complaints(job, "suspended")

    def _resume(self, job: int) -> list[str]:
        self.ask("resume", job)
        return self.complaints(job, "running")

    def _end(self, *jobs: int) -> list[str]:
        self.moving.end(*jobs)
        return self.complaints_at_the_end()

    def _let_helpers_die(self, daemon: Running) -> None:
        wait_until(
            lambda: "ended without an answer; it is tried again" in daemon.stderr, show=lambda: daemon.stderr
        )

    # -- the checker -----------------------------------------------------------------------------------

    def complaints(self, job: int, state: str, name: str = "train") -> list[str]:
        """What is wrong with a job that should have come to this state by now, and stay there."""
        until = time.monotonic() + self._patience
        while found := self._complaints_now(job, state, name):
            if time.monotonic() > until:
                return [
                    *found,
                    f"the daemon said {self.daemons[-1].stderr[-500:]}, its helpers are {self.helpers()}",
                ]
            time.sleep(0.02)
        ledger, before = self.moving.ledger(name), steps(self.moving.ledger(name))
        if state == "suspended":
            return [] if stands_still(ledger) else ["it takes steps though it is suspended"]
        with suppress(AssertionError):
            wait_until(lambda: steps(ledger) > before, seconds=self._patience)
        return [] if steps(ledger) > before else ["it takes no step though it runs"]

    def _complaints_now(self, job: int, state: str, name: str) -> list[str]:
        found: list[str] = []
        try:
            told = self.moving.job(job)
        except DibsError as error:  # the machine may be busy with other tests
            return [error.message]
        phase = (told["suspension"] or {"phase": "over"})["phase"]
        if told["state"] != state or phase != ("over" if state == "running" else "suspended"):
            found.append(f"the queue says {told['state']}, its suspension is {phase}")
        if told["attempts"] != 1:
            found.append(f"it was started {told['attempts']} times")
        for pid in self._programs(name):
            if (is_at := self.machine.state(pid)) != SETTLED[state]:
                found.append(f"the driver says {is_at} of process {pid}")
            shell = parent_of(pid)
            if (state_of(shell) == "T") != (state == "suspended"):
                found.append(f"its shell is in the state {state_of(shell)}")
        held, context = self._held(), self.machine.context
        if not held <= self.machine.used <= held + context:
            found.append(f"{self.machine.used} bytes of the card are used, and not {held}")
        shares = {holder.job.partition(" ")[0]: float(holder.share) for holder in self.world.holders()}
        if shares.get(str(job)) != float(state == "running") or sum(shares.values()) > 1:
            found.append(f"the leases say {shares}")
        return found

    def _held(self) -> int:
        """Bytes of the card that all programs should have together."""
        found = 0
        for pid in self._programs(""):
            with suppress(OSError, ValueError):  # it has just ended
                words = read(f"/proc/{pid}/cmdline").split("\0")
                found += int(words[words.index("--bytes") + 1]) * (self.machine.state(pid) != "checkpointed")
        return found

    def _programs(self, name: str) -> list[int]:
        """The CUDA programs of this job that live; without a name, of all of them."""
        words = f"\0{self.machine.program}\0{self.moving.ledger(name)}" + ("\0" if name else "/")
        pids = [int(name) for name in os.listdir("/proc") if name.isdigit()]
        return [pid for pid in pids if words in read(f"/proc/{pid}/cmdline") and state_of(pid) != "Z"]

    def complaints_at_the_end(self) -> list[str]:
        """What is left behind, once every job is over and the daemon stops."""
        self.world.dibs("daemon", "stop")
        with suppress(AssertionError):
            wait_until(lambda: not self.world.processes(), seconds=self._patience)
        found = [f"process {pid} is left: {line}" for pid, line in self.world.processes().items()]
        found += [f"GPU {holder.gpu} is still held" for holder in self.world.holders()]
        if self.machine.used > self.machine.context // 2 and not found:
            found.append(f"{self.machine.used} bytes of the card are used")
        with open_store(self.world.state / "queue") as store:
            (health,) = store.execute("pragma integrity_check").fetchone()
            open_ones = store.execute("select job from attempts where ended_at is null").fetchall()
            moving = store.execute("select job, phase from suspensions where phase != 'over'").fetchall()
        found += [] if health == "ok" else [f"the store is damaged: {health}"]
        found += [f"the attempt of job {job} has no end" for (job,) in open_ones]
        found += [f"a suspension of job {job} is {phase} for ever" for job, phase in moving]
        found += [f"traceback: {one.stderr[-800:]}" for one in self.daemons if "Traceback" in one.stderr]
        return found


def state_of(pid: int) -> str:
    """The letter of /proc; empty where there is no such process."""
    return read(f"/proc/{pid}/stat").rpartition(")")[2].strip()[:1]


def parent_of(pid: int) -> int:
    return int(read(f"/proc/{pid}/stat").rpartition(")")[2].split()[1] or 0)


def read(path: str) -> str:
    with suppress(OSError):
        return Path(path).read_text(errors="replace")
    return ""
