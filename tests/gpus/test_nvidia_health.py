"""NVIDIA cards that do not answer, and what their driver tells by itself."""

import threading

import pytest

from dibs.gpus.nvidia import NvidiaProbe
from dibs.model.gpus import CardState, GpuFault
from gpus.stand_in_nvml import NVMLError, StandInNvml, a_card, a_part, a_process, an_event

XID, DOUBLE_BIT = 8, 2


@pytest.fixture
def hang():
    """Makes a card hang until the test is over."""
    came_back = threading.Event()

    def make(card):
        card.hangs = came_back
        return came_back

    yield make
    came_back.set()


class Clock:
    def __init__(self):
        self.seconds = 100.0

    def __call__(self):
        return self.seconds


def states(reading):
    return [seen.state for seen in reading.gpus]


def test_a_card_that_hangs_is_stale_with_its_last_values_and_the_others_are_read(hang):
    nvml = StandInNvml(*(a_card(bus) for bus in range(1, 5)))
    probe = NvidiaProbe(nvml)
    probe.read()
    nvml.cards[1].load = 99
    hang(nvml.cards[1])
    nvml.cards[2].load = 77

    reading = probe.read()

    assert states(reading) == ["ok", "stale", "ok", "ok"]
    assert [seen.load for seen in reading.gpus] == [12, 12, 77, 12]


def test_a_card_that_hangs_is_not_asked_again_until_it_comes_back(hang):
    nvml = StandInNvml(a_card(1), a_card(2))
    probe = NvidiaProbe(nvml)
    probe.read()
    came_back = hang(nvml.cards[0])
    probe.read()
    asked = nvml.asked["nvmlDeviceGetMemoryInfo_v2"]

    probe.read()

    assert nvml.asked["nvmlDeviceGetMemoryInfo_v2"] == asked + 1  # the other card
    came_back.set()
    for _ in range(1000):
        reading = probe.read()
        if states(reading) == ["ok", "ok"]:
            break
    assert states(reading) == ["ok", "ok"]


def test_a_card_that_hangs_for_half_a_minute_is_lost(hang):
    clock = Clock()
    nvml = StandInNvml(a_card(1), a_card(2))
    probe = NvidiaProbe(nvml, clock=clock)
    probe.read()
    hang(nvml.cards[0])
    first = probe.read()
    clock.seconds += 29.0

    second = probe.read()
    clock.seconds += 2.0
    third = probe.read()

    assert [states(reading)[0] for reading in (first, second, third)] == ["stale", "stale", "lost"]
    assert states(third)[1] == "ok"


def test_a_card_that_hangs_when_the_cards_are_looked_for_again_keeps_its_place(hang):
    clock = Clock()
    nvml = StandInNvml(a_card(1), a_card(2), a_card(3))
    probe = NvidiaProbe(nvml, clock=clock)
    probe.read()
    hang(nvml.cards[1])
    clock.seconds += 31.0

    reading = probe.read()

    assert [(seen.gpu.index, seen.state) for seen in reading.gpus] == [(0, "ok"), (1, "stale"), (2, "ok")]


def test_a_card_that_says_it_is_lost_is_lost_at_once_and_can_come_back():
    nvml = StandInNvml(a_card(1))
    probe = NvidiaProbe(nvml)
    probe.read()
    nvml.cards[0].lost = True
    gone = probe.read()
    nvml.cards[0].lost = False

    back = probe.read()

    assert gone.gpus[0].state is CardState.LOST
    assert (back.gpus[0].state, back.gpus[0].load) == (CardState.OK, 12)


def test_a_card_that_answers_with_errors_only_is_stale_and_then_lost():
    clock = Clock()
    nvml = StandInNvml(a_card(1), a_card(2))
    probe = NvidiaProbe(nvml, clock=clock)
    probe.read()
    unknown = 999
    calls = ("nvmlDeviceGetMemoryInfo", "nvmlDeviceGetMemoryInfo_v2", "nvmlDeviceGetUtilizationRates")
    nvml.cards[0].refuses = dict.fromkeys(calls, unknown)

    first = probe.read()
    clock.seconds += 30.0
    second = probe.read()
    nvml.cards[0].refuses = {}
    third = probe.read()

    assert [states(reading) for reading in (first, second, third)] == [
        ["stale", "ok"],
        ["lost", "ok"],
        ["ok", "ok"],
    ]
    assert first.gpus[0].load == 12


def test_ecc_errors_are_told():
    nvml = StandInNvml(a_card(1, ecc=2), a_card(2, refuses={"nvmlDeviceGetTotalEccErrors": 3}))

    reading = NvidiaProbe(nvml).read()

    assert [seen.ecc_uncorrected for seen in reading.gpus] == [2, None]


def test_energy_is_asked_for_rarely_because_it_is_dear():
    clock = Clock()
    nvml = StandInNvml(a_card(1))
    probe = NvidiaProbe(nvml, clock=clock)

    seen = []
    for _ in range(25):
        seen.append(probe.read().gpus[0].energy)
        clock.seconds += 1.0

    assert [second for second, energy in enumerate(seen) if energy is not None] == [8, 18]
    assert seen[8] == 3940.061


def test_energy_is_told_at_once_to_who_asks_but_not_all_the_time():
    clock = Clock()
    probe = NvidiaProbe(StandInNvml(a_card(1)), clock=clock)

    first = probe.read(energy=True).gpus[0].energy
    second = probe.read(energy=True).gpus[0].energy
    clock.seconds += 2.0
    third = probe.read(energy=True).gpus[0].energy

    assert (first, second, third) == (3940.061, None, 3940.061)


def test_xids_and_memory_errors_are_told_once():
    nvml = StandInNvml(a_card(1), a_card(2))
    probe = NvidiaProbe(nvml)
    probe.read()
    first, second = nvml.cards
    nvml.events += [an_event(second, XID, 79), an_event(first, DOUBLE_BIT, 0)]

    told, later = probe.read().faults, probe.read().faults

    assert told == (
        GpuFault(second.uuid, 79, "Xid 79"),
        GpuFault(first.uuid, None, "a memory error that cannot be corrected"),
    )
    assert later == ()
    assert nvml.listened_to == {first.uuid: XID | DOUBLE_BIT, second.uuid: XID | DOUBLE_BIT}


def test_an_xid_on_a_part_concerns_that_part_and_one_without_a_part_all_of_them():
    board = a_card(1, parts=[a_part(0), a_part(1)])
    nvml = StandInNvml(board)
    probe = NvidiaProbe(nvml)
    probe.read()
    one, other = (part.uuid for part in board.parts)

    nvml.events.append(an_event(board, XID, 31, instance=8))
    of_one = probe.read().faults
    nvml.events.append(an_event(board, XID, 79))
    of_all = probe.read().faults

    assert [fault.gpu for fault in of_one] == [other]
    assert [fault.gpu for fault in of_all] == [one, other]


def test_a_flood_of_events_does_not_hold_up_the_pass():
    nvml = StandInNvml(a_card(1))
    probe = NvidiaProbe(nvml)
    probe.read()
    nvml.events += [an_event(nvml.cards[0], XID, 13)] * 1000

    told = probe.read().faults

    assert 0 < len(told) <= 100


@pytest.mark.parametrize("missing", ["nvmlEventSetCreate", "nvmlDeviceRegisterEvents", "nvmlEventSetWait_v2"])
def test_a_driver_that_tells_no_events_is_read_all_the_same(missing, monkeypatch):
    def refused(*_):
        raise NVMLError(StandInNvml.NVML_ERROR_NOT_SUPPORTED)

    monkeypatch.setattr(StandInNvml, missing, refused)

    reading = NvidiaProbe(StandInNvml(a_card(1))).read()

    assert (reading.faults, states(reading)) == ((), ["ok"])


def test_who_of_several_keeps_the_card_busy_is_asked_for_rarely_and_without_rubbish():
    processes = [a_process(pid) for pid in (11, 12, 13)]
    nvml = StandInNvml(a_card(1, compute=processes, loads={11: [60, 80], 12: [20, 2**31], 99: [50]}))
    probe = NvidiaProbe(nvml)

    [often] = probe.read().gpus
    [rarely] = probe.read(energy=True).gpus

    assert [process.load for process in often.processes] == [None, None, None]
    assert [process.load for process in rarely.processes] == [70, 20, None]


def test_one_process_alone_is_not_asked_about():
    nvml = StandInNvml(a_card(1, compute=[a_process(11)], loads={11: [60]}))

    NvidiaProbe(nvml).read(energy=True)

    assert not nvml.asked["nvmlDeviceGetProcessUtilization"]


def test_a_card_that_is_lost_does_not_silence_the_events_of_the_others(monkeypatch):
    """NVML ends every wait with its error as long as a lost card is in the set."""
    nvml = StandInNvml(a_card(1), a_card(2))
    sets = []

    def wait(event_set, milliseconds):
        if any(card.lost and card.uuid in nvml.listened_to for card in nvml.cards):
            raise NVMLError(nvml.NVML_ERROR_GPU_IS_LOST)
        return StandInNvml.nvmlEventSetWait_v2(nvml, event_set, milliseconds)

    def free(event_set):
        sets.append(event_set)
        nvml.listened_to.clear()

    monkeypatch.setattr(nvml, "nvmlEventSetWait_v2", wait, raising=False)
    monkeypatch.setattr(nvml, "nvmlEventSetFree", free, raising=False)
    probe = NvidiaProbe(nvml)
    probe.read()

    nvml.cards[0].lost = True
    probe.read()
    nvml.events.append(an_event(nvml.cards[1], XID, 79))
    readings = [probe.read(), probe.read()]

    assert [fault.xid for reading in readings for fault in reading.faults] == [79]
    assert sets == ["the set"]


def test_what_the_driver_tells_too_late_for_one_reading_is_in_the_next(monkeypatch):
    nvml = StandInNvml(a_card(1))
    probe = NvidiaProbe(nvml)
    probe.read()
    may_tell = threading.Event()
    nvml.events.append(an_event(nvml.cards[0], XID, 79))

    def wait(event_set, milliseconds):
        may_tell.wait(20)
        return StandInNvml.nvmlEventSetWait_v2(nvml, event_set, milliseconds)

    monkeypatch.setattr(nvml, "nvmlEventSetWait_v2", wait, raising=False)
    late = probe.read()
    may_tell.set()
    found = []
    for _ in range(1000):
        found += probe.read().faults
        if found:
            break

    assert late.faults == ()
    assert [fault.xid for fault in found] == [79]
