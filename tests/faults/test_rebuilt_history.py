"""Whatever a real engine has done to a queue, the journal tells it again to the last column."""

import shutil

import pytest
from hypothesis import HealthCheck, settings

from dibs.store.rebuild import rebuild
from engine.test_any_suspending_history import AnySuspendingHistory
from examples import examples
from store.campaign import RUNS, picture


def told(folder):
    """What a store remembers, apart from the place in the journal up to which it was told."""
    content = picture(str(folder / "store.db"))
    return {**content, "settings": [row for row in content["settings"] if row[0] != "journal"]}


class AnyHistoryIsRestored(AnySuspendingHistory):
    """After each history the store is made again from a copy, and compared."""

    def teardown(self):
        try:
            if hasattr(self, "world"):
                self.the_store_can_be_made_again()
        finally:
            super().teardown()

    def the_store_can_be_made_again(self):
        copy = self.folder / "copy"
        shutil.copytree(self.folder / "state", copy)
        content = told(copy)

        report = rebuild(str(copy), look=lambda attempt: RUNS, spec_of=lambda attempt: None, now=self.world.now)

        assert told(copy) == content
        assert report.missing == []


AnyHistoryIsRestored.TestCase.settings = settings(
    max_examples=examples(40),
    stateful_step_count=30,
    deadline=None,
    report_multiple_bugs=False,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)


@pytest.mark.filterwarnings("ignore::hypothesis.errors.HypothesisWarning")
class TestAnyHistoryIsRestored(AnyHistoryIsRestored.TestCase):
    """Collected by pytest under its own name."""
