"""What a job reports: one line for each call, whole even where several processes write."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import dibs
from dibs.sweeps.results import MetricsReader


@pytest.fixture
def metrics(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "metrics"
    monkeypatch.setenv("DIBS_METRICS", str(path))
    return path


def test_each_call_is_a_line(metrics: Path) -> None:
    dibs.report(loss=0.25, step=5)
    dibs.report({"val/acc": 1, "loss": 3e-05}, step=6)
    dibs.report(loss=float("nan"))

    assert metrics.read_text() == "loss=0.25 step=5\nval/acc=1 loss=3e-05 step=6\nloss=nan\n"


def test_a_sweep_reads_what_was_reported(metrics: Path) -> None:
    dibs.report({"val/loss": 0.25, "x-y.z": 1}, step=5)
    dibs.report({"val/loss": 3e-05})

    reader = MetricsReader(["val/loss"])
    found = reader.feed(metrics.read_bytes())

    assert [(one.step, one.values) for one in found] == [(5, {"val/loss": 0.25}), (None, {"val/loss": 3e-05})]


def test_outside_of_a_job_it_does_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DIBS_METRICS", raising=False)

    dibs.report(loss=0.1)


class Scalar:
    """What a tensor with one element can do."""

    def __float__(self) -> float:
        return 0.5


def test_numbers_of_other_libraries_are_numbers(metrics: Path) -> None:
    dibs.report(loss=Scalar())

    assert metrics.read_text() == "loss=0.5\n"


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({}, "nothing to report"),
        ({"a b": 1}, "it is not a name"),
        ({"loss=1\nx": 1}, "it is not a name"),
        ({"": 1}, "it is not a name"),
        ({"step": 1}, "it is not a name"),
        ({"loss": "0.1"}, "it is not a number"),
        ({"loss": True}, "it is not a number"),
        ({"loss": None}, "it is not a number"),
        ({"loss": [1]}, "it is not a number"),
        ({"loss": 10**5000}, "it is not below 1e308"),
        (0.3, "it has no name"),
        ({f"name{i}": 0.123456789 for i in range(400)}, "400 values at once"),
    ],
)
@pytest.mark.parametrize("inside", [True, False])
def test_nonsense_is_refused_inside_and_outside_of_a_job(
    metrics: Path, monkeypatch: pytest.MonkeyPatch, values: object, words: str, inside: bool
) -> None:
    if not inside:
        monkeypatch.delenv("DIBS_METRICS")

    with pytest.raises(dibs.BadInput, match=words):
        dibs.report(values)  # type: ignore[arg-type]

    assert not metrics.exists()


@pytest.mark.parametrize("step", [True, 1.5, float("inf"), float("nan"), "five", [1]])
def test_a_step_is_a_whole_number(metrics: Path, step: int) -> None:
    with pytest.raises(dibs.BadInput, match="as a step"):
        dibs.report(loss=1, step=step)


def test_lines_of_many_processes_stay_whole(metrics: Path) -> None:
    code = "import dibs, sys\nfor i in range(200): dibs.report(**{sys.argv[1] * 30: i}, step=i)"

    writers = [
        subprocess.Popen([sys.executable, "-c", code, letter], env={**os.environ, "DIBS_METRICS": str(metrics)})
        for letter in "abcd"
    ]
    assert [writer.wait(60) for writer in writers] == [0] * 4

    lines = metrics.read_text().splitlines()
    assert sorted(lines) == sorted(f"{letter * 30}={i} step={i}" for letter in "abcd" for i in range(200))
