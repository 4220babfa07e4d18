"""`dibs info` and `dibs why`: everything about a job, and what it waits for."""

import json

import pytest

from cli.fake_daemon import a_job
from dibs.cli.info import _difference, spark
from dibs.cli.output import waiting_text


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
    assert (
        facts["message"]
        == "CUDA out of memory: a smaller batch; where it shared the card, a larger `--vram` or `--share`"
    )
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


def test_a_suspended_job_says_by_whom_and_how_long_it_stood_still_in_all(daemon, typed):
    times = [("12:00:20", "12:01:20"), ("12:02:00", "12:02:30")]
    suspensions = [
        {"suspended_at": f"2026-11-15T{since}Z", "ended_at": f"2026-11-15T{until}Z"} for since, until in times
    ]
    refused = {"suspended_at": None, "ended_at": "2026-11-15T12:02:40Z"}
    daemon.jobs[17] = a_job(17, "suspended")
    daemon.suspensions[17] = [*suspensions, refused]
    daemon.reasons[17] = "is suspended by you since 14:02"

    lines = [line.split(maxsplit=1) for line in typed("info", "17").stdout.splitlines() if line.strip()]

    assert ["state", "suspended"] in lines
    assert ["why", "is suspended by you since 14:02"] in lines
    assert ["suspended", "2 times, 1m30s in all"] in lines


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


def test_a_waiting_job_is_explained_in_the_daemons_words(daemon, typed):
    daemon.jobs[17] = a_job(17, name="train")
    daemon.reasons[17] = "waits for 2 GPUs: GPU 1 is held by job 12 until about 14:30"

    done = typed("why", "17")

    assert done.stdout == "job 17 (train) waits for 2 GPUs: GPU 1 is held by job 12 until about 14:30\n"


def test_when_it_may_start_is_said_where_the_reason_does_not():
    answer = {"reason": {"code": "begin", "sentence": "waits for its hour"}, "starts_at": "2099-11-16T14:30:00Z"}

    assert waiting_text(answer).startswith("waits for its hour; it may start at about 2099-11-16 ")


def test_before_its_start_a_job_shows_the_file_that_was_named_for_its_output(daemon, typed):
    daemon.jobs[17] = a_job(17, output="/data/%j.txt", error="/data/%j.err")

    shown = [line.split() for line in typed("info", "17").stdout.splitlines()]

    assert ["stdout", "/data/%j.txt"] in shown
    assert ["stderr", "/data/%j.err"] in shown


def test_of_what_is_about_to_start_no_time_is_said():
    starting = {"code": "starting", "sentence": "is about to start"}

    assert waiting_text({"reason": starting, "starts_at": "2099-11-16T14:30:00Z"}) == "is about to start"


def test_why_a_start_cannot_be_estimated_stands_behind_the_reason():
    reason = {"code": "gpus", "sentence": "waits for a GPU"}
    unknown = {"starts_at": None, "no_estimate": "job 3, which goes first, has no time limit"}

    assert waiting_text({"reason": reason, **unknown}) == (
        "waits for a GPU; its start cannot be estimated: job 3, which goes first, has no time limit"
    )
    assert (
        waiting_text({"reason": {"code": "held", "sentence": "is held"}, "no_estimate": "it is held"}) == "is held"
    )
    begin = {"code": "begin", "sentence": "waits for its time", "until_at": "2099-11-16T14:30:00Z"}
    assert waiting_text({"reason": begin, **unknown}).startswith(
        "waits for its time, not before 2099-11-16 14:30; its"
    )


@pytest.mark.parametrize(
    ("job", "said"),
    [
        (a_job(1, "running", started_at=None), "job 1 does not wait: it runs on GPU 0 for ?"),
        (
            a_job(1, "running", started_at=None, gpu_numbers=["0:1"]),
            "job 1 does not wait: it runs on GPU 0:1 for ?",
        ),
        (a_job(1, "succeeded"), "job 1 does not wait: it succeeded after 3m05s"),
        (a_job(1, "failed"), "job 1 does not wait: it failed (exit 1) after 3m05s"),
        (
            a_job(1, "failed", cause="gpu-oom", message="CUDA out of memory"),
            "job 1 does not wait: it failed (gpu-oom) after 3m05s: CUDA out of memory: a smaller batch; where "
            "it shared the card, a larger `--vram` or `--share`",
        ),
        (a_job(1, "failed", exit_code=None, signal=9), "job 1 does not wait: it failed (SIGKILL) after 3m05s"),
        (
            a_job(
                1, "failed", exit_code=None, signal=9, cause="killed", message="SIGKILL ended it: ann or root did"
            ),
            "job 1 does not wait: it failed (SIGKILL) after 3m05s: SIGKILL ended it: ann or root did",
        ),
        (
            a_job(1, "failed", cause="import-error", message="ModuleNotFoundError: No module named 'torch'"),
            "job 1 does not wait: it failed (import-error) after 3m05s: No module named 'torch': "
            "is the environment active where dibs was called?",
        ),
        (a_job(1, "timed_out"), "job 1 does not wait: it ran out of time after 3m05s"),
        (a_job(1, "cancelled", seconds=None), "job 1 does not wait: it was stopped"),
        (a_job(1, "queued"), "job 1 starts next"),
    ],
)
def test_a_job_that_does_not_wait_has_a_sentence_too(daemon, typed, job, said):
    daemon.jobs[1] = job

    assert typed("why", "1").stdout == f"{said}\n"


def test_json_is_the_daemons_answer(daemon, typed):
    daemon.jobs[17] = a_job(17)
    daemon.reasons[17] = "waits"

    found = json.loads(typed("why", "--json", "17").stdout)

    assert found == {
        "job": 17,
        "state": "queued",
        "reason": {"code": "no-gpu", "sentence": "waits"},
        "starts_at": None,
    }


def test_a_hostile_sentence_is_one_harmless_line(daemon, typed):
    daemon.jobs[17] = a_job(17, name="\x1b[2J\n")
    daemon.reasons[17] = "is held by \x1b]0;x\x07\nroot"

    done = typed("why", "17")

    assert done.stdout.count("\n") == 1
    assert "\x1b" not in done.stdout
