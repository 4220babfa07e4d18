"""NVIDIA cards, over a stand-in for NVML."""

import os
import pwd

import pytest

from dibs.gpus.nvidia import NvidiaProbe
from dibs.gpus.probe import ProbeFailed
from gpus.stand_in_nvml import GIB, NVMLLibraryMismatchError, StandInNvml, a_card, a_process

NO_SUCH_PID = 2**22 + 1  # above the kernel's highest


def test_a_card_tells_all_it_knows():
    nvml = StandInNvml(a_card(0x3B, compute=[a_process(os.getpid(), memory=2 * GIB)]))

    reading = NvidiaProbe(nvml).read()

    assert reading.driver == "NVIDIA 580.159.04"
    [seen] = reading.gpus
    assert (seen.gpu.key, seen.gpu.index, seen.gpu.name) == (nvml.cards[0].uuid, 0, "NVIDIA H200")
    assert (seen.load, seen.temperature, seen.power) == (12, 40, 76.5)
    [process] = seen.processes
    assert (process.pid, process.memory, process.kind) == (os.getpid(), 2 * GIB, "compute")
    assert process.user == pwd.getpwuid(os.geteuid()).pw_name
    assert process.name


def test_memory_that_the_driver_keeps_for_itself_is_neither_there_nor_used():
    nvml = StandInNvml(a_card(1, total=140 * GIB, reserved=GIB, used=3 * GIB))

    [seen] = NvidiaProbe(nvml).read().gpus

    assert (seen.gpu.memory_total, seen.memory_used) == (139 * GIB, 3 * GIB)


def test_an_old_driver_that_does_not_tell_the_reserved_memory_still_tells_the_free_one():
    refusal = {"nvmlDeviceGetMemoryInfo_v2": StandInNvml.NVML_ERROR_NOT_SUPPORTED}
    nvml = StandInNvml(a_card(1, total=140 * GIB, reserved=GIB, used=3 * GIB, refuses=refusal))

    [seen] = NvidiaProbe(nvml).read().gpus

    assert seen.gpu.memory_total - seen.memory_used == 136 * GIB


def test_an_old_driver_with_the_second_process_list_only_is_asked_for_that(monkeypatch):
    def too_new(_card):
        raise NVMLLibraryMismatchError

    nvml = StandInNvml(a_card(1))
    monkeypatch.setattr(nvml, "nvmlDeviceGetComputeRunningProcesses", too_new)
    second = [a_process(NO_SUCH_PID)]
    nvml.nvmlDeviceGetComputeRunningProcesses_v2 = lambda _card: second

    [seen] = NvidiaProbe(nvml).read().gpus

    assert [process.pid for process in seen.processes] == [NO_SUCH_PID]


def test_a_driver_without_the_old_temperature_is_asked_for_the_new_one(monkeypatch):
    nvml = StandInNvml(a_card(1))
    monkeypatch.setattr(nvml, "nvmlDeviceGetTemperature", None)
    nvml.nvmlDeviceGetTemperatureV = lambda _card, _sensor: 55

    [seen] = NvidiaProbe(nvml).read().gpus

    assert seen.temperature == 55


def test_numbers_follow_the_bus_and_not_the_order_of_nvml():
    nvml = StandInNvml(a_card(0xAF), a_card(0x3B), a_card(0x5E))

    reading = NvidiaProbe(nvml).read()

    assert [seen.gpu.key for seen in reading.gpus] == [nvml.cards[i].uuid for i in (1, 2, 0)]
    assert [seen.gpu.index for seen in reading.gpus] == [0, 1, 2]


def test_a_card_lost_between_two_reads_is_told_as_lost_and_the_others_keep_their_numbers():
    nvml = StandInNvml(a_card(1), a_card(2), a_card(3))
    probe = NvidiaProbe(nvml)
    probe.read()
    nvml.cards[1].lost = True

    reading = probe.read()

    assert [(seen.gpu.key, seen.gpu.index, seen.state) for seen in reading.gpus] == [
        (nvml.cards[0].uuid, 0, "ok"),
        (nvml.cards[1].uuid, 1, "lost"),
        (nvml.cards[2].uuid, 2, "ok"),
    ]


def test_a_card_that_was_lost_at_the_start_appears_once_it_is_back():
    nvml = StandInNvml(a_card(1), a_card(2, lost=True), a_card(3))
    probe = NvidiaProbe(nvml)
    without = probe.read()
    nvml.cards[1].lost = False

    reading = probe.read()

    assert [seen.gpu.index for seen in without.gpus] == [0, 2]
    assert [seen.gpu.index for seen in reading.gpus] == [0, 1, 2]


def test_a_card_that_belongs_to_others_is_not_counted_as_cuda_does_not_count_it():
    forbidden = {"nvmlDeviceGetHandleByIndex": StandInNvml.NVML_ERROR_NO_PERMISSION}
    nvml = StandInNvml(a_card(1, refuses=forbidden), a_card(2))

    reading = NvidiaProbe(nvml).read()

    assert [(seen.gpu.key, seen.gpu.index) for seen in reading.gpus] == [(nvml.cards[1].uuid, 0)]


def test_two_cards_of_one_uuid_are_refused_in_a_sentence():
    nvml = StandInNvml(a_card(1, uuid="GPU-twin"), a_card(2, uuid="GPU-twin"))

    with pytest.raises(ProbeFailed) as failure:
        NvidiaProbe(nvml).read()

    assert "GPU-twin" in failure.value.message


def test_sixty_four_cards_are_read():
    nvml = StandInNvml(*(a_card(bus) for bus in range(64)))

    reading = NvidiaProbe(nvml).read()

    assert [seen.gpu.index for seen in reading.gpus] == list(range(64))


def test_bindings_that_answer_in_bytes_read_the_same():
    card = a_card(1, compute=[a_process(NO_SUCH_PID)])

    in_bytes, in_text = (NvidiaProbe(StandInNvml(card, in_bytes=b)).read() for b in (True, False))

    assert in_bytes.driver == in_text.driver
    assert in_bytes.gpus == in_text.gpus


def test_a_process_of_another_container_has_no_user_and_the_name_that_nvml_knows():
    nvml = StandInNvml(a_card(1, compute=[a_process(NO_SUCH_PID)]))

    [seen] = NvidiaProbe(nvml).read().gpus

    [process] = seen.processes
    assert (process.user, process.name) == (None, f"python{NO_SUCH_PID}")


@pytest.mark.parametrize("unknown", [None, 2**64 - 1])
def test_memory_of_a_process_that_nvml_cannot_tell_is_none(unknown):
    nvml = StandInNvml(a_card(1, compute=[a_process(os.getpid(), memory=unknown)]))

    [seen] = NvidiaProbe(nvml).read().gpus

    assert seen.processes[0].memory is None


def test_a_process_that_computes_and_draws_is_listed_once_as_computing():
    both = a_process(os.getpid())
    nvml = StandInNvml(a_card(1, compute=[both], graphics=[both, a_process(NO_SUCH_PID)]))

    [seen] = NvidiaProbe(nvml).read().gpus

    assert [(process.pid, process.kind) for process in seen.processes] == [
        (os.getpid(), "compute"),
        (NO_SUCH_PID, "graphics"),
    ]


def test_handles_are_looked_up_once():
    nvml = StandInNvml(a_card(1), a_card(2))
    probe = NvidiaProbe(nvml)

    for _ in range(3):
        probe.read()

    assert (nvml.inits, nvml.handles_asked) == (1, 2)


def test_a_driver_that_cannot_be_asked_says_so_in_a_sentence():
    probe = NvidiaProbe(StandInNvml(init_error=StandInNvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH))

    with pytest.raises(ProbeFailed) as failure:
        probe.read()

    assert failure.value.message == "cannot ask the NVIDIA driver for its GPUs: NVML error 18"
    assert "nvidia-smi" in failure.value.remedy


def test_a_library_without_a_driver_has_no_card():
    probe = NvidiaProbe(StandInNvml(init_error=StandInNvml.NVML_ERROR_DRIVER_NOT_LOADED))

    count = probe.count()

    assert count == 0
