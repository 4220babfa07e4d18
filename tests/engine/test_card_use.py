"""What the cards were beside the jobs of the queue: used by others, lost, unknown; also before a restart."""

from collections.abc import Iterator
from datetime import UTC, datetime
from fractions import Fraction

import pytest

from dibs.engine.watch import card_use
from dibs.engine.watch.card_history import EVERY, CardHistory
from dibs.engine.watch.card_use import parts_of
from dibs.engine.watch.survey import GpuUse
from dibs.leases.files import Holder
from dibs.model.card_history import HOURS, MINUTES, CardParts, UseSeconds
from dibs.model.gpus import CardState, Gpu, GpuProcess, GpuReading, Reading
from dibs.store.history import OutsideUse
from dibs.store.store import Store

NOW = 3_600_000.0
OURS = "/attempts/1.1"
STRANGER = GpuProcess(pid=1, user="eve", memory=1, kind="compute")
GPU = Gpu(key="a", index=0)


class Machine:
    """One card, of which a test says what it is."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.card = GpuUse(key="a", index=0)
        self.begin(NOW)

    def begin(self, now: float) -> None:
        """A daemon begins, perhaps after another one."""
        self.store = Store(self.path)
        self.history = CardHistory(self.store, lambda reading: [self.card], lambda: {OURS}, now)

    def crash(self) -> None:
        self.store.close()

    def look(self, at: float, load: int = 0, power: float = 0, **card) -> None:
        seen = card.pop("seen", GpuReading(gpu=GPU, load=load, memory_used=5, power=power))
        self.card = GpuUse(key="a", index=0, seen=seen, **card)
        self.history.add(Reading(at=datetime.fromtimestamp(at, UTC), gpus=() if card.get("is_gone") else (seen,)))

    def uses(self, since: float, until: float) -> list[tuple[str, float, float]]:
        return [(one.use, one.since - NOW, one.until - NOW) for one in self.history.uses(["a"], since, until)]

    def hour(self) -> UseSeconds:
        return self.history.buckets("a", HOURS, NOW, NOW + 1)[int(NOW)].use


@pytest.fixture
def machine(tmp_path) -> Iterator[Machine]:
    one = Machine(str(tmp_path / "store.db"))
    yield one
    one.crash()


def a_holder(folder: str, user: str = "ann", share: str = "1") -> Holder:
    return Holder(gpu="a", user=user, uid=1, pid=1, job="1", since=0, share=Fraction(share), vram=0, folder=folder)


# -- the times in which a card was not idle and had no job ----------------------------------------------------


def test_time_before_the_first_look_is_unknown_and_a_free_card_is_not_mentioned(machine: Machine):
    machine.look(NOW)

    assert machine.uses(NOW - 100, NOW + 10) == [("unknown", -100, 0)]


def test_a_process_or_a_lease_that_is_not_ours_is_use_by_others(machine: Machine):
    machine.look(NOW, foreign=(STRANGER,))
    machine.look(NOW + 20, holders=(a_holder("/another/queue"),))
    machine.look(NOW + 40, holders=(a_holder(OURS),))

    assert machine.uses(NOW, NOW + 60) == [("others", 0, 40)]


def test_a_lost_card_is_lost(machine: Machine):
    machine.look(NOW, seen=GpuReading(gpu=GPU, state=CardState.LOST))
    machine.look(NOW + 30, seen=None, is_gone=True)

    assert machine.uses(NOW, NOW + 50) == [("lost", 0, 50)]
    assert machine.hour() == UseSeconds(lost=30)


def test_what_nobody_looked_at_is_unknown(machine: Machine):
    machine.look(NOW)
    machine.look(NOW + 300, foreign=(STRANGER,))

    assert machine.uses(NOW, NOW + 310) == [("unknown", 40, 300), ("others", 300, 310)]


def test_looks_that_follow_each_other_too_soon_are_left_out(machine: Machine):
    machine.look(NOW)
    machine.look(NOW + EVERY / 2, foreign=(STRANGER,))

    assert machine.uses(NOW, NOW + 10) == []


def test_cards_that_cannot_be_read_are_watched_without_readings(machine: Machine):
    machine.card = GpuUse(key="a", index=0, holders=(a_holder(OURS, share="1/4"),))
    for at in (NOW, NOW + 30):
        machine.history.watch_unread(at)

    assert machine.uses(NOW - 5, NOW + 30) == [("unknown", -5, 0)]
    assert machine.hour() == UseSeconds(job=7.5, idle=22.5)


# -- after a restart ---------------------------------------------------------------------------------------------


def test_the_time_before_a_restart_stays_known(machine: Machine):
    machine.look(NOW, foreign=(STRANGER,))
    machine.look(NOW + 30)
    machine.history.write()
    machine.crash()
    machine.begin(NOW + 100)
    machine.look(NOW + 100)

    assert machine.uses(NOW, NOW + 110) == [("others", 0, 30), ("unknown", 70, 100)]
    machine.look(NOW + 120)
    assert machine.hour() == UseSeconds(others=30, idle=20)


def test_after_a_crash_the_time_since_the_last_write_is_unknown(machine: Machine):
    for at in range(0, 2 * MINUTES, 30):
        machine.look(NOW + at, foreign=(STRANGER,))
    machine.crash()
    machine.begin(NOW + 1000)
    machine.look(NOW + 1000)

    assert machine.uses(NOW, NOW + 1000) == [("others", 0, MINUTES + 40), ("unknown", MINUTES + 40, 1000)]
    assert machine.history.buckets("a", MINUTES, NOW, NOW + MINUTES)[int(NOW)].use == UseSeconds(others=MINUTES)


def test_nothing_is_written_between_two_buckets(machine: Machine):
    machine.look(NOW)
    writes = machine.store._db.total_changes
    for at in range(1, MINUTES):
        machine.look(NOW + at, holders=(a_holder(OURS),), load=90)

    assert machine.store._db.total_changes == writes

    machine.look(NOW + MINUTES + 1)

    assert machine.store._db.total_changes > writes


def test_what_a_full_disk_refused_is_written_later(machine: Machine):
    machine.look(NOW)
    machine.look(NOW + 30)
    machine.store._db.execute("pragma query_only = on")
    machine.history.write()
    machine.store._db.execute("pragma query_only = off")
    machine.history.write()
    machine.crash()
    machine.begin(NOW + 60)

    assert machine.hour() == UseSeconds(idle=30)


def test_of_too_many_changes_the_oldest_are_forgotten_in_the_store_too(machine: Machine, monkeypatch):
    monkeypatch.setattr(card_use, "_MOST_SPANS", 4)
    for number in range(10):
        machine.look(NOW + 10 * number, foreign=(STRANGER,) if number % 2 else ())
    machine.history.write()

    assert [row.since - NOW for row in machine.store.history.uses("a")] == [60, 70, 80, 90]


def test_a_clock_that_was_set_back_begins_again(machine: Machine):
    machine.look(NOW)
    machine.look(NOW + 1000)
    machine.history.write()
    machine.look(NOW + 500, foreign=(STRANGER,))
    machine.history.write()

    assert [row.since - NOW for row in machine.store.history.uses("a")] == [500]


# -- who had it ---------------------------------------------------------------------------------------------------


def test_a_card_has_parts_that_are_never_more_than_the_card():
    card = GpuUse(
        key="a",
        index=0,
        holders=(a_holder(OURS, share="1/8"), a_holder("/x", "ben", "1/2"), a_holder("/y", "ben", "1/4")),
        foreign=(STRANGER, GpuProcess(pid=2, user=None, memory=1)),
    )

    assert parts_of(card, {OURS}) == CardParts(
        job=0.125, others={"ben": 0.75, "(unknown user)": 0.0625, "eve": 0.0625}
    )
    both = GpuUse(key="a", index=0, holders=(a_holder(OURS), a_holder("/x", "ben")))
    assert parts_of(both, {OURS}) == CardParts(job=1, others={"ben": 0})


def test_a_card_that_a_job_holds_without_load_is_told_apart(machine: Machine):
    for at in range(0, 130, 10):
        machine.look(NOW + at, holders=(a_holder(OURS),), load=1)

    assert machine.hour() == UseSeconds(job=60, unused=60)


def test_time_outside_of_the_queue_is_that_of_its_users(machine: Machine):
    for at in (0, 30):
        machine.look(NOW + at, holders=(a_holder("/x", "ben", "1/2"),), power=100)
    machine.history.write()
    machine.look(NOW + 40, foreign=(STRANGER,))
    machine.look(NOW + 50)

    assert machine.history.outside(NOW, NOW + 1) == [
        OutsideUse(int(NOW), "ben", 15, 1500),
        OutsideUse(int(NOW), "ben", 5, 500),
        OutsideUse(int(NOW), "eve", 10, 0),
    ]
