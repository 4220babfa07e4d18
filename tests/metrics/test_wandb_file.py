"""The files in which W&B keeps what a program logs. tests/stories/test_wandb.py has files of W&B itself."""

import json
import os
import struct
import subprocess
import time
import tracemalloc
from pathlib import Path

import pytest

from dibs.metrics.attempt import AttemptMetrics, MetricSources
from dibs.metrics.wandb_file import WandbFile
from dibs.sweeps.results import WandbResults
from metrics.messages import field, varint

BEGAN = 1_700_000_000.0
HEAD = b":W&B\xe1\xbe\0"


def item(name: str, value: object) -> bytes:
    names = b"".join(field(2, part.encode()) for part in name.split("."))
    return field(1, names + field(16, json.dumps(value).encode()))


def history(step: int, **values: object) -> bytes:
    items = {"_step": step, "_timestamp": BEGAN + step, **values}
    return field(2, b"".join(item(*one) for one in items.items()) + field(2, b"\x08" + varint(step)))


def summary(**values: object) -> bytes:
    return field(3, b"".join(item(*one) for one in values.items()))


def log_of(*records: bytes) -> bytes:
    """As LevelDB writes them: parts of records in blocks of 32 KiB."""
    out = bytearray(HEAD)
    for record in records:
        is_first = True
        while True:
            left = 32768 - len(out) % 32768
            if left < 7:
                out += bytes(left)
                continue
            part, record = record[: left - 7], record[left - 7 :]
            kind = {(True, True): 1, (True, False): 2, (False, False): 3, (False, True): 4}[is_first, not record]
            out += struct.pack("<IHB", 0, len(part), kind) + part
            is_first = False
            if not record:
                break
    return bytes(out)


def run_file(folder: Path, content: bytes, run: str = "abc", begun: str = "20260101_000000") -> Path:
    path = folder / "wandb" / f"offline-run-{begun}-{run}" / f"run-{run}.wandb"
    path.parent.mkdir(parents=True)
    path.write_bytes(content)
    return path


def values(file: WandbFile) -> list[tuple[str, int | None, float]]:
    return [(one.tag, one.step, one.value) for one in file.scalars(time.monotonic() + 60)]


def test_numbers_are_read_on_while_the_file_grows(tmp_path):
    whole = log_of(
        field(21, b"\x0a\x03abc"),
        history(1, loss=0.5, **{"val.acc": 0.25}, text="x", picture={"_type": "image"}, ok=True),
        field(13, b"x" * 70_000),  # goes over several blocks
        field(13, b"x" * 2_000_000),  # too long to be kept
        history(2, loss=0.125),
    )
    path = run_file(tmp_path, b"")
    file = WandbFile(str(path))

    found = []
    for end in [3, 7, 10, 60, 30_000, len(whole) - 1, len(whole)]:
        path.write_bytes(whole[:end])
        found += values(file)

    assert found == [("loss", 1, 0.5), ("val.acc", 1, 0.25), ("loss", 2, 0.125)]
    assert values(file) == []


@pytest.mark.parametrize("damage", [b"\xff" * 50, struct.pack("<IHB", 0, 60_000, 1) + b"x" * 60_000, bytes(50)])
def test_what_stands_before_a_damage_counts(tmp_path, damage):
    file = WandbFile(str(run_file(tmp_path, log_of(history(1, loss=0.5), b"\xff" * 9) + damage)))

    assert values(file) == [("loss", 1, 0.5)]


def test_another_file_of_this_name_is_not_read(tmp_path):
    assert values(WandbFile(str(run_file(tmp_path, b"notes about run abc")))) == []


def test_the_result_is_that_of_the_summary_as_in_sweeps_of_wandb(tmp_path):
    path = run_file(
        tmp_path, log_of(summary(loss=0.5), history(1, loss=0.5), summary(loss=0.125), history(2, acc=1))
    )
    results = WandbResults(["loss", "acc"], lambda: [str(path)])
    reports = results.read()

    assert [(one.step, one.values) for one in reports] == [(1, {"loss": 0.5}), (2, {"acc": 1.0})]
    assert results.result().values == (0.125, 1.0)


def test_skimming_finds_the_same_result_and_keeps_no_steps(tmp_path):
    steps = (history(step, loss=abs(step - 1500) + 1, acc=step) for step in range(3000))
    found = [str(run_file(tmp_path, log_of(*steps, history(3000, loss=float("nan")))))]
    skimming, reading = (WandbResults(["loss", "acc"], lambda: found, {"loss": "min"}) for _ in range(2))

    tracemalloc.start()
    skimming.skim()
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    reading.read()

    assert skimming.result() == reading.result()
    assert skimming.result().values == (1.0, 2999.0)
    assert most < 300_000  # bytes; the steps have 2 million


def test_a_metric_that_is_no_number_or_missing_is_said(tmp_path):
    path = run_file(tmp_path, log_of(summary(loss=float("nan"), lr=1)))
    missing, nan, without = (
        WandbResults([name], lambda found=found: found)
        for name, found in (("acc", [str(path)]), ("loss", [str(path)]), ("loss", []))
    )
    for results in (missing, nan, without):
        results.read()

    assert missing.result().problem == "acc was not reported; what was reported is loss, lr"
    assert nan.result().problem == "loss is NaN, which is not a finite number"
    assert "wrote no file of W&B" in without.result().problem


def test_a_job_has_the_curves_of_its_own_run(tmp_path):
    run_file(tmp_path, log_of(history(1, loss=0.5), history(2, loss=0.25), summary(test_acc=0.75)))
    run_file(tmp_path, log_of(history(1, loss=9)), run="other", begun="20260101_000001")
    metrics = AttemptMetrics(
        MetricSources(folder=str(tmp_path / "a"), began=BEGAN, workdir=str(tmp_path), wandb_run="abc")
    )
    metrics.look(time.monotonic() + 60, ended=None, is_whole=False)

    series = {one.name: one for one in metrics.series()}
    assert {one.source for one in series.values()} == {"wandb"}
    assert [(at.step, at.at, at.value) for at in series["loss"].series.points()] == [
        (1, BEGAN + 1, 0.5),
        (2, BEGAN + 2, 0.25),
    ]
    assert [at.value for at in series["test_acc"].series.points()] == [0.75]


def test_a_run_is_found_among_thousands(tmp_path, monkeypatch):
    for number in range(5):
        run_file(tmp_path, log_of(history(1, loss=number)), run=f"r{number}")
    monkeypatch.setattr("dibs.metrics.search._MOST_ENTRIES", 3)

    for number in range(5):
        metrics = AttemptMetrics(
            MetricSources(folder=str(tmp_path / "a"), began=BEGAN, workdir=str(tmp_path), wandb_run=f"r{number}")
        )
        metrics.look(time.monotonic() + 60, ended=None, is_whole=False)
        assert [one.series.summary().last for one in metrics.series()] == [number]


def test_each_attempt_of_a_job_has_the_run_that_it_began(tmp_path):
    begun = [time.strftime("%Y%m%d_%H%M%S", time.localtime(BEGAN + second)) for second in (1, 11)]
    for number, at in enumerate(begun):
        path = run_file(tmp_path, log_of(history(1, loss=number)), begun=at)
        os.utime(path, (BEGAN + 10 * number + 5,) * 2)

    def losses(began: float, ended: float | None) -> list[float]:
        metrics = AttemptMetrics(
            MetricSources(folder=str(tmp_path / "a"), began=began, workdir=str(tmp_path), wandb_run="abc")
        )
        metrics.look(time.monotonic() + 60, ended=ended, is_whole=False)
        return [at.value for one in metrics.series() for at in one.series.points()]

    assert losses(BEGAN, BEGAN + 10) == [0]
    assert losses(BEGAN + 10, None) == [1]


def test_without_an_id_the_time_and_the_process_tell_whose_a_run_is(tmp_path):
    name = time.strftime("%Y%m%d_%H%M%S", time.localtime(BEGAN + 5))
    early = time.strftime("%Y%m%d_%H%M%S", time.localtime(BEGAN - 60))
    run_file(tmp_path, log_of(history(1, loss=0.5)), begun=name)
    run_file(tmp_path, log_of(history(1, loss=1)), run="early", begun=early)
    run_file(tmp_path, log_of(history(1, loss=2)), run="no-time", begun="99999999_999999")
    foreign = run_file(tmp_path, log_of(history(1, loss=3)), run="foreign", begun=name).parent / "logs"
    foreign.mkdir()
    metrics = AttemptMetrics(MetricSources(folder=str(tmp_path / "a"), began=BEGAN, workdir=str(tmp_path)))
    with subprocess.Popen(["sleep", "60"], env={**os.environ, "DIBS_METRICS": "/of/another/job"}) as other:
        (foreign / "debug.log").write_text(f"2026-11-18 18:56:32,871 INFO    MainThread:{other.pid} [x]\n")
        metrics.look(time.monotonic() + 60, ended=None, is_whole=False)
        other.kill()

    assert {one.name: one.series.summary().last for one in metrics.series()} == {"loss": 0.5}
