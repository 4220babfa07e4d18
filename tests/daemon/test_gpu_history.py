"""What the cards did lately: one line for each, never longer than an hour."""

import json
from datetime import UTC, datetime

from daemon.daemon_process import DaemonProcess
from dibs.daemon.gpu_history import LONGEST, STEP, GpuHistoryBuffer
from dibs.model.gpus import CardState, Gpu, GpuReading, Reading
from stories.outside import World, wait_until

NOW = 1_000_000 * STEP  # the beginning of a step


def a_reading(at: float, *, key: str = "GPU-a", **seen) -> Reading:
    gpu = Gpu(key=key, index=0)
    return Reading(at=datetime.fromtimestamp(at, UTC), gpus=(GpuReading(gpu=gpu, **seen),))


def column(history: GpuHistoryBuffer, name: str, seconds: int, now: float) -> list[float | None]:
    (gpu,) = history.last(seconds, now)["gpus"]
    found: list[float | None] = gpu[name]
    return found


def test_readings_of_one_step_become_one_point():
    history = GpuHistoryBuffer()
    for after, load, memory in ((0, 10, 5), (2, 20, 9), (4, 60, 7), (6, 100, 1)):
        history.add(a_reading(NOW + after, load=load, memory_used=memory))

    assert column(history, "load_percent", 12, NOW + 7) == [30.0, 100.0]
    assert column(history, "memory_used_bytes", 12, NOW + 7) == [9, 1]
    assert column(history, "power_watts", 12, NOW + 7) == [None, None]


def test_what_was_seen_stands_until_the_next_look_but_not_for_long():
    history = GpuHistoryBuffer()
    history.add(a_reading(NOW, load=10))
    history.add(a_reading(NOW + 30, load=20))

    loads = column(history, "load_percent", 120, NOW + 119)

    assert loads == [10.0] * 5 + [20.0] * 7 + [None] * 8


def test_all_lists_have_one_length_and_begin_together():
    history = GpuHistoryBuffer()
    history.add(a_reading(NOW, load=1))
    history.add(a_reading(NOW + 60, key="GPU-b", load=2, temperature=50))

    found = history.last(600, NOW + 60)

    assert found["step_seconds"] == STEP
    assert {len(gpu[name]) for gpu in found["gpus"] for name in gpu if name != "key"} == {600 // STEP}
    assert datetime.fromisoformat(found["start_at"]).timestamp() == NOW + 60 - 600 + STEP


def test_it_holds_an_hour_and_never_more():
    history = GpuHistoryBuffer()
    for at in range(0, 3 * LONGEST, 3):
        history.add(a_reading(NOW + at, load=at % 100))
    end = NOW + 3 * LONGEST - 1

    loads = column(history, "load_percent", LONGEST, end)

    assert len(loads) == LONGEST // STEP
    assert None not in loads
    (ring,) = history._gpus.values()
    assert {len(values) for values in ring._values.values()} == {LONGEST // STEP}


def test_old_values_do_not_come_back_after_a_pause():
    history = GpuHistoryBuffer()
    for at in range(0, LONGEST, STEP):
        history.add(a_reading(NOW + at, load=7))
    history.add(a_reading(NOW + 2 * LONGEST - STEP, load=9))

    loads = column(history, "load_percent", LONGEST, NOW + 2 * LONGEST - 1)

    assert loads == [None] * (LONGEST // STEP - 1) + [9.0]


def test_a_card_that_does_not_answer_has_a_gap_and_one_that_is_gone_is_forgotten():
    history = GpuHistoryBuffer()
    history.add(a_reading(NOW, load=7))
    history.add(a_reading(NOW + 60, load=7, state=CardState.STALE))
    assert column(history, "load_percent", 66, NOW + 60) == [7.0] * 7 + [None] * 4

    history.add(a_reading(NOW + 2 * LONGEST, key="GPU-b", load=1))

    assert list(history._gpus) == ["GPU-b"]


def test_cards_without_end_take_no_room_without_end():
    history = GpuHistoryBuffer()
    for number in range(1_000):
        history.add(a_reading(NOW + number, key=f"GPU-{number}"))

    assert len(history._gpus) == 256
    assert "GPU-999" in history._gpus


def test_a_clock_that_is_set_back_begins_anew():
    history = GpuHistoryBuffer()
    history.add(a_reading(NOW, load=7))
    history.add(a_reading(NOW - 10_000, load=8))

    assert column(history, "load_percent", 12, NOW - 10_000 + STEP)[-1] == 8.0


def test_the_api_tells_what_the_probe_saw(world: World):
    cards = world.folder.parent / "cards.json"
    card = {"index": 0, "uuid": "GPU-a", "name": "NVIDIA H200", "memory_total": 1000, "memory_used": 10, "load": 5}
    cards.write_text(json.dumps([card]))
    daemon = DaemonProcess(world)
    daemon.start(DIBS_PROBE=f"fake:{cards}", DIBS_POOL="auto")

    wait_until(lambda: daemon.get("/v1/gpus/history")["gpus"], show=lambda: daemon.log)
    found = daemon.get("/v1/gpus/history?seconds=60")

    assert len(found["gpus"][0]["load_percent"]) == 10
    assert found["gpus"][0]["key"] == "GPU-a"
    assert found["gpus"][0]["load_percent"][-1] == 5
    assert found["gpus"][0]["memory_used_bytes"][-1] == 10
    assert found["gpus"][0]["power_watts"][-1] is None
    assert daemon.call("GET", "/v1/gpus/history?seconds=3601").status == 400
    daemon.end()


def test_without_a_driver_the_history_is_empty(shared: DaemonProcess):
    assert shared.get("/v1/gpus/history")["gpus"] == []
