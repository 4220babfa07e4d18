"""Moments as people write and read them."""

import time

import pytest

from dibs.cli.filters import parse_since
from dibs.cli.output import elapsed_seconds, show_about, show_moment
from dibs.errors import BadInput
from dibs.model.units import parse_moment

NOON = "2026-11-15T12:00:00Z"


@pytest.fixture(autouse=True)
def in_utc(socket):
    """The fixture sets the clock of this process to UTC."""


def test_today_needs_no_date_and_another_day_does():
    now = parse_moment(NOON)

    assert show_moment("2026-11-15T14:30:05.123Z", now=now) == "14:30:05"
    assert show_moment("2026-11-16T14:30:05Z", now=now) == "2026-11-16 14:30"
    assert (show_about("2026-11-15T14:30:05Z", now=now), show_moment(None)) == ("14:30", "-")


@pytest.mark.parametrize("text", ["", None, "soon", "99999-01-01T00:00:00Z", "2026-11-15T12:00"])
def test_what_is_no_moment_is_shown_as_none(text):
    assert show_moment(text, now=0.0) in ("-", "2026-11-15 12:00")


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("2026-11-15", "2026-11-15T00:00:00Z"),
        ("2026-11-15 14:30", "2026-11-15T14:30:00Z"),
        ("2026-11-15T14:30:00+02:00", "2026-11-15T12:30:00Z"),
    ],
)
def test_since_a_date(text, found):
    assert parse_since(text) == found


def test_since_some_time_ago_and_since_an_hour_of_today():
    ago = time.time() - parse_moment(parse_since("2h"))

    assert 7200 <= ago < 7260
    assert parse_since("00:00") == parse_since("today")
    assert parse_moment(parse_since("today")) - parse_moment(parse_since("yesterday")) == 86400


@pytest.mark.parametrize("text", ["", "soon", "25:00", "2026-13-01", "-1h", "9" * 400 + "d", "2026-11-15T", "NaN"])
def test_what_cannot_be_a_moment_is_refused(text):
    with pytest.raises(BadInput):
        parse_since(text)


def test_a_clock_that_was_set_back_makes_no_negative_times():
    job = {"state": "running", "started_at": NOON, "seconds": None}

    assert elapsed_seconds(job, now=parse_moment(NOON) - 3600) == 0.0


@pytest.mark.parametrize("state", ["running", "suspended"])
def test_the_time_in_which_a_job_stood_still_does_not_count(state):
    job = {"state": state, "started_at": NOON, "seconds": None, "suspended_seconds": 3000.0}

    assert elapsed_seconds(job, now=parse_moment(NOON) + 3600) == 600.0
