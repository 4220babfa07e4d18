"""Our copies of attempts' folders on nodes: what a job of ours put in the place of a file is not opened."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dibs.backends.protocol import AttemptRef
from dibs.backends.slurm import mirror
from dibs.backends.slurm.mirror import AttemptFiles
from dibs.worker_thread import wait_in_thread


@pytest.fixture
def ref(tmp_path: Path) -> AttemptRef:
    return AttemptRef("17", 1, str(tmp_path), 0.0)


def own(ref: AttemptRef, **more: Any) -> AttemptFiles:
    return AttemptFiles(folder=ref.folder, **more)


# A file, and what is done with it.
ACTS: dict[str, tuple[str, Callable[[AttemptRef], Any]]] = {
    "handed": ("handed", mirror.handed),
    "spec": ("record", mirror.spec),
    "add": ("stdout", lambda ref: mirror.add(ref, own(ref), [("stdout", 3, b"more")], {})),
    "sync": ("stderr", lambda ref: mirror.finish(ref, "{}")),
    "finish": ("record", lambda ref: mirror.finish(ref, "{}")),
    "packed": ("call", lambda ref: own(ref, call=ref.folder).packed(["call"])),
}


@pytest.mark.parametrize(("name", "act"), ACTS.values(), ids=ACTS)
@pytest.mark.parametrize("kind", ["pipe", "link"])
def test_what_is_no_file_of_ours_is_neither_waited_for_nor_followed(
    ref: AttemptRef, tmp_path: Path, name: str, act: Callable[[AttemptRef], Any], kind: str
) -> None:
    target = tmp_path / "target"
    target.write_text("1 open\n")
    if kind == "pipe":
        os.mkfifo(tmp_path / name)
    else:
        (tmp_path / name).symlink_to(target)

    with pytest.raises(OSError) as raised:
        wait_in_thread(lambda: act(ref), 20, "test")

    assert not isinstance(raised.value, TimeoutError)
    assert target.read_text() == "1 open\n"


def test_a_mark_that_is_no_file_is_replaced(ref: AttemptRef, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "stdout.cut")
    (tmp_path / "stdout").write_bytes(b"x" * 8192)

    wait_in_thread(lambda: mirror.add(ref, own(ref), [], {"stdout": (4096, 8192)}), 20, "test")

    assert (tmp_path / "stdout.cut").read_text() == "4096 8192\n"
    assert (tmp_path / "stdout").read_bytes() == b"x" * 4096 + b"\0" * 4096
