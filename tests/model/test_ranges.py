"""Ranges of numbers as text."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dibs.model.ranges import parse_ranges, show_ranges, spans


@given(st.lists(st.integers(0, 60), min_size=1))
def test_what_is_shown_can_be_read_and_names_every_number_once(numbers):
    read = [number for one in parse_ranges(show_ranges(numbers)) for number in one]

    assert read == sorted(set(numbers))


@pytest.mark.parametrize(
    ("text", "ranges"),
    [
        ("8", [range(8, 9)]),
        ("1-5,8", [range(1, 6), range(8, 9)]),
        (" 1-5 , 8 ", [range(1, 6), range(8, 9)]),
        ("5-3", [range(5, 4)]),
        ("0-999999999999999", [range(10**15)]),
    ],
)
def test_ranges_are_read_without_being_expanded(text, ranges):
    assert parse_ranges(text) == ranges


@pytest.mark.parametrize("text", ["", ",", "1,", "-1", "1-", "1-2-3", "a", "1.5", "١", "9" * 16, "1 - 5", "1-9:2"])
def test_other_texts_are_refused(text):
    with pytest.raises(ValueError, match=r".*"):
        parse_ranges(text)


def test_steps_are_read_where_they_are_allowed():
    assert parse_ranges("1-9:2,4", may_step=True) == [range(1, 10, 2), range(4, 5)]
    for wrong in ("1-9:0", "1:2", "1-9:"):
        with pytest.raises(ValueError, match=r".*"):
            parse_ranges(wrong, may_step=True)


def test_spans_keep_the_order_of_their_numbers():
    assert spans([1, 2, 3, 8, 10, 11]) == [(1, 3), (8, 8), (10, 11)]
    assert spans([]) == []
