"""Pools on machines with divided cards, and with cards of AMD's."""

from datetime import UTC, datetime

import pytest

from dibs.errors import BadInput, NoGpu
from dibs.gpus.pool import resolve_pool
from dibs.model.gpus import Gpu, GpuReading, Reading


class Shows:
    """A probe that shows these cards."""

    def __init__(self, *gpus):
        self.gpus = gpus

    def read(self, *, energy=False):
        at = datetime(2026, 11, 15, tzinfo=UTC)
        return Reading(at=at, gpus=tuple(GpuReading(gpu=gpu) for gpu in self.gpus))


def a_part(index, part):
    return Gpu(key=f"MIG-{index}{part}", index=index, part=part)


def an_amd_card(index, address):
    return Gpu(key=f"AMD-{index}0ff", index=index, address=address)


DIVIDED = Shows(a_part(0, 0), a_part(0, 1), Gpu(key="GPU-b", index=1))
TWO_MAKERS = Shows(Gpu(key="GPU-a", index=0), an_amd_card(1, "0"), an_amd_card(2, "1"))
AMD = Shows(an_amd_card(0, "0"), an_amd_card(1, "1"), an_amd_card(2, "2"))


def numbers(text, probe, environ=None):
    return [card.gpu.number for card in resolve_pool(text, probe, environ or {}).cards]


@pytest.mark.parametrize(
    ("text", "means"),
    [
        ("auto", ["0:0", "0:1", "1"]),
        ("0", ["0:0", "0:1"]),
        ("0:1", ["0:1"]),
        ("0:1,1", ["0:1", "1"]),
        ("MIG-00", ["0:0"]),
    ],
)
def test_parts_are_named_by_the_card_by_number_or_by_uuid(text, means):
    assert numbers(text, DIVIDED) == means


def test_a_part_given_twice_has_two_slots():
    pool = resolve_pool("0:1,0:1", DIVIDED, {})

    assert pool.shown == "0:1 ×2"


@pytest.mark.parametrize("text", ["0:0+0:1", "0+1", "0:0+1"])
def test_parts_do_not_go_into_groups(text):
    with pytest.raises(BadInput, match="into a group: CUDA shows a program one part") as refusal:
        resolve_pool(text, DIVIDED, {})

    assert refusal.value.remedy


@pytest.mark.parametrize("text", ["0:2", "1:0", "MIG-7", "0:", ":1", "0:1:2"])
def test_a_part_that_is_not_there_is_refused(text):
    with pytest.raises(BadInput) as refusal:
        resolve_pool(text, DIVIDED, {})

    assert text in refusal.value.message


def test_the_beginning_of_two_uuids_is_refused():
    with pytest.raises(BadInput, match="MIG-00, MIG-01"):
        resolve_pool("MIG-0", DIVIDED, {})


def test_without_a_driver_parts_are_unknown():
    with pytest.raises(BadInput, match="0:1"):
        resolve_pool("0:1", None, {})


@pytest.mark.parametrize(
    ("name", "value", "left"),
    [
        ("CUDA_VISIBLE_DEVICES", "MIG-01", ["0:1"]),
        ("CUDA_VISIBLE_DEVICES", "GPU-b", ["1"]),
        ("DIBS_GPUS", "MIG-01,1", ["0:1", "1"]),
        ("DIBS_GPUS", "0", ["0:0", "0:1"]),
    ],
)
def test_variables_may_leave_parts(name, value, left):
    assert numbers("auto", DIVIDED, {name: value}) == left


@pytest.mark.parametrize(
    ("environ", "left"),
    [
        ({}, ["0", "1", "2"]),
        ({"CUDA_VISIBLE_DEVICES": "0"}, ["0", "1", "2"]),
        ({"CUDA_VISIBLE_DEVICES": ""}, ["1", "2"]),
        ({"ROCR_VISIBLE_DEVICES": "1"}, ["2", "0"]),
        ({"HIP_VISIBLE_DEVICES": "0", "CUDA_VISIBLE_DEVICES": ""}, ["1"]),
        ({"DIBS_GPUS": "2", "ROCR_VISIBLE_DEVICES": "1", "HIP_VISIBLE_DEVICES": "0"}, ["2"]),
    ],
)
def test_each_makers_variable_hides_its_own_cards_only(environ, left):
    assert sorted(numbers("auto", TWO_MAKERS, environ)) == sorted(left)


@pytest.mark.parametrize(
    ("environ", "left"),
    [
        ({"CUDA_VISIBLE_DEVICES": "2,0"}, ["2", "0"]),
        ({"HIP_VISIBLE_DEVICES": "1", "CUDA_VISIBLE_DEVICES": "2"}, ["1"]),
        ({"ROCR_VISIBLE_DEVICES": "GPU-10ff"}, ["1"]),
        ({"DIBS_GPUS": "1", "ROCR_VISIBLE_DEVICES": "1", "CUDA_VISIBLE_DEVICES": "0"}, ["1"]),
    ],
)
def test_on_amd_cards_alone_rocm_and_cuda_speak_of_the_same(environ, left):
    assert numbers("auto", AMD, environ) == left


def test_variables_that_hide_every_card_are_told_with_what_to_do():
    with pytest.raises(NoGpu, match="ROCR_VISIBLE_DEVICES=7") as refusal:
        resolve_pool("auto", AMD, {"ROCR_VISIBLE_DEVICES": "7"})

    assert "unset ROCR_VISIBLE_DEVICES" in refusal.value.remedy


def test_a_group_of_two_makers_is_refused():
    with pytest.raises(BadInput, match="two makers"):
        resolve_pool("0+1", TWO_MAKERS, {})


def test_who_wants_to_begin_anyway_is_told_what_is_missing():
    missing: list[str] = []

    pool = resolve_pool("0:1,GPU-gone,1,1+7", DIVIDED, {}, missing)

    assert [card.gpu.number for card in pool.cards] == ["0:1", "1"]
    assert missing == ["GPU-gone", "1+7"]
