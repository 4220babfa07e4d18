"""How far a job is, from the beginning and the end of what it wrote."""

import os
from pathlib import Path

import pytest

from dibs.metrics.attempt import LineFile
from dibs.metrics.lines import read_line
from dibs.metrics.progress import JobProgress, read_report

BEGAN, WRITTEN = 1000.0, 1100.0  # seconds since the epoch


def progress_of(folder: Path, text: str) -> JobProgress | None:
    path = folder / "metrics"
    path.write_text(text)
    os.utime(path, (WRITTEN, WRITTEN))
    return read_report([LineFile(str(path), read_line)], BEGAN).progress


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("progress=0.25\n", 0.25),
        ("progress=25%\n", 0.25),
        ('{"progress": 0.5}\nloss=3\n', 0.5),
        ("loss=1 step=5 steps=20\n", 0.25),
        ("steps=20\n" + "loss=1 step=1\n" * 5000 + "loss=1 step=10\n", 0.5),
        ("progress=0.5\nprogress=0.7", 0.5),  # half a number is another number
        ("progress=7\nprogress=x\nloss=3\nstep=5\nstep=3 steps=0\n", None),
        ("", None),
    ],
)
def test_the_last_word_about_it_counts(tmp_path, text, part):
    found = progress_of(tmp_path, text)

    assert (found and found.part) == part


def test_a_quarter_in_a_hundred_seconds_leaves_three_hundred(tmp_path):
    found = progress_of(tmp_path, "progress=0.25\n")

    assert found == JobProgress(0.25, WRITTEN, WRITTEN + 300)


def test_what_was_done_before_a_restart_does_not_count(tmp_path):
    found = progress_of(tmp_path, "progress=0.5 _timestamp=1010\nprogress=0.6 _timestamp=1030\n")

    assert found is not None and found.ends_at == pytest.approx(1030 + 80)


def test_a_pipe_or_a_link_in_its_place_says_nothing(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "real").write_text("progress=0.5\n")
    (tmp_path / "link").symlink_to(tmp_path / "real")

    for name in ("pipe", "link", "missing"):
        assert read_report([LineFile(str(tmp_path / name), read_line)], BEGAN).progress is None
