"""Any history, in any order, with crashes anywhere: the promise holds."""

import os
import shutil
import tempfile
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from dibs.errors import StoreUnusable
from dibs.model.jobs import Command
from engine.invariants import check_at_the_end, check_now
from engine.world import Died, World, a_pool, a_request
from examples import examples

REQUESTS = st.builds(
    a_request,
    gpus=st.sampled_from([0, 1, 1, 1, 2, 3]),
    share=st.sampled_from([None, None, "1/2", "1/3"]),
    retries=st.sampled_from([0, 0, 1, 2]),
    restartable=st.booleans(),
    priority=st.sampled_from([0, 0, 1]),
)

HISTORIES = settings(
    max_examples=examples(60),
    stateful_step_count=30,
    deadline=None,
    report_multiple_bugs=False,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)


class AnyHistory(RuleBasedStateMachine):
    """One machine, one store, engine after engine."""

    world_of = World

    @initialize(slots=st.sampled_from([(1,), (2, 1), (1, 1), (3,)]))
    def begin(self, slots):
        self.last = 0
        self.folder = Path(tempfile.mkdtemp(prefix="dibs engine 'é\n€ "))
        (self.folder / "leases").mkdir()
        (self.folder / "state").mkdir()
        self.world = self.world_of(
            root=str(self.folder / "state"), leases_folder=str(self.folder / "leases"), pool=a_pool(*slots)
        )

    @rule(requests=st.lists(REQUESTS, min_size=1, max_size=4))
    def submit(self, requests):
        # Each text once: the same text in another engine would be the same job, asked for again.
        self.last += len(requests)
        texts = [f"job {self.last - number}" for number in range(len(requests))]
        requests = [replace(one, command=Command.line(text)) for one, text in zip(requests, texts, strict=True)]
        try:
            self.world.submit(*requests)
        except StoreUnusable:
            assert self.world.store.is_full

    @rule(seconds=st.sampled_from([0.05, 0.6, 3, 30]))
    def advance(self, seconds):
        self.world.advance(seconds)

    @rule()
    def turn(self):
        self.world.turn()
        self.world.settle_down()

    @precondition(lambda self: self.world.machine.alive())
    @rule(
        data=st.data(),
        how=st.sampled_from([{"code": 0}, {"code": 1}, {"signal": 9}, {"code": 0, "by": "time"}]),
        is_full=st.sampled_from([False, False, True]),
    )
    def end_a_job(self, data, how, is_full):
        run = data.draw(st.sampled_from(self.world.machine.alive()))
        was_full, self.world.store.is_full = self.world.store.is_full, is_full
        self.world.machine.end(run, **how)
        self.world.settle_down()
        self.world.store.is_full = was_full

    @precondition(lambda self: self.world.machine.alive())
    @rule(data=st.data(), command_too=st.booleans())
    def kill_a_shim(self, data, command_too):
        run = data.draw(st.sampled_from(self.world.machine.alive()))
        if command_too or not run.claims:
            run.is_alive = False
            self.world.machine._unlock(run)
        self.world.machine.kill_shim(run)
        self.world.settle_down()

    @rule(is_noticed=st.booleans())
    def all_lease_files_are_deleted(self, is_noticed):
        for name in os.listdir(self.world.leases_folder):
            os.unlink(f"{self.world.leases_folder}/{name}")
        if is_noticed:
            self.world.engine.check_leases()
            self.world.settle_down()

    @rule(count=st.integers(1, 6))
    def some_shims_will_not_start(self, count):
        self.world.machine.false_starts = count

    @rule(is_full=st.booleans())
    def the_disk_is_full_or_not(self, is_full):
        self.world.store.is_full = is_full

    @rule(
        point=st.sampled_from(["", "after-lease", "after-prepare", "after-intent", "after-launch"]),
        reboots=st.sampled_from([False] * 3 + [True]),
    )
    def crash(self, point, reboots):
        self.world.dies_at = point
        try:
            self.world.turn()
            self.world.settle_down()
        except Died:
            pass
        self.world.crash()
        if reboots:
            self.world.machine.stop()
            self.world.boot_id += "'"
            self.world.is_doubted = True
        self.world.resume()

    @invariant()
    def the_promise_holds(self):
        if hasattr(self, "world"):
            check_now(self.world)

    def let_everything_end(self):
        self.world.run_out()

    def teardown(self):
        if not hasattr(self, "world"):
            return
        self.world.store.is_full = False
        self.world.machine.false_starts = 0
        self.world.machine.refuses = ""
        try:
            self.world.turn()
            self.world.settle_down()
            self.let_everything_end()
            check_at_the_end(self.world)
        finally:
            self.world.close()
            shutil.rmtree(self.folder)


AnyHistory.TestCase.settings = HISTORIES


@pytest.mark.filterwarnings("ignore::hypothesis.errors.HypothesisWarning")
class TestAnyHistory(AnyHistory.TestCase):
    """No job lost, none twice, no GPU overbooked, none leaked."""
