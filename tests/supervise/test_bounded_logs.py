"""Logs that would grow for ever: the middle goes, the beginning and the end stay."""

import errno
import os
import subprocess
from pathlib import Path

import pytest

from dibs.supervise import folder, logs
from dibs.supervise.logs import BoundedLogs, last_words, open_log
from stories.outside import needs_root
from supervise.hands import Hands

LIMIT = 256 * 1024


def _cut_of(path: str) -> tuple[int, int]:
    first, last = map(int, Path(f"{path}.cut").read_text().split())
    return first, last


def _assert_cut(path: str, *, limit: int = LIMIT) -> bytes:
    """The disk holds no more than the limit; what is missing is what was marked. Returns what is left."""
    content = Path(path).read_bytes()
    first, last = _cut_of(path)
    assert os.stat(path).st_blocks * 512 <= limit
    assert content[first:last].count(0) == last - first
    assert content.count(0) == last - first
    assert first >= limit // 4 - 4096 and len(content) - last >= limit // 2
    return content


def test_a_flood_leaves_its_beginning_and_its_end(hands: Hands) -> None:
    attempt = hands.start(["seq", "1", "2000000"], log_limit=LIMIT)
    record = hands.record(attempt)

    content = _assert_cut(f"{attempt.folder}/stdout")
    assert record["code"] == 0
    assert content.startswith(b"1\n2\n3\n") and content.endswith(b"1999999\n2000000\n")
    assert len(content) == sum(len(str(number)) + 1 for number in range(1, 2_000_001))
    assert not folder.is_silent(attempt.folder)


def test_a_log_is_cut_while_its_command_goes_on_writing(hands: Hands) -> None:
    path = f"{hands.root}/attempts/0/1.1/stdout"
    attempt = hands.start(
        "seq 1 300000; until test -e go; do sleep 0.02; done; seq 300001 600000", log_limit=LIMIT
    )
    hands.turn_until(lambda: os.path.exists(f"{path}.cut") and os.stat(path).st_blocks * 512 <= LIMIT)
    early = _cut_of(path)

    (hands.workdir / "go").touch()
    hands.record(attempt)

    content = _assert_cut(path)
    assert content.startswith(b"1\n2\n") and content.endswith(b"600000\n")
    assert early[0] == _cut_of(path)[0] and early[1] < _cut_of(path)[1]


def test_each_stream_has_its_own_limit(hands: Hands) -> None:
    attempt = hands.start("seq 1 200000; seq 1 300000 >&2; echo end", log_limit=LIMIT)
    hands.record(attempt)

    out, err = _assert_cut(f"{attempt.folder}/stdout"), _assert_cut(f"{attempt.folder}/stderr")
    assert out.endswith(b"200000\nend\n") and err.endswith(b"300000\n")


def test_two_streams_in_one_file_are_one_log(hands: Hands) -> None:
    attempt_folder = f"{hands.root}/attempts/0/1.1"
    attempt = hands.start("seq 1 200000; echo end >&2", log_limit=LIMIT, stderr=f"{attempt_folder}/stdout")
    hands.record(attempt)

    assert _assert_cut(f"{attempt.folder}/stdout").endswith(b"end\n")
    assert sorted(os.listdir(attempt.folder)) == ["record", "stdout", "stdout.cut"]


def test_a_log_within_its_limit_is_left_alone(hands: Hands) -> None:
    attempt = hands.start("head -c 200000 /dev/zero", log_limit=LIMIT)
    hands.record(attempt)

    assert hands.log(attempt) == "\0" * 200_000
    assert os.stat(f"{attempt.folder}/stdout").st_blocks * 512 >= 200_000
    assert sorted(os.listdir(attempt.folder)) == ["record", "stderr", "stdout"]


def test_without_a_limit_nothing_is_cut(hands: Hands) -> None:
    attempt = hands.start(["seq", "1", "100000"])
    hands.record(attempt)

    assert hands.log(attempt).count("\0") == 0
    assert not os.path.exists(f"{attempt.folder}/stdout.cut")


def test_a_file_that_a_job_put_in_the_place_of_its_log_is_not_touched(hands: Hands) -> None:
    victim = hands.workdir / "victim"
    victim.write_bytes(b"v" * 4 * LIMIT)
    log = f"{hands.root}/attempts/0/1.1/stdout"

    attempt = hands.start(f"seq 1 200000; mv '{log}' moved; ln -s $PWD/victim '{log}'", log_limit=LIMIT)
    hands.record(attempt)

    assert victim.read_bytes() == b"v" * 4 * LIMIT
    assert victim.stat().st_blocks * 512 >= 4 * LIMIT


def test_the_mark_is_there_before_the_hole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = open_log(str(tmp_path / "stdout"))
    os.write(log.fd, b"x" * 2 * LIMIT)
    honest, marked = logs.punch, []

    def punch(fd: int, start: int, length: int) -> None:
        marked.append(_cut_of(log.path) == (start, start + length))
        honest(fd, start, length)

    monkeypatch.setattr(logs, "punch", punch)
    BoundedLogs([log], LIMIT).cut()
    os.close(log.fd)

    assert marked == [True]
    _assert_cut_bytes(tmp_path / "stdout")


def _assert_cut_bytes(path: Path) -> None:
    first, last = _cut_of(str(path))
    content = path.read_bytes()
    assert set(content[:first] + content[last:]) == {ord("x")} and set(content[first:last]) == {0}


def test_where_no_hole_can_be_made_the_log_stays_whole_and_nothing_says_otherwise(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = open_log(str(tmp_path / "stdout"))
    os.write(log.fd, b"x" * 2 * LIMIT)

    def punch(fd: int, start: int, length: int) -> None:
        raise OSError(errno.EOPNOTSUPP, "not here")

    monkeypatch.setattr(logs, "punch", punch)
    bounded = BoundedLogs([log], LIMIT)
    bounded.cut()
    bounded.cut()
    os.close(log.fd)

    assert os.listdir(tmp_path) == ["stdout"]
    assert (tmp_path / "stdout").read_bytes() == b"x" * 2 * LIMIT


def test_a_log_that_its_command_empties_has_no_mark_any_more(tmp_path: Path) -> None:
    log = open_log(str(tmp_path / "stdout"))
    os.write(log.fd, b"x" * 2 * LIMIT)
    bounded = BoundedLogs([log], LIMIT)
    bounded.cut()
    was_marked = os.path.exists(f"{log.path}.cut")

    os.truncate(log.path, 0)
    os.write(log.fd, b"again")
    bounded.cut()
    os.close(log.fd)

    assert was_marked
    assert os.listdir(tmp_path) == ["stdout"]


@needs_root
def test_a_disk_that_is_too_full_for_the_mark_gets_room_first(tmp_path: Path) -> None:
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m,nr_inodes=8", "tmpfs", str(tmp_path)], check=True)
    log = open_log(str(tmp_path / "stdout"))
    try:
        with pytest.raises(OSError):
            while True:
                os.write(log.fd, b"x" * 4096)
        BoundedLogs([log], LIMIT).cut()

        _assert_cut_bytes(tmp_path / "stdout")
        assert os.fstat(log.fd).st_blocks * 512 <= LIMIT
    finally:
        os.close(log.fd)
        subprocess.run(["umount", "-l", str(tmp_path)], check=True)


def test_the_faster_a_log_grows_the_more_often_it_is_looked_at(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [100.0]
    monkeypatch.setattr(logs.time, "monotonic", lambda: now[0])
    log = open_log(str(tmp_path / "stdout"))
    bounded = BoundedLogs([log], 1 << 20)

    def pauses(growth: int, looks: int) -> list[float]:
        found = []
        for _ in range(looks):
            os.write(log.fd, b"x" * growth)
            now[0] += bounded.seconds_left
            bounded.look()
            found.append(bounded.seconds_left)
        return found

    calm = pauses(10, 3)
    flood = pauses(1 << 18, 3)
    calm_again = pauses(10, 5)
    os.close(log.fd)

    assert calm == pytest.approx([0.05] * 3)
    assert flood[-1] == pytest.approx(0.01)
    assert calm_again[-1] == pytest.approx(0.05)


def test_the_last_words_are_the_commands_own(tmp_path: Path) -> None:
    """Others write to the same file, before it and after it."""
    path = tmp_path / "shared"
    path.write_text("earlier\n")
    log = open_log(str(path))
    subprocess.run(["echo", "mine"], stdout=log.fd, check=True)
    with path.open("a") as file:
        file.write("later\n")

    words = last_words(log, 100)
    few = last_words(log, 3)
    os.close(log.fd)

    assert (words, few) == (b"mine\n", b"ne\n")


def test_a_pipe_has_no_last_words() -> None:
    reading, writing = os.pipe()

    words = last_words(open_log(f"/proc/self/fd/{writing}"), 100)
    os.close(reading)
    os.close(writing)

    assert words == b""
