"""A world with a cluster beside it: another system without processes, which may forget, revive and fall silent.

Its commands pass a fence, as the real shims do (`supervise/fence.py`); that a real system keeps the same contract
is what tests/contracts/test_backend_verbs.py is for.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from dibs.backends.protocol import (
    AttemptRef,
    BackendProspect,
    Identity,
    Node,
    Observed,
    Phase,
    Resources,
    Submission,
    Submitted,
)
from dibs.engine.remote.state import RemoteSystem
from dibs.engine.remote.systems import RemoteSystems
from dibs.errors import BackendRefused, BackendSilent
from dibs.model.jobs import Cause, JobId
from dibs.worker_thread import WorkerThread
from engine.queue_world import QueueWorld

ENDED = {"v": 1, "state": "ended"}


@dataclass
class There:
    """One attempt over there."""

    ref: AttemptRef
    is_known: bool = True  # to the other system's controller
    is_running: bool = False
    is_held: bool = False
    is_fenced: bool = False  # a shim has passed the fence, or it was closed
    record: dict[str, Any] | None = None
    cause: Cause | None = None  # what the other system says of its end
    starts: int = 0

    @property
    def job(self) -> JobId:
        """Of an array's element the array's."""
        return JobId(int(self.ref.key.split("-")[1].split("_")[0]))


@dataclass
class Cluster:
    """What lives on when an engine dies."""

    jobs: dict[tuple[str, int], There] = field(default_factory=dict)
    is_silent: bool = False
    refuses: str = ""
    is_full: bool = False
    bug: str = ""  # what falls out of the next looks
    submits: int = 0
    holds: int = 0
    looks: int = 0
    avoided: list[tuple[str, ...]] = field(default_factory=list)
    taken_out: list[Identity] = field(default_factory=list)
    is_deaf: bool = False  # nothing that is taken out goes
    _asked: frozenset[Identity] = frozenset()

    # -- the verbs --

    def nodes(self) -> Sequence[Node]:
        self._answer()
        return [Node(name="n1", state="idle", is_usable=True)]

    def check(self, wanted: Resources) -> BackendProspect:
        self._answer()
        if self.refuses:
            raise BackendRefused(self.refuses)
        return BackendProspect(sentence="it would start now")

    def submit(self, submissions: Sequence[Submission]) -> Submitted:
        self._answer()
        self.submits += 1
        refs = [one.ref for one in submissions]
        if self.refuses:
            return Submitted(refused={ref: BackendRefused(self.refuses, remedy="try") for ref in refs})
        if self.is_full:
            return Submitted(put_off=dict.fromkeys(refs, "the cluster is full"))
        for one in submissions:
            self.avoided.append(one.wanted.avoid)
            there = self.jobs.setdefault((one.ref.key, one.ref.attempt), There(one.ref))
            there.is_held = there.is_held and there.is_known
            there.is_known = there.is_known or not there.is_fenced
        return Submitted(accepted=frozenset(refs))

    def make_ready(self) -> None: ...

    def watch(self, ref: AttemptRef, when_done: Callable[[], None]) -> bool:
        return False

    def cancel(self, refs: Sequence[AttemptRef], *, insist: bool = False) -> frozenset[AttemptRef]:
        self._answer()
        for ref in refs:
            there = self.jobs.setdefault((ref.key, ref.attempt), There(ref, is_known=False))
            if there.is_running:
                self.end(there, by="stop", signal=15)
            elif not there.is_fenced:
                there.is_fenced, there.is_known = True, False
                there.record = {**ENDED, "by": "stop", "message": "cancelled before it started"}
        return frozenset(refs)

    def hold(self, refs: Sequence[AttemptRef], *, release: bool = False) -> None:
        self._answer()
        for ref in refs:
            self.jobs[(ref.key, ref.attempt)].is_held = not release
            self.holds += 1

    def observe(self, refs: Sequence[AttemptRef]) -> Mapping[AttemptRef, Observed]:
        self._answer()
        self.looks += 1
        if self.bug:
            raise ValueError(self.bug)
        self._asked = frozenset((ref.key, ref.attempt) for ref in refs)
        return {ref: self._observe(self.jobs.get((ref.key, ref.attempt))) for ref in refs}

    def strays(self, mark: str) -> Sequence[Identity]:
        return [one for one in self.known() if one not in self._asked and one[0].startswith(f"{mark}-")]

    def remove_strays(self, strays: Sequence[Identity]) -> None:
        self._answer()
        self.taken_out += strays
        for one in () if self.is_deaf else strays:
            there = self.jobs[one]
            if there.is_running:
                self.end(there, by="outside", signal=15)
            there.is_known = False

    def _observe(self, there: There | None) -> Observed:
        if there is None or (not there.is_known and not there.is_fenced):
            return Observed(phase=Phase.LOST, reason="forgotten", never_started=True)
        if there.is_running:
            return Observed(phase=Phase.RUNNING, node="n1", gpus="0")
        if there.record is not None:
            return Observed(phase=Phase.ENDED, record=there.record, node="n1", cause=there.cause)
        if there.is_fenced:
            return Observed(phase=Phase.LOST, reason="Slurm says NODE_FAIL", node="n1")
        return Observed(
            phase=Phase.QUEUED, reason="others come first", is_held=there.is_held, expected_start=1_000_500.0
        )

    def _answer(self) -> None:
        if self.is_silent:
            raise BackendSilent("cannot reach the controller: no answer", remedy="`scontrol ping` shows more")

    # -- what happens there --

    def pending(self) -> list[There]:
        """What it may start."""
        waiting = [one for one in self.jobs.values() if one.is_known and not one.is_running and not one.is_fenced]
        return [one for one in waiting if not one.is_held]

    def known(self) -> list[Identity]:
        """Whatever its queue shows."""
        return [one for one, there in self.jobs.items() if there.is_known]

    def revive(self) -> None:
        """The controller comes back with what it had let go. The fence stops whatever passed it before."""
        for there in self.jobs.values():
            there.is_known = True

    def running(self) -> list[There]:
        return [one for one in self.jobs.values() if one.is_running]

    def start(self, there: There) -> None:
        there.is_fenced = there.is_running = True
        there.starts += 1

    def end(self, there: There, *, code: int | None = None, signal: int | None = None, by: str = "") -> None:
        there.is_running = there.is_known = False
        there.record = {**ENDED, "code": code, "signal": signal, "by": by, "seconds": 1.0}

    def lose(self, there: There) -> None:
        """Its node is gone, and with it the shim that would have recorded its end."""
        there.is_running = there.is_known = False

    def starts(self) -> Counter[JobId]:
        """How often each job's command was started, over all its attempts."""
        found: Counter[JobId] = Counter()
        for one in self.jobs.values():
            found[one.job] += one.starts
        return +found


class FakeThread(WorkerThread):
    """Keeps the work until the test does it."""

    def __init__(self, work: list[Callable[[], None]]) -> None:
        self._pending = work

    def submit(self, work: Callable[[], Any], done: Callable[[Any], Any]) -> bool:
        self._pending.append(lambda: done(work()))
        return True

    def stop(self) -> None: ...


@dataclass
class RemoteWorld(QueueWorld):
    """A daemon's queue with a cluster."""

    cluster: Cluster = field(default_factory=Cluster)
    most: int = 100
    why_no_image: str = ""
    shared: str = ""  # the folder that the cluster sees; empty: the engine's own

    def parts(self) -> dict[str, Any]:
        self.beside: list[Callable[[], None]] = []  # what waits for its turn on the other thread

        seen = replace(self.place, root=self.shared or self.place.root)
        slurm = RemoteSystem(
            title="Slurm",
            backend=self.cluster,
            place=seen,
            most=self.most,
            every=3.0,
            why_no_image=self.why_no_image,
        )
        remote = RemoteSystems(
            store=self.store,
            results=self.results,
            place=self.place,
            systems={"slurm": slurm},
            mark="q1",
            start_thread=lambda name: FakeThread(self.beside),
            ask_for_turn=self._ask_for_turn,
            reach=self._reach,
            clock=self._clock,
        )
        return super().parts() | {"remote": remote}

    def settle_down(self) -> None:
        for _ in range(100):
            super().settle_down()
            if not self.beside:
                return
            self.beside.pop(0)()
        raise AssertionError("the rounds never end")

    def run_out(self) -> None:
        for _ in range(1000):
            if self.engine.is_idle:
                return
            for there in self.cluster.pending():
                self.cluster.start(there)
            self.advance(4)
            for there in self.cluster.running():
                self.cluster.end(there, code=0)
            for run in self.machine.alive():
                self.machine.end(run, code=0)
            self.settle_down()
            self.advance(61)
        raise AssertionError(f"never comes to its end: {self.states()}")
