"""What the cards were beside the jobs of the queue: used by others, lost, unknown."""

from datetime import UTC, datetime
from fractions import Fraction

from dibs.daemon.card_use import EVERY, CardUseHistory, UseSpan
from dibs.engine.watch.survey import GpuUse
from dibs.leases.files import Holder
from dibs.model.gpus import CardState, Gpu, GpuProcess, GpuReading, Reading

NOW = 1_000_000.0
OURS = "/attempts/1.1"
STRANGER = GpuProcess(pid=1, user="ann", memory=1, kind="compute")


class Machine:
    """One card, of which a test says what it is."""

    def __init__(self) -> None:
        self.card = GpuUse(key="a", index=0)
        self.history = CardUseHistory(
            lambda reading: [self.card], lambda: {OURS}, is_read=lambda: True, started_at=0
        )

    def look(self, at: float, **card) -> None:
        self.card = GpuUse(key="a", index=0, **card)
        self.history.add(Reading(at=datetime.fromtimestamp(at, UTC), gpus=()))

    def uses(self, since: float, until: float) -> list[tuple[str, float, float]]:
        return [(one.use, one.since - NOW, one.until - NOW) for one in self.history.spans(["a"], since, until)]


def a_holder(folder: str) -> Holder:
    return Holder(gpu="a", user="ann", uid=1, pid=1, job="1", since=0, share=Fraction(1), vram=0, folder=folder)


def test_time_before_the_first_look_is_unknown_and_a_free_card_is_not_mentioned():
    machine = Machine()
    machine.look(NOW)

    assert machine.uses(NOW - 100, NOW + 10) == [("unknown", -100, 0)]


def test_a_process_or_a_lease_that_is_not_ours_is_use_by_others():
    machine = Machine()
    machine.look(NOW, foreign=(STRANGER,))
    machine.look(NOW + 20, holders=(a_holder("/another/queue"),))
    machine.look(NOW + 40, holders=(a_holder(OURS),))

    assert machine.uses(NOW, NOW + 60) == [("others", 0, 40)]


def test_a_lost_card_is_lost():
    machine = Machine()
    machine.look(NOW, seen=GpuReading(gpu=Gpu(key="a", index=0), state=CardState.LOST))
    machine.look(NOW + 30, is_gone=True)

    assert machine.uses(NOW, NOW + 50) == [("lost", 0, 50)]


def test_what_nobody_looked_at_is_unknown():
    machine = Machine()
    machine.look(NOW)
    machine.look(NOW + 300, foreign=(STRANGER,))

    assert machine.uses(NOW, NOW + 310) == [("unknown", 40, 300), ("others", 300, 310)]


def test_looks_that_follow_each_other_too_soon_are_left_out():
    machine = Machine()
    machine.look(NOW)
    machine.look(NOW + EVERY / 2, foreign=(STRANGER,))

    assert machine.uses(NOW, NOW + 10) == []


def test_cards_that_cannot_be_read_were_watched_since_the_start():
    history = CardUseHistory(lambda reading: [], lambda: (), is_read=lambda: False, started_at=NOW)

    assert history.spans(["a"], NOW - 5, NOW + 5) == [UseSpan("a", "unknown", NOW - 5, NOW)]
