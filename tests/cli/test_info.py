"""`dibs info`: everything about a job."""

import json

from cli.fake_daemon import a_job
from dibs.cli.info import _difference


def test_it_shows_where_how_and_with_what(daemon, typed, monkeypatch):
    monkeypatch.setenv("HOME", "/home/ann")
    monkeypatch.setenv("ONLY_HERE", "1")
    more = {"name": "train", "project": "a", "vram_bytes": 18 << 30, "time_limit_seconds": 7200.0, "attempts": 2}
    daemon.jobs[17] = a_job(17, "failed", cause="gpu-oom", message="CUDA out of memory", **more)

    shown = typed("info", "17").stdout

    facts = dict(
        line.strip().split("  ", 1)
        for line in shown.splitlines()
        if line.startswith("  ") and "  " in line.strip()
    )
    facts = {word: text.strip() for word, text in facts.items()}
    assert shown.startswith("job 17 (train)\n")
    assert facts["state"] == "failed (gpu-oom) after 3m05s"
    assert facts["message"] == "CUDA out of memory"
    assert facts["command"] == "python train.py --seed 17"
    assert facts["wishes"] == "1 GPU, 18G on each"
    assert facts["time limit"] == "2h00m"
    assert facts["code"] == "commit abc123, with changes that were not committed"
    assert facts["stdout"] == "/state/attempts/17.1/stdout"
    assert "+ WANDB_MODE=offline\n" in shown and "- ONLY_HERE\n" in shown and "HOME" not in shown
    assert sum("gpu-oom: CUDA out of memory" in line for line in shown.splitlines()) == 2  # two attempts


def test_all_variables_are_shown_when_asked_for(daemon, typed):
    daemon.jobs[17] = a_job(17)

    shown = typed("info", "17", "--env").stdout

    assert "    HOME=/home/ann\n    WANDB_MODE=offline\n" in shown


def test_a_waiting_job_says_why(daemon, typed):
    daemon.jobs[17] = a_job(17)
    daemon.reasons[17] = "waits for a GPU"

    assert "waits for a GPU" in typed("info", "17").stdout


def test_json_is_the_daemons_object(daemon, typed):
    daemon.jobs[17] = a_job(17, "running", name="\udcff")

    plain = json.loads(typed("info", "17", "--json").stdout)
    whole = json.loads(typed("info", "17", "--json", "--env").stdout)

    assert plain["name"] == "\udcff"
    assert {"attempts_list", "reason", "code", "stdout", "stderr"} <= plain.keys()
    assert whole == {**plain, "environment": {"HOME": "/home/ann", "WANDB_MODE": "offline"}}


def test_hostile_text_stays_on_its_line(daemon, typed):
    evil = "\x1b[2J\n\u202e"
    daemon.jobs[17] = a_job(17, "failed", name=evil, command=evil, message=evil, tags=[evil], workdir=evil)

    shown = typed("info", "17").stdout

    assert all(line.isprintable() for line in shown.split("\n"))


def test_what_every_shell_has_of_its_own_is_no_difference():
    there = {"A": "1", "B": "2", "PWD": "/x", "SHLVL": "1"}

    assert _difference(there, {"A": "1", "B": "3", "C": "", "PWD": "/y", "_": "z"}) == ["~ B=2", "- C"]
