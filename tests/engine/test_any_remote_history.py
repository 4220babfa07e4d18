"""Any history of a queue beside a cluster that forgets, revives and falls silent: nothing lost, nothing twice."""

import shutil
import tempfile
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from dibs.engine.engine import Engine
from dibs.engine.remote.round import run_round
from dibs.engine.remote.state import Strays
from dibs.engine.remote.systems import RemoteSystems
from dibs.errors import StoreUnusable
from dibs.model.jobs import Cause, Outcome, State
from engine.queue_world import a_wish
from engine.remote_world import RemoteWorld
from engine.test_any_history import HISTORIES
from engine.world import Died, a_pool

POINTS = ["after-commit", "after-intent", "before-submit", "after-submit"]


class AnyRemoteHistory(RuleBasedStateMachine):
    """One queue, one cluster, engine after engine."""

    @initialize(most=st.sampled_from([1, 3, 100]))
    def begin(self, most):
        self.folder = Path(tempfile.mkdtemp(prefix="dibs away 'é\n€ "))
        for name in ("leases", "state"):
            (self.folder / name).mkdir()
        self.world = RemoteWorld(
            root=str(self.folder / "state"),
            leases_folder=str(self.folder / "leases"),
            pool=a_pool(1),
            most=most,
        )

    def teardown(self):
        if not hasattr(self, "world"):
            return
        try:
            self._let_everything_end()
        finally:
            self.world.close()
            shutil.rmtree(self.folder, ignore_errors=True)

    # -- people --

    @rule(count=st.integers(1, 4), retries=st.sampled_from([0, 0, 1]), on=st.sampled_from(["slurm", "slurm", ""]))
    def add(self, count, retries, on):
        try:
            self.world.add(*(a_wish("train", on=on, retries=retries) for _ in range(count)))
        except StoreUnusable:
            assert self.world.store.is_full

    @precondition(lambda self: self.world.acknowledged)
    @rule(data=st.data())
    def kill(self, data):
        job = data.draw(st.sampled_from(sorted(self.world.acknowledged)))
        try:
            self.world.do("kill", job)
        except StoreUnusable:
            assert self.world.store.is_full

    @precondition(lambda self: self.world.acknowledged)
    @rule(data=st.data(), verb=st.sampled_from(["hold", "release"]))
    def hold_or_release(self, data, verb):
        job = data.draw(st.sampled_from(sorted(self.world.acknowledged)))
        try:
            self.world.do(verb, job)
        except StoreUnusable:
            assert self.world.store.is_full

    @rule(seconds=st.sampled_from([0.1, 1, 4, 30]))
    def advance(self, seconds):
        self.world.advance(seconds)

    # -- the cluster --

    @precondition(lambda self: self.world.cluster.pending())
    @rule(data=st.data())
    def start(self, data):
        self.world.cluster.start(data.draw(st.sampled_from(self.world.cluster.pending())))

    @precondition(lambda self: self.world.cluster.running())
    @rule(data=st.data(), code=st.sampled_from([0, 0, 1, None]))
    def end(self, data, code):
        there = data.draw(st.sampled_from(self.world.cluster.running()))
        if code is None:
            self.world.cluster.lose(there)
        else:
            self.world.cluster.end(there, code=code)

    @rule()
    def forget(self):
        """The controller was killed within seconds of a submit."""
        for there in self.world.cluster.pending():
            there.is_known = False

    @rule()
    def revive(self):
        """It comes back with what it had long let go."""
        self.world.cluster.revive()

    @rule(is_silent=st.booleans(), is_full=st.booleans())
    def be_in_a_mood(self, is_silent, is_full):
        self.world.cluster.is_silent, self.world.cluster.is_full = is_silent, is_full

    # -- us --

    @rule(is_full=st.booleans())
    def fill_the_disk(self, is_full):
        self.world.store.is_full = is_full

    @rule(point=st.sampled_from(POINTS))
    def crash(self, point):
        self.world.store.is_full = False
        self.world.dies_at = point
        try:
            self.world.add(a_wish("train", on="slurm"))
            self.world.advance(1)
        except Died:
            pass
        self.world.crash()
        self.world.resume()

    # -- the promise --

    @invariant()
    def no_attempt_starts_twice(self):
        if hasattr(self, "world"):
            for there in self.world.cluster.jobs.values():
                assert there.starts <= 1, f"{there.ref.key} was started {there.starts} times"

    @invariant()
    def no_job_starts_more_often_than_its_owner_said(self):
        if not hasattr(self, "world"):
            return
        for job, starts in self.world.cluster.starts().items():
            retries = self.world.store.job(job).request.retries
            assert starts <= 1 + retries, f"job {job} was started {starts} times"

    def _let_everything_end(self):
        world = self.world
        world.store.is_full = world.cluster.is_silent = world.cluster.is_full = False
        world.do("release", *sorted(world.acknowledged))
        world.advance(10)  # some are held here only now, as they were never handed over
        world.do("release", *sorted(world.acknowledged))
        world.run_out()
        assert world.store.open_attempts() == []
        starts = world.cluster.starts()
        for row in world.store.rows(State, -1):
            job = row.job
            assert job.state.is_over, f"job {job.id} is {job.state} for ever"
            if job.request.on and job.state is State.SUCCEEDED:
                assert starts[job.id] >= 1, f"job {job.id} succeeded without having run"
            if row.outcome.cause is Cause.LOST:
                assert starts[job.id] >= 1, f"job {job.id} is lost, but it never ran"
        assert not world.cluster.running()
        world.advance(130)
        assert not world.cluster.known(), "what is over has no place in its queue"
        self.no_job_starts_more_often_than_its_owner_said()


AnyRemoteHistory.TestCase.settings = settings(HISTORIES, stateful_step_count=40)


@pytest.mark.filterwarnings("ignore::hypothesis.errors.HypothesisWarning")
class TestAnyRemoteHistory(AnyRemoteHistory.TestCase):
    """Collected by pytest under its own name."""


# -- each of these was planted, and is found -----------------------------------------------------------


def a_new_attempt_for_what_was_submitted(patch):
    """An engine that comes back believes that what it had handed over never was, and begins another attempt."""

    resume = Engine.resume

    def give_up(self):
        store = self.store
        with store.turn():
            for _, attempt in store.open_attempts():
                store.end_attempt(attempt, Outcome(cause=Cause.LOST, message="forgotten"), 0.0, None)
        resume(self)

    patch.setattr(Engine, "resume", give_up)


def forgotten_after_a_failed_turn(patch):
    """Whatever the rounds had found before the disk was full is not looked at again."""
    findings = RemoteSystems.findings

    def find_and_forget(self, remote, now):
        found = findings(self, remote, now)
        self.recorded(found, now)
        return found

    patch.setattr(RemoteSystems, "findings", find_and_forget)


def nothing_is_cancelled(patch):
    """What was killed goes on over there."""

    def deaf(backend, plan):
        return run_round(backend, replace(plan, stop=(), kill=()))

    patch.setattr("dibs.engine.remote.systems.run_round", deaf)


def left_in_its_queue(patch):
    """What the cluster brings back is not looked at."""
    patch.setattr(Strays, "consider", lambda self, seen, is_over, now: [])


@pytest.mark.parametrize(
    "plant",
    [
        a_new_attempt_for_what_was_submitted,
        forgotten_after_a_failed_turn,
        nothing_is_cancelled,
        left_in_its_queue,
    ],
)
def test_a_planted_bug_is_found(plant, monkeypatch):
    plant(monkeypatch)
    history = AnyRemoteHistory()
    with pytest.raises(AssertionError):
        history.begin(most=3)
        try:
            _one_history(history)
        finally:
            history.teardown()


def _one_history(history: AnyRemoteHistory) -> None:
    """A short one in which each of the plants matters."""
    world, cluster = history.world, history.world.cluster
    first, second = world.add(a_wish("one", on="slurm"), a_wish("two", on="slurm"))
    world.advance(1)
    cluster.start(cluster.pending()[0])
    world.advance(4)
    world.store.is_full = True
    cluster.end(cluster.running()[0], code=0)
    world.advance(4)
    world.store.is_full = False
    world.advance(10)
    assert world.state(first.id) == "succeeded"
    world.crash()
    world.resume()
    world.advance(4)
    assert world.state(second.id) == "submitted"
    world.do("kill", second.id)
    world.advance(10)
    assert world.state(second.id) == "cancelled"
    cluster.revive()
