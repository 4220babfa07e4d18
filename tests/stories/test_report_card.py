"""From a job that uses a GPU to what people read about it. The card is a file: the job writes itself there."""

import json

import pytest

from stories.outside import World

G = 1024**3
SHOW = 'sed "s/4242/$$/" "$CARDS.busy" > "$CARDS.new" && mv "$CARDS.new" "$CARDS"'
WORK = f'{SHOW}; sleep 8; cp "$CARDS.free" "$CARDS"'  # so many looks that a series is kept


@pytest.fixture
def cards(world: World) -> str:
    path = world.folder.parent / "cards.json"
    card = {"index": 0, "uuid": "GPU-a", "name": "NVIDIA H200", "memory_total": 140 * G, "power": 360.0}
    busy = card | {"memory_used": 9 * G, "load": 31, "processes": [{"pid": 4242, "user": "me", "memory": 9 * G}]}
    for kind, content in (("", card), (".free", card), (".busy", busy)):
        (path.parent / f"cards.json{kind}").write_text(json.dumps([content]))
    world.environ |= {"DIBS_PROBE": f"fake:{path}", "CARDS": str(path)}
    return str(path)


def test_a_run_tells_in_its_output_folder_what_each_job_used(world: World, cards: str):
    ended = world.dibs("run", "--gpus", "0", "--output-dir", "out", input=WORK)

    assert ended.status == 0, ended
    lines = (world.folder / "out" / "job_1" / "info").read_text(errors="replace").splitlines()
    info = dict(line.split(": ", 1) for line in lines if ": " in line)
    assert int(info["peak_vram_bytes"]) == 9 * G
    assert 0 < float(info["mean_load_percent"]) <= 31
    assert 0 < float(info["energy_watt_hours"]) < 10
    assert int(info["peak_mem_bytes"]) > 0


def test_info_prints_a_report_card(world: World, cards: str):
    world.environ["DIBS_POOL"] = "auto"
    world.dibs("add", "--", "bash", "-c", WORK)
    try:
        world.dibs("wait", "1")
        shown = world.dibs("info", "1").stdout
        job = json.loads(world.dibs("info", "1", "--json").stdout)
    finally:
        world.dibs("daemon", "stop", "--jobs")

    assert "peak 9G of 140G" in shown
    assert "█" in shown
    assert job["usage"]["peak_vram_bytes"] == 9 * G
    assert job["attempts_list"][0]["usage"] == job["usage"]
