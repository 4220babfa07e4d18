"""What a job reports: one line for each call, whole even where several processes write."""

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import dibs
from dibs.sweeps.results import MetricsReader


@pytest.fixture
def metrics(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "metrics"
    monkeypatch.setenv("DIBS_METRICS", str(path))
    return path


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a new process: nothing was warned of yet."""
    monkeypatch.setattr("dibs.api.report._warned", set())


def told(metrics: Path) -> str:
    """What was written, without the times."""
    text, times = re.subn(r" _timestamp=[0-9]{10}\.[0-9]{3}$", "", metrics.read_text(), flags=re.MULTILINE)
    assert times == text.count("\n")
    return text


def test_each_call_is_a_line(metrics: Path) -> None:
    dibs.report(loss=0.25, step=5)
    dibs.report({"val/acc": 1, "loss": 3e-05}, step=6)
    dibs.report(loss=float("nan"))

    assert told(metrics) == "loss=0.25 step=5\nval/acc=1 loss=3e-05 step=6\nloss=nan\n"


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

    assert told(metrics) == "loss=0.5\n"


class Broken:
    """What raises whenever it is looked at."""

    def __float__(self) -> float:
        raise RuntimeError("two elements")

    def __repr__(self) -> str:
        raise RuntimeError("freed")


@pytest.mark.parametrize(
    ("values", "line", "warning"),
    [
        ({}, "", "there is no number to report"),
        (0.3, "", "0.3: it has no name"),
        ({"": 1}, "", "reported as nothing"),
        ({"val loss": 1}, "val_loss=1", "'val loss' is reported as val_loss"),
        ({"loss=1\nx": 1}, "loss_1_x=1", "reported as loss_1_x"),
        ({1: 0.5}, "1=0.5", ""),
        ({"loss": 1, "step": 7}, "loss=1 step=7", ""),
        ({"loss": 1, "step": 7.0}, "loss=1 step=7", ""),
        ({"loss": 1, "step": 1.5}, "loss=1", "the step 1.5 is left out"),
        ({"loss": 1, "step": "five"}, "loss=1", "the step 'five' is left out"),
        ({"loss": 1, "step": float("nan")}, "loss=1", "the step nan is left out"),
        ({"val": {"loss": 0.5, "top": {"1": 2}}}, "val/loss=0.5 val/top/1=2", ""),
        ({"loss": 1, "note": "best"}, "loss=1", "note='best' is left out"),
        ({"loss": 1, "lr": None}, "loss=1", "lr=None is left out"),
        ({"loss": 1, "x": [1, 2]}, "loss=1", "x=[1, 2] is left out"),
        ({"loss": 1, "x": Broken()}, "loss=1", "x=a Broken is left out"),
        ({"loss": 1, "x": 10**5000}, "loss=1", "it is not one number"),
        ({"done": True}, "done=1", ""),
        ({"loss": 3 + 4j}, "", "loss=(3+4j) is left out"),
    ],
)
def test_whatever_is_reported_is_taken_or_left_out_with_one_warning(
    metrics: Path, capfd: pytest.CaptureFixture[str], values: Any, line: str, warning: str
) -> None:
    for _ in range(2):
        dibs.report(values)

    assert (told(metrics) if metrics.exists() else "") == f"{line}\n" * 2 * bool(line)
    said = capfd.readouterr().err
    assert said.count(warning) == 1 if warning else said == ""


class OneElement:
    """What an array with one element can do."""

    def item(self) -> float:
        return 0.25


def test_an_array_with_one_element_is_its_number(metrics: Path) -> None:
    dibs.report(loss=OneElement(), step=OneElement().item() * 8)

    assert told(metrics) == "loss=0.25 step=2\n"


def test_many_values_are_several_lines_of_the_same_step(metrics: Path) -> None:
    dibs.report({f"name{i}": 0.123456789 for i in range(400)}, step=3)

    lines = told(metrics).splitlines()
    assert all(line.endswith(" step=3") and len(line) < 4096 for line in lines)
    assert sum(line.count("name") for line in lines) == 400


def test_a_file_that_cannot_be_written_is_told_of_once(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("DIBS_METRICS", "/dev/full")

    for step in range(3):
        dibs.report(loss=1, step=step)

    assert capfd.readouterr().err == "dibs.report: metrics are not kept: No space left on device\n"


def test_lines_of_many_processes_stay_whole(metrics: Path) -> None:
    code = "import dibs, sys\nfor i in range(200): dibs.report(**{sys.argv[1] * 30: i}, step=i)"

    writers = [
        subprocess.Popen([sys.executable, "-c", code, letter], env={**os.environ, "DIBS_METRICS": str(metrics)})
        for letter in "abcd"
    ]
    assert [writer.wait(60) for writer in writers] == [0] * 4

    lines = told(metrics).splitlines()
    assert sorted(lines) == sorted(f"{letter * 30}={i} step={i}" for letter in "abcd" for i in range(200))
