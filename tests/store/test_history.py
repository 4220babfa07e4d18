"""The history of cards is kept in bounded space, and is there after a restart."""

import os

from dibs.model.card_history import HOURS, KEPT, MINUTES, HistoryBucket, Level, UseSeconds
from dibs.model.weeks import GpuTime
from dibs.store import history
from dibs.store.history import OutsideUse, UseRow
from dibs.store.store import Store


def a_bucket(at: int, step: int = MINUTES, **use: float) -> HistoryBucket:
    return HistoryBucket(step, at, UseSeconds(**use))


def test_a_bucket_is_there_after_a_restart_and_is_found_by_its_moment(path):
    store = Store(path)
    bucket = HistoryBucket(
        MINUTES, 600, UseSeconds(1, 2, 3, 4, 5), Level(50.5, 99), Level(1e9, 2e9), Level(None, None)
    )
    with store.turn():
        store.history.put_buckets("a", [bucket, a_bucket(0, HOURS)])
    store.close()

    store = Store(path)

    assert store.history.buckets("a", MINUTES, 0, 900) == [bucket]
    assert store.history.buckets_at("a", 650.5) == [bucket, a_bucket(0, HOURS)]
    assert store.history.buckets_at("a", 600 + MINUTES * KEPT[MINUTES]) == []  # the slot is of an earlier round
    assert store.history.buckets_at("b", 650.5) == []
    store.close()


def test_the_next_bucket_takes_the_slot_of_the_oldest(store):
    count = KEPT[MINUTES]
    with store.turn():
        store.history.put_buckets("a", (a_bucket(at * MINUTES) for at in range(count + 3)))

    found = store.history.buckets("a", MINUTES, 0, 1e9)

    assert [one.at for one in found] == [at * MINUTES for at in range(3, count + 3)]


def test_a_card_takes_a_bounded_number_of_bytes(path):
    store = Store(path)
    key, full = "GPU-5f3cbd8e-1c2b-4f6d-9b1e-2f1e6a7c8d90", Level(12.3456, 99.9)
    use = UseSeconds(1.5, 2.5, 3.5, 4.5, 5.5)

    def size() -> int:
        store._db.execute("pragma wal_checkpoint(truncate)")
        return os.path.getsize(path)

    empty = size()
    with store.turn():
        for step, count in KEPT.items():
            buckets = (HistoryBucket(step, at * step, use, full, full, full) for at in range(3 * count))
            store.history.put_buckets(key, buckets)
        store.history.put_uses(
            UseRow(key, at + 0.5, at + 1.5, "others") for at in range(2_000)
        )  # as many as there may be

    assert size() - empty < 500_000
    store.close()


def test_what_is_too_old_is_forgotten_and_of_very_many_cards_those_read_least_recently(store, monkeypatch):
    monkeypatch.setattr(history, "_MOST_CARDS", 2)
    now = 10_000_000
    with store.turn():
        for place, key in enumerate("abc"):
            store.history.put_buckets(key, [a_bucket(now - 900 * (place + 1))])
        store.history.put_uses(
            [UseRow("a", 0, 1, ""), UseRow("a", now - 5, now, "lost"), UseRow("c", now - 5, now, "")]
        )
        store.history.put_buckets("d", [a_bucket(0, HOURS)])
        store.history.add_outside([OutsideUse(0, "ann", 1, 1)])
        store.history.forget_old(now)

    assert store.history.cards() == ["a", "b"]
    assert store.history.uses("a") == [UseRow("a", now - 5, now, "lost")]
    assert store.history.uses("c") == []
    assert store.history.outside(-1, now) == []


def test_use_outside_of_the_queue_adds_up_and_has_a_bounded_number_of_users(store, monkeypatch):
    monkeypatch.setattr(history, "_MOST_USERS", 2)
    with store.turn():
        store.history.add_outside([OutsideUse(0, user, 1.0, 2.0) for user in ("ann", "ben", "cid", "dan", "ann")])

    assert store.history.outside(0, 1) == [
        OutsideUse(0, "(others)", 2.0, 4.0),
        OutsideUse(0, "ann", 2.0, 4.0),
        OutsideUse(0, "ben", 1.0, 2.0),
    ]


def test_what_was_cleaned_away_adds_up_by_week_and_project(store):
    with store.turn():
        store.history.add_cleaned("2026-W46", {"p": GpuTime(seconds=5, attempts=1), "": GpuTime(watt_hours=3)})
        store.history.add_cleaned("2026-W46", {"p": GpuTime(seconds=6, load_seconds=7, attempts=2)})

    assert store.history.cleaned("2026-W46") == {
        "p": GpuTime(seconds=11, load_seconds=7, attempts=3),
        "": GpuTime(watt_hours=3),
    }
    assert store.history.cleaned("2026-W47") == {}
