"""The folder of a silent success becomes the next attempt's."""

import os

import pytest

from dibs.supervise import folder
from dibs.supervise.folder import blank_record, encode_record

SPEC = {"v": 1, "words": ["true"], "job": 1, "attempt": 1}


@pytest.fixture
def ended(tmp_path) -> str:
    """A folder as a shim leaves it after a command that said nothing."""
    path = str(tmp_path / "1.1")
    fd = folder.prepare(path, SPEC | {"padding": "x" * 500})
    os.pwrite(fd, encode_record({"v": 1, "state": "ended", "code": 0, "message": ""}), 0)
    os.close(fd)
    for name in ("stdout", "stderr"):
        open(f"{path}/{name}", "w").close()
    return path


def test_a_reused_folder_is_as_good_as_a_new_one(ended, tmp_path):
    new = str(tmp_path / "2.1")

    fd = folder.reuse(ended, new, SPEC)

    assert fd is not None
    identity = {"job": 1, "attempt": 1}
    assert folder.facts(new) == folder.AttemptFacts(
        is_locked=True, record=None, has_started=False, identity=identity
    )
    assert os.pread(fd, 10_000, 0) == blank_record(SPEC)
    assert not os.path.exists(ended)
    os.close(fd)


def test_only_a_folder_in_which_nothing_stands_is_silent(ended):
    assert folder.is_silent(ended)

    with open(f"{ended}/stderr", "w") as file:
        file.write("a warning")

    assert not folder.is_silent(ended)


def test_whatever_else_a_job_left_in_its_folder_is_kept(ended):
    with open(f"{ended}/metrics", "w"):
        pass

    assert not folder.is_silent(ended)


def test_a_folder_that_a_shim_still_holds_is_not_reused(ended, tmp_path):
    holder = os.open(f"{ended}/record", os.O_RDWR)
    folder.fcntl.flock(holder, folder.fcntl.LOCK_EX)

    fd = folder.reuse(ended, str(tmp_path / "2.1"), SPEC)

    assert fd is None
    assert folder.facts(ended).record == {"v": 1, "state": "ended", "code": 0, "message": ""}
    os.close(holder)


def test_a_folder_of_the_same_name_is_not_replaced(ended, tmp_path):
    new = tmp_path / "2.1"
    new.mkdir()
    (new / "precious").write_text("x")

    fd = folder.reuse(ended, str(new), SPEC)

    assert fd is None
    assert (new / "precious").read_text() == "x"


def test_a_folder_in_which_a_job_put_a_link_for_the_next_one_is_not_silent(ended, tmp_path):
    victim = tmp_path / "victim"
    victim.touch()
    os.unlink(f"{ended}/stdout")
    os.symlink(victim, f"{ended}/stdout")

    assert not folder.is_silent(ended)


def test_a_folder_whose_files_cannot_be_written_is_not_silent(ended):
    os.chmod(f"{ended}/stderr", 0o444)

    assert not folder.is_silent(ended)


def test_a_link_in_the_place_of_a_folder_is_not_followed(ended, tmp_path):
    """Its target may be on a disk that does not answer, and the engine's loop would wait for it."""
    link, new = str(tmp_path / "3.1"), str(tmp_path / "4.1")
    os.symlink(ended, link)

    assert not folder.is_silent(link)
    assert folder.reuse(link, new, SPEC) is None
    with pytest.raises(NotADirectoryError):
        folder.prepare(link, SPEC)

    assert folder.facts(ended).record == {"v": 1, "state": "ended", "code": 0, "message": ""}
    assert not os.path.lexists(new)


@pytest.mark.parametrize("name", ["record", "stdout"])
def test_a_pipe_in_a_files_place_is_not_waited_for(ended, tmp_path, name):
    os.unlink(f"{ended}/{name}")
    os.mkfifo(f"{ended}/{name}")

    assert not folder.is_silent(ended)
    if name == "record":
        assert folder.reuse(ended, str(tmp_path / "2.1"), SPEC) is None
