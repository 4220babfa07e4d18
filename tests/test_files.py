"""Files are replaced as a whole."""

import os
import stat

import pytest

from dibs.files import replace_file, replacing_file


@pytest.fixture
def path(tmp_path):
    return tmp_path / "a \n file"


@pytest.mark.parametrize("sync", [True, False])
def test_the_new_content_takes_the_place_of_the_old(path, sync):
    path.write_text("old, and longer than the new one")

    replace_file(str(path), "né", sync=sync)

    assert path.read_bytes() == "né".encode()
    assert os.listdir(path.parent) == [path.name]


def test_after_an_error_the_old_file_is_there_and_nothing_else(path):
    path.write_text("old")

    with pytest.raises(OSError, match="the disk failed"), replacing_file(str(path)) as file:
        file.write(b"half")
        raise OSError("the disk failed")

    assert path.read_text() == "old"
    assert os.listdir(path.parent) == [path.name]


@pytest.mark.parametrize(("mode", "expected"), [(0o600, 0o600), (0o644, 0o644), (None, 0o640)])
def test_the_mode_is_as_given_or_left_to_the_umask(path, mode, expected):
    umask = os.umask(0o027)
    try:
        replace_file(str(path), "", mode=mode)
    finally:
        os.umask(umask)

    assert stat.S_IMODE(path.stat().st_mode) == expected


def test_a_link_is_replaced_and_not_followed(path):
    other = path.with_name("other")
    other.write_text("mine")
    path.symlink_to(other)

    replace_file(str(path), "new")

    assert (path.is_symlink(), path.read_text(), other.read_text()) == (False, "new", "mine")


def test_a_reader_sees_the_old_content_until_the_new_is_complete(path):
    path.write_text("old")

    with replacing_file(str(path)) as file:
        file.write(b"new")
        file.flush()
        assert path.read_text() == "old"

    assert path.read_text() == "new"
