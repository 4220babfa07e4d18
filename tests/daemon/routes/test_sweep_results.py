"""Where the numbers of trials come from, and what is said where there are none."""

import os
from pathlib import Path

import pytest

from daemon.daemon_process import DaemonProcess
from daemon.sweeping import begin, trials, until, values
from stories.outside import wait_until


@pytest.fixture
def daemon(shared: DaemonProcess) -> DaemonProcess:
    """One daemon for all of them: a sweep changes nothing for another."""
    return shared


def only_trial(daemon: DaemonProcess, command: str, **more):
    sweep = begin(daemon, command, values("x", 5), **more)
    until(daemon, sweep, "finished")
    (trial,) = trials(daemon, sweep)
    return trial


@pytest.mark.parametrize(
    "command",
    [
        'echo "loss={x}" >> "$DIBS_METRICS"',
        'echo "loss=9 step=1" >> "$DIBS_METRICS"; echo "loss={x} step=2" >> "$DIBS_METRICS"',
        """echo '{"loss": {x}, "step": 3}' >> "$DIBS_METRICS" """,
        'printf "loss={x}" >> "$DIBS_METRICS"',  # without a newline
    ],
)
def test_numbers_in_the_metrics_file(daemon: DaemonProcess, command):
    trial = only_trial(daemon, command)

    assert (trial["state"], trial["values"]) == ("complete", [5.0])


@pytest.mark.parametrize("stream", [1, 2])
@pytest.mark.parametrize("output", ["", "out.txt"])
def test_numbers_in_the_log(daemon: DaemonProcess, tmp_path: Path, stream, output):
    wishes = {"output": str(tmp_path / output)} if output else {}
    results = {"from": "log", "pattern": r"final loss: (?P<loss>[0-9.]+)"}

    trial = only_trial(daemon, f"echo 'final loss: {{x}}' >&{stream}", results=results, wishes=wishes)

    assert (trial["state"], trial["values"]) == ("complete", [5.0])


def test_numbers_in_a_file_that_the_trial_leaves(daemon: DaemonProcess, tmp_path: Path):
    results = {"from": "file", "path": "out-%j.json"}
    command = """echo '{"loss": {x}}' > out-$DIBS_JOB_ID.json"""

    trial = only_trial(daemon, command, results=results, wishes={"workdir": str(tmp_path)})

    assert (trial["state"], trial["values"]) == ("complete", [5.0])


def test_a_file_that_was_there_before_is_no_result(daemon: DaemonProcess, tmp_path: Path):
    (tmp_path / "out.json").write_text('{"loss": 1}')
    os.utime(tmp_path / "out.json", (1_000_000, 1_000_000))

    trial = only_trial(
        daemon, "true {x}", results={"from": "file", "path": "out.json"}, wishes={"workdir": str(tmp_path)}
    )

    assert (trial["state"], trial["values"]) == ("failed", None)
    assert "it is older than the trial" in trial["why"]


def test_a_file_that_the_trial_before_left_is_no_result_however_soon_the_next_one_follows(
    daemon: DaemonProcess, tmp_path: Path
):
    results = {"from": "file", "path": "out.json"}
    command = "test {x} = 2 || echo '{\"loss\": {x}}' > out.json"

    sweep = begin(
        daemon, command, values("x", 1, 2, 3), parallel=1, results=results, wishes={"workdir": str(tmp_path)}
    )

    until(daemon, sweep, "finished")
    first, second, third = trials(daemon, sweep)
    assert (first["values"], third["values"]) == ([1.0], [3.0])
    assert (second["state"], second["values"]) == ("failed", None)
    assert "it is older than the trial" in second["why"]


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("true {x}", "has no result: loss was not reported"),
        ('echo speed={x} >> "$DIBS_METRICS"', "loss was not reported; what was reported is speed"),
        ('echo loss=nan >> "$DIBS_METRICS" # {x}', "loss is nan, which is not a finite number"),
        ('echo loss=good >> "$DIBS_METRICS" # {x}', "loss is 'good', which is not a finite number"),
        ('mkfifo "$DIBS_METRICS"; true {x}', "loss was not reported"),
        ('ln -s /dev/zero "$DIBS_METRICS"; true {x}', "loss was not reported"),
    ],
)
def test_a_trial_that_succeeds_without_a_number_has_failed_and_says_why(daemon: DaemonProcess, command, said):
    trial = only_trial(daemon, command)

    assert (trial["state"], trial["values"]) == ("failed", None)
    assert said in trial["why"]
    assert daemon.job(trial["job"])["state"] == "succeeded"


def test_a_file_that_is_not_there_is_named(daemon: DaemonProcess, tmp_path: Path):
    trial = only_trial(
        daemon, "true {x}", results={"from": "file", "path": "no.json"}, wishes={"workdir": str(tmp_path)}
    )

    assert f"cannot read {tmp_path}/no.json: No such file or directory" in trial["why"]


def test_a_job_that_fails_has_no_values_whatever_it_reported(daemon: DaemonProcess):
    trial = only_trial(daemon, 'echo loss={x} >> "$DIBS_METRICS"; exit 3')

    assert (trial["state"], trial["values"]) == ("failed", None)
    assert trial["why"] == f"job {trial['job']} failed with exit code 3"


def test_a_long_metrics_file_counts_with_its_end(daemon: DaemonProcess):
    command = 'm="$DIBS_METRICS"; yes loss=1 | head -c 80000000 > "$m"; echo >> "$m"; echo loss={x} >> "$m"'

    assert only_trial(daemon, command)["values"] == [5.0]


def test_of_several_metrics_each_has_its_value_and_the_best_are_a_front(daemon: DaemonProcess):
    metrics = [{"name": "loss", "goal": "min"}, {"name": "speed", "goal": "max"}]
    command = 'echo "loss={x} speed=$(( {x} * (6 - {x}) ))" >> "$DIBS_METRICS"'
    sweep = begin(daemon, command, {"name": "x", "low": 1, "high": 5, "integer": True}, metrics=metrics)

    done = until(daemon, sweep, "finished")

    assert [best["values"] for best in done["best"]] == [[1.0, 5.0], [2.0, 8.0], [3.0, 9.0]]


def test_every_number_is_kept_for_every_trial_also_without_a_metric_and_when_its_job_is_cleaned(
    daemon: DaemonProcess,
):
    command = (
        'echo "acc=0.25 step=1" >> "$DIBS_METRICS"; echo "acc={x} lr=nan step=2" >> "$DIBS_METRICS"; exit {x}'
    )
    sweep = begin(daemon, command, values("x", 0, 3), metrics=[])
    until(daemon, sweep, "finished")

    daemon.post("/v1/clean", {})

    assert [(trial["state"], trial["reported"]) for trial in trials(daemon, sweep)] == [
        ("complete", {"acc": 0.0, "lr": None}),
        ("failed", {"acc": 3.0, "lr": None}),
    ]


def test_what_an_open_trial_reports_is_seen_while_it_runs(daemon: DaemonProcess, tmp_path: Path):
    command = f'echo "acc={{x}} step=1" >> "$DIBS_METRICS"; until test -e {tmp_path}/go; do sleep 0.05; done'
    sweep = begin(daemon, command, values("x", 5), metrics=[])

    (trial,) = wait_until(lambda: [one for one in trials(daemon, sweep) if one["reported"]])

    assert (trial["state"], trial["reported"]) == ("open", {"acc": 5.0})
    (tmp_path / "go").touch()
    until(daemon, sweep, "finished")


def test_every_number_of_a_result_file_is_kept(daemon: DaemonProcess, tmp_path: Path):
    results = {"from": "file", "path": "r-%j.json"}
    command = """echo '{"loss": {x}, "acc": 0.5, "note": "a"}' > r-$DIBS_JOB_ID.json"""

    trial = only_trial(daemon, command, results=results, wishes={"workdir": str(tmp_path)})

    assert trial["reported"] == {"loss": 5.0, "acc": 0.5}
