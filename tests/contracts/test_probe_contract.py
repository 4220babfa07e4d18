"""What every probe promises, whoever it asks."""

import os
from datetime import UTC, datetime
from pathlib import Path

import pytest

from dibs.gpus.declared import DeclaredProbe
from dibs.gpus.fake import FakeProbe
from dibs.gpus.nvidia import NvidiaProbe
from dibs.gpus.patience import answer_within
from gpus.stand_in_nvml import StandInNvml, a_card, a_process

FOUR_CARDS = Path(__file__).parent.parent / "data" / "readings" / "four_cards.json"
NOON = datetime(2026, 11, 15, 12, tzinfo=UTC)


def a_fake_probe(**options):
    return FakeProbe(str(FOUR_CARDS), **options)


def a_declared_probe(**options):
    return DeclaredProbe([2, 0, 1], **options)


def an_nvidia_probe(**options):
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


@pytest.fixture(params=[a_fake_probe, a_declared_probe, an_nvidia_probe])
def make_probe(request):
    return request.param


def test_cards_come_in_the_order_of_their_numbers(make_probe):
    probe = make_probe()

    indices = [seen.gpu.index for seen in probe.read().gpus]

    assert indices
    assert indices == sorted(set(indices))


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
        assert isinstance(seen.gpu.name, str)
        for process in seen.processes:
            assert process.kind in ("compute", "graphics")
            assert process.memory is None or process.memory >= 0


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
