"""`dibs gpus`: what it loads, the keys that scripts rely on, and the nodes of a cluster."""

import json
import os
import subprocess
import sys
import time
from datetime import UTC, datetime
from fractions import Fraction

import pytest

from backends.fake_sinfo import BIG, failing_sinfo, fake_sinfo, node
from cuda.machine import FakeMachine
from dibs.backends.slurm import controller
from dibs.cli.gpus import _gpu_table, gpu_as_json
from dibs.engine.watch.survey import GpuUse, survey
from dibs.leases.files import Holder
from dibs.leases.leases import LeaseTable
from dibs.model.gpus import Gpu, GpuReading, Reading

NOON = datetime(2026, 11, 15, 12, tzinfo=UTC)
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
    use = survey(
        None, LeaseTable(holders=(_holder("index-3", "1/2"),), waiting=(_holder("index-3", "1"),)), user="ann"
    )[0]

    data = json.loads(json.dumps(gpu_as_json(use)))

    assert list(data) == [
        "index",
        "number",
        "key",
        "name",
        "memory_used_bytes",
        "memory_total_bytes",
        "load_percent",
        "temperature_celsius",
        "power_watts",
        "energy_joules",
        "ecc_uncorrected",
        "state",
        "holders",
        "suspended",
        "waiting",
        "foreign",
        "mark",
        "why",
        "remedy",
        "can_suspend",
        "why_not_suspend",
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


def test_cards_that_only_claims_name_do_not_fill_the_table():
    claims = tuple(_holder(f"index-{'9' * digits}", "1") for digits in range(1, 120))

    uses = survey(None, LeaseTable(holders=claims, guarded_by={"GPU-invented": "x", "index-3": "y"}), user="ann")

    assert len(uses) == 64
    assert [use.index for use in uses if use.index is not None] == [9, 99, 999, 9999]


def test_a_card_is_free_for_others_while_a_job_on_it_is_suspended():
    suspended = _holder("index-0", "0")

    [card] = survey(None, LeaseTable(holders=(suspended,)), user="ann")
    [beside] = survey(None, LeaseTable(holders=(suspended, _holder("index-0", "1"))), user="ann")

    assert (card.state, beside.state) == ("free", "held")
    assert "suspended: " in _gpu_table([card], {})[1]
    data = gpu_as_json(beside)
    assert (len(data["holders"]), [one["share"] for one in data["suspended"]]) == (1, [0.0])


def test_of_many_holders_the_first_are_shown_and_how_many_more():
    holders = tuple(_holder("index-0", "1/100") for _ in range(60))

    _, line = _gpu_table([GpuUse(key="index-0", index=0, holders=holders)], {})

    assert line.count("bob: job train") == 8 and "; 52 more" in line


@pytest.mark.parametrize(
    ("use", "why", "remedy"),
    [
        (
            {"holders": ("2/3", "2/3")},
            "it is overbooked: it is held by job train of bob (pid 42) and job train of bob (pid 42)",
            "nothing more starts there until one of them has ended",
        ),
        ({"guarded_by": "process 1 of eve keeps x locked"}, "process 1 of eve keeps x locked", "ask that user to"),
        ({}, "", ""),
    ],
)
def test_a_card_that_stays_unused_says_why_and_what_helps(use, why, remedy):
    holders = tuple(_holder("index-0", share) for share in use.pop("holders", ()))
    card = GpuUse(key="index-0", index=0, holders=holders, **use)

    data = gpu_as_json(card)

    assert (data["why"] or "", data["state"]) == (why, "held" if why else "free")
    assert (data["remedy"] or "").startswith(remedy)


def test_a_card_is_held_when_its_shares_add_up_to_one():
    states = [
        GpuUse(key="x", index=0, holders=tuple(_holder("x", share) for share in shares)).state
        for shares in ((), ("1/3",), ("1/2", "1/2"), ("1",))
    ]

    assert states == ["free", "partly held", "held", "held"]


def test_a_claim_on_a_card_that_the_driver_does_not_show_is_shown_all_the_same():
    reading = Reading(at=NOON, gpus=(GpuReading(gpu=Gpu(key="GPU-a", index=0)),))

    uses = survey(reading, LeaseTable(holders=(_holder("GPU-lost", "1"), _holder("index-7", "1"))), user="ann")

    assert [(use.index, use.key, use.state) for use in uses] == [
        (0, "GPU-a", "free"),
        (7, "index-7", "held"),
        (None, "GPU-lost", "held"),
    ]


def _holder(gpu: str, share: str) -> Holder:
    return Holder(
        gpu=gpu, user="bob", uid=12345, pid=42, job="train", since=43200.0, share=Fraction(share), vram=0
    )


@pytest.mark.parametrize("action", ["drain", "undrain", "add", "remove"])
def test_the_queues_gpus_are_changed_by_number_and_uuid(daemon, typed, action):
    done = typed("gpus", action, "0,1", "GPU-3f2a")

    assert daemon.bodies() == [{"action": action, "gpus": ["0", "1", "GPU-3f2a"]}]
    assert (done.status, done.stdout, len(done.stderr.splitlines())) == (0, "", 3)
    assert json.loads(typed("gpus", action, "--json", "0").stdout) == {"changed": ["0"]}


@pytest.mark.parametrize("ids", ["", "-1", "a b", "0,,1", "0;1"])
def test_what_is_no_gpu_is_refused_before_anybody_is_asked(daemon, typed, ids):
    done = typed("gpus", "drain", ids)

    assert done.status == 2
    assert daemon.calls == []


def test_a_reason_that_is_too_long_is_refused_with_its_length(daemon, typed):
    done = typed("gpus", "drain", "0", "--why", "x" * 400)

    assert (done.status, daemon.calls) == (2, [])
    assert "--why has 400 characters" in done.stderr and "255" in done.stderr


def test_what_the_daemon_does_not_use_is_marked(daemon, typed, four_cards):
    daemon.gpus = [
        {"key": "GPU-00000000-a", "state": "drained", "why": ""},
        {"key": "GPU-00000001-a", "state": "quarantined", "why": "3 jobs\nfailed there one after another"},
        {"key": "GPU-00000002-a", "state": "free", "why": ""},
    ]

    shown, found = typed("gpus").stdout.splitlines(), json.loads(typed("gpus", "--json").stdout)

    assert "free, drained" in shown[1]
    assert "free, quarantined" in shown[2] and "3 jobs\\nfailed there" in shown[2]
    assert [one["mark"] for one in found] == ["drained", "quarantined", None, None]
    assert found[1]["why"] == "3 jobs\nfailed there one after another"


def test_gpus_that_were_declared_to_the_queue_are_shown_though_no_driver_knows_them(daemon, typed):
    daemon.gpus = [
        {"key": "index-1", "number": "1", "state": "free"},
        {"key": "index-0", "number": "0", "state": "free"},
    ]

    found = json.loads(typed("gpus", "--json").stdout)

    assert [(one["index"], one["state"]) for one in found] == [(0, "free"), (1, "free")]


def test_a_card_of_the_queue_that_the_driver_does_not_show_any_more_is_missing(daemon, typed, four_cards):
    daemon.gpus = [
        {"key": "GPU-gone", "number": "7", "state": "missing"},
        {"key": "MIG-gone", "number": "8:1", "state": "missing"},
    ]

    done = typed("gpus")

    assert [line.split()[0] for line in done.stdout.splitlines()[5:]] == ["7", "8:1"]
    assert [line.split()[4] for line in done.stdout.splitlines()[5:]] == ["missing", "missing"]
    assert "GPU 8:1 is missing: the driver does not show it any more" in done.stderr


def test_a_quarantine_is_told_once_with_how_the_card_comes_back(daemon, typed, four_cards):
    remedy = "it is tested at about 14:30; `dibs gpus undrain 1` uses it at once"
    [_, card, *_] = json.loads(typed("gpus", "--json").stdout)
    daemon.gpus = [
        {"key": card["key"], "number": "1", "state": "quarantined", "why": "Xid 79: off the bus", "remedy": remedy}
    ]

    done = typed("gpus")

    assert done.stderr == (
        f"dibs: GPU 1 is quarantined: Xid 79: off the bus; {remedy}\n"
        "dibs: this driver cannot suspend jobs: there is no CUDA driver here\n"
    )
    assert "undrain" not in done.stdout


@pytest.mark.parametrize("fault", ["slow", "refusal", "nonsense"])
def test_without_an_answer_of_the_daemon_the_table_is_still_true(daemon, typed, four_cards, fault):
    daemon.slow = 30.0 if fault == "slow" else 0.0
    daemon.refusal = (500, "bug", "oh no") if fault == "refusal" else None
    daemon.gpus = [{}] if fault == "nonsense" else []
    began = time.monotonic()

    done = typed("gpus")

    assert len(done.stdout.splitlines()) == 5
    assert time.monotonic() - began < 15.0


def test_no_daemon_is_started_to_look(socket, typed, four_cards):
    assert typed("gpus").status == 0
    assert not os.path.exists(socket)


@pytest.fixture
def four_cards(tmp_path, monkeypatch):
    cards = [
        {"index": index, "uuid": f"GPU-0000000{index}-a", "name": "NVIDIA H200", "memory_total": 150 << 30}
        for index in range(4)
    ]
    (tmp_path / "cards.json").write_text(json.dumps(cards))
    monkeypatch.setenv("DIBS_PROBE", f"fake:{tmp_path / 'cards.json'}")


@pytest.fixture
def cluster(socket, tmp_path, monkeypatch):
    """Makes a cluster of these rows the only one that there is."""
    monkeypatch.delenv("SLURM_CONF", raising=False)
    monkeypatch.setattr(controller, "_FOLDERS", ())

    def make(*rows):
        monkeypatch.setenv("PATH", f"{fake_sinfo(tmp_path / 'bin', rows)}{os.pathsep}/usr/bin:/bin")

    return make


def test_every_node_has_a_line_with_its_cards_and_why_it_is_out(cluster, typed, socket):
    cluster(
        BIG,
        (*BIG[:1], "long", *BIG[2:]),
        node("n2", state="down*", reason="Not responding"),
        node("n3", state="idle~"),
    )

    done = typed("gpus", "--on", "slurm")

    assert (done.status, done.stderr) == (0, "")
    assert [line.split("  ")[0] for line in done.stdout.splitlines()] == ["node", "big", "n2", "n3"]
    big, n2, n3 = (line.split(None, 2) for line in done.stdout.splitlines()[1:])
    assert big[1] == "used" and big[2].split("  ")[0] == "a100 1/4, t4 2/2"
    assert "8/64" in big[2] and "62.5G/500G" in big[2] and "gpu,long" in big[2]
    assert "down, does not answer" in " ".join(n2) and n2[2].endswith("Not responding")
    assert n3[1] == "free" and n3[2].endswith("asleep to save power")
    assert not os.path.exists(socket)


def test_the_keys_of_the_json_of_nodes_are_stable(cluster, typed):
    cluster(BIG)

    [found] = json.loads(typed("gpus", "--on", "slurm", "--json").stdout)

    assert found == {
        "name": "big",
        "state": "used",
        "says": "partly in use",
        "why": "",
        "gpus": [{"type": "a100", "total": 4, "used": 1}, {"type": "t4", "total": 2, "used": 2}],
        "shards": 0,
        "cpus": 64,
        "cpus_used": 8,
        "memory_bytes": 512000 * 1024**2,
        "memory_used_bytes": 64000 * 1024**2,
        "partitions": ["gpu"],
    }


def test_what_a_cluster_says_cannot_command_a_terminal(cluster, typed):
    cluster(node("n1", state="drained", reason="bad \x1b[2J fan"))

    assert "\x1b" not in typed("gpus", "--on", "slurm").stdout


def test_a_cluster_without_nodes_says_so(cluster, typed):
    cluster()

    done = typed("gpus", "--on", "slurm")

    assert (done.status, done.stdout) == (0, "")
    assert done.stderr == "dibs: no node to show: Slurm has none that you may see\n"
    assert json.loads(typed("gpus", "--on", "slurm", "--json").stdout) == []


def test_without_slurm_one_sentence_says_so(cluster, typed, tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))

    done = typed("gpus", "--on", "slurm")

    assert (done.status, done.stdout) == (69, "")
    assert done.stderr.startswith("dibs: error: cannot use Slurm: there is no sinfo on this machine\n")


def test_a_controller_that_does_not_answer_is_no_missing_one(cluster, typed, tmp_path, monkeypatch):
    says = "Unable to contact slurm controller (connect failure)"
    monkeypatch.setenv("PATH", f"{failing_sinfo(tmp_path / 'bin', says)}{os.pathsep}/usr/bin:/bin")

    done = typed("gpus", "--on", "slurm")

    assert (done.status, done.stdout) == (75, "")
    assert done.stderr.startswith("dibs: error: cannot reach Slurm's controller: ")


def test_this_machine_is_what_is_shown_without_it(cluster, typed):
    cluster(BIG)

    plain, local = typed("gpus"), typed("gpus", "--on", "local")

    assert plain == local and "big" not in plain.stdout


def test_a_node_is_not_drained_like_a_card_of_this_machine(cluster, typed):
    done = typed("gpus", "--on", "slurm", "drain", "0")

    assert done.status == 2
    assert "`dibs gpus drain` is for the GPUs of this machine" in done.stderr


def test_a_place_that_nobody_knows_is_refused(cluster, typed):
    assert typed("gpus", "--on", "ray").status == 2


def test_a_real_cluster_is_shown(socket, typed, slurm, monkeypatch):
    monkeypatch.setenv("SLURM_CONF", slurm.environment["SLURM_CONF"])
    slurm.ask("scontrol", "update", "nodename=n3", "state=drain", "reason=loud fan")

    found = json.loads(typed("gpus", "--on", "slurm", "--json").stdout)

    slurm.resume()
    assert [(one["name"], one["state"], one["says"], one["why"]) for one in found] == [
        ("n1", "free", "idle", ""),
        ("n2", "free", "idle", ""),
        ("n3", "out", "drained", "loud fan"),
    ]
    assert {sum(gpus["total"] for gpus in one["gpus"]) for one in found} == {2}


def test_it_says_whether_the_driver_can_suspend_jobs(tmp_path, typed, monkeypatch):
    machine = FakeMachine(tmp_path / "machine")
    for name, value in machine.environ.items():
        monkeypatch.setenv(name, value)

    new = typed("gpus"), typed("gpus", "--json")
    monkeypatch.setenv("DIBS_CUDA_LIBRARY", "/no/such/file")
    without = typed("gpus"), typed("gpus", "--json")

    assert new[0].stderr == "dibs: this driver can suspend jobs\n"
    assert without[0].stderr == "dibs: this driver cannot suspend jobs: there is no CUDA driver here\n"
    found = [json.loads(done.stdout)[0] for done in (new[1], without[1])]
    assert [(gpu["can_suspend"], gpu["why_not_suspend"]) for gpu in found] == [
        (True, None),
        (False, "there is no CUDA driver here"),
    ]


def test_an_amd_card_cannot_suspend_whatever_the_driver_of_the_others_says():
    amd = GpuUse(key="AMD-1", index=0, seen=GpuReading(gpu=Gpu(key="AMD-1", index=0)))

    assert (gpu_as_json(amd)["can_suspend"], gpu_as_json(amd)["why_not_suspend"]) == (False, "it is no NVIDIA GPU")
