"""Any history of a queue, with people who change their minds and crashes anywhere: the promise holds."""

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import invariant, precondition, rule

from dibs.errors import BadInput, Conflict, StoreUnusable
from dibs.model.jobs import ArrayTask, JobId, State
from engine.queue_world import QueueWorld, a_wish
from engine.test_any_history import HISTORIES, AnyHistory

WISHES = st.builds(
    a_wish,
    gpus=st.sampled_from([0, 1, 1, 1, 2]),
    share=st.sampled_from([None, None, "1/2"]),
    retries=st.sampled_from([0, 0, 1]),
    restartable=st.booleans(),
    priority=st.sampled_from([0, 0, 1]),
    project=st.sampled_from(["", "a", "b"]),
    hold=st.sampled_from([False, False, True]),
    time_limit=st.sampled_from([None, None, 30.0]),
    array=st.sampled_from([None, None, ArrayTask(JobId(0), 1, 1), ArrayTask(JobId(0), 2, 1)]),
)


class AnyQueueHistory(AnyHistory):
    """The same machine, with a daemon's queue."""

    world_of = QueueWorld

    def __init__(self):
        super().__init__()
        self.killed = {}  # how often it had been started when it was killed

    @invariant()
    def what_was_killed_is_not_started_again(self):
        for job, starts in self.killed.items():
            assert self.world.machine.starts(job) == starts, f"job {job} was killed and started again"

    @rule(requests=st.lists(WISHES, min_size=1, max_size=4), data=st.data())
    def submit(self, requests, data):
        known = list(self.world.acknowledged)
        if known and data.draw(st.booleans()):
            needed = {data.draw(st.sampled_from(known)): data.draw(st.sampled_from(["ok", "any", "fail"]))}
            requests = [a_wish("follower", after=needed)]
        try:
            self.world.add(*requests)
        except StoreUnusable:
            assert self.world.store.is_full
        except BadInput:
            pass  # wider than the machine, or after what ended otherwise

    def _some(self, data, *states):
        jobs = [number for number, state in self.world.states().items() if not states or state in states]
        return data.draw(st.sampled_from(jobs)) if jobs else None

    @precondition(lambda self: self.world.acknowledged)
    @rule(data=st.data(), verb=st.sampled_from(["kill", "hold", "release"]))
    def change_a_job(self, data, verb):
        try:
            self.world.do(verb, self._some(data))
        except StoreUnusable:
            assert self.world.store.is_full

    @precondition(lambda self: self.world.acknowledged)
    @rule(data=st.data())
    def kill_some(self, data):
        jobs = data.draw(st.lists(st.sampled_from(list(self.world.acknowledged)), min_size=1, unique=True))
        try:
            self.world.do("kill", *jobs)
        except StoreUnusable:
            assert self.world.store.is_full
            return
        for job in jobs:
            self.killed[job] = self.world.machine.starts(job)

    @precondition(lambda self: self.world.acknowledged)
    @rule(data=st.data())
    def retry_what_did_not_succeed(self, data):
        job = self._some(data, State.FAILED, State.CANCELLED, State.LOST, State.TIMED_OUT)
        if job is None:
            return
        try:
            for changed in self.world.do("retry", job).jobs:
                self.world.retried[changed] += 1
                self.killed.pop(changed, None)
        except StoreUnusable:
            assert self.world.store.is_full

    @precondition(lambda self: self.world.acknowledged)
    @rule(data=st.data(), place=st.sampled_from(["top", "before", "behind"]))
    def move_a_job(self, data, place):
        job, other = self._some(data), self._some(data)
        try:
            self.world.queue.edit(job, **{place: True if place == "top" else other})
        except Conflict:
            pass
        except StoreUnusable:
            assert self.world.store.is_full
        self.world.settle_down()

    @rule(project=st.sampled_from(["", "a"]), is_paused=st.booleans())
    def pause_or_not(self, project, is_paused):
        try:
            (self.world.queue.pause if is_paused else self.world.queue.unpause)(project)
        except StoreUnusable:
            assert self.world.store.is_full
        self.world.settle_down()

    @rule(is_drained=st.booleans())
    def drain_or_not(self, is_drained):
        try:
            (self.world.queue.pool.drain if is_drained else self.world.queue.pool.undrain)(["0"])
        except StoreUnusable:
            assert self.world.store.is_full
        self.world.settle_down()

    @precondition(lambda self: self.world.acknowledged)
    @rule(data=st.data())
    def ask_why(self, data):
        """Every waiting job has a reason, and so has one that runs without its shim."""
        number = self._some(data)
        reason = self.world.queue.why(number).reason
        job = self.world.store.job(number)
        is_orphaned = job.state is State.RUNNING and self.world.engine.left_behind(job) is not None

        assert (reason is not None) == (job.state in (State.QUEUED, State.HELD) or is_orphaned)

    def let_everything_start(self):
        self.world.queue.unpause()
        self.world.queue.unpause("a")
        self.world.queue.pool.undrain(["0"])

    def let_everything_end(self):
        world = self.world
        self.let_everything_start()
        for _ in range(len(world.acknowledged) + 1):
            held = [number for number, state in world.states().items() if state is State.HELD]
            world.do("release", *held)
            world.run_out()


AnyQueueHistory.TestCase.settings = settings(HISTORIES, stateful_step_count=40)


@pytest.mark.filterwarnings("ignore::hypothesis.errors.HypothesisWarning")
class TestAnyQueueHistory(AnyQueueHistory.TestCase):
    """Collected by pytest under its own name."""
