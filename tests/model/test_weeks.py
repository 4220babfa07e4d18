"""Weeks of ISO 8601, and GPU time clipped at their borders."""

from datetime import date

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dibs.errors import BadInput
from dibs.model.weeks import AttemptTime, Week, WeeklySum, parse_week

TODAY = date(2026, 11, 18)
HOUR = 3600.0


def an_attempt(begin: float, end: float, gpus: float = 1, **more) -> AttemptTime:
    return AttemptTime(project=more.pop("project", "p"), begin=begin, end=end, gpus=gpus, **more)


@pytest.mark.parametrize(
    "text, week",
    [
        ("this", "2026-W47"),
        ("2026-W46", "2026-W46"),
        ("46", "2026-W46"),
        ("W1", "2026-W01"),
        ("50", "2025-W50"),  # the last one that has begun
        ("2020-w53", "2020-W53"),
    ],
)
def test_a_week_is_read(text, week):
    assert str(parse_week(text, TODAY)) == week


@pytest.mark.parametrize("text", ["2026-W48", "2026-W00", "2025-W53", "54", "2026-46-1", "soon", "", "9" * 99])
def test_what_is_no_week_or_has_not_begun_is_refused(text):
    with pytest.raises(BadInput):
        parse_week(text, TODAY)


def test_the_weeks_go_on_over_the_years():
    assert str(Week(2020, 53).later(1)) == "2021-W01"
    assert Week.of(date(2027, 1, 3)) == Week(2026, 53)
    assert Week(2026, 53).monday == date(2026, 12, 28)


def test_eight_jobs_with_an_eighth_of_a_card_for_an_hour_are_one_gpu_hour():
    found = WeeklySum([0, 10 * HOUR])
    found.add(an_attempt(0, HOUR, gpus=0.125) for _ in range(8))

    assert found.weeks[0]["p"].seconds == HOUR
    assert found.weeks[0]["p"].attempts == 8


def test_an_attempt_is_clipped_at_the_borders_with_its_energy():
    found = WeeklySum([0, 10, 20])
    found.add([an_attempt(-5, 15, gpus=2, watt_hours=40, load=50)])

    first, second = (week["p"] for week in found.weeks)
    assert (first.seconds, first.watt_hours, first.mean_load) == (20, 20, 50)
    assert (second.seconds, second.watt_hours) == (10, 10)


def test_the_time_in_which_an_attempt_had_nothing_of_its_cards_does_not_count():
    found = WeeklySum([0, 10, 20, 30])
    found.add([an_attempt(0, 25, gpus=2, watt_hours=40, off_cards=[(2, 4), (8, 21)])])

    first, second, third = (week.get("p") for week in found.weeks)
    assert (first.seconds, first.watt_hours, first.attempts) == (12, 24, 1)
    assert second is None
    assert (third.seconds, third.watt_hours) == (8, 16)


def test_gpus_elsewhere_are_counted_apart_and_what_was_not_measured_is_not_in_the_mean():
    found = WeeklySum([0, 10])
    found.add([an_attempt(0, 10, is_remote=True), an_attempt(0, 10, load=80), an_attempt(0, 10)])

    time = found.weeks[0]["p"]
    assert (time.seconds, time.remote_seconds, time.mean_load) == (20, 10, 80)


@given(st.lists(st.tuples(st.floats(0, 100), st.floats(0, 100), st.sampled_from([0.125, 1.0, 4.0]))))
def test_the_weeks_together_have_the_time_of_the_attempts(attempts):
    found = WeeklySum([0, 13, 50, 100])
    found.add(an_attempt(min(a, b), max(a, b), gpus) for a, b, gpus in attempts)

    seconds = sum(time.seconds for week in found.weeks for time in week.values())
    assert seconds == pytest.approx(sum(abs(a - b) * gpus for a, b, gpus in attempts))
