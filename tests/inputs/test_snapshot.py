"""A copy of the code: what belongs to it, never a link to the original, and what jobs wrote there stays."""

import os
import subprocess
from pathlib import Path

import pytest

from dibs.errors import BadInput
from dibs.inputs import snapshot
from dibs.inputs.snapshot import mark_unused, remove_unused, take_snapshot


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in [name for name in os.environ if name.startswith("GIT_")]:
        monkeypatch.delenv(name)
    root = tmp_path / "code é \udcff"
    (root / "sub").mkdir(parents=True)
    (root / "train.py").write_text("print(1)\n")
    (root / "run.sh").write_text("#!/bin/sh\n")
    (root / "run.sh").chmod(0o755)
    (root / "sub" / "link").symlink_to("../train.py")
    return root


@pytest.fixture
def shelf(tmp_path: Path) -> str:
    return str(tmp_path / "shelf")


def git_init(root: Path) -> None:
    subprocess.run(["git", "init", "-q", os.fsencode(root)], check=True)
    subprocess.run(["git", "-C", os.fsencode(root), "add", "train.py", "run.sh"], check=True)


def files(place: str) -> list[str]:
    found = [os.path.join(folder, name) for folder, _, names in os.walk(place) for name in names]
    return sorted(os.path.relpath(path, place) for path in found)


@pytest.mark.parametrize("with_git", [False, True])
def test_the_copy_is_the_code_as_it_was(root, shelf, with_git):
    if with_git:
        git_init(root)

    taken = (
        take_snapshot(str(root / "sub"), shelf, os.environ)
        if with_git
        else take_snapshot(str(root), shelf, os.environ)
    )
    (root / "train.py").write_text("print(2)\n")

    copy = Path(taken.copy)
    assert files(taken.copy) == ["run.sh", "sub/link", "train.py"]
    assert (copy / "train.py").read_text() == "print(1)\n"
    assert os.readlink(copy / "sub" / "link") == "../train.py"
    assert os.access(copy / "run.sh", os.X_OK) and not os.access(copy / "train.py", os.X_OK)
    assert taken.place_of(str(root / "sub")) == f"{taken.copy}/sub"
    assert taken.place_of(str(root)) == taken.copy


def test_git_knows_what_belongs_to_it(root, shelf):
    git_init(root)
    (root / ".gitignore").write_text("*.ckpt\n")
    (root / "huge.ckpt").write_text("x")
    (root / "new.py").write_text("x")
    (root / "run.sh").unlink()

    taken = take_snapshot(str(root), shelf, os.environ)

    assert files(taken.copy) == [".gitignore", "new.py", "sub/link", "train.py"]


def test_every_call_gets_a_copy_of_its_own(root, shelf):
    first = take_snapshot(str(root), str(shelf), os.environ)
    (Path(first.copy) / "train.py").write_text("changed by the job itself")

    second = take_snapshot(str(root), str(shelf), os.environ)

    assert first.copy != second.copy
    assert (Path(second.copy) / "train.py").read_bytes() == (root / "train.py").read_bytes()
    assert {first.copy, second.copy} <= {f"{shelf}/{name}" for name in os.listdir(shelf)}


@pytest.mark.parametrize(("limit", "value"), [("LARGEST", 5), ("_MOST_FILES", 2)])
def test_what_is_too_large_is_one_sentence_and_leaves_nothing(root, shelf, monkeypatch, limit, value):
    monkeypatch.setattr(snapshot, limit, value)

    with pytest.raises(BadInput, match="more than") as refusal:
        take_snapshot(str(root), shelf, os.environ)

    assert ".gitignore" in refusal.value.remedy
    assert not os.path.exists(shelf) or os.listdir(shelf) == []


def test_a_place_outside_of_the_code_is_refused(root, shelf):
    taken = take_snapshot(str(root), shelf, os.environ)

    with pytest.raises(BadInput, match="the snapshot holds"):
        taken.place_of("/tmp")


def test_a_fifo_in_the_folder_is_left_out(root, shelf):
    os.mkfifo(root / "pipe")

    assert "pipe" not in files(take_snapshot(str(root), shelf, os.environ).copy)


def test_a_copy_in_which_nothing_was_written_is_removed_whole(root, shelf):
    git_init(root)
    taken = take_snapshot(str(root), shelf, os.environ)
    (Path(taken.copy) / "sub" / "__pycache__").mkdir()
    (Path(taken.copy) / "sub" / "__pycache__" / "train.cpython-311.pyc").write_text("Python makes it again")
    os.utime(f"{taken.copy}/train.py")

    mark_unused(taken.copy)

    assert remove_unused(shelf) == []
    assert os.listdir(shelf) == []


def test_what_a_job_wrote_in_a_copy_stays(root, shelf):
    taken = take_snapshot(str(root), shelf, os.environ)
    other = take_snapshot(str(root), shelf, os.environ)
    copy = Path(taken.copy)
    (copy / "runs" / "1").mkdir(parents=True)
    (copy / "runs" / "1" / "weights \udcff").write_text("new")
    (copy / "train.py").write_text("print(3)\n")  # of the same size
    (copy / "sub" / "link").unlink()
    (copy / "sub" / "link").symlink_to("../runs")
    os.mkfifo(copy / "pipe")

    mark_unused(taken.copy)

    assert remove_unused(shelf) == [taken.copy]
    assert files(taken.copy) == ["pipe", "runs/1/weights \udcff", "train.py"]
    assert os.readlink(copy / "sub" / "link") == "../runs"
    assert files(other.copy) == ["run.sh", "sub/link", "train.py"], "a job needs it still"
    assert remove_unused(shelf) == [], "it is said once"


def test_a_link_that_a_job_made_is_not_followed(root, shelf):
    taken = take_snapshot(str(root), shelf, os.environ)
    os.unlink(f"{taken.copy}/sub/link")
    os.rmdir(f"{taken.copy}/sub")
    os.symlink(root / "sub", f"{taken.copy}/sub")

    mark_unused(taken.copy)

    assert remove_unused(shelf) == [taken.copy]
    assert sorted(os.listdir(root)) == ["run.sh", "sub", "train.py"]
    assert os.listdir(root / "sub") == ["link"]


@pytest.mark.parametrize("damage", [os.unlink, lambda path: os.truncate(path, 3)])
def test_without_the_list_of_its_files_all_of_a_copy_stays(root, shelf, damage):
    taken = take_snapshot(str(root), shelf, os.environ)
    damage(f"{taken.copy}.files")

    mark_unused(taken.copy)

    assert remove_unused(shelf) == [taken.copy]
    assert files(taken.copy) == ["run.sh", "sub/link", "train.py"]
