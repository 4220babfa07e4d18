"""The disk under a queue fills up, cannot be written or loses what it was told: nothing acknowledged is lost."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from dibs.errors import DibsError, StoreUnusable
from dibs.model.jobs import State
from dibs.store.rebuild import rebuild
from dibs.store.store import Store
from dibs.supervise.folder import facts
from store.builders import NOON, a_request
from store.campaign import RUNS, Books, picture
from stories.outside import World, fill, needs_root
from supervise.hands import Hands, parent_of


@pytest.fixture
def disk(tmp_path):
    """Four megabytes."""
    place = tmp_path / "disk"
    place.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", str(place)], check=True)
    yield place
    subprocess.run(["umount", "-l", str(place)], check=True)


def restored(folder):
    report = rebuild(str(folder), look=lambda attempt: RUNS, spec_of=lambda attempt: None, now=NOON + 1e6)
    return report, picture(f"{folder}/store.db")


@needs_root
def test_on_a_full_disk_nothing_is_acknowledged_and_then_it_goes_on(disk):
    books = Books(str(disk / "queue"))
    books.add(a_request("before"))
    ballast = fill(disk)

    for size in (1, 50, 400):
        with pytest.raises((OSError, DibsError)):
            books.add(*[a_request("x" * 2000) for _ in range(size)])
    ballast.unlink()
    (after,) = books.add(a_request("after"))
    books.close()
    content = picture(str(disk / "queue/store.db"))

    assert after.id == 2
    assert restored(disk / "queue")[1] == content
    assert [row[0] for row in content["jobs"]] == [1, 2]


@needs_root
def test_an_end_that_a_full_disk_did_not_take_can_be_told_again(disk):
    books = Books(str(disk / "queue"))
    (job,) = books.add(a_request())
    attempt = books.start(job.id)
    ballast = fill(disk)
    told = 0
    while True:  # the last page of the journal may still have room
        try:
            books.pause(f"project {'p' * 100}{told}")
            told += 1
        except (OSError, DibsError):
            break

    with pytest.raises((OSError, DibsError)):
        books.end(attempt)
    ballast.unlink()
    books.end(attempt)
    books.close()
    content = picture(str(disk / "queue/store.db"))

    assert restored(disk / "queue")[1] == content
    assert content["tally"] == [("", "succeeded", 1)]


@needs_root
def test_a_rebuild_that_finds_no_room_leaves_the_old_store_and_works_later(disk):
    folder = disk / "queue"
    books = Books(str(folder))
    for _ in range(3):
        books.add(*[a_request("x" * 1000) for _ in range(100)])
    books.close()
    content = picture(str(folder / "store.db"))
    os.truncate(folder / "store.db", 5000)
    damaged = (folder / "store.db").read_bytes()
    ballast = fill(disk)

    with pytest.raises(StoreUnusable) as refused:
        restored(folder)
    kept = (folder / "store.db").read_bytes()
    left = sorted(path.name for path in folder.iterdir())
    ballast.unlink()

    assert kept == damaged
    assert left == ["environments", "journal.jsonl", "lock", "store.db"]
    assert "\n" not in refused.value.message
    assert restored(folder)[1] == content


_ADDER = """
import os, sys
sys.path.insert(0, {tests!r})
from store.campaign import Books
from store.builders import a_request
books = Books({folder!r})
for number in range(20):
    try:
        (job,) = books.add(a_request(f"job {{number}}"))
    except Exception as error:
        print("refused", type(error).__name__, flush=True)
    else:
        print("added", job.id, f"job {{number}}", flush=True)
"""


@pytest.mark.skipif(shutil.which("strace") is None, reason="only strace makes a disk that fails")
@pytest.mark.parametrize(
    ("file", "fault"),
    [
        pytest.param("journal.jsonl", "fdatasync:error=EIO:when=4+3", id="a sync of the journal fails"),
        pytest.param("journal.jsonl", "write:error=EROFS:when=5..9", id="the journal cannot be written"),
        pytest.param("store.db-wal", "fdatasync:error=EIO:when=4..7", id="syncs of the store fail"),
        pytest.param("store.db-wal", "pwrite64:error=EIO:when=20+7", id="the store cannot be written"),
        pytest.param("store.db-wal", "pwrite64:error=EROFS:when=20..40", id="the disk is read-only for a while"),
    ],
)
def test_what_the_disk_did_not_take_is_never_acknowledged(tmp_path, file, fault):
    folder = tmp_path / "queue"
    Books(str(folder)).close()
    inject = ["strace", "-f", "-qq", "-o", "/dev/null", "-P", f"{folder}/{file}", "-e", f"inject={fault}"]
    program = _ADDER.format(tests=str(Path(__file__).parents[1]), folder=str(folder))

    done = subprocess.run([*inject, sys.executable, "-c", program], capture_output=True, text=True)
    if "ptrace" in done.stderr.lower():
        pytest.skip("ptrace is not allowed here")
    said = [line.split(" ", 2) for line in done.stdout.splitlines()]
    acknowledged = {int(words[1]): words[2] for words in said if words[0] == "added"}
    _, content = restored(folder)

    assert len(said) == 20, done.stderr
    assert acknowledged and len(acknowledged) < 20
    found = {row[0]: row[4] for row in content["jobs"]}
    for number, text in acknowledged.items():
        assert f'"shown":"{text}"' in found[number]


_KILLED = """
import os, sys
sys.path.insert(0, {tests!r})
from store.campaign import Books
from store.builders import a_request
books = Books({folder!r})
print(books.add(a_request("told"))[0].id, flush=True)
books.reach = lambda point: os.kill(os.getpid(), 9)
books.add(a_request("not told"), a_request("not told either"))
"""


@pytest.mark.parametrize("goes_on", [True, False])
def test_a_daemon_that_is_killed_between_journal_and_store_gives_no_number_twice(tmp_path, goes_on):
    folder = tmp_path / "queue"
    program = _KILLED.format(tests=str(Path(__file__).parents[1]), folder=str(folder))
    killed = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert (killed.returncode, killed.stdout) == (-9, "1\n"), killed.stderr

    if goes_on:
        books = Books(str(folder))
        (job,) = books.add(a_request("the next"))
        books.close()
        content = picture(str(folder / "store.db"))

        assert job.id == 2
        assert restored(folder)[1] == {**content, "next number": 4}
    else:
        report, content = restored(folder)

        assert [row[0] for row in content["jobs"]] == [
            1,
            2,
            3,
        ]  # no number was printed, but nothing is lost either
        assert report.missing == []


def test_attempts_of_real_shims_are_found_running_ended_and_lost(world: World):
    root = Path(world.folder) / "queue"
    hands = Hands(root)
    books = Books(str(root))
    lines = ("exit 7", "sleep 60", "sleep 61", "true")
    jobs = books.add(*[a_request(line) for line in lines])
    attempts = [books.start(job.id) for job in jobs[:3]]
    ended, running, killed = (hands.start(line) for line in lines[:3])
    hands.wait(ended)
    hands.running(running)
    os.kill(parent_of(hands.running(killed)["pid"]), 9)
    hands.turn_until(lambda: not facts(killed.folder).is_locked)
    books.close()
    os.truncate(root / "store.db", 0)

    report = rebuild(str(root), look=facts, spec_of=lambda folder: None, now=NOON + 1e6)

    store = Store(str(root / "store.db"))
    rows = {int(job.id): store.listing.row(job.id) for job in jobs}
    still_open = [attempt.folder for _, attempt in store.open_attempts()]
    store.close()
    hands.close()
    assert (rows[1].job.state, rows[1].outcome.exit_code) == (State.FAILED, 7)
    assert still_open == [
        attempt.folder for attempt in attempts[1:]
    ]  # whether the last one holds a GPU, a daemon sees
    assert rows[4].job.state is State.QUEUED
    assert report.missing == []
