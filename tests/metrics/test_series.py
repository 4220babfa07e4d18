"""Series of reported numbers: exact sums, few points, a fixed amount of memory."""

import math

from hypothesis import given
from hypothesis import strategies as st

from dibs.metrics.series import MOST_POINTS, MOST_SERIES, MetricSeries, MetricTable


def series_of(values: list[float]) -> MetricSeries:
    series = MetricSeries()
    for step, value in enumerate(values):
        series.add(float(step), float(step), value)
    return series


@given(st.lists(st.floats(allow_nan=False, allow_infinity=False, width=32), min_size=1, max_size=3000))
def test_few_points_are_kept_and_the_lowest_the_highest_and_the_last_are_among_them(values):
    series = series_of(values)

    points = series.points()

    assert len(points) <= MOST_POINTS + 1
    assert {min(values), max(values)} <= {point.value for point in points}
    assert points[-1] == (len(values) - 1, len(values) - 1, values[-1])
    assert [point.step for point in points] == sorted(point.step for point in points)
    assert all(values[int(point.step)] == point.value for point in points)


def test_a_spike_among_many_points_is_kept_also_in_a_short_answer():
    values = [0.5] * 40_000
    values[17_017] = 9.0
    series = series_of(values)

    assert 9.0 in [point.value for point in series.points(20)]
    assert len(series.points(20)) <= 20 and series.points(0) == []
    assert series.summary().most == (17_017, 17_017, 9.0)
    assert sum(len(column) for column in series._kept) <= 3 * (MOST_POINTS + 2)


def test_what_is_not_finite_is_counted_and_no_point():
    series = series_of([1.0, math.inf, math.nan])

    summary = series.summary()

    assert (summary.reported, summary.not_finite, summary.last, summary.last_step) == (3, 2, None, 2.0)
    assert [point.value for point in series.points()] == [1.0]


def test_a_line_tells_when_it_was_written_and_at_which_step():
    table = MetricTable()
    table.take({"loss": "0.5", "step": "3", "steps": "10", "progress": "0.3", "_timestamp": "1000.5"}, at=7.0)
    table.take({"loss": "0.25", "text": "hello", "flag": True}, at=8.0)

    assert list(table.series) == ["loss"]
    assert table.series["loss"].points() == [(3.0, 1000.5, 0.5), (1.0, 8.0, 0.25)]


def test_a_line_with_nothing_but_a_step_is_that_of_those_after_it():
    table = MetricTable()
    for told in ({"step": "3", "steps": "10"}, {"loss": "0.5"}, {"loss": "0.4", "step": "5"}, {"loss": "0.3"}):
        table.take(told, at=0.0)

    assert [point.step for point in table.series["loss"].points()] == [3.0, 5.0, 3.0]


def test_a_name_that_no_text_can_hold_is_written_out():
    table = MetricTable()
    for value in (1.0, 2.0):
        table.take({"a\ud800\n": value, "": 3.0}, at=0.0)

    assert {name: series.summary().reported for name, series in table.series.items()} == {r"a\ud800\n": 2}


def test_names_beyond_the_limit_are_left_out():
    table = MetricTable()
    for number in range(MOST_SERIES + 7):
        table.take({f"m{number}": 1.0}, at=0.0)

    assert len(table.series) == MOST_SERIES and len(table.left_out) == 7
