"""Output by lines: numbered, folded, searched and kept, however long it is and while it grows."""

import os
import random
import time
from pathlib import Path
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from daemon.daemon_process import DaemonProcess
from dibs.daemon.logs import lines as log_lines
from dibs.daemon.logs.lines import (
    LONGEST,
    Cut,
    LogFile,
    LogIndex,
    SearchText,
    fold,
    read_cut,
    read_lines,
    search,
    text_of,
)
from dibs.daemon.routes.logs import _lines
from stories.outside import wait_until

LATER = 1e12
PAST = 0.0


# -- the text of a line ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "text"),
    [
        (b"plain", "plain"),
        (b"a\rb\rc", "c"),
        (b"windows\r", "windows"),
        (b"50%\r100%\r\r", "100%"),
        (b"\r10%", "10%"),
        (b"\x1b[31mred\rstill red", "\x1b[31mstill red"),
        (b"\x1b[31mred\x1b[0m\rplain", "plain"),
        (b"\x1b[1m\x1b[mx\x1b[32my\rgreen", "\x1b[32mgreen"),
        (b"\xff\xc3\xa9", "\ufffd\u00e9"),
        (b"", ""),
    ],
)
def test_progress_is_folded_to_what_it_shows_at_last(line: bytes, text: str):
    assert text_of(line) == text


def test_a_long_line_is_cut_with_a_mark():
    assert text_of(b"x" * (LONGEST + 5)) == "x" * LONGEST + "[... 5 more bytes]"


# -- the index -------------------------------------------------------------------------------------------


@given(
    content=st.lists(st.sampled_from([b"\n", b"ab", b"\r", b"long " * 9]), max_size=60).map(b"".join),
    block=st.integers(1, 40),
    marks=st.integers(2, 5),
    first=st.integers(0, 70),
    count=st.integers(0, 70),
)
def test_lines_are_those_of_the_file(tmp_path_factory, content: bytes, block, marks, first, count):
    path = tmp_path_factory.mktemp("log") / "stdout"
    path.write_bytes(content)
    expected = content.split(b"\n")
    if not expected[-1]:
        expected.pop()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(log_lines, "BLOCK", block)
        patch.setattr(log_lines, "_MOST_MARKS", marks)
        patch.setattr(log_lines, "_CHUNK", block)
        patch.setattr(LogFile.blocks, "__defaults__", (block,))
        found = _lines(LogIndex(), str(path), first, count)
        last = _lines(LogIndex(), str(path), -max(1, count), 0)

    assert found["total"] == len(expected)
    assert found["lines"] == [text_of(line) for line in expected[first : first + count]]
    assert found["is_complete"]
    assert last["lines"] == [text_of(line) for line in expected[-max(1, count) :]]
    assert last["first"] == max(0, len(expected) - max(1, count))
    assert found["is_open"] == (not content.endswith(b"\n") and bool(content))


def test_what_is_known_grows_with_the_file_and_is_forgotten_when_it_shrinks(tmp_path: Path):
    path = tmp_path / "stdout"
    path.write_bytes(b"one\ntw")
    index = LogIndex()

    before = _lines(index, str(path), 0, 10)
    with path.open("ab") as file:
        file.write(b"o\n" + b"x\n" * 100_000)
    grown = _lines(index, str(path), 99_999, 5)
    (known,) = index._files.values()
    path.write_bytes(b"anew\n")
    after = _lines(index, str(path), 0, 10)

    assert (before["lines"], before["total"], before["is_open"]) == (["one", "tw"], 2, True)
    assert (grown["lines"], grown["total"], grown["is_open"]) == (["x"] * 3, 100_002, False)
    assert len(known.offsets) > 1
    assert (after["lines"], after["total"]) == (["anew"], 1)


def test_the_last_lines_of_a_large_file_are_there_before_all_are_counted(tmp_path: Path, monkeypatch):
    monkeypatch.setattr("dibs.daemon.routes.logs._COUNT_FOR", 0.0)
    path = tmp_path / "stdout"
    path.write_bytes(b"".join(b"%d\n" % number for number in range(100_000)))
    index = LogIndex()

    early = _lines(index, str(path), -2, 0)
    middle = _lines(index, str(path), 50_000, 2)
    monkeypatch.setattr("dibs.daemon.routes.logs._COUNT_FOR", LATER)
    late = _lines(index, str(path), -2, 0)

    assert (early["lines"], early["first"], early["total"]) == (["99998", "99999"], None, None)
    assert (middle["lines"], middle["total"], middle["is_complete"]) == ([], None, False)
    assert (late["lines"], late["first"], late["total"]) == (["99998", "99999"], 99_998, 100_000)


def test_an_answer_is_not_larger_than_it_must_be(tmp_path: Path):
    path = tmp_path / "stdout"
    path.write_bytes((b"y" * 10_000 + b"\n") * 1_000)

    begin = _lines(LogIndex(), str(path), 0, 1_000)
    end = _lines(LogIndex(), str(path), -1_000, 0)

    for found in (begin, end):
        assert 50 < len(found["lines"]) < 200
        assert not found["is_complete"]
    assert end["first"] + len(end["lines"]) == end["total"] == 1_000


def test_a_progress_bar_of_megabytes_is_one_short_line(tmp_path: Path):
    path = tmp_path / "stdout"
    path.write_bytes(b"begin\n" + b"".join(b"\rstep %d of 500000" % step for step in range(500_000)))

    found = _lines(LogIndex(), str(path), 0, 10)
    last = _lines(LogIndex(), str(path), -1, 0)

    assert found["lines"] == ["begin", "step 499999 of 500000"]
    assert (last["lines"], last["first"], last["total"]) == (["step 499999 of 500000"], 1, 2)


def test_a_line_of_megabytes_is_cut(tmp_path: Path):
    path = tmp_path / "stdout"
    path.write_bytes(b"z" * 3_000_000 + b"\nend\n")

    found = _lines(LogIndex(), str(path), 0, 10)

    assert found["lines"] == ["z" * LONGEST + f"[... {3_000_000 - LONGEST} more bytes]", "end"]


def test_a_hole_is_one_line_and_nothing_of_it_is_read(tmp_path: Path):
    path = tmp_path / "stdout"
    head, tail = b"1\n2\nbegins", b"ends\n4\n"
    size = len(head) + 2**40 + len(tail)
    index = LogIndex()
    path.write_bytes(head)
    assert _lines(index, str(path), 0, 10)["lines"] == ["1", "2", "begins"]
    os.truncate(path, size)
    with path.open("r+b") as file:
        file.seek(size - len(tail))
        file.write(tail)
    (tmp_path / "stdout.cut").write_text(f"{len(head)} {size - len(tail)}\n")

    found = _lines(index, str(path), 0, 10)
    last = _lines(index, str(path), -1, 0)
    with index.open(str(path)) as opened:
        assert opened is not None
        matches = search(opened, SearchText("ENDS"), 0, 10, LATER).matches

    assert found["lines"] == ["1", "2", "begins[... 1T cut]ends", "4"]
    assert found["cut"] == f"{len(head)}-{size - len(tail)}"
    assert (last["lines"], last["first"], last["total"]) == (["4"], 3, 4)
    assert [match.line for match in matches] == [2]


def test_when_a_hole_grows_the_lines_after_it_are_counted_again(tmp_path: Path):
    path = tmp_path / "stdout"
    path.write_bytes(b"".join(b"%06d\n" % number for number in range(50_000)))
    index = LogIndex()
    assert _lines(index, str(path), 0, 1)["total"] == 50_000
    content = bytearray(path.read_bytes())
    content[70_000:210_000] = bytes(140_000)
    path.write_bytes(content)
    (tmp_path / "stdout.cut").write_text("70000 210000\n")

    found = _lines(index, str(path), 9_999, 3)

    assert found["total"] == 10_000 + 20_000
    assert found["lines"] == ["009999", "[... 137K cut]030000", "030001"]


def test_files_that_are_not_read_any_more_are_forgotten(tmp_path: Path):
    index = LogIndex()
    for number in range(40):
        (tmp_path / str(number)).write_bytes(b"x\n")
        _lines(index, str(tmp_path / str(number)), 0, 1)

    assert len(index._files) == 32


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir, lambda path: None])
def test_what_is_no_file_has_no_lines(tmp_path: Path, make):
    make(tmp_path / "stdout")

    found = _lines(LogIndex(), str(tmp_path / "stdout"), -5, 0)

    assert (found["lines"], found["total"], found["size"]) == ([], 0, 0)


@pytest.mark.parametrize("end", [b"", b"the end\n"])
def test_a_terabyte_that_was_never_written_is_passed_at_once(tmp_path: Path, end: bytes):
    path = tmp_path / "stdout"
    with path.open("wb") as file:
        file.write(b"first\n")
        file.seek(2**40)
        file.write(end)
        file.truncate(2**40 + len(end))

    began = time.monotonic()
    found = _lines(LogIndex(), str(path), 0, 500)
    matches, following = looked_for(path, "first")

    assert time.monotonic() - began < 5
    assert (found["lines"][0], found["total"], found["is_complete"]) == ("first", 2, True)
    assert (matches, following) == ([0], None)


# -- looking for text ------------------------------------------------------------------------------------


def looked_for(path: Path, text: str, first: int = 0, limit: int = 100, deadline: float = LATER):
    with LogIndex().open(str(path)) as file:
        assert file is not None
        found = search(file, SearchText(text), first, limit, deadline)
    return [match.line for match in found.matches], found.next


def test_text_is_found_as_people_see_it(tmp_path: Path):
    path = tmp_path / "stdout"
    path.write_bytes(
        b"Loss 1\n\x1b[31mlo\x1b[0mss 2\nloss\rgone\nnothing\nCaf\xc3\x89 \xff\n\x1b]0;loss\x07title\nend of LOSS"
    )

    assert looked_for(path, "loss") == ([0, 1, 6], None)
    assert looked_for(path, "café") == ([4], None)
    assert looked_for(path, "gone") == ([2], None)
    assert looked_for(path, "zebra") == ([], None)


def test_a_search_goes_on_where_it_stopped(tmp_path: Path):
    path = tmp_path / "stdout"
    hits = sorted(random.Random(1).sample(range(60_000), 40))
    path.write_bytes(
        b"".join(b"needle\n" if line in set(hits) else b"hay hay hay hay\n" for line in range(60_000))
    )

    by_limit, by_time = [], []
    for found, limit, deadline in ((by_limit, 7, LATER), (by_time, 100, PAST)):
        following: int | None = 0
        while following is not None:
            with LogIndex().open(str(path)) as file:
                assert file is not None
                file.count(LATER)
                one = search(file, SearchText("NEEDLE"), following, limit, deadline)
            assert one.next is None or one.next > following
            found += [match.line for match in one.matches]
            following = one.next

    assert by_limit == by_time == hits


def test_a_search_passes_the_end_of_a_line_that_takes_too_long(tmp_path: Path):
    path = tmp_path / "stdout"
    path.write_bytes(b"x" * 2_000_000 + b"\nneedle\n")

    _, following = looked_for(path, "needle", deadline=PAST)

    assert following == 1
    assert looked_for(path, "needle", first=following) == ([1], None)


def test_a_search_from_beyond_the_end_finds_nothing(tmp_path: Path):
    path = tmp_path / "stdout"
    path.write_bytes(b"needle\n")

    assert looked_for(path, "needle", first=5) == ([], None)


def test_an_excerpt_is_short_and_around_what_was_found(tmp_path: Path):
    path = tmp_path / "stdout"
    path.write_bytes(b"a" * 5_000 + b"needle" + b"b" * 5_000)

    with LogIndex().open(str(path)) as file:
        assert file is not None
        (match,) = search(file, SearchText("needle"), 0, 5, LATER).matches

    assert len(match.text) == 400
    assert "needle" in match.text


def test_take_stops_in_time(tmp_path: Path):
    path = tmp_path / "stdout"
    path.write_bytes(b"x\n" * 10)

    with LogIndex().open(str(path)) as file:
        assert file is not None
        assert read_lines(file, 0, 10, time.monotonic() - 1).lines == []


def test_fold_keeps_no_more_colours_than_it_must():
    assert len(fold(b"\x1b[1m" * 1_000 + b"\rx")) == 16 * 4 + 1


def test_a_hole_that_cannot_be_is_none(tmp_path: Path):
    (tmp_path / "stdout.cut").write_text("5 900\n")

    assert read_cut(str(tmp_path / "stdout"), 100) == Cut()


# -- over the API ----------------------------------------------------------------------------------------


def test_a_job_is_followed_by_lines(daemon: DaemonProcess, tmp_path: Path):
    go = tmp_path / "go"
    waits = f"until [ -e '{go}' ]; do sleep 0.05; done"
    number = daemon.add(f"echo one; echo two; printf thr; {waits}; echo ee; exit 3")
    address = f"/v1/jobs/{number}/log/lines"
    wait_until(lambda: daemon.get(address)["lines"] == ["one", "two", "thr"], show=lambda: daemon.get(address))
    live = daemon.get(f"{address}?first=-1")
    go.touch()
    daemon.wait(number)

    over = daemon.get(f"{address}?first=1&count=5")

    assert (live["first"], live["lines"], live["is_open"], live["state"]) == (2, ["thr"], True, "running")
    assert over == {
        "job": number,
        "attempt": 1,
        "state": "failed",
        "first": 1,
        "lines": ["two", "three"],
        "total": 3,
        "is_complete": True,
        "is_open": False,
        "size": 14,
        "cut": "",
    }


def test_output_is_searched_and_kept_over_the_api(daemon: DaemonProcess):
    (job,) = daemon.wait(daemon.add("seq 1 2000; echo Ünd; echo oops >&2"))
    number = job["id"]

    found = daemon.get(f"/v1/jobs/{number}/log/search?q=99&first=500&limit=3")
    rest = daemon.get(f"/v1/jobs/{number}/log/search?q={quote('ÜND')}")
    raw = daemon.call("GET", f"/v1/jobs/{number}/log/raw")
    errors = daemon.call("GET", f"/v1/jobs/{number}/log/raw?stream=stderr")

    assert [match["line"] for match in found["matches"]] == [598, 698, 798]
    assert (found["next"], found["is_over"]) == (799, False)
    assert rest == {"matches": [{"line": 2000, "text": "Ünd"}], "next": None, "is_over": True}
    assert raw.headers["content-disposition"] == f'attachment; filename="job-{number}.log"'
    assert raw.body == "".join(f"{line}\n" for line in range(1, 2001)).encode() + "Ünd\n".encode()
    assert errors.headers["content-disposition"] == f'attachment; filename="job-{number}.err"'
    assert errors.body == b"oops\n"


def test_a_download_names_what_was_cut_instead_of_sending_it(daemon: DaemonProcess):
    (job,) = daemon.wait(daemon.add("echo head; seq 1 1000"))
    path = Path(job["folder"], "stdout")
    tail = path.read_bytes()[-100:]
    with path.open("r+b") as file:
        file.truncate(5)
        file.truncate(2**40)
        file.seek(2**40)
        file.write(tail)
    Path(job["folder"], "stdout.cut").write_text(f"5 {2**40}\n")

    raw = daemon.call("GET", f"/v1/jobs/{job['id']}/log/raw")

    assert raw.body == b"head\n[... %d bytes cut]\n" % (2**40 - 5) + tail


def test_a_job_that_has_not_started_has_no_lines(daemon: DaemonProcess):
    number = daemon.add({"command": "true", "hold": True})

    assert daemon.get(f"/v1/jobs/{number}/log/lines?first=-10")["lines"] == []
    assert daemon.get(f"/v1/jobs/{number}/log/search?q=x")["is_over"]
    assert daemon.call("GET", f"/v1/jobs/{number}/log/raw").body == b""
    for path in ("lines", "search?q=x&", "raw"):
        separator = "" if path.endswith("&") else "?"
        assert daemon.call("GET", f"/v1/jobs/{number}/log/{path}{separator}attempt=1").status == 400
        assert daemon.call("GET", f"/v1/jobs/999/log/{path}").status == 404


def test_output_that_was_removed_is_said_to_be_gone(daemon: DaemonProcess):
    (job,) = daemon.wait(daemon.add("echo x"))
    os.unlink(f"{job['folder']}/stdout")
    Path(job["folder"], "output-removed").touch()

    for path in ("lines", "search?q=x", "raw"):
        reply = daemon.call("GET", f"/v1/jobs/{job['id']}/log/{path}")
        assert (reply.status, reply.code) == (410, "log-gone")
