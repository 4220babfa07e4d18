"""Where jobs are placed: when a card will have room, reservations, cards that cannot be used together."""

import math
from fractions import Fraction

import pytest

from dibs.model.gpus import Card, Gpu
from dibs.model.jobs import Wishes
from dibs.policy.placement import Capacity, Reservation, after_reservations, free_at
from dibs.policy.schedule import impossible, schedule
from dibs.policy.snapshot import CardView, Hold
from policy.builders import GIB, Machine, a_job

HALF, QUARTER, WHOLE = Fraction(1, 2), Fraction(1, 4), Fraction(1)
NOW = 100.0


def gib(size):
    return None if size is None else size * GIB


def opens(need, free, ends, *, vram=None, left=None, total=None, optimistic=False):
    return free_at(
        Capacity(need, gib(vram)), Capacity(free, gib(left)), gib(total), ends, NOW, optimistic=optimistic
    )


def test_a_card_with_room_is_open_now():
    assert opens(HALF, HALF, []) == NOW


def test_a_card_opens_when_enough_of_its_holders_have_ended():
    ends = [Hold(HALF, 0, 300.0), Hold(QUARTER, 0, 200.0)]

    assert opens(HALF, QUARTER, ends) == 200
    assert opens(WHOLE, QUARTER, ends) == 300


def test_without_a_limit_a_holder_never_leaves_unless_one_is_optimistic():
    ends = [Hold(QUARTER, 0, 200.0)]  # and three quarters of a job without a limit

    assert opens(HALF, Fraction(0), ends) == math.inf
    assert opens(HALF, Fraction(0), ends, optimistic=True) == NOW
    assert opens(WHOLE, Fraction(0), ends, optimistic=True) == 200


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


def test_memory_that_cannot_be_measured_is_taken_to_suffice():
    assert opens(HALF, HALF, [], vram=60) == NOW


@pytest.mark.parametrize(
    ("when", "length", "safely", "early"),
    [
        (100.0, 50.0, 100, 100),  # over before another comes
        (100.0, 100.0, 100, 100),
        (100.0, 101.0, math.inf, 200),  # between the two, if the first ends at once
        (100.0, 201.0, math.inf, 400),
        (250.0, 10.0, 300, 250),
        (500.0, 10.0, math.inf, 500),
    ],
)
def test_a_job_runs_before_between_or_after_reservations(when, length, safely, early):
    kept = [Reservation(400.0, math.inf, WHOLE), Reservation(200.0, 300.0, WHOLE)]

    found = [after_reservations(when, length, kept, optimistic=optimistic) for optimistic in (False, True)]

    assert found == [safely, early]


def a_machine_of(*numbers):
    """`0` is a whole card, `0:1` a part of one, `a0` one of AMD's."""
    views = []
    for number in numbers:
        index, _, part = number.removeprefix("a").partition(":")
        kind = "AMD" if number.startswith("a") else "MIG" if part else "GPU"
        gpu = Gpu(key=f"{kind}-{number}", index=int(index), part=int(part) if part else None, address=f"x{number}")
        views.append(CardView(card=Card(gpu=gpu)))
    return Machine(tuple(views))


def given(machine, job):
    plan = schedule(machine.with_waiting(job))
    return [claim.gpu for placement in plan.placements for claim in placement.claims]


@pytest.mark.parametrize(
    ("machine", "gets"),
    [
        (["0:0", "0:1", "1", "2"], ["GPU-1", "GPU-2"]),
        (["0", "a1", "a2"], ["AMD-a1", "AMD-a2"]),
        (["0", "1", "a2", "a3"], ["GPU-0", "GPU-1"]),
        (["0:0", "0:1", "1"], []),
        (["0", "a1"], []),
    ],
)
def test_several_gpus_are_whole_cards_of_one_maker(machine, gets):
    assert given(a_machine_of(*machine), a_job(2)) == gets


def test_a_job_of_one_gpu_may_have_a_part():
    assert given(a_machine_of("0:0", "0:1", "1"), a_job(only=["0:1"])) == ["MIG-0:1"]


def test_the_number_of_a_divided_card_means_any_of_its_parts():
    assert given(a_machine_of("0", "1:0", "1:1"), a_job(only=["1"])) == ["MIG-1:0"]


def test_a_claim_knows_how_the_cards_library_calls_it():
    plan = schedule(a_machine_of("a1").with_waiting(a_job()))

    assert plan.placements[0].claims[0].address == "xa1"


@pytest.mark.parametrize(
    ("machine", "why"),
    [
        (["0:0", "0:1"], "one part of a divided card, and nothing beside it"),
        (["0", "a1"], "cards of one maker only"),
        (["0"], "but only 1 may be used (GPU 0)"),
    ],
)
def test_what_can_never_be_together_is_refused_in_a_sentence(machine, why):
    assert why in impossible(Wishes(num_gpus=2), a_machine_of(*machine).pool)


def test_what_can_be_together_is_possible():
    assert impossible(Wishes(num_gpus=2), a_machine_of("0:0", "1", "2").pool) == ""
