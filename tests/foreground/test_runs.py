"""A run's folder among other files, and runs that were never resumed."""

import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from dibs.errors import BadInput
from dibs.foreground.runs import last_run, open_run

MONTHS = 60 * 86400


@pytest.fixture
def place(tmp_path: Path) -> Path:
    folder = tmp_path / "a 'b\" $c"
    folder.mkdir()
    return folder


def an_old_run(state: Path, name: str) -> Path:
    root = state / "runs" / name
    root.mkdir(parents=True)
    (root / "store.db").write_bytes(b"")
    (root / "lock").write_bytes(b"")
    then = time.time() - MONTHS
    os.utime(root, (then, then))
    return root


@pytest.fixture
def orphan() -> Iterator[str]:
    """The name of a run of which a command is alive, and nothing else."""
    name = f"0101-{os.getpid()}"
    with subprocess.Popen(["sleep", "600"], env={**os.environ, "DIBS_RUN": name}) as command:
        yield name
        command.kill()


def begin(state: Path) -> None:
    open_run({"DIBS_STATE": str(state)}).close()


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


# -- the output folder -------------------------------------------------------------------------------------


def test_a_link_planted_in_the_output_folder_leads_nowhere(place: Path) -> None:
    thesis = place / "thesis"
    thesis.write_text("four years")
    out = place / "out"
    out.mkdir()
    (out / ".dibs-probe").symlink_to(thesis)

    open_run({}, output_dir=str(out)).close()

    assert thesis.read_text() == "four years"
    assert sorted(os.listdir(out)) == [".dibs", ".dibs-probe"]


def test_a_file_as_output_folder_is_called_a_file(place: Path) -> None:
    out = place / "out"
    out.write_text("results")

    with pytest.raises(BadInput) as refused:
        open_run({}, output_dir=str(out))

    assert refused.value.message == f"{out} is a file, not a folder"
    assert out.read_text() == "results"


# -- runs of long ago --------------------------------------------------------------------------------------


def test_a_run_of_long_ago_is_forgotten(place: Path) -> None:
    root = an_old_run(place, "0101-120000")

    begin(place)

    assert not root.exists()


def test_a_run_is_kept_while_its_command_lives_without_its_shim(place: Path, orphan: str) -> None:
    root = an_old_run(place, orphan)

    begin(place)

    assert (root / "store.db").exists()


def test_a_run_that_cannot_be_removed_costs_no_descriptor(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(5):
        an_old_run(place, f"0101-12000{number}")

    def fail(path: str) -> None:
        raise PermissionError(13, "Permission denied", path)

    monkeypatch.setattr(shutil, "rmtree", fail)
    before = descriptors()

    begin(place)

    assert descriptors() == before


def test_a_link_among_the_runs_is_left_alone(place: Path) -> None:
    elsewhere = place / "elsewhere"
    elsewhere.mkdir()
    (place / "runs").mkdir()
    (place / "runs" / "0101-120000").symlink_to(elsewhere)
    then = time.time() - MONTHS
    os.utime(elsewhere, (then, then))

    begin(place)

    assert os.listdir(elsewhere) == []


def test_the_last_run_of_a_folder_is_the_one_that_was_begun_last_there(place: Path, monkeypatch):
    environ = {"DIBS_STATE": str(place / "state")}
    here, elsewhere = place / "here", place / "elsewhere"
    here.mkdir()
    elsewhere.mkdir()
    monkeypatch.chdir(here)
    assert last_run(environ) is None

    names = []
    for folder in (here, here, elsewhere):
        monkeypatch.chdir(folder)
        run = open_run(environ)
        run.remember_workdir()
        run.close()
        names.append(run.name)
    monkeypatch.chdir(here)

    assert last_run(environ) == (names[1], "")
