"""What NVIDIA cards are: parts that MIG made, the ways between cards, and the CPUs near to them."""

from types import SimpleNamespace

from dibs.gpus.nvidia import NvidiaProbe
from gpus.stand_in_nvml import GIB, StandInNvml, a_card, a_part, a_process


class Clock:
    def __init__(self):
        self.seconds = 100.0

    def __call__(self):
        return self.seconds


def test_a_divided_card_is_left_out_and_its_parts_are_there():
    board = a_card(1, parts=[a_part(0), None, a_part(2, compute=[a_process(1, memory=GIB)], used=2 * GIB)])
    nvml = StandInNvml(board, a_card(2))

    reading = NvidiaProbe(nvml).read()

    assert [seen.gpu.number for seen in reading.gpus] == ["0:0", "0:2", "1"]
    part = reading.gpus[1]
    assert (part.gpu.key, part.gpu.name) == (board.parts[2].uuid, "NVIDIA H200 MIG 1g.18gb")
    assert (part.gpu.memory_total, part.memory_used) == (18 * GIB, 2 * GIB)
    assert [process.pid for process in part.processes] == [1]
    assert (part.load, part.temperature, part.energy) == (None, None, None)


def test_beside_a_divided_card_cuda_is_told_uuids():
    divided = NvidiaProbe(StandInNvml(a_card(1, parts=[a_part(0)]), a_card(2))).read()
    whole = NvidiaProbe(StandInNvml(a_card(1), a_card(2))).read()

    assert [seen.gpu.address for seen in divided.gpus] == [seen.gpu.key for seen in divided.gpus]
    assert [seen.gpu.address for seen in whole.gpus] == ["", ""]


def test_a_divided_card_without_parts_shows_nothing_that_could_be_used():
    reading = NvidiaProbe(StandInNvml(a_card(1, parts=[]), a_card(2))).read()

    assert [seen.gpu.number for seen in reading.gpus] == ["1"]


def test_parts_that_an_admin_makes_appear_by_themselves():
    clock = Clock()
    board = a_card(1, parts=[a_part(0)])
    probe = NvidiaProbe(StandInNvml(board), clock=clock)
    probe.read()
    board.parts = [a_part(0), a_part(1)]
    clock.seconds += 5.0

    reading = probe.read()

    assert [seen.gpu.number for seen in reading.gpus] == ["0:0", "0:1"]


def test_the_name_of_a_part_is_put_together_where_the_driver_tells_less():
    short = a_part(0, name="MIG 1g.18gb")
    silent = a_part(1, name="NVIDIA H200")
    nvml = StandInNvml(a_card(1, parts=[short, silent]))
    nvml.nvmlDeviceGetAttributes = lambda _card: SimpleNamespace(
        gpuInstanceSliceCount=3, computeInstanceSliceCount=1, memorySizeMB=71_424
    )

    reading = NvidiaProbe(nvml).read()

    assert [seen.gpu.name for seen in reading.gpus] == ["NVIDIA H200 MIG 1g.18gb", "NVIDIA H200 MIG 1c.3g.70gb"]


def test_the_cpus_near_to_a_card_are_told():
    nvml = StandInNvml(a_card(1, cpus=[0b1010_0001]), a_card(2, refuses={"nvmlDeviceGetCpuAffinity": 3}))

    reading = NvidiaProbe(nvml).read()

    assert [seen.gpu.cpus for seen in reading.gpus] == [(0, 5, 7), ()]


def links_of(*cards):
    nvml = StandInNvml(*cards)
    reading = NvidiaProbe(nvml).read()
    numbers = {seen.gpu.key: seen.gpu.index for seen in reading.gpus}
    return {(numbers[one], numbers[other]): quality for (one, other), quality in reading.links.items()}


def test_more_nvlinks_are_better_than_fewer_and_fewer_than_any_way_over_pci():
    links = links_of(
        a_card(1, nvlinks=[2, 2, 3], levels={4: 10}),
        a_card(2, nvlinks=[1, 1], levels={3: 30, 4: 50}),
        a_card(3, nvlinks=[1, None], levels={4: 20}),
        a_card(4),
    )

    assert links == {(0, 1): 102, (0, 2): 101, (1, 2): 20, (0, 3): 40, (1, 3): 0, (2, 3): 30}


def test_cards_on_switches_reach_each_other_with_all_their_links():
    links = links_of(a_card(1, nvlinks=[90] * 9 + [91] * 9), a_card(2, nvlinks=[90] * 9 + [91] * 8), a_card(3))

    assert links == {(0, 1): 117}


def test_links_are_asked_for_once():
    clock = Clock()
    nvml = StandInNvml(a_card(1, levels={2: 10}), a_card(2))
    probe = NvidiaProbe(nvml, clock=clock)
    for _ in range(3):
        reading = probe.read()
        clock.seconds += 40.0

    assert nvml.asked["nvmlDeviceGetTopologyCommonAncestor"] == 1
    assert list(reading.links.values()) == [40]
