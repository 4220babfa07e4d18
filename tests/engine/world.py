"""A machine without processes: the engine, the store and the leases are real, shims and the clock are not.

What lives on when an engine dies (commands, shims, their locks) is in the `Machine`; the `World` puts an engine on
it, lets it die and puts the next one there.
"""

import os
import sqlite3
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from errno import EEXIST, ENOSPC
from fractions import Fraction
from typing import Any

from dibs.backends.local import Leftovers, LocalBackend, WithoutShim, observed
from dibs.backends.protocol import AttemptRef, LocalInputs, Observed, Submission, Submitted
from dibs.engine.engine import Engine, EngineLimits
from dibs.engine.launch.launcher import Place
from dibs.engine.queue.run_list import RunList
from dibs.engine.watch.cards import Cards
from dibs.engine.watch.metering import Meters
from dibs.foreground.results import InAttemptFolders
from dibs.leases.leases import Busy, Lease, Leases
from dibs.model.events import Ended, Event, Queued, Refused, Skipped, Started, Trouble, Waits
from dibs.model.gpus import Card, Claim, Gpu, Pool, declared_key
from dibs.model.jobs import Command, Job, JobId, Outcome, Request, State, Wishes
from dibs.policy.outcomes import Limits
from dibs.store.recorder import Recorder
from dibs.store.store import Store
from dibs.supervise.folder import AttemptFacts, identity_in
from dibs.supervise.orphans import LeftProcess

NOON = 1_000_000.0


def a_request(
    text: str = "train",
    *,
    gpus: int = 1,
    share: str | None = None,
    retries: int = 0,
    restartable: bool = False,
    priority: int = 0,
) -> Request:
    return Request(
        command=Command.line(text),
        wishes=Wishes(num_gpus=gpus, share=None if share is None else Fraction(share)),
        retries=retries,
        restartable=restartable,
        priority=priority,
    )


def a_pool(*slots: int, groups: Sequence[tuple[int, ...]] = ()) -> Pool:
    """One card for each number: how many slots it has."""
    cards = tuple(
        Card(gpu=Gpu(key=declared_key(index), index=index), slots=count) for index, count in enumerate(slots)
    )
    return Pool(cards=cards, groups=tuple(tuple(declared_key(index) for index in group) for group in groups))


# -- the machine ---------------------------------------------------------------------------------------


@dataclass
class Run:
    """One run of a command, as its folder and the kernel know it."""

    job: JobId
    identity: dict[str, Any]
    claims: tuple[Claim, ...]
    epoch: int  # how many engines there had been
    shim: int  # its pid
    has_folder: bool = True
    has_shim: bool = True
    is_alive: bool = True  # the command
    record: dict[str, Any] | None = None
    stands_still: bool = False  # suspended: its cards are free
    said_goodbye: bool = False  # its shim told the engine that nothing is left
    locks: list[int] = field(default_factory=list)  # of its leases
    watchers: list[Callable[[], None]] = field(default_factory=list)


class Machine:
    """The commands that run under any engine. Raises when a GPU is given away twice.

    Commands end when the test ends them, or with `obeys` when they are cancelled. To submit an attempt twice is an
    error, unless the test says `may_repeat`.
    """

    def __init__(self, *, obeys: bool = False, may_repeat: bool = False) -> None:
        self.obeys = obeys
        self.may_repeat = may_repeat
        self.runs: dict[str, Run] = {}  # by folder: the last one there
        self.blank: dict[str, dict[str, Any]] = {}  # by folder: whose blank record is there
        self.ledger: list[Run] = []  # every command that was started
        self.epoch = 0
        self.false_starts = 0  # so many shims are still going to die before they start anything
        self.refuses = ""  # why no folder can be made, where that is so

    def prepare(self, folder: str, spec: dict[str, Any]) -> None:
        """Make the folder with its blank record."""
        if self.refuses:
            raise OSError(ENOSPC, self.refuses)
        if folder in self.runs:
            raise FileExistsError(EEXIST, "this attempt was started before", folder)
        self.blank[folder] = identity_in(spec)

    def start(self, ref: AttemptRef, claims: tuple[Claim, ...], local: LocalInputs) -> None:
        if ref.folder in self.runs:
            assert self.may_repeat, f"{ref.folder} is started twice"
            local.when_done()
            return
        if self.false_starts:
            self.false_starts -= 1
            local.when_done()
            return
        identity = self.blank.pop(ref.folder)
        run = Run(JobId(int(ref.key)), identity, claims, self.epoch, shim=len(self.runs))
        self.runs[ref.folder] = run
        run.locks = [os.dup(fd) for fd in local.leases]  # a copy of a lock is the lock, as it is for a child
        run.watchers.append(local.when_done)
        self.ledger.append(run)
        self.check_overlap()

    def check_overlap(self) -> None:
        """No GPU is given to more commands than fit."""
        taken: Counter[str] = Counter()
        for run in self.ledger:
            for claim in run.claims if run.is_alive and not run.stands_still else ():
                taken[claim.gpu] += claim.share  # type: ignore[assignment]
        assert all(share <= 1 for share in taken.values()), f"given twice: {dict(taken)}"

    def facts(self, folder: str) -> AttemptFacts:
        if folder in self.blank:
            return AttemptFacts(is_locked=False, record=None, has_started=False, identity=self.blank[folder])
        run = self.runs.get(folder)
        if run is None or not run.has_folder:
            return AttemptFacts(is_locked=False, record=None, has_started=True, damage="its record is gone")
        record = run.record or {"state": "running", "shim": run.shim}
        return AttemptFacts(is_locked=run.has_shim, record=record, has_started=True, identity=run.identity)

    def is_reported(self, folder: str) -> bool:
        """Whether the shim told this engine that nothing is left; an engine that dies forgets it."""
        run = self.runs.get(folder)
        return run is not None and run.said_goodbye and run.epoch == self.epoch

    def alive(self, job: JobId | None = None) -> list[Run]:
        return [run for run in self.ledger if run.is_alive and job in (None, run.job)]

    def starts(self, job: JobId) -> int:
        return sum(run.job == job for run in self.ledger)

    def end(
        self,
        run: Run,
        *,
        code: int | None = None,
        signal: int | None = None,
        by: str = "",
        seconds: float = 1.0,
        checkpointed: bool = False,
    ) -> None:
        """The command ends; its shim writes that down."""
        run.is_alive = False
        self._unlock(run)
        if run.has_shim:
            how = {"code": code, "signal": signal, "by": by, "seconds": seconds}
            run.record = {"state": "ended", "shim": run.shim, **how}
            run.record |= {"checkpointed": True} if checkpointed else {}
            run.said_goodbye = True
        self.kill_shim(run)

    def kill_shim(self, run: Run) -> None:
        """The command lives on, if it did."""
        run.has_shim = False
        watchers, run.watchers = run.watchers, []
        for tell in watchers:
            tell()

    def forget_engine(self) -> None:
        """The engine was killed: nothing is told to it any more."""
        for run in self.runs.values():
            run.watchers.clear()

    def stop(self) -> None:
        """A power cut."""
        for run in self.ledger:
            run.is_alive = run.has_shim = False
            run.watchers.clear()
            self._unlock(run)

    def _unlock(self, run: Run) -> None:
        while run.locks:
            os.close(run.locks.pop())


class FakeBackend(LocalBackend):
    """The local backend over a machine without processes. What was asked of its attempts is in `told`."""

    def __init__(self, machine: Machine, claims_of: Callable[[AttemptRef], tuple[Claim, ...]]) -> None:
        self._machine = machine
        self._claims_of = claims_of
        self.told: list[tuple[JobId, str]] = []

    def make_ready(self) -> None: ...

    def close(self) -> None: ...

    def prepare(self, one: Submission) -> None:
        self._machine.prepare(one.ref.folder, one.spec)

    def close_prepared(self) -> None: ...

    def submit(self, submissions: Sequence[Submission]) -> Submitted:
        refs = [one.ref for one in submissions]
        for one in submissions:
            if one.ref.folder not in self._machine.blank and one.ref.folder not in self._machine.runs:
                self.prepare(one)
            self._machine.start(one.ref, self._claims_of(one.ref), one.local or LocalInputs(lambda: None))
        return Submitted(accepted=frozenset(refs))

    def watch(self, ref: AttemptRef, when_done: Callable[[], None]) -> bool:
        run = self._machine.runs.get(ref.folder)
        if run is None or not run.has_shim:
            return False
        run.watchers.append(when_done)
        return True

    def cancel(self, refs: Sequence[AttemptRef], *, insist: bool = False) -> frozenset[AttemptRef]:
        self.told += [(JobId(int(ref.key)), "kill" if insist else "stop") for ref in refs]
        for ref in refs if self._machine.obeys else ():
            self._machine.end(self._machine.runs[ref.folder], signal=15, by="stop")
        return frozenset(refs)

    def signal(self, ref: AttemptRef, number: int) -> bool:
        self.told.append((JobId(int(ref.key)), f"signal {number}"))
        return True

    def observe(self, refs: Sequence[AttemptRef]) -> dict[AttemptRef, Observed]:
        machine = self._machine
        seen = {ref: observed(machine.facts(ref.folder), ref) for ref in refs}
        return {
            ref: replace(one, may_linger=one.may_linger and not machine.is_reported(ref.folder))
            for ref, one in seen.items()
        }

    def look_after(self, attempts: Sequence[WithoutShim]) -> dict[AttemptRef, Leftovers]:
        return {one.ref: self._left_of(one) for one in attempts}

    def _left_of(self, one: WithoutShim) -> Leftovers:
        run = self._machine.runs.get(one.ref.folder)
        is_left = run is not None and run.is_alive and not run.has_shim
        processes = (LeftProcess(4711, "python", 1, 0, is_ours=True),) if is_left else ()
        return Leftovers(processes, one.holds_gpu)

    def forget_folders(self, folders: Sequence[str]) -> None: ...

    def recycle(self, ref: AttemptRef) -> bool:
        run = self._machine.runs.get(ref.folder)
        assert run is None or not run.has_shim, "a folder is used again only after its shim"
        return True


# -- what is real, with a handle for tests -------------------------------------------------------------


class RemembersLeases(Leases):
    """Knows every lease it gave, so that a crash can close them as the kernel would."""

    given: list[Lease]

    def take(self, claims, *, job, folder, since) -> Lease | Busy:
        taken = super().take(claims, job=job, folder=folder, since=since)
        if isinstance(taken, Lease):
            self.given = [lease for lease in getattr(self, "given", []) if lease.fds] + [taken]
        return taken

    def find(self, claims) -> dict[str, Lease]:
        found = super().find(claims)
        self.given = [*getattr(self, "given", []), *found.values()]
        return found

    def die(self) -> None:
        self.close()
        for lease in getattr(self, "given", []):
            lease.close()


class FailingStore(Store):
    """A store whose disk can be full."""

    is_full = False

    @contextmanager
    def turn(self) -> Iterator[None]:
        with super().turn():
            yield
            if self.is_full:
                raise sqlite3.OperationalError("database or disk is full")


class Died(BaseException):
    """kill -9 at a named point."""


@dataclass
class World:
    """A machine, a state folder, and one engine after the other."""

    root: str
    leases_folder: str
    pool: Pool = field(default_factory=lambda: a_pool(1))
    machine: Machine = field(default_factory=Machine)
    most_without_gpu: int = 2
    most_failures: int = sys.maxsize
    limits: Limits | None = None
    boot_id: str = "the first boot"
    now: float = NOON
    events: list[Event] = field(default_factory=list)
    acknowledged: dict[JobId, Request] = field(default_factory=dict)
    foreign: set[int] = field(default_factory=set)  # pids of programs that no dibs knows
    dies_at: str = ""
    is_doubted: bool = False  # what shows no start may have run all the same: a reboot, or lost files
    clock_is_off: float = 0.0  # seconds by which the wall clock was set
    retried: Counter[JobId] = field(default_factory=Counter)  # how often a retry was asked for
    results: InAttemptFolders = field(default_factory=InAttemptFolders)

    def __post_init__(self) -> None:
        self.open()

    # -- engines --

    def open(self) -> None:
        self.turn_is_due = False
        self.machine.epoch += 1
        self.store = self.open_store()
        self.leases = RemembersLeases(self.leases_folder, uid=os.geteuid(), user="tester")
        self.backend = FakeBackend(self.machine, self._claims_of)
        self.cards = Cards(self.pool, is_ours=lambda pid: pid not in self.foreign, is_alive=lambda pid: True)
        self.place = Place(root=self.root, boot_id=self.boot_id, run="test", umask=0o022, workdir="/")
        self.engine = Engine(
            store=self.store,
            backend=self.backend,
            leases=self.leases,
            cards=self.cards,
            results=self.results,
            place=self.place,
            announce=self.events.extend,
            ask_for_turn=self._ask_for_turn,
            clock=self._clock,
            ticks=lambda: self.now,
            reach=self._reach,
            **self.parts(),
        )
        self.make_list()

    def parts(self) -> dict[str, Any]:
        """What else the engine is built with."""
        return {
            "recorder": Recorder(self.store),
            "meters": Meters(lambda: self.now),
            "limits": EngineLimits(
                stop_rules=self.limits,
                most_without_gpu=self.most_without_gpu,
                most_failures=self.most_failures,
            ),
        }

    def _clock(self) -> float:
        return self.now + self.clock_is_off

    def open_store(self) -> FailingStore:
        return FailingStore(f"{self.root}/store.db", is_list=True)

    def make_list(self) -> None:
        self.list = RunList(self.engine)
        self.environment = self.list.capture({"HOME": "/"})

    def lose_folder(self, job: JobId) -> None:
        """The folder of its attempt is deleted."""
        self.is_doubted = True
        self._run_of(job).has_folder = False

    def crash(self) -> None:
        """kill -9 of the engine: what the kernel would close is closed, nothing is announced."""
        self.leases.die()
        self.store.close()
        self.machine.forget_engine()
        self.dies_at = ""

    def resume(self, *, with_list: bool = False) -> None:
        """A new engine over what the last one left."""
        self.open()
        self.list.resume()
        if not with_list:
            self.list.queue_leftovers()
        self.settle_down()

    def reboot(self, *, with_list: bool = False) -> None:
        self.crash()
        self.machine.stop()
        self.boot_id = f"another than {self.boot_id}"
        self.is_doubted = True
        self.resume(with_list=with_list)

    def close(self) -> None:
        self.machine.stop()
        self.leases.die()
        self.store.close()

    # -- acts --

    def submit(self, *requests: Request | tuple[Request, str]) -> list[Job]:
        """Submit and let the engine act."""
        jobs = self.list.submit(requests, self.environment)
        for job, request in zip(jobs, requests, strict=True):
            self.acknowledged[job.id] = request[0] if isinstance(request, tuple) else request
        self.settle_down()
        return jobs

    def settle_down(self) -> None:
        """Turn as long as a turn is asked for."""
        for _ in range(100):
            if not self.turn_is_due:
                return
            self.turn()
        raise AssertionError("the engine turns for ever")

    def turn(self) -> None:
        self.turn_is_due = False
        self.engine.turn()

    def advance(self, seconds: float) -> None:
        """Let time pass, waking the engine whenever it wants to be woken."""
        until = self.now + seconds
        for _ in range(1000):
            wake_at = self.engine.wake_at
            if wake_at is None or wake_at - self.clock_is_off > until:
                self.now = until
                return
            self.now = max(self.now, wake_at - self.clock_is_off)
            self.turn()
            self.settle_down()
        raise AssertionError("the engine wants to be woken for ever")

    def end(self, job: Job | JobId, **how: Any) -> None:
        """The job's command ends: `code=`, `signal=`, `by=`."""
        self.machine.end(self._run_of(job), **(how or {"code": 0}))
        self.settle_down()

    def kill_shim(self, job: Job | JobId, *, command_too: bool = True) -> None:
        run = self._run_of(job)
        if command_too:
            run.is_alive = False
            self.machine._unlock(run)
        self.machine.kill_shim(run)
        self.settle_down()

    def run_out(self) -> None:
        """Let everything come to its end."""
        for _ in range(1000):
            if self.engine.is_idle:
                return
            for run in self.machine.alive():
                self.machine.end(run, code=0)
            self.settle_down()
            self.advance(61)
        raise AssertionError(f"never comes to its end: {self.states()}")

    # -- questions --

    def states(self) -> dict[JobId, State]:
        return {number: self.store.job(number).state for number in self.acknowledged}

    def outcome(self, job: Job | JobId) -> Outcome | None:
        number = job.id if isinstance(job, Job) else job
        return next(row.outcome for row in self.store.rows(State, -1) if row.job.id == number)

    def running(self) -> list[JobId]:
        return sorted(run.job for run in self.machine.alive())

    def told(self, *kinds: type) -> list[tuple[str, Any]]:
        """What was announced since the last time, in few words."""
        events, self.events[:] = list(self.events), []
        return [_in_few_words(event) for event in events if not kinds or isinstance(event, kinds)]

    def _claims_of(self, ref: AttemptRef) -> tuple[Claim, ...]:
        one = self.engine.state.open.get((JobId(int(ref.key)), ref.attempt))
        return () if one is None else one.attempt.claims  # None: started before it was recorded, a planted bug

    def _run_of(self, job: Job | JobId) -> Run:
        (run,) = self.machine.alive(job.id if isinstance(job, Job) else job)
        return run

    def _ask_for_turn(self) -> None:
        self.turn_is_due = True

    def _reach(self, point: str) -> None:
        if point == self.dies_at:
            raise Died(point)


def _in_few_words(event: Event) -> tuple[str, Any]:
    match event:
        case Started(job, attempt, adopted=adopted):
            return ("adopted" if adopted else "started", (job.id, [claim.index for claim in attempt.claims]))
        case Ended(job, _, outcome, retry_at):
            return ("ended", (job.id, str(outcome.state), retry_at))
        case Waits(job, reason):
            return ("waits", (job.id, reason.sentence))
        case Trouble(sentence):
            return ("trouble", sentence)
        case Queued(job) | Skipped(job) | Refused(job):
            return (type(event).__name__.lower(), job.id)
    raise AssertionError(event)
