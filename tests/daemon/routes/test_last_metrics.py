"""The last numbers of jobs in lists: of running ones, of ended ones, and of trials."""

import csv
import io
from collections.abc import Iterator
from pathlib import Path

import pytest

from daemon.daemon_process import DaemonProcess
from daemon.sweeping import LOSS, begin, values, wait_for
from stories.outside import wait_until


def last(daemon: DaemonProcess, number: int) -> dict[str, float | None]:
    metrics: dict[str, float | None] = daemon.job(number)["last_metrics"]
    return metrics


@pytest.fixture(scope="module")
def jobs(shared: DaemonProcess) -> Iterator[list[int]]:
    """Three jobs that have reported, in their logs or in their files, and one that has not."""
    write = '>> "$DIBS_METRICS"'
    first = shared.add(
        {"command": f"echo loss=3 acc=0.5 {write}; echo loss=2 {write}; echo speed=nan {write}", "num_gpus": 0},
        {"command": "echo loss=10", "metric_patterns": [r"loss=(?P<loss>\S+)"], "num_gpus": 0},
        {"command": f"echo loss=1 {write}; exit 3", "num_gpus": 0},
        {"command": "true", "num_gpus": 0},
    )
    found = list(range(first, first + 4))
    shared.wait(*found)
    wait_until(lambda: all(last(shared, number) for number in found[:3]))
    yield found


def test_jobs_that_have_ended_tell_their_last_numbers(shared: DaemonProcess, jobs: list[int]) -> None:
    assert [last(shared, number) for number in jobs] == [
        {"loss": 2, "acc": 0.5, "speed": None},
        {"loss": 10},
        {"loss": 1},
        {},
    ]


@pytest.mark.parametrize(
    ("order", "expected"),
    [
        ("metric.loss", [2, 0, 1, 3]),
        ("metric.loss&reverse=true", [1, 0, 2, 3]),
        ("metric.acc", [0, 3, 2, 1]),
        ("metrics", [2, 0, 1, 3]),  # by the first of them
    ],
)
def test_jobs_are_sorted_by_them(shared: DaemonProcess, jobs: list[int], order: str, expected: list[int]) -> None:
    found = [job["id"] for job in shared.get(f"/v1/jobs?ids={jobs[0]}-{jobs[3]}&order={order}")["jobs"]]

    assert found == [jobs[place] for place in expected]


def test_they_are_columns_of_the_csv(shared: DaemonProcess, jobs: list[int]) -> None:
    columns = "metric.loss,metric.speed,metrics"

    reply = shared.call("GET", f"/v1/jobs.csv?ids={jobs[0]}-{jobs[1]}&columns={columns}&order=oldest")

    assert list(csv.reader(io.StringIO(reply.body.decode())))[1:] == [
        ["2.0", "", "loss=2.0 acc=0.5 speed=none"],
        ["10.0", "", "loss=10.0"],
    ]


def test_a_running_job_tells_those_of_now_and_is_sorted_by_them(
    shared: DaemonProcess, jobs: list[int], tmp_path: Path
) -> None:
    go = tmp_path / "go"
    wait = f"while [ ! -e {go} ]; do sleep 0.05; done"
    write = '>> "$DIBS_METRICS"'
    number = shared.add(
        {
            "command": f"echo loss=5 step=1 {write}; {wait}; echo loss=4 acc=1 step=2 {write}; sleep 60",
            "num_gpus": 0,
        }
    )

    wait_until(lambda: last(shared, number) == {"loss": 5})
    go.touch()
    wait_until(lambda: last(shared, number) == {"loss": 4, "acc": 1})
    by_loss = f"/v1/jobs?ids={jobs[0]}-{jobs[2]},{number}&order=metric.loss"
    assert [job["id"] for job in shared.get(by_loss)["jobs"]] == [jobs[2], jobs[0], number, jobs[1]]
    shared.post("/v1/jobs/act", {"action": "kill", "ids": [number]})


def test_what_ended_while_no_daemon_ran_is_read_by_the_next_one(tmp_path: Path, daemon: DaemonProcess) -> None:
    go = tmp_path / "go"
    wait = f"while [ ! -e {go} ]; do sleep 0.05; done"
    number = daemon.add({"command": f'{wait}; echo loss=7 >> "$DIBS_METRICS"', "num_gpus": 0})
    wait_until(lambda: daemon.state(number) == "running")
    folder = Path(daemon.job(number)["folder"])
    daemon.end()

    go.touch()
    wait_until(lambda: (folder / "metrics").exists())
    daemon.start()

    wait_until(lambda: last(daemon, number) == {"loss": 7})


def test_a_trial_tells_its_result_and_what_else_it_reported(shared: DaemonProcess) -> None:
    command = 'echo "loss={x} seconds=7" >> "$DIBS_METRICS"'
    sweep = begin(shared, command, values("x", "1", "2"), metrics=LOSS, wishes={"num_gpus": 0, "project": "s"})
    wait_for(shared, sweep, lambda one: one["state"] == "finished")

    found = shared.get("/v1/jobs?project=s&order=metric.seconds&reverse=true")["jobs"]

    assert [job["last_metrics"] for job in found] == [{"loss": 2, "seconds": 7}, {"loss": 1, "seconds": 7}]
