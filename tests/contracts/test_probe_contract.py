"""What every probe promises, whichever driver it asks."""

import os
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import pytest

from dibs.gpus.amd import AmdProbe
from dibs.gpus.detect import CombinedProbe
from dibs.gpus.fake import FakeProbe
from dibs.gpus.nvidia import NvidiaProbe
from dibs.gpus.probe import answer_within
from dibs.model.gpus import CardState
from gpus.replay_nvml import ReplayNvml
from gpus.stand_in_nvml import StandInNvml, a_card, a_part, a_process
from gpus.trees import lay_out

FOUR_CARDS = Path(__file__).parent.parent / "data" / "readings" / "four_cards.json"
NOON = datetime(2026, 11, 15, 12, tzinfo=UTC)


def a_fake_probe(_folder, **options):
    return FakeProbe(str(FOUR_CARDS), **options)


def the_probe_of_an_h200(_folder, **options):
    return NvidiaProbe(ReplayNvml(), **options)


def the_probe_of_a_divided_card(_folder, **options):
    return NvidiaProbe(StandInNvml(a_card(3, parts=[a_part(0), a_part(1)]), a_card(9)), **options)


def an_amd_probe(folder, **options):
    return AmdProbe(lay_out("mi300x", folder), **options)


def a_desktops_probe(folder, **options):
    return AmdProbe(lay_out("radeon_desktop", folder), **options)


def the_probe_of_a_recorded_780m(folder, **options):
    return AmdProbe(lay_out("recorded_radeon_780m", folder), **options)


def the_probe_of_a_recorded_vega(folder, **options):
    return AmdProbe(lay_out("recorded_vega56", folder), **options)


def a_probe_of_two_makers(folder, **options):
    return CombinedProbe([an_nvidia_probe(folder, **options), an_amd_probe(folder, **options)])


def an_nvidia_probe(_folder, **options):
    unhelpful = dict.fromkeys(
        (
            "nvmlDeviceGetMemoryInfo",
            "nvmlDeviceGetMemoryInfo_v2",
            "nvmlDeviceGetUtilizationRates",
            "nvmlDeviceGetTemperature",
            "nvmlDeviceGetPowerUsage",
            "nvmlDeviceGetComputeRunningProcesses",
            "nvmlDeviceGetGraphicsRunningProcesses",
        ),
        StandInNvml.NVML_ERROR_NOT_SUPPORTED,
    )
    cards = a_card(9, compute=[a_process(os.getpid())]), a_card(3, lost=True), a_card(5, refuses=unhelpful)
    return NvidiaProbe(StandInNvml(*cards), **options)


@pytest.fixture(
    params=[
        a_fake_probe,
        an_nvidia_probe,
        the_probe_of_an_h200,
        the_probe_of_a_divided_card,
        an_amd_probe,
        a_desktops_probe,
        the_probe_of_a_recorded_780m,
        the_probe_of_a_recorded_vega,
        a_probe_of_two_makers,
    ]
)
def make_probe(request, tmp_path):
    return partial(request.param, tmp_path / "a root")


def test_cards_come_in_the_order_of_their_numbers(make_probe):
    probe = make_probe()

    places = [(seen.gpu.index, seen.gpu.part or 0) for seen in probe.read().gpus]

    assert places
    assert places == sorted(set(places))


def test_every_card_has_a_key_of_its_own(make_probe):
    probe = make_probe()

    reading = probe.read()

    keys = [seen.gpu.key for seen in reading.gpus]
    assert all(keys)
    assert len(keys) == len(set(keys))


def test_a_second_look_shows_the_same_cards(make_probe):
    probe = make_probe()
    first = probe.read()

    second = probe.read()

    assert [seen.gpu for seen in second.gpus] == [seen.gpu for seen in first.gpus]


def test_what_is_told_is_a_possible_value_and_the_rest_is_none(make_probe):
    probe = make_probe()

    reading = probe.read()

    for seen in reading.gpus:
        total, used = seen.gpu.memory_total, seen.memory_used
        assert total is None or total > 0
        assert used is None or total is None or 0 <= used <= total
        assert seen.load is None or 0 <= seen.load <= 100
        assert seen.temperature is None or -50 < seen.temperature < 200
        assert seen.power is None or 0 <= seen.power < 5000
        assert seen.energy is None or seen.energy >= 0
        assert seen.ecc_uncorrected is None or seen.ecc_uncorrected >= 0
        assert seen.state in CardState
        assert seen.gpu.cpus == tuple(sorted(set(seen.gpu.cpus)))
        assert isinstance(seen.gpu.name, str)
        for process in seen.processes:
            assert process.kind in ("compute", "graphics")
            assert process.memory is None or process.memory >= 0


def test_links_are_between_two_cards_that_are_there_the_smaller_key_first(make_probe):
    reading = make_probe().read()

    keys = {seen.gpu.key for seen in reading.gpus}
    for (one, other), quality in reading.links.items():
        assert one < other
        assert {one, other} <= keys
        assert quality >= 0


def test_energy_may_be_asked_for(make_probe):
    probe = make_probe()

    reading = probe.read(energy=True)

    assert [seen.gpu for seen in reading.gpus] == [seen.gpu for seen in probe.read().gpus]


def test_a_fault_is_told_once_and_of_a_card_that_is_there(make_probe):
    probe = make_probe()

    first, second = probe.read(), probe.read()

    assert {fault.gpu for fault in first.faults} <= {seen.gpu.key for seen in first.gpus}
    assert second.faults == ()


def test_every_card_can_be_called_by_its_number_and_by_its_key(make_probe):
    reading = make_probe().read()

    for seen in reading.gpus:
        called = [
            [other.gpu for other in reading.gpus if other.gpu.is_called(name)]
            for name in (seen.gpu.number, seen.gpu.key)
        ]
        assert called == [[seen.gpu], [seen.gpu]]


def test_a_reading_carries_the_moment_it_was_made(make_probe):
    probe = make_probe(now=lambda: NOON)

    reading = probe.read()

    assert reading.at == NOON


def test_without_a_given_clock_the_moment_knows_its_time_zone(make_probe):
    probe = make_probe()

    reading = probe.read()

    assert reading.at.tzinfo is not None


def test_a_probe_may_be_asked_from_any_thread(make_probe):
    probe = make_probe()
    here = probe.read()

    there = answer_within(probe.read)

    assert [seen.gpu for seen in there.gpus] == [seen.gpu for seen in here.gpus]
