"""Sizes, times and shares as people write them."""

from datetime import UTC
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dibs.errors import BadInput
from dibs.model.units import (
    format_moment,
    is_reference,
    parse_count,
    parse_duration,
    parse_moment,
    parse_ranges,
    parse_share,
    parse_size,
    show_duration,
    show_ranges,
    show_size,
    spans,
)


@pytest.mark.parametrize(
    ("text", "size"),
    [("12G", 12 * 2**30), ("12", 12 * 2**30), ("1.5 GiB", 3 * 2**29), ("900m", 900 * 2**20), ("64kB", 2**16)],
)
def test_sizes_are_in_powers_of_1024_and_bare_numbers_are_gib(text, size):
    assert parse_size(text) == size


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("2h", 7200),
        ("1h30m", 5400),
        ("90s", 90),
        ("45", 2700),
        ("0.5", 30),
        ("1:30", 90),
        ("90:00", 5400),
        ("120:00", 7200),
        ("01:30:00", 5400),
        ("2-12", 216000),
        ("1-2:3:4", 93784),
    ],
)
def test_times_are_as_people_and_slurm_write_them(text, seconds):
    assert parse_duration(text) == seconds


def test_shares_are_decimal_or_broken():
    assert [parse_share(text) for text in ("0.5", ".5", "1", "1/3")] == [
        Fraction(1, 2),
        Fraction(1, 2),
        1,
        Fraction(1, 3),
    ]


@pytest.mark.parametrize("parse", [parse_size, parse_duration, parse_share])
@pytest.mark.parametrize(
    "text", ["", "0", "-1", "nan", "inf", "1e300", "1e-99999999", "9" * 5000, "x", "٣", "1/0"]
)
def test_what_cannot_be_meant_is_refused_at_once(parse, text):
    with pytest.raises(BadInput) as refusal:
        parse(text)

    assert refusal.value.remedy


@pytest.mark.parametrize("text", ["", "-1", "1.5", "1e3", "0", "9999999", "٣", "true"])
def test_a_count_is_plain_digits(text):
    with pytest.raises(BadInput):
        parse_count(text, "a count", least=1)


@given(st.text(alphabet="0123456789.-:/ hmsdGMKwe", max_size=40))
def test_no_text_makes_a_reader_fall(text):
    for parse in (parse_size, parse_duration, parse_share):
        try:
            assert parse(text) > 0
        except BadInput as refusal:
            assert refusal.remedy


@given(st.integers(0, 2**50))
def test_a_size_is_shown_in_a_few_letters(size):
    shown = show_size(size)

    assert len(shown) <= 5
    assert "e" not in shown


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [
        (None, "?"),
        (0.04, "0.0s"),
        (9.96, "10s"),
        (59.7, "1m00s"),
        (185, "3m05s"),
        (7620, "2h07m"),
        (273600, "3d04h"),
    ],
)
def test_a_time_is_shown_in_two_units(seconds, shown):
    assert show_duration(seconds) == shown


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("1970-01-01T00:00:00Z", 0),
        ("1970-01-01t01:00:00.5z", 3600.5),
        ("1970-01-01 02:00:00+02:00", 0),
        ("1969-12-31T23:59:59Z", -1),
    ],
)
def test_moments_are_read_as_in_rfc_3339(text, seconds):
    assert parse_moment(text) == seconds


@pytest.mark.parametrize(
    "text", ["", "12", "1970-01-01", "1970-01-01T00:00:00", "1970-13-01T00:00:00Z", "٢٠٢٦-01-01T00:00:00Z", "now"]
)
def test_a_moment_without_a_zone_or_of_another_form_is_refused(text):
    with pytest.raises(BadInput, match="as a beginning") as refused:
        parse_moment(text, "a beginning")

    assert "2030-01-31T22:00:00Z" in refused.value.remedy


def test_a_zone_can_be_given_for_texts_without_one():
    assert parse_moment("1970-01-01T01:00:00", zone=UTC) == 3600
    assert parse_moment("1970-01-01T01:00:00+01:00", zone=UTC) == 0


@given(st.floats(0, 4e9))
def test_moments_that_were_written_are_read_to_the_microsecond(seconds):
    assert parse_moment(format_moment(seconds)) == pytest.approx(seconds, abs=1e-6)


# -- ranges of numbers ----------------------------------------------------------------------------------


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


@pytest.mark.parametrize("text", ["7427", "@", "@~2", "17_3", "17_", "3-4", " 12 "])
def test_what_names_jobs_by_their_numbers_is_a_reference(text):
    assert is_reference(text)


@pytest.mark.parametrize("text", ["", "train", "run-7427", "3-4-5", "v1_2", "1e-3", "a@b", "@home", "17_a", "1.5"])
def test_anything_else_may_be_a_name(text):
    assert not is_reference(text)
