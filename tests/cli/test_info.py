"""`dibs info`: everything about a job."""

import json

from cli.fake_daemon import a_job
from dibs.cli.card import spark
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
    assert facts["message"] == "CUDA out of memory: a smaller batch, or more of the card for it"
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


USAGE = {
    "seconds": 7620.0,
    "peak_vram_bytes": int(9.1 * 1024**3),
    "vram_total_bytes": 150754820096,
    "mean_load_percent": 31.2,
    "energy_watt_hours": 412.3,
    "peak_mem_bytes": 12 << 30,
    "mean_cpus": 3.2,
    "is_steady": True,
    "was_alone": True,
    "astray": [],
}


def test_the_report_card_tells_what_was_used_and_what_to_make_of_it(daemon, typed):
    daemon.jobs[17] = a_job(17, "succeeded", usage=USAGE)
    daemon.reports[17] = {
        "series": {
            "step_seconds": 1.0,
            "at_seconds": [0.0, 1.0, 2.0],
            "memory_bytes": [0, 5 << 30, 10 << 30],
            "load_percent": [0.0, None, 100.0],
            "power_watts": [76.0, 76.0, 76.0],
            "cpus": [1.0, 2.0, 4.0],
            "mem_bytes": [1, 2, 3],
        },
        "advice": ["6 of these fit on this card; try `--vram auto`"],
    }

    shown = typed("info", "17").stdout

    card = shown[shown.index("  used in attempt") :].split("\n\n")[0].splitlines()
    assert [line.strip() for line in card] == [
        "used in attempt 1, measured for 2h07m",
        "memory  peak 9.1G of 140G         ▁▅█",
        "load    31 %                      ▁ █",
        "energy  412 Wh                    ███",
        "host    CPU 320 %, 12G of memory  ▃▅█",
        "advice  6 of these fit on this card; try `--vram auto`",
    ]


def test_what_nobody_could_tell_has_no_line(daemon, typed):
    unknown = dict.fromkeys(USAGE) | {"seconds": 3.0, "was_alone": True, "astray": [], "peak_mem_bytes": 1 << 30}
    daemon.jobs[17] = a_job(17, "running", usage=unknown)

    shown = typed("info", "17").stdout

    assert "    host    1G of memory\n" in shown
    assert "load" not in shown and "Wh" not in shown and "None" not in shown


def test_a_job_that_nobody_looked_at_has_no_card(daemon, typed):
    daemon.jobs[17] = a_job(17, "succeeded")

    assert "used in attempt" not in typed("info", "17").stdout
    assert not daemon.queries("/v1/jobs/17/usage")


def test_a_sparkline_is_as_wide_as_there_is_room_and_blank_where_nothing_is_known():
    assert spark([0, 50, 100], 60, of=100) == "▁▅█"
    assert spark([None, 3, 6], 60) == " ▅█"
    assert spark([0, 0], 60) == "▁▁"
    assert spark([], 60) == ""
    assert spark([0.0] * 50 + [100.0] * 50, 4, of=100) == "▁▁██"
    assert len(spark(list(range(512)), 60)) == 60
