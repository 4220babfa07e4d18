"""A `sinfo` that says what it is told: for clusters that nobody has, and for one that says nothing."""

from collections.abc import Sequence
from pathlib import Path

from dibs.backends.slurm.sinfo import _COLUMNS

BIG = (
    "big",
    "gpu*",
    "mixed",
    "8/56/0/64",
    "512000",
    "64000",
    "gpu:a100:4(S:0-1),gpu:t4:2",
    "gpu:a100:1,gpu:t4:2",
    "",
)


def node(name: str, *, partition: str = "gpu*", state: str = "idle", reason: str = "none") -> tuple[str, ...]:
    """A node with two cards, of which nothing is used."""
    return (name, partition, state, "0/16/0/16", "64000", "0", "gpu:2", "gpu:0", reason)


def fake_sinfo(folder: Path, rows: Sequence[Sequence[str]]) -> str:
    """A folder for the PATH in which `sinfo` prints these rows."""
    lines = ["".join(cell.ljust(width) for cell, (_, width) in zip(row, _COLUMNS, strict=True)) for row in rows]
    folder.mkdir(exist_ok=True)
    (folder / "rows").write_text("".join(f"{line}\n" for line in lines))
    return _program(folder, f"exec cat '{folder}/rows'")


def failing_sinfo(folder: Path, says: str) -> str:
    folder.mkdir(exist_ok=True)
    return _program(folder, f"echo 'sinfo: error: {says}' >&2; exit 1")


def _program(folder: Path, line: str) -> str:
    (folder / "sinfo").write_text(f"#!/bin/sh\n{line}\n")
    (folder / "sinfo").chmod(0o755)
    return str(folder)
