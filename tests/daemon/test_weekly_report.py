"""GPU time by week: attempts, cleaned jobs, use outside of the queue, and what the cards were."""

import asyncio
import time
from dataclasses import replace
from typing import Any

import pytest

from dibs.daemon.weekly_report import WeeklyReport
from dibs.engine.queue.gpu_time import begin_of, keep_gpu_time
from dibs.engine.watch.card_history import CardHistory
from dibs.model.card_history import HOURS, HistoryBucket, Level, UseSeconds
from dibs.model.jobs import JobId, Outcome
from dibs.model.suspensions import Suspension, SuspensionPhase
from dibs.model.usage import Usage
from dibs.model.weeks import GpuTime, Week
from dibs.store.history import OutsideUse
from dibs.store.store import Store
from store.builders import an_attempt, submit
from store.conftest import path, store

__all__ = ["path", "store"]
HOUR = 3600.0


@pytest.fixture
def kolkata(monkeypatch):
    """Its weeks begin at half past six in the evening of UTC."""
    with monkeypatch.context() as patch:
        patch.setenv("TZ", "Asia/Kolkata")
        time.tzset()
        yield
    time.tzset()


def reported(store: Store, now: float, week: str = "", weeks: int = 2) -> dict[str, Any]:
    history = CardHistory(store, lambda reading: [], lambda: (), now)
    report = WeeklyReport(store, history, "ann", lambda span: Usage(energy=5.0))
    return asyncio.run(report.make(week, weeks, now))


def ran(store: Store, begin: float, end: float | None) -> None:
    """A job with a third of a card."""
    (job,) = submit(store, f"job {begin}")
    attempt = replace(an_attempt(job, 1), opened_at=begin)
    with store.turn():
        store._db.execute("update jobs set queued_at = 0")
        store.open_attempt(attempt)
        if end is not None:
            store.end_attempt(attempt, Outcome(exit_code=0), end, None, Usage(energy=8.0, mean_load=60.0))


def test_attempts_are_clipped_at_the_week_and_cleaned_ones_are_added(store: Store):
    begin = begin_of(Week(2026, 46))
    ran(store, begin - 3 * HOUR, begin + 9 * HOUR)
    ran(store, begin + 10 * HOUR, None)
    with store.turn():
        store.history.add_cleaned("2026-W46", {"old": GpuTime(seconds=HOUR, watt_hours=2.0, attempts=1)})

    new, old = reported(store, begin + 16 * HOUR)["weeks"]

    assert (new["week"], old["week"]) == ("2026-W46", "2026-W45")
    assert [(one["project"], one["gpu_hours"], one["attempts"]) for one in new["projects"]] == [
        ("", 5.0, 2),
        ("old", 1.0, 1),
    ]
    assert new["projects"][0]["energy_watt_hours"] == 6.0 + 5.0
    assert [(one["gpu_hours"], one["energy_watt_hours"]) for one in old["projects"]] == [(1.0, 2.0)]
    assert [(one["user"], one["gpu_hours"], one["energy_watt_hours"]) for one in new["users"]] == [
        ("ann", 6.0, 13.0)
    ]


def test_a_suspended_job_has_no_gpu_hours(store: Store):
    begin = begin_of(Week(2026, 46))
    ran(store, begin, None)
    suspended = Suspension(
        number=1,
        phase=SuspensionPhase.SUSPENDED,
        why="by you",
        resumes=False,
        began_at=begin + 3 * HOUR,
        suspended_at=begin + 3 * HOUR,
    )
    with store.turn():
        store.suspensions.put((JobId(1), 1), suspended)

    new, _ = reported(store, begin + 12 * HOUR)["weeks"]

    assert [(one["gpu_hours"], one["attempts"]) for one in new["projects"]] == [(1.0, 1)]
    with store.turn():
        keep_gpu_time(store, [1], begin + 12 * HOUR)
    assert store.history.cleaned("2026-W46")[""].seconds == HOUR


@pytest.mark.parametrize(("cards", "number"), [("0,1", 2), ("0,1,+6", 8), ("+3", 3), ("MIG-a/1", 1), ("", 0)])
def test_a_job_on_several_nodes_has_the_gpus_of_all(store: Store, cards: str, number: int):
    begin = begin_of(Week(2026, 46))
    (job,) = submit(store, "wide")
    attempt = replace(an_attempt(job, 1), opened_at=begin, backend="slurm", node="n1", node_gpus=cards, claims=())
    with store.turn():
        store._db.execute("update jobs set queued_at = 0")
        store.open_attempt(attempt)
        store.run_attempt(attempt)
        store.end_attempt(attempt, Outcome(exit_code=0), begin + HOUR, None, Usage())

    new, _ = reported(store, begin + 2 * HOUR)["weeks"]

    assert sum(one["remote_gpu_hours"] for one in new["projects"]) == number


def test_an_hour_that_lies_in_two_weeks_is_divided(store: Store, kolkata: None):
    begin = begin_of(Week(2026, 46))
    hour = int(begin // HOURS) * HOURS
    use = UseSeconds(job=1800, unused=900, idle=900)
    with store.turn():
        store.history.put_buckets("a", [HistoryBucket(HOURS, hour, use, power=Level(100, 100))])
        store.history.add_outside([OutsideUse(hour, "ben", 3600, 7200)])

    report = reported(store, begin + 7 * 24 * HOUR - 1)
    new, old = report["weeks"]

    assert report["time_zone"] == "UTC+05:30"
    for week in (new, old):
        assert week["machine"]["gpus"] == 1
        assert (week["machine"]["job_gpu_hours"], week["machine"]["unused_gpu_hours"]) == (0.25, 0.125)
        assert week["machine"]["energy_watt_hours"] == 50
        assert week["users"] == [
            {
                "user": "ben",
                "gpu_hours": 0.0,
                "remote_gpu_hours": 0.0,
                "outside_gpu_hours": 0.5,
                "energy_watt_hours": 1.0,
            }
        ]
    assert old["machine"]["unknown_gpu_hours"] == 168 - 0.5


def test_a_week_long_ago_is_looked_up_alone(store: Store):
    begin = begin_of(Week(2026, 30))
    ran(store, begin, begin + 3 * HOUR)
    ran(store, begin - HOUR, begin_of(Week(2026, 40)))

    report = reported(store, begin_of(Week(2026, 46)), week="2026-W30")

    (week,) = report["weeks"]
    assert (week["is_over"], week["machine"]["gpus"]) == (True, 0)
    assert week["projects"][0]["gpu_hours"] == 1 + 56
