"""What is known about the code: commit, branch and difference, and never an error."""

import os
import subprocess
import time
from pathlib import Path

import pytest

from dibs.inputs import code
from dibs.inputs.code import describe_code


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    root = tmp_path / "a 'repo' é"
    (root / "sub").mkdir(parents=True)
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in [name for name in os.environ if name.startswith("GIT_")]:
        monkeypatch.delenv(name)
    (root / "train.py").write_text("print(1)\n")
    (root / "sub" / "data.bin").write_bytes(b"\0\xff")
    (root / ".gitignore").write_text("ignored*\n")
    git(root, "init", "-q", "-b", "main")
    git(root, "add", ".")
    git(root, "commit", "-q", "-m", "first")
    return root


def git(root: Path, *words: str) -> str:
    identity = ["-c", "user.name=x", "-c", "user.email=x@y"]
    return subprocess.run(
        ["git", "-C", str(root), *identity, *words], check=True, capture_output=True, text=True
    ).stdout.strip()


def test_a_clean_tree_is_its_commit_and_branch(repository):
    found = describe_code(str(repository / "sub"), os.environ)

    assert found == {
        "root": str(repository),
        "commit": git(repository, "rev-parse", "HEAD"),
        "branch": "main",
        "is_dirty": False,
    }


def test_of_a_dirty_tree_the_difference_and_the_new_files_are_kept(repository):
    (repository / "train.py").write_bytes(b"print(2) # \xff\n")
    (repository / "néw file").write_text("x")
    (repository / "ignored").write_text("x")

    found = describe_code(str(repository), os.environ)

    assert found is not None and found["is_dirty"]
    assert "-print(1)\n+print(2) # \udcff" in str(found["diff"])
    assert found["untracked"] == ["néw file"]


def test_a_long_difference_is_cut_with_a_mark(repository):
    (repository / "train.py").write_text("0123456789\n" * 200_000)

    found = describe_code(str(repository), os.environ)

    assert found is not None
    assert len(str(found["diff"])) < code.LONGEST_DIFF + 100
    assert str(found["diff"]).endswith("longer than 256 KiB]\n")


def test_a_repository_without_a_commit_has_no_difference(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    git(tmp_path, "init", "-q", "-b", "main")
    (tmp_path / "a").write_text("x")

    found = describe_code(str(tmp_path), os.environ)

    assert found is not None
    assert (found["commit"], found["is_dirty"], found["diff"]) == ("", True, None)


def test_without_a_repository_or_without_git_nothing_is_known(repository, tmp_path):
    (tmp_path / "plain").mkdir()

    assert describe_code(str(tmp_path / "plain"), os.environ) is None
    assert describe_code(str(repository), {"PATH": "/nowhere"}) is None
    assert describe_code(str(tmp_path / "gone"), os.environ) is None


def test_a_broken_repository_is_no_error(tmp_path):
    (tmp_path / ".git").write_text("gitdir: /nowhere\n")

    assert describe_code(str(tmp_path), os.environ) is None


def test_a_git_that_takes_too_long_is_left_and_ended(repository, tmp_path):
    slow = tmp_path / "bin" / "git"
    slow.parent.mkdir()
    slow.write_text(f"#!/bin/sh\necho $$ > {tmp_path}/pid\nexec sleep 60\n")
    slow.chmod(0o755)
    began = time.monotonic()

    found = describe_code(str(repository), {"PATH": f"{slow.parent}:/usr/bin:/bin"}, seconds=2)

    assert found is None
    assert time.monotonic() - began < 30
    assert not os.path.exists(f"/proc/{(tmp_path / 'pid').read_text().strip()}")


def test_the_index_is_not_locked_and_no_process_is_left(repository):
    before = (repository / ".git" / "index").stat().st_mtime_ns
    os.utime(repository / "train.py", (1, 1))  # git would like to refresh its index now

    children = Path(f"/proc/self/task/{os.getpid()}/children")
    known = children.read_text()
    describe_code(str(repository), os.environ)

    assert (repository / ".git" / "index").stat().st_mtime_ns == before
    assert children.read_text() == known
