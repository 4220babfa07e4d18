"""`dibs why`: the policy's own sentence."""

import json

import pytest

from cli.fake_daemon import a_job


def test_a_waiting_job_is_explained_in_the_daemons_words(daemon, typed):
    daemon.jobs[17] = a_job(17, name="train")
    daemon.reasons[17] = "waits for 2 GPUs: GPU 1 is held by job 12 until about 14:30"

    done = typed("why", "17")

    assert done.stdout == "job 17 (train) waits for 2 GPUs: GPU 1 is held by job 12 until about 14:30\n"


def test_when_it_may_start_is_said_where_the_reason_does_not():
    from dibs.cli.why import waits

    answer = {"reason": {"code": "begin", "sentence": "waits for its hour"}, "starts_at": "2099-11-16T14:30:00Z"}

    assert waits(answer).startswith("waits for its hour; it may start at about 2099-11-16 ")


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
