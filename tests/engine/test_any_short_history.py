"""Any history of short jobs of one kind that follow each other in the slots of a card."""

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import initialize, precondition, rule

from engine.test_any_history import HISTORIES, AnyHistory
from engine.world import Died, a_request

ALIKE = st.builds(a_request, retries=st.sampled_from([0, 0, 1]), priority=st.sampled_from([0, 0, 0, 0, 1]))


class AnyShortHistory(AnyHistory):
    """As before, but jobs end one after the other within moments, and some of them badly."""

    @initialize(slots=st.sampled_from([(1,), (2,), (3,)]))
    def begin(self, slots):
        super().begin(slots)

    @rule(requests=st.lists(ALIKE, min_size=12, max_size=30))
    def submit(self, requests):
        super().submit(requests)

    @rule(seconds=st.sampled_from([0.001, 0.01, 0.02, 3]))
    def advance(self, seconds):
        self.world.advance(seconds)

    @precondition(lambda self: self.world.machine.alive())
    @rule(
        codes=st.lists(st.sampled_from([0] * 15 + [1]), min_size=4, max_size=20),
        seconds=st.sampled_from([0.001, 0.001, 1.0]),
        unheard=st.integers(1, 4),
        dies_at=st.sampled_from([""] * 6 + ["after-launch", "after-lease", "after-prepare", "after-intent"]),
    )
    def jobs_end_in_turn(self, codes, seconds, unheard, dies_at):
        """Each as soon as it runs, perhaps unheard by the engine, which may be killed between two of them."""
        for place, code in enumerate(codes):
            if not self.world.machine.alive():
                return
            self.world.dies_at = dies_at if place == len(codes) - 1 else ""
            self.world.machine.end(self.world.machine.alive()[0], code=code, seconds=seconds)
            if place % unheard:
                continue
            try:
                self.world.settle_down()
            except Died:
                self.world.crash()
                self.world.resume()
        self.world.dies_at = ""
        self.world.settle_down()


AnyShortHistory.TestCase.settings = HISTORIES


@pytest.mark.filterwarnings("ignore::hypothesis.errors.HypothesisWarning")
class TestAnyShortHistory(AnyShortHistory.TestCase):
    """No job lost, none twice, no slot overbooked, none leaked."""
