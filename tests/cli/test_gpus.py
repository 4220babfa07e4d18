"""What `dibs gpus` loads, and the keys that scripts rely on."""

import json
import subprocess
import sys
from fractions import Fraction

from dibs.cli.gpus import _as_json
from dibs.engine.survey import GpuUse, survey
from dibs.leases.records import Holder
from dibs.model.gpus import Gpu, GpuReading, Reading
from gpus.test_watch import NOON

_HEAVY = ("asyncio", "sqlite3", "rich", "pynvml", "psutil", "dibs.store.store", "dibs.engine.engine")


def test_it_loads_neither_the_store_nor_a_loop(tmp_path):
    code = (
        "import sys; from dibs.cli.main import dibs; dibs.main(['gpus'], standalone_mode=False);"
        f"print([name for name in {_HEAVY} if name in sys.modules])"
    )
    environ = {"DIBS_LEASES": str(tmp_path / "leases"), "DIBS_PROBE": "none"}

    done = subprocess.run([sys.executable, "-c", code], env=environ, capture_output=True, text=True, check=True)

    assert done.stdout == "[]\n"


def test_the_keys_of_the_json_are_stable():
    use = survey(None, [_holder("index-3", "1/2")], [_holder("index-3", "1")], user="ann")[0]

    data = json.loads(json.dumps(_as_json(use)))

    assert list(data) == [
        "index",
        "key",
        "name",
        "memory_used_bytes",
        "memory_total_bytes",
        "load_percent",
        "temperature_celsius",
        "power_watts",
        "state",
        "holders",
        "waiting",
        "foreign",
    ]
    assert data["holders"] == [
        {
            "user": "bob",
            "uid": 12345,
            "job": "train",
            "pid": 42,
            "since": "1970-01-01T12:00:00+00:00",
            "share": 0.5,
            "vram_bytes": None,
        }
    ]


def test_a_card_is_held_when_its_shares_add_up_to_one():
    states = [
        GpuUse(key="x", index=0, holders=tuple(_holder("x", share) for share in shares)).state
        for shares in ((), ("1/3",), ("1/2", "1/2"), ("1",))
    ]

    assert states == ["free", "partly held", "held", "held"]


def test_a_claim_on_a_card_that_the_driver_does_not_show_is_shown_all_the_same():
    reading = Reading(at=NOON, gpus=(GpuReading(gpu=Gpu(key="GPU-a", index=0)),))

    uses = survey(reading, [_holder("GPU-lost", "1"), _holder("index-7", "1")], [], user="ann")

    assert [(use.index, use.key, use.state) for use in uses] == [
        (0, "GPU-a", "free"),
        (7, "index-7", "held"),
        (None, "GPU-lost", "held"),
    ]


def _holder(gpu: str, share: str) -> Holder:
    return Holder(
        gpu=gpu, user="bob", uid=12345, pid=42, job="train", since=43200.0, share=Fraction(share), vram=0
    )
