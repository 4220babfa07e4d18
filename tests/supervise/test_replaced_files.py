"""A job can write to its own folder, and replace what is there: nothing waits, and no link is followed."""

import errno
import os
import socket
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from dibs.backends.local import LocalBackend, ref_of
from dibs.backends.protocol import Phase
from dibs.model.jobs import Attempt
from dibs.supervise import folder
from dibs.supervise.folder import NotOurFile, open_own_file
from dibs.worker_thread import PatientReader
from supervise.hands import Hands, Loop


def _pipe(path: Path) -> None:
    os.mkfifo(path)


def _folder(path: Path) -> None:
    path.mkdir()


def _link(path: Path) -> None:
    path.with_name("elsewhere").write_bytes(b"of another program")
    path.symlink_to("elsewhere")


def _socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as one:
        here = os.open(path.parent, os.O_PATH)
        one.bind(f"/proc/self/fd/{here}/{path.name}")  # a path of any length
        os.close(here)


REPLACEMENTS = {"a pipe": _pipe, "a folder": _folder, "a symbolic link": _link, "a socket": _socket}
replacing = pytest.mark.parametrize(("kind", "put"), REPLACEMENTS.items(), ids=REPLACEMENTS)


@replacing
@pytest.mark.parametrize("flags", [os.O_RDONLY, os.O_RDWR, os.O_RDWR | os.O_CREAT])
def test_only_a_regular_file_is_opened(tmp_path: Path, flags: int, kind: str, put: Callable[[Path], None]) -> None:
    put(tmp_path / "record")

    with pytest.raises(NotOurFile, match=f"it is {kind}"):
        open_own_file(str(tmp_path / "record"), flags)


def test_a_file_of_another_user_is_not_opened(tmp_path: Path) -> None:
    path, owner = "/etc/passwd", 0
    if os.geteuid() == 0:
        path, owner = str(tmp_path / "record"), 1000
        Path(path).touch()
        os.chown(path, owner, owner)

    with pytest.raises(NotOurFile, match=f"it belongs to uid {owner}"):
        open_own_file(path)


def _running(hands: Hands, line: str = "sleep 1000") -> Attempt:
    mark = {"DIBS_METRICS": f"{hands.root}/attempts/0/1.1/metrics"}
    attempt = hands.start(line, env=mark)
    hands.running(attempt)
    return attempt


def _replace_record(attempt: Attempt, put: Callable[[Path], None]) -> None:
    record = Path(attempt.folder, folder.RECORD)
    record.unlink()
    put(record)


@replacing
def test_a_job_that_replaced_its_record_is_stopped_through_its_supervisor(
    hands: Hands, kind: str, put: Callable[[Path], None]
) -> None:
    attempt = _running(hands)
    _replace_record(attempt, put)

    facts = hands.facts(attempt)
    is_told = hands.tell(attempt, "stop")

    assert facts.is_locked, kind
    assert facts.has_started
    assert is_told
    assert hands.record(attempt)["by"] == "stop"
    assert folder.record_of(attempt.folder) is None
    assert folder.read_spec(attempt.folder) is None
    assert not hands.facts(attempt).is_locked


def test_a_job_on_a_dead_file_system_is_stopped_through_its_supervisor(
    hands: Hands, monkeypatch: pytest.MonkeyPatch
) -> None:
    attempt = _running(hands)

    def fail(path: str, *_: object) -> int:
        raise OSError(errno.EIO, os.strerror(errno.EIO), path)

    with monkeypatch.context() as patch:
        patch.setattr(folder, "open_own_file", fail)
        is_told = hands.tell(attempt, "stop")
        seen = hands.backend.observe([ref_of(attempt)])[ref_of(attempt)]

    assert (is_told, seen.phase) == (True, Phase.QUEUED)
    assert seen.reason == f"input/output error: {attempt.folder}/record"
    assert hands.record(attempt)["by"] == "stop"


def test_a_later_engine_adopts_a_job_that_replaced_its_record_and_then_finds_it_lost(hands: Hands) -> None:
    attempt = _running(hands)
    _replace_record(attempt, _pipe)
    later_loop, ended = Loop(), []
    later = LocalBackend(str(hands.root), later_loop.add_reader, later_loop.remove_reader)
    ref = ref_of(attempt)

    before = later.observe([ref])[ref]
    is_watched = later.watch(ref, lambda: ended.append(ref))
    hands.backend.close()  # as if its engine were gone: its supervisor ends with its last attempt
    assert later.cancel([ref]) == {ref}
    hands.turn_until(lambda: ended or later_loop.turn(0.01))
    after = later.observe([ref])[ref]
    later.close()
    later_loop.close()

    assert (before.phase, is_watched) == (Phase.RUNNING, True)
    assert (after.phase, after.never_started) == (Phase.LOST, False)


def test_an_attempt_does_not_start_where_a_pipe_waits_for_its_record(hands: Hands) -> None:
    Path(hands.root, "attempts/0/1.1").mkdir(parents=True)
    os.mkfifo(Path(hands.root, "attempts/0/1.1/record"))

    with pytest.raises(OSError, match="it is a pipe"):
        hands.start("true")


def test_a_folder_that_does_not_answer_is_not_waited_for(hands: Hands, monkeypatch: pytest.MonkeyPatch) -> None:
    """A job can put a file system in the place of its folder that answers nothing."""
    attempt = hands.start("sleep 60")
    ref = ref_of(attempt)
    hands.running(attempt)
    disk_answers, asked = threading.Event(), []

    def hang(*arguments: object) -> None:
        asked.append(arguments)
        disk_answers.wait(60)

    with monkeypatch.context() as patch:
        for name in ("facts", "tell", "watch"):
            patch.setattr(folder, name, hang)
        seen = hands.backend.observe([ref])[ref]
        told, watched = hands.tell(attempt, "stop"), hands.adopt(attempt)
        disk_answers.set()

    assert (seen.phase, seen.reason) == (Phase.QUEUED, "its disk does not answer")
    assert (told, watched, len(asked)) == (False, False, 1)  # it is left alone for a while
    hands.backend._reader = PatientReader()
    assert hands.tell(attempt, "kill")
    hands.wait(attempt)
