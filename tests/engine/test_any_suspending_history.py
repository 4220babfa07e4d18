"""Any history of a queue whose jobs are suspended and resumed, with crashes anywhere: the promise holds."""

from unittest.mock import patch

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

from dibs.errors import StoreUnusable
from dibs.model.jobs import State
from engine.test_any_history import HISTORIES
from engine.test_any_queue_history import AnyQueueHistory
from engine.test_suspensions import GIB, SuspendingWorld
from engine.world import Died

POINTS = ("after-commit", "after-lease-back", "after-move-intent", "after-helper", "after-answer", "after-move")


class AnySuspendingHistory(AnyQueueHistory):
    """The same machine, with helpers that the engine starts. What they have done outlives them and the engine."""

    world_of = SuspendingWorld

    def __init__(self):
        super().__init__()
        self._memory = patch("dibs.engine.engine.memory_available", lambda: 100 * GIB)
        self._memory.start()

    @precondition(lambda self: self.world.acknowledged)
    @rule(data=st.data(), verb=st.sampled_from(["suspend", "resume"]), point=st.sampled_from(["", "", *POINTS]))
    def move(self, data, verb, point):
        job = self._some(data, State.RUNNING, State.SUSPENDED)
        if job is not None:
            self._do_and_perhaps_die(point, lambda: self.world.do(verb, job))

    @precondition(lambda self: self.world.helpers.asked)
    @rule(
        data=st.data(),
        answer=st.sampled_from(
            ["done", "done", "done", "refused", "unclear", "dies first", "dies afterwards", "sees nothing"]
        ),
        point=st.sampled_from(["", "", *POINTS]),
    )
    def a_helper_answers(self, data, answer, point):
        """The truth, whatever an earlier one has done."""
        key = data.draw(st.sampled_from(sorted(self.world.helpers.asked)))
        is_suspending = self.world.helpers.asked[key][0]["do"] == "suspend"
        runs = [run for run in self.world.machine.alive(key[0]) if run.identity["attempt"] == key[1]]
        if answer in ("done", "dies afterwards") and runs:
            runs[0].stands_still = is_suspending
            self.world.machine.check_overlap()
        stands_still = bool(runs) and runs[0].stands_still
        more = {}
        if not runs or answer == "sees nothing":
            state = "ended"  # not true, where it was misled
        elif answer in ("unclear", "dies first", "dies afterwards"):
            state, more = "unclear", {"code": "no-answer", "why": "its helper ended without an answer"}
        else:
            state = "suspended" if stands_still else "running"
            if answer == "refused":
                more = {"code": "no-memory" if is_suspending else "no-room", "why": "there is no room"}
        self._do_and_perhaps_die(point, lambda: self.world.answer_of(key, state, **more))

    def _do_and_perhaps_die(self, point, act):
        self.world.dies_at = point
        try:
            act()
        except StoreUnusable:
            assert self.world.store.is_full
        except Died:
            self.world.crash()
            self.world.resume()
        self.world.dies_at = ""

    @precondition(lambda self: self.world.acknowledged)
    @rule(data=st.data())
    def ask_why(self, data):
        """Whatever stands still has a reason, too."""
        number = self._some(data)
        reason = self.world.queue.why(number).reason

        if self.world.store.job(number).state in (State.QUEUED, State.HELD, State.SUSPENDED):
            assert reason is not None and reason.sentence

    def let_everything_end(self):
        """Nothing may be left standing still: all go on, and no helper fails any more."""
        self.let_everything_start()
        for _ in range(100):
            self.world.do("resume", *[n for n, state in self.world.states().items() if state is State.SUSPENDED])
            if not self.world.helpers.asked:
                self.world.advance(6)
            for key in sorted(self.world.helpers.asked):
                if key in self.world.helpers.asked:
                    self._answer_well(key)
            if not any(run.stands_still for run in self.world.machine.alive()) and not self.world.helpers.asked:
                break
            for run in self.world.machine.alive():
                if run.job in self.world.engine.state.stopping:
                    self.world.machine.end(run, signal=15, by="stop")
                elif not run.stands_still:  # it may have the card that another one waits for
                    self.world.machine.end(run, code=0)
            self.world.settle_down()
        assert not any(run.stands_still for run in self.world.machine.alive()), "a job stands still for ever"
        super().let_everything_end()

    def _answer_well(self, key):
        is_suspending = self.world.helpers.asked[key][0]["do"] == "suspend"
        runs = [run for run in self.world.machine.alive(key[0]) if run.identity["attempt"] == key[1]]
        for run in runs:
            run.stands_still = is_suspending
            self.world.machine.check_overlap()
        self.world.answer_of(key, ("suspended" if is_suspending else "running") if runs else "ended")

    def teardown(self):
        try:
            super().teardown()
        finally:
            self._memory.stop()


AnySuspendingHistory.TestCase.settings = settings(HISTORIES, stateful_step_count=40)


@pytest.mark.filterwarnings("ignore::hypothesis.errors.HypothesisWarning")
class TestAnySuspendingHistory(AnySuspendingHistory.TestCase):
    """Collected by pytest under its own name."""
