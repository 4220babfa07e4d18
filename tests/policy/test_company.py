"""Which cards one job of several GPUs may have side by side."""

import pytest

from dibs.model.gpus import Gpu
from dibs.model.jobs import Wishes
from dibs.model.pool import Card
from dibs.policy.schedule import impossible, schedule
from dibs.policy.snapshot import CardView
from policy.builders import Machine, a_job


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
