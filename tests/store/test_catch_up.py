"""A store that has forgotten its last turns is told them again."""

import os
import shutil
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dibs.errors import StoreUnusable
from dibs.model.jobs import JobId
from dibs.store.journal import Journal
from dibs.store.replay import catch_up, refuse_journal_without_store, shorten
from dibs.store.store import Store
from examples import examples
from store.builders import a_request
from store.campaign import BAD, Books, picture


@pytest.fixture
def folder(tmp_path):
    return str(tmp_path / "queue")


def caught_up(folder):
    """Open the store, catch up, and return what it complained of and what it remembers."""
    store, book = Store(f"{folder}/store.db"), Journal(f"{folder}/journal.jsonl")
    try:
        complaints = catch_up(store, book)
    finally:
        store.close()
        book.close()
    return complaints, picture(f"{folder}/store.db")


@given(
    choices=st.lists(st.integers(0, 10_000), min_size=1, max_size=30),
    forgets=st.integers(0, 30),
    compacts=st.booleans(),
)
@settings(max_examples=examples(40), deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_however_many_turns_were_forgotten_they_come_back(tmp_path_factory, choices, forgets, compacts):
    folder = str(tmp_path_factory.mktemp("queue"))
    books = Books(folder)
    if compacts:
        books.add(a_request("before"))
        books.compact()
    books.store._db.execute("pragma wal_checkpoint(truncate)")
    for number, choice in enumerate(choices):
        if number == forgets:
            books.store._db.execute("pragma wal_checkpoint(truncate)")
        books.anything(choice)
    old = Path(folder, "store.db").read_bytes()  # without its log: as if that had been deleted
    books.close()
    content = picture(f"{folder}/store.db")
    Path(folder, "store.db").write_bytes(old)

    complaints, found = caught_up(folder)

    assert found == content
    assert complaints == []


def test_a_store_that_has_forgotten_nothing_stays_as_it_is(folder):
    books = Books(folder)
    (job,) = books.add(a_request())
    books.end(books.start(job.id), BAD, retry=True)
    books.close()
    content = picture(f"{folder}/store.db")

    for _ in range(2):
        assert caught_up(folder) == ([], content)


def test_a_store_that_remembers_too_little_is_not_told_twice(folder):
    books = Books(folder)
    first, second = books.add(a_request("a"), a_request("b"))
    books.end(books.start(first.id), BAD)
    books.start(second.id)
    with books.store.turn():
        books.store.queue.set("journal", ":0")  # a turn that forgot to remember
    books.close()
    before = picture(f"{folder}/store.db")

    _, after = caught_up(folder)

    assert {**after, "settings": []} == {**before, "settings": []}


def test_a_store_from_before_this_memory_is_believed(folder):
    books = Books(folder)
    (job,) = books.add(a_request())
    books.hold(job.id)
    books.release(job.id)
    with books.store.turn():
        books.store._db.execute("delete from settings")
    books.close()
    before = picture(f"{folder}/store.db")

    complaints, after = caught_up(folder)

    assert complaints == []
    assert after["jobs"] == before["jobs"]


def test_a_turn_that_was_killed_before_its_commit_does_no_harm(folder):
    books = Books(folder)
    (job,) = books.add(a_request("told"))

    def die(point):
        raise KeyboardInterrupt

    books.reach = die
    books.journal.take_back = lambda size: None  # the dead take nothing back
    with pytest.raises(KeyboardInterrupt):
        books.start(job.id)
    books.close()

    complaints, content = caught_up(folder)

    assert complaints == []
    assert content["tally"] == [("", "running", 1)]  # and settling finds that it never ran


def test_a_journal_that_lost_its_end_in_a_power_cut_is_no_hindrance(folder):
    books = Books(folder)
    (job,) = books.add(a_request())
    size = books.journal.size
    books.start(job.id)
    books.close()
    os.truncate(f"{folder}/journal.jsonl", size + 7)
    before = picture(f"{folder}/store.db")

    complaints, after = caught_up(folder)

    assert complaints == []
    assert after["jobs"] == before["jobs"] and after["attempts"] == before["attempts"]


def test_a_compaction_after_which_the_machine_stopped_is_no_hindrance(folder):
    books = Books(folder)
    (job,) = books.add(a_request())
    books.end(books.start(job.id))
    books.journal.compact(lambda number: True)  # and the store was not told
    books.close()
    before = picture(f"{folder}/store.db")

    complaints, after = caught_up(folder)

    assert complaints == []
    assert after["jobs"] == before["jobs"]


def test_a_store_from_before_a_compaction_is_refused(folder, tmp_path):
    books = Books(folder)
    books.add(a_request("one"))
    books.close()
    shutil.copy(f"{folder}/store.db", tmp_path / "backup")
    books = Books(folder)
    books.add(a_request("two"))
    books.compact()
    books.close()
    shutil.copy(tmp_path / "backup", f"{folder}/store.db")

    with pytest.raises(StoreUnusable, match="its journal belongs to another store") as refused:
        caught_up(folder)

    assert "--rebuild" in refused.value.remedy


def test_a_damaged_line_among_the_forgotten_is_named(folder):
    books = Books(folder)
    books.add(a_request("one"))
    books.close()
    with open(f"{folder}/journal.jsonl", "ab") as file:
        file.write(b"garbage\n")

    complaints, _ = caught_up(folder)

    assert len(complaints) == 1 and complaints[0].endswith("of the journal is damaged")


def test_a_store_that_is_gone_is_not_begun_anew_while_its_journal_is_there(folder):
    books = Books(folder)
    books.add(a_request())
    books.close()
    refuse_journal_without_store(folder)  # both are there
    os.unlink(f"{folder}/store.db")

    with pytest.raises(StoreUnusable, match="a journal of its jobs is there"):
        refuse_journal_without_store(folder)


def test_a_new_folder_may_be_begun(tmp_path):
    refuse_journal_without_store(str(tmp_path))
    Journal(f"{tmp_path}/journal.jsonl").close()

    refuse_journal_without_store(str(tmp_path))  # a journal without a line is no journal yet

    assert os.listdir(tmp_path) == ["journal.jsonl"]


def test_a_journal_about_jobs_that_are_gone_is_shortened_and_the_store_still_fits_it(folder):
    books = Books(folder)
    for _ in range(20):
        (job,) = books.add(a_request("old"))
        books.end(books.start(job.id))
    books.add(a_request("new"))
    books.clean([JobId(number) for number in range(1, 21)])
    size = books.journal.size

    shortened = [shorten(books.store, books.journal, largest=largest) for largest in (size, 0)]
    books.close()
    content = picture(f"{folder}/store.db")

    assert shortened == [False, True]
    assert os.path.getsize(f"{folder}/journal.jsonl") < size / 5
    assert caught_up(folder) == ([], content)
