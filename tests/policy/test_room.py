"""When a card will have room."""

import math
from fractions import Fraction

import pytest

from dibs.policy.room import Kept, Room, after_kept, room_at
from dibs.policy.snapshot import Hold
from policy.builders import GIB

HALF, QUARTER, WHOLE = Fraction(1, 2), Fraction(1, 4), Fraction(1)
NOW = 100.0


def gib(size):
    return None if size is None else size * GIB


def opens(need, free, ends, *, vram=None, left=None, total=None, hopeful=False):
    return room_at(Room(need, gib(vram)), Room(free, gib(left)), gib(total), ends, NOW, hopeful=hopeful)


def test_a_card_with_room_is_open_now():
    assert opens(HALF, HALF, []) == NOW


def test_a_card_opens_when_enough_of_its_holders_have_ended():
    ends = [Hold(HALF, 0, 300.0), Hold(QUARTER, 0, 200.0)]

    assert opens(HALF, QUARTER, ends) == 200
    assert opens(WHOLE, QUARTER, ends) == 300


def test_without_a_limit_a_holder_never_leaves_unless_one_is_hopeful():
    ends = [Hold(QUARTER, 0, 200.0)]  # and three quarters of somebody without a limit

    assert opens(HALF, Fraction(0), ends) == math.inf
    assert opens(HALF, Fraction(0), ends, hopeful=True) == NOW
    assert opens(WHOLE, Fraction(0), ends, hopeful=True) == 200


def test_a_holder_past_its_limit_is_as_good_as_gone():
    assert opens(WHOLE, Fraction(0), [Hold(WHOLE, 0, 50.0)]) == NOW


def test_memory_comes_back_with_each_holder():
    ends = [Hold(QUARTER, 20 * GIB, 200.0), Hold(QUARTER, 20 * GIB, 300.0)]

    assert opens(QUARTER, QUARTER, ends, vram=30, left=10, total=80) == 200
    assert opens(QUARTER, QUARTER, ends, vram=50, left=10, total=80) == 300
    assert opens(QUARTER, QUARTER, ends, vram=60, left=10, total=80) == math.inf


def test_an_empty_card_has_all_its_memory_whatever_its_holders_had_booked():
    ends = [Hold(WHOLE, 0, 200.0)]

    assert opens(HALF, Fraction(0), ends, vram=60, left=5, total=80) == 200


def test_memory_that_nobody_can_measure_is_believed_to_suffice():
    assert opens(HALF, HALF, [], vram=60) == NOW


@pytest.mark.parametrize(
    ("when", "length", "safely", "hopefully"),
    [
        (100.0, 50.0, 100, 100),  # over before anybody comes
        (100.0, 100.0, 100, 100),
        (100.0, 101.0, math.inf, 200),  # between the two, if the first ends at once
        (100.0, 201.0, math.inf, 400),
        (250.0, 10.0, 300, 250),
        (500.0, 10.0, math.inf, 500),
    ],
)
def test_a_job_has_its_turn_before_between_or_after_those_for_whom_a_card_is_kept(when, length, safely, hopefully):
    kept = [Kept(400.0, math.inf, WHOLE), Kept(200.0, 300.0, WHOLE)]

    found = [after_kept(when, length, kept, hopeful=hopeful) for hopeful in (False, True)]

    assert found == [safely, hopefully]
