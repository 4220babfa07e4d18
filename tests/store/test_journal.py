"""What the journal keeps, whatever happens to its file."""

import errno
import os
import stat
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from dibs.model.jobs import Cause, Job, JobId, Outcome, State
from dibs.store import journal, journal_lines
from dibs.store.codec import encode_request
from dibs.store.journal import Journal
from store.builders import NOON, a_request, an_attempt


@pytest.fixture
def place(tmp_path):
    folder = tmp_path / 'a \'b\n"c" é'
    folder.mkdir()
    return str(folder / "journal.jsonl")


@pytest.fixture
def book(place):
    one = Journal(place)
    yield one
    one.close()


def bodies(place):
    return [line.body for line in journal.read(place)]


def jobs(*numbers, **more):
    return [Job(id=JobId(number), request=a_request(f"job {number}", **more)) for number in numbers]


def added(*numbers, **more):
    found = jobs(*numbers)
    return journal_lines.added(found, [encode_request(job.request) for job in found], now=NOON, **more)


# -- writing ---------------------------------------------------------------------------------------------


def test_lines_come_back_as_they_were_written(book, place):
    ugly = os.fsdecode(b"/runs/\xff\n") + '","crc":5}'
    lines = [
        added(1, 2, key="call"),
        journal_lines.started(an_attempt(jobs(1)[0], folder=ugly)),
        journal_lines.ended(
            an_attempt(jobs(1)[0]), Outcome(signal=9, cause=Cause.SIGNAL, message=ugly), State.FAILED, None, NOON
        ),
        journal_lines.cleaned([1, 2, 3, 7]),
    ]

    book.append(lines[:2])
    book.append(lines[2:])

    assert bodies(place) == lines
    assert lines[3]["jobs"] == [[1, 3], 7]


def test_it_is_for_our_eyes_only_and_no_link_is_followed(tmp_path):
    before = os.umask(0o777)
    try:
        Journal(str(tmp_path / "journal.jsonl")).close()
    finally:
        os.umask(before)
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere")

    with pytest.raises(OSError):
        Journal(str(tmp_path / "link"))

    assert stat.S_IMODE((tmp_path / "journal.jsonl").stat().st_mode) == 0o600
    assert not (tmp_path / "elsewhere").exists()


def test_a_batch_of_two_thousand_jobs_is_one_line(book, place):
    book.append([added(*range(1, 2001))])

    (line,) = journal.read(place)
    assert len(line.body["jobs"]) == 2000


def test_a_turn_is_one_write(book, monkeypatch):
    writes = []
    monkeypatch.setattr(journal.os, "write", lambda fd, data: writes.append(data) or len(data))

    book.append([added(1), added(2)])
    book.append([])

    assert len(writes) == 1


def test_what_a_full_disk_took_half_of_is_taken_back(book, place, monkeypatch):
    book.append([added(1)])
    real = os.write
    monkeypatch.setattr(journal.os, "write", lambda fd, data: real(fd, data[:20]))

    with pytest.raises(OSError) as failed:
        book.append([added(2)])

    assert failed.value.errno == errno.ENOSPC
    monkeypatch.undo()
    book.append([added(3)])
    assert [body["first"] for body in bodies(place)] == [1, 3]


def test_nothing_is_written_behind_half_a_line(book, place, monkeypatch):
    book.append([added(1)])
    real = os.write
    monkeypatch.setattr(journal.os, "write", lambda fd, data: real(fd, data[:20]))
    monkeypatch.setattr(journal.os, "ftruncate", _fail)
    with pytest.raises(OSError):
        book.append([added(2)])
    monkeypatch.setattr(journal.os, "write", real)

    with pytest.raises(OSError):
        book.append([added(3)])  # the disk is still sick
    monkeypatch.undo()
    book.append([added(4)])

    assert [body["first"] for body in bodies(place)] == [1, 4]


def test_what_could_not_be_synced_is_not_acknowledged_and_taken_back(book, place, monkeypatch):
    book.append([added(1)])
    book.sync()
    monkeypatch.setattr(journal.os, "fdatasync", _fail)

    book.append([added(2)])
    with pytest.raises(OSError):
        book.sync()

    assert [body["first"] for body in bodies(place)] == [1]


def test_what_the_store_did_not_take_can_be_taken_back(book, place):
    book.append([added(1)])
    size = book.size
    book.append([added(2)])
    book.append([added(3)])

    book.take_back(size)
    book.take_back(size)  # a second time does no harm

    assert book.size == size == os.path.getsize(place)
    assert [body["first"] for body in bodies(place)] == [1]


# -- damage ----------------------------------------------------------------------------------------------


@given(keep=st.integers(0, 400))
def test_a_torn_last_line_is_cut_when_it_is_opened_for_writing(tmp_path_factory, keep):
    place = tmp_path_factory.mktemp("journal") / "journal.jsonl"
    whole = journal.encode(added(1))
    place.write_bytes(whole + journal.encode(added(2))[:-1][:keep])

    book = Journal(str(place))
    book.append([added(3)])
    book.close()

    assert [body["first"] for body in bodies(place)] == [1, 3]


def test_zeros_that_a_power_cut_left_are_cut_however_many(place):
    whole = journal.encode(added(1))
    Path(place).write_bytes(whole + bytes(300_000))

    book = Journal(place)

    assert book.size == len(whole)
    book.close()


def test_a_file_of_one_torn_line_becomes_empty(place):
    Path(place).write_bytes(journal.encode(added(1))[:-1])

    Journal(place).close()

    assert Path(place).read_bytes() == b""


def test_a_reader_knows_a_torn_line_from_a_damaged_one(place):
    line = journal.encode(added(1))
    Path(place).write_bytes(b"garbage\n" + line + b"\0\0\0\n" + line[:-5])

    found = [(line.number, line.body is not None, line.is_torn) for line in journal.read(place)]

    assert found == [(1, False, False), (2, True, False), (3, False, False), (4, False, True)]


@given(at=st.floats(0, 1, exclude_max=True), bits=st.integers(1, 255))
@example(at=0.99609375, bits=93)  # the last brace becomes a blank
def test_a_flipped_byte_is_noticed_though_it_may_still_be_json(at, bits):
    line = bytearray(journal.encode(added(123456789, key="call")))
    line[int(at * (len(line) - 1))] ^= bits  # the newline at its end is another matter

    found = journal.decode(bytes(line))

    assert found is None


# -- numbers ---------------------------------------------------------------------------------------------


@given(numbers=st.sets(st.integers(1, 60)))
def test_ranges_name_every_number_once(numbers):
    found = list(journal_lines.numbers(journal_lines.ranges(sorted(numbers))))

    assert found == sorted(numbers)


# -- compaction ------------------------------------------------------------------------------------------


def test_compaction_drops_what_is_said_about_cleaned_jobs(book, place):
    first, second = jobs(1, 2)
    book.append([journal_lines.coded("unused", {"commit": "1"}), journal_lines.coded("used", {"commit": "2"})])
    book.append([{**added(1, 2, key="call"), "code": "used"}, {**added(3), "code": "unused"}])
    book.append([journal_lines.started(an_attempt(first)), journal_lines.started(an_attempt(second))])
    book.append([journal_lines.changed([1, 2, 3], State.HELD, now=NOON, why="later")])
    book.append([journal_lines.marked("queue", "paused", "", NOON), journal_lines.cleaned([1, 3])])
    before = book.size

    book.compact(lambda number: number == 2)
    book.append([added(4)])

    kept = bodies(place)
    assert [body["k"] for body in kept] == ["next", "code", "add", "start", "set", "mark", "gone", "add"]
    assert kept[0]["number"] == 4
    assert kept[1]["key"] == "used"
    assert [text is None for text in kept[2]["jobs"]] == [True, False]
    assert kept[3]["job"] == 2
    assert kept[4]["jobs"] == [2]
    assert kept[6]["jobs"] == [1, 3]
    assert book.size < before + len(journal.encode(added(4)))


def test_numbers_are_not_forgotten_by_compacting_twice(book, place):
    book.append([added(*range(1, 100))])

    book.compact(lambda number: False)
    book.compact(lambda number: False)

    assert max(map(journal_lines.next_number, bodies(place))) == 100


def test_compaction_keeps_lines_that_cannot_be_read(book, place):
    book.append([added(1)])
    with open(place, "ab") as file:
        file.write(b"garbage\n")

    book.compact(lambda number: True)

    assert b"garbage\n" in Path(place).read_bytes()


def test_a_disk_that_fills_up_while_compacting_leaves_the_old_file(book, place, monkeypatch):
    book.append([added(1)])
    before = Path(place).read_bytes()
    monkeypatch.setattr(journal.os, "fsync", _fail)

    with pytest.raises(OSError):
        book.compact(lambda number: False)

    monkeypatch.undo()
    assert Path(place).read_bytes() == before
    assert os.listdir(os.path.dirname(place)) == ["journal.jsonl"]
    book.append([added(2)])
    assert [body["first"] for body in bodies(place)] == [1, 2]


def _fail(*arguments):
    raise OSError(errno.EIO, os.strerror(errno.EIO))
