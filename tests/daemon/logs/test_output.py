"""What the log route knows about a file: its middle was given back to the disk, or its file system has died."""

import asyncio
import errno
import os
from typing import Any

import pytest

from dibs.daemon.logs import lines
from dibs.daemon.logs.output import read, read_output
from dibs.errors import StoreUnusable


def test_what_was_cut_out_of_the_middle_is_named(tmp_path):
    (tmp_path / "stdout").write_bytes(b"head" + bytes(8) + b"tail")
    whole = read(str(tmp_path / "stdout"), 0, 100, None)
    (tmp_path / "stdout.cut").write_text("4 12\n")

    cut = read(str(tmp_path / "stdout"), 0, 100, None)

    assert (str(whole.cut), str(cut.cut)) == ("", "4-12")


@pytest.mark.parametrize(("error", "is_told"), [(errno.EIO, True), (errno.ENOTCONN, True), (errno.ENOENT, False)])
def test_output_on_a_dead_file_system_is_not_taken_for_none(monkeypatch, error: int, is_told: bool):
    def fail(path: str) -> Any:
        raise OSError(error, os.strerror(error), path)

    monkeypatch.setattr(lines, "open_own_file", fail)
    asked = read_output("/dead/stdout", lambda: read("/dead/stdout", 0, 100, None))

    if not is_told:
        assert asyncio.run(asked).size == 0
        return
    with pytest.raises(StoreUnusable, match=r"cannot read /dead/stdout: [a-z]"):
        asyncio.run(asked)
