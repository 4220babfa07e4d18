"""`dibs gpus --on slurm`: the nodes of a cluster, with or without a daemon."""

import json
import os

import pytest

from backends.fake_sinfo import BIG, failing_sinfo, fake_sinfo, node
from dibs.backends.slurm import commands


@pytest.fixture
def cluster(socket, tmp_path, monkeypatch):
    """Makes a cluster of these rows the only one that there is."""
    monkeypatch.delenv("SLURM_CONF", raising=False)
    monkeypatch.setattr(commands, "_FOLDERS", ())

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


def test_the_keys_of_the_json_are_stable(cluster, typed):
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
