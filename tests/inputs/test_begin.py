"""The time to begin, as people write it."""

from datetime import datetime, timedelta

import pytest

from dibs.errors import BadInput
from dibs.inputs.begin import parse_begin

NOON = datetime(2026, 11, 15, 12, 0, 0, 500)


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("22:00", datetime(2026, 11, 15, 22)),
        ("9:30", datetime(2026, 11, 16, 9, 30)),
        ("12:00", datetime(2026, 11, 16, 12)),
        ("23:59:59", datetime(2026, 11, 15, 23, 59, 59)),
        ("2026-12-01 08:00", datetime(2026, 12, 1, 8)),
        ("2026-12-01T08:00:30", datetime(2026, 12, 1, 8, 0, 30)),
        ("2026-12-01", datetime(2026, 12, 1)),
        ("+2h", NOON + timedelta(hours=2)),
        ("+90", NOON + timedelta(minutes=90)),
        ("now+60", NOON + timedelta(seconds=60)),
        ("now+1hour", NOON + timedelta(hours=1)),
        ("now", NOON),
        ("tomorrow", datetime(2026, 11, 16)),
        ("Midnight", datetime(2026, 11, 16)),
        ("noon", datetime(2026, 11, 16, 12)),
    ],
)
def test_moments(text, moment):
    assert parse_begin(text, NOON) == moment.timestamp()


def test_a_moment_with_a_zone_is_that_moment():
    assert parse_begin("2026-12-01T08:00:00Z", NOON) == 1796112000


@pytest.mark.parametrize(
    "text", ["", "soon", "25:00", "12:60", "+", "+x", "now-1h", "2026-13-01", "nowhere", "+1e300h", "8", "12:0"]
)
def test_what_is_no_moment_is_refused(text):
    with pytest.raises(BadInput, match="as a time to begin"):
        parse_begin(text, NOON)


@pytest.mark.parametrize("text", ["9999-12-31", "9999-12-31T23:59:59Z", "2126-01-01"])
def test_a_moment_that_nobody_lives_to_see_is_refused(text):
    with pytest.raises(BadInput, match="ten years"):
        parse_begin(text, NOON)
