"""What jobs report, through a real daemon: series, patterns, progress."""

from typing import Any

import pytest
from pydantic import TypeAdapter

from daemon.daemon_process import DaemonProcess
from dibs.daemon.routes.job_metrics import JobMetricsList, JobMetricsObject
from stories.outside import wait_until


def run(daemon: DaemonProcess, **job: object) -> int:
    """A job that is over."""
    number = daemon.add({"num_gpus": 0, **job})
    daemon.wait(number)
    return number


def series(answer: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {one["name"]: one for one in answer["series"]}


def test_the_series_of_a_job(shared: DaemonProcess) -> None:
    lines = r'loss=0.5 step=10\n{"loss": 7, "acc": 1}\nloss=0.25 step=30\nloss=nan'
    number = run(shared, command=f"""printf '{lines}' > "$DIBS_METRICS" """)

    answer = shared.get(f"/v1/jobs/{number}/metrics")

    TypeAdapter(JobMetricsObject).validate_python(answer, strict=True)
    loss = series(answer)["loss"]
    assert list(series(answer)) == ["loss", "acc"] and answer["is_complete"] and not answer["notes"]
    assert (loss["steps"], loss["values"]) == ([10, 1, 30], [0.5, 7, 0.25])
    assert (loss["reported"], loss["not_finite"], loss["last"], loss["last_step"]) == (4, 1, None, 3)
    assert (loss["min"], loss["min_step"], loss["max"]) == (0.25, 30, 7)
    chosen = shared.get(f"/v1/jobs/{number}/metrics?name=acc&points=0&attempt=1")
    assert [(one["name"], one["values"], one["last"]) for one in chosen["series"]] == [("acc", [], 1)]


def test_several_jobs_in_one_answer_and_what_has_none(shared: DaemonProcess) -> None:
    first = run(shared, command='echo loss=1 >> "$DIBS_METRICS"')
    held = shared.add({"command": "true", "hold": True})

    answer = shared.get(f"/v1/jobs/metrics?ids={first},{held},999999")

    TypeAdapter(JobMetricsList).validate_python(answer, strict=True)
    assert [(one["job"], one["attempt"], list(series(one))) for one in answer["jobs"]] == [
        (first, 1, ["loss"]),
        (held, None, []),
    ]


def test_a_pattern_finds_metrics_in_both_streams(shared: DaemonProcess) -> None:
    number = run(
        shared,
        command="echo L=0.5; echo 'val_acc: 0.25' >&2; echo 'L=0.75 '",
        metric_patterns=[r"L=(?P<loss>\S+)", "auto"],
    )

    answer = shared.get(f"/v1/jobs/{number}/metrics")

    found = {name: (one["source"], one["values"]) for name, one in series(answer).items()}
    assert found == {"loss": ("log", [0.5, 0.75]), "val_acc": ("log", [0.25])}


def test_what_finds_the_results_of_trials_in_their_logs_finds_their_curves(shared: DaemonProcess) -> None:
    spec = {
        "command": "for i in 1 2 3; do echo loss: {lr}$i; done",
        "parameters": [{"name": "lr", "values": ["0.1"]}],
        "metrics": [{"name": "loss", "goal": "min"}],
        "results": {"from": "log", "pattern": "loss: ([0-9.]+)"},
    }
    environment = {"PATH": "/usr/bin:/bin"}
    body = {"key": "curves", "environment": environment, "defaults": {"num_gpus": 0}, "spec": spec}
    number = shared.post("/v1/sweeps", body)["id"]

    def trial() -> Any:
        return next(iter(shared.get(f"/v1/sweeps/{number}/trials?state=complete")["trials"]), None)

    job = wait_until(trial, show=lambda: shared.get(f"/v1/sweeps/{number}/trials"))["job"]

    assert series(shared.get(f"/v1/jobs/{job}/metrics"))["loss"]["values"] == [0.11, 0.12, 0.13]


@pytest.mark.parametrize(
    ("pattern", "words"), [("loss=(", "unterminated"), (r"loss=(\S+)", "name"), (r"(?P<a>(a+)+)b", "hours")]
)
def test_a_pattern_that_cannot_be_used_is_refused(shared: DaemonProcess, pattern: str, words: str) -> None:
    reply = shared.try_to_add({"command": "true", "metric_patterns": [pattern]})

    assert reply.status == 400 and words in reply.json["error"]["message"] and reply.json["error"]["remedy"]


def test_the_progress_of_a_running_job_is_in_the_lists(shared: DaemonProcess) -> None:
    command = 'echo "step=25 steps=100" >> "$DIBS_METRICS"; exec sleep 600'
    number = shared.add({"command": command, "num_gpus": 0})

    job = wait_until(
        lambda: next((one for one in shared.get(f"/v1/jobs?ids={number}")["jobs"] if one["progress"]), None),
        show=lambda: shared.job(number),
    )

    assert job["progress"] == 0.25 and job["ends_at"] > job["started_at"]
    assert shared.job(number)["progress"] == 0.25
    shared.post("/v1/jobs/act", {"action": "kill", "ids": [number]})
    shared.wait(number)
    assert shared.job(number)["progress"] is None
