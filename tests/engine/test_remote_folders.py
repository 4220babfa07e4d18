"""Where attempts have left something: what was recorded counts, and only what is this queue's."""

import pytest

from dibs.engine.launch.launcher import Place
from dibs.engine.remote.state import RemoteFolders
from dibs.model.jobs import Attempt, JobId

HERE = Place(root="/state/queue", boot_id="b", run="queue", umask=0, workdir="/")


def place(root: str) -> Place:
    return Place(root=root, boot_id="b", run="queue", umask=0, workdir="/")


def attempt(folder: str) -> Attempt:
    return Attempt(job=JobId(1234), number=2, claims=(), boot_id="", opened_at=0.0, folder=folder, backend="slurm")


def homes(folder: str, *, now: tuple[str, ...] = (), earlier: tuple[str, ...] = ()) -> list[str]:
    known = RemoteFolders(
        here=HERE, now=tuple(map(place, now)), earlier=tuple(map(place, earlier)), mark="q1a2b3c4d"
    )
    return [one.root for one in known.of(attempt(folder))]


def test_the_folder_that_was_recorded_counts_whatever_is_set_by_now():
    old = "/old/q1a2b3c4d/attempts/1/1234.2"

    assert homes(old) == ["/old/q1a2b3c4d"]
    assert homes(old, now=("/new/q1a2b3c4d",)) == ["/new/q1a2b3c4d", "/old/q1a2b3c4d"]
    assert homes("/plain/attempts/1/1234.2", earlier=("/plain",)) == ["/plain"]


def test_what_is_in_the_queues_own_folder_is_nowhere_else():
    assert homes("/state/queue/attempts/1/1234.2") == []


@pytest.mark.parametrize(
    "folder",
    [
        "",
        "/",
        "/home/ann",
        "/old/q99999999/attempts/1/1234.2",  # of another queue
        "/old/q1a2b3c4d/attempts/1/1234.1",  # of another attempt
        "/old/q1a2b3c4d/attempts/0/1234.2",
        "/old/q1a2b3c4d/x/1/1234.2",
        "/old/q1a2b3c4d/../q1a2b3c4d/attempts/1/1234.2",
        "/old/../../q1a2b3c4d/attempts/1/1234.2",
        "q1a2b3c4d/attempts/1/1234.2",
        "/old/xq1a2b3c4d/attempts/1/1234.2",
        "/old/attempts/1/1234.2",
    ],
)
def test_whatever_else_stands_there_is_not_ours(folder: str):
    assert homes(folder) == []
