"""Weeks in the time zone of the machine, and the GPU time of jobs that were cleaned away."""

import time
from dataclasses import replace
from fractions import Fraction
from itertools import pairwise

import pytest

from dibs.engine.queue.gpu_time import attempt_times, begin_of, borders_of, keep_gpu_time, week_at
from dibs.model.jobs import Outcome, State
from dibs.model.usage import Usage
from dibs.model.weeks import GpuTime, Week
from dibs.store.listing import Span
from store.builders import an_attempt, submit
from store.conftest import path, store

__all__ = ["path", "store"]
HOUR = 3600.0


@pytest.fixture
def berlin(monkeypatch):
    with monkeypatch.context() as patch:
        patch.setenv("TZ", "Europe/Berlin")
        time.tzset()
        yield
    time.tzset()


def test_weeks_begin_on_monday_at_midnight_here(berlin):
    monday = 1_793_574_000.0  # 2026-11-02T00:00 in Berlin

    assert begin_of(Week(2026, 45)) == monday
    assert week_at(monday) == Week(2026, 45)
    assert week_at(monday - 1) == Week(2026, 44)


def test_the_week_in_which_the_clocks_go_back_is_an_hour_longer(berlin):
    borders = borders_of(Week(2026, 42), Week(2026, 44))

    assert [(after - before) / HOUR for before, after in pairwise(borders)] == [
        168,
        169,
        168,
    ]


def test_attempts_without_a_gpu_have_no_gpu_time_and_running_ones_last_until_now():
    span = Span(1, 1, "", "p", (0, 1), 10.0, None, State.RUNNING, None, share=Fraction(1, 2))

    (found,) = attempt_times([span, replace(span, gpus=())], 20.0, lambda _: Usage(energy=3.0, mean_load=50.0))

    assert (found.end, found.gpus, found.watt_hours, found.load) == (20.0, 1.0, 3.0, 50.0)


def test_the_time_of_jobs_that_are_cleaned_away_is_kept(store):
    (job,) = submit(store, "train")
    begin = begin_of(Week(2026, 45))
    attempt = replace(an_attempt(job, 1), opened_at=begin - HOUR)
    with store.turn():
        store._db.execute("update jobs set queued_at = 0")
        store.open_attempt(attempt)
        store.end_attempt(
            attempt, Outcome(exit_code=0), begin + 2 * HOUR, None, Usage(energy=30.0, mean_load=90.0)
        )
        keep_gpu_time(store, [job.id], begin + 5 * HOUR)

    share = float(attempt.claims[0].share) * HOUR
    (first,), (second,) = (store.history.cleaned(week).values() for week in ("2026-W44", "2026-W45"))
    assert first == GpuTime(share, 0, pytest.approx(10), pytest.approx(90 * share), share, 1)
    assert second.seconds == pytest.approx(2 * share)
