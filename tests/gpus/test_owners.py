"""Who stands behind a pid, over files as in /proc."""

import os
import pwd

import pytest

from dibs.gpus.owners import Owners

ME = pwd.getpwuid(os.geteuid()).pw_name


@pytest.fixture
def proc(tmp_path):
    def write(pid, name, started):
        folder = tmp_path / str(pid)
        folder.mkdir(exist_ok=True)
        between = " ".join(["0"] * 18)
        (folder / "stat").write_text(f"{pid} ({name}) S {between} {started} 1 1\n")

    write.root = str(tmp_path)
    return write


def test_a_process_has_a_user_and_a_name_with_anything_in_it(proc):
    proc(7, "a (b) c) d", 100)

    owner = Owners(proc.root).of(7)

    assert (owner.user, owner.name) == (ME, "a (b) c) d")


def test_what_is_known_is_not_looked_up_again(proc):
    proc(7, "train", 100)
    owners = Owners(proc.root)
    first = owners.of(7)
    proc(7, "another name", 100)

    assert owners.of(7) is first


def test_a_pid_that_comes_again_is_another_process(proc):
    proc(7, "train", 100)
    owners = Owners(proc.root)
    owners.of(7)
    proc(7, "bash", 200)

    assert owners.of(7).name == "bash"


@pytest.mark.parametrize("content", ["", "7 (a) S", "7"])
def test_what_cannot_be_read_is_nobodys(proc, content, tmp_path):
    (tmp_path / "8").mkdir()
    (tmp_path / "8" / "stat").write_text(content)

    assert Owners(proc.root).of(8) is None
    assert Owners(proc.root).of(9) is None


def test_our_own_process_is_ours():
    assert Owners().of(os.getpid()).user == ME


def test_not_everybody_is_remembered_for_ever(proc, monkeypatch):
    monkeypatch.setattr("dibs.gpus.owners._MOST", 3)
    owners = Owners(proc.root)
    for pid in range(1, 11):
        proc(pid, "x", pid)
        owners.of(pid)

    assert len(owners._known) <= 3
