"""Cards out of a file: what tests of every room may make happen to them."""

import json

import pytest

from dibs.gpus.fake import FakeProbe
from dibs.gpus.probe import ProbeFailed
from dibs.model.gpus import CardState, GpuFault


@pytest.fixture
def file(tmp_path):
    return tmp_path / "cards with blanks.json"


def write(file, *cards, **world):
    file.write_text(json.dumps({"gpus": cards, **world}))


def a_card(index=0, **more):
    return {"index": index, "uuid": f"GPU-{index}", **more}


def test_a_card_tells_all_that_stands_in_the_file(file):
    write(
        file,
        a_card(part=1, cpus=[0, 2], energy=12.5, ecc_uncorrected=3, state="stale", memory_total=5),
        a_card(1),
        links=[["GPU-1", "GPU-0", 18]],
    )

    reading = FakeProbe(str(file)).read()

    first, second = reading.gpus
    assert (first.gpu.number, first.gpu.cpus) == ("0:1", (0, 2))
    assert (first.energy, first.ecc_uncorrected, first.state) == (12.5, 3, CardState.STALE)
    assert (second.gpu.number, second.energy, second.state) == ("1", None, CardState.OK)
    assert reading.links == {("GPU-0", "GPU-1"): 18}


def test_a_fault_is_told_once_and_again_when_it_happens_again(file):
    fault = {"gpu": "GPU-0", "xid": 79, "message": "fallen off the bus"}
    write(file, a_card(), faults=[fault])
    probe = FakeProbe(str(file))

    first, second = probe.read().faults, probe.read().faults
    write(file, a_card(), faults=[fault, fault])
    third = probe.read().faults
    write(file, a_card(), faults=[{**fault, "id": 2}])
    fourth = probe.read().faults

    told = (GpuFault("GPU-0", 79, "fallen off the bus"),)
    assert (first, second, third, fourth) == (told, (), told, told)


def test_a_card_that_hangs_is_stale_and_the_others_are_read(file):
    write(file, a_card(load=1), a_card(1, load=2), a_card(2, load=3))
    probe = FakeProbe(str(file))
    probe.read()
    write(file, a_card(load=4), a_card(1, load=5, hang_seconds=60), a_card(2, load=6))

    reading = probe.read()

    assert [(seen.load, seen.state) for seen in reading.gpus] == [(4, "ok"), (2, "stale"), (6, "ok")]


def test_parts_of_one_card_share_its_number_and_not_their_own(file):
    write(file, a_card(part=0), {**a_card(part=1), "uuid": "MIG-1"})
    assert [seen.gpu.number for seen in FakeProbe(str(file)).read().gpus] == ["0:0", "0:1"]

    write(file, a_card(part=1), {**a_card(part=1), "uuid": "MIG-1"})
    with pytest.raises(ProbeFailed, match="0:1"):
        FakeProbe(str(file)).read()


@pytest.mark.parametrize("wrong", [{"links": [["GPU-0"]]}, {"faults": [{"xid": 1}]}, {"gpus": [{"index": 0}]}])
def test_a_file_that_makes_no_sense_is_refused_in_a_sentence(file, wrong):
    file.write_text(json.dumps(wrong))

    with pytest.raises(ProbeFailed, match="cannot read the fake GPUs"):
        FakeProbe(str(file)).read()
