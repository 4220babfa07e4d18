"""What an attempt has reported, read on and on from its files."""

import math
import os
import struct
import time
from pathlib import Path

import pytest

from dibs.metrics import files
from dibs.metrics.attempt import AttemptMetrics, MetricSources
from dibs.metrics.tensorboard import masked_crc
from metrics.messages import field, varint

BEGAN = 1_700_000_000.0


def metrics_of(folder: Path, **more: object) -> AttemptMetrics:
    return AttemptMetrics(MetricSources(folder=str(folder), began=BEGAN, **more))  # type: ignore[arg-type]


def look(metrics: AttemptMetrics, seconds: float = 60.0, *, ended: float | None = None) -> dict[str, list[float]]:
    metrics.look(time.monotonic() + seconds, ended=ended, is_whole=ended is not None)
    return {one.name: [point.value for point in one.series.points()] for one in metrics.series()}


def test_each_line_is_read_once_and_a_half_one_later(tmp_path):
    metrics = metrics_of(tmp_path)
    assert look(metrics) == {} and metrics.is_complete

    (tmp_path / "metrics").write_text('loss=0.5 step=1\n{"loss": 0.25, "acc": 1, "step": 2}\nloss=0.1')
    first = look(metrics)
    with open(tmp_path / "metrics", "a") as file:
        file.write("25\nloss=0.06")

    assert first == {"loss": [0.5, 0.25], "acc": [1.0]}
    assert look(metrics)["loss"] == [0.5, 0.25, 0.125]
    assert look(metrics, ended=BEGAN + 9)["loss"] == [0.5, 0.25, 0.125, 0.06]


def test_a_file_that_is_written_anew_is_read_anew(tmp_path):
    metrics = metrics_of(tmp_path)
    (tmp_path / "metrics").write_text("loss=1\nloss=2\n")
    look(metrics)
    (tmp_path / "new").write_text("loss=7\n")
    os.replace(tmp_path / "new", tmp_path / "metrics")

    assert look(metrics) == {"loss": [7.0]}


def test_lines_without_a_time_are_spread_over_the_time_since_the_start(tmp_path):
    path = tmp_path / "metrics"
    path.write_text("loss=1\nloss=2\nloss=3\nloss=4\n")
    os.utime(path, (BEGAN + 100, BEGAN + 100))
    metrics = metrics_of(tmp_path)
    look(metrics)

    assert [point.at - BEGAN for point in metrics.series()[0].series.points()] == [25, 50, 75, 100]


def test_a_long_file_takes_several_looks(tmp_path):
    with open(tmp_path / "metrics", "w") as file:
        file.writelines(f"loss={number} step={number}\n" for number in range(60_000))
    metrics = metrics_of(tmp_path)

    looks = 0
    while not looks or not metrics.is_complete:
        metrics.look(time.monotonic() + 0.001, ended=None, is_whole=False)
        looks += 1

    summary = metrics.series()[0].series.summary()
    assert looks > 1 and (summary.reported, summary.last) == (60_000, 59_999.0)


def test_of_a_huge_file_the_end_is_read_and_that_is_said(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "_MOST_READ", 1000)
    (tmp_path / "metrics").write_text("early=1\n" + "loss=0.5\n" * 500 + "loss=9\n")
    metrics = metrics_of(tmp_path)

    found = look(metrics)

    assert "early" not in found and found["loss"][-1] == 9.0
    assert metrics.notes() == ["the first 3.43K of metrics were skipped"]


def test_what_is_reported_comes_before_what_is_found_in_the_log(tmp_path):
    (tmp_path / "metrics").write_text("loss=0.5\n")
    (tmp_path / "out").write_text("loss: 7\racc: 0.25\racc: 0.5\n")
    metrics = metrics_of(tmp_path, logs=(f"{tmp_path}/out", f"{tmp_path}/out"), patterns=("auto",))

    assert look(metrics) == {"loss": [0.5], "acc": [0.25, 0.5]}
    assert [one.source for one in metrics.series()] == ["metrics", "log"]


def test_too_many_names_are_cut_and_that_is_said(tmp_path):
    (tmp_path / "metrics").write_text("".join(f"m{number:03}=1\n" for number in range(105)))
    metrics = metrics_of(tmp_path)

    assert len(look(metrics)) == 100
    assert metrics.notes() == ["only the first 100 names are kept: m100 is not among them"]


# -- event files -------------------------------------------------------------------------------------------


def event(step: int, at: float, *values: bytes) -> bytes:
    summary = field(5, b"".join(field(1, value) for value in values)) if values else b""
    return b"\x09" + struct.pack("<d", at) + b"\x10" + varint(step % 2**64) + summary


def simple(tag: str, value: float) -> bytes:
    return field(1, tag.encode()) + b"\x15" + struct.pack("<f", value)


def tensor(tag: str, content: bytes) -> bytes:
    return field(1, tag.encode()) + field(8, content)


def record(content: bytes) -> bytes:
    length = struct.pack("<Q", len(content))
    return length + struct.pack("<I", masked_crc(length)) + content + b"\0\0\0\0"


def event_file(folder: Path, begun: float, *records: bytes) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"events.out.tfevents.{int(begun)}.elsewhere.12.0"
    path.write_bytes(b"".join(map(record, records)))
    return path


def test_the_checksum_is_that_of_the_format():
    assert masked_crc(struct.pack("<Q", 24)) == 0x224B7FA3


def test_scalars_of_event_files_are_read_on(tmp_path):
    path = event_file(
        tmp_path / "runs" / "a",
        BEGAN + 5,
        event(0, BEGAN + 5),
        event(1, BEGAN + 6, simple("loss", 0.5), tensor("acc", b"\x08\x01" + field(5, struct.pack("<f", 0.25)))),
        event(1, BEGAN + 6, tensor("weights", b"\x08\x01" + field(2, field(2, b"\x08\x02")) + field(4, bytes(8)))),
        event(2, BEGAN + 7, b"\x0a\x03png" + b"x" * 2_000_000),
        event(3, math.nan, simple("loss", 9.0)),
    )
    metrics = metrics_of(tmp_path / "attempt", workdir=str(tmp_path))
    first = look(metrics)
    half = record(event(2, BEGAN + 8, simple("loss", 0.125)))
    with open(path, "ab") as file:
        file.write(half[:20])
    second = look(metrics)
    with open(path, "ab") as file:
        file.write(half[20:])

    assert first == second == {"loss": [0.5], "acc": [0.25]}
    assert look(metrics)["loss"] == [0.5, 0.125]
    loss = metrics.series()[0]
    assert loss.source == "tensorboard" and loss.series.points()[1] == (2.0, BEGAN + 8, 0.125)


def test_event_files_of_another_time_or_another_job_are_not_its_own(tmp_path):
    event_file(tmp_path / "old", BEGAN - 60, event(1, BEGAN, simple("loss", 1.0)))
    event_file(tmp_path / ".git", BEGAN + 1, event(1, BEGAN, simple("loss", 2.0)))
    late = event_file(tmp_path / "late", BEGAN + 60, event(1, BEGAN, simple("loss", 3.0)))
    os.symlink(late.parent, tmp_path / "link")
    metrics = metrics_of(tmp_path / "attempt", workdir=str(tmp_path))

    assert look(metrics, ended=BEGAN + 50) == {}


def test_folders_of_event_files_are_told_apart(tmp_path):
    for name, value in (("train", 0.5), ("validation", 0.25)):
        event_file(tmp_path / "logs" / name, BEGAN + 5, event(1, BEGAN, simple("loss", value)))
    metrics = metrics_of(tmp_path / "attempt", workdir=str(tmp_path))

    assert look(metrics) == {"train/loss": [0.5], "validation/loss": [0.25]}


@pytest.mark.parametrize("damage", [b"\xff" * 40, b"\0" * 40])
def test_a_damaged_event_file_ends_where_it_is_damaged(tmp_path, damage):
    path = event_file(
        tmp_path,
        BEGAN + 5,
        event(1, BEGAN, simple("loss", 0.5)),
        b"\xff" * 9,
        event(2, BEGAN, simple("loss", math.nan)),
    )
    with open(path, "ab") as file:
        file.write(damage)
    metrics = metrics_of(tmp_path / "attempt", workdir=str(tmp_path))

    assert look(metrics) == {"loss": [0.5]}
    assert metrics.series()[0].series.summary().not_finite == 1
