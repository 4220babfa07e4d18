"""The file itself: whole, ours alone, and never overwritten."""

import os
import resource
import shutil
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dibs.errors import FolderInUse, StoreUnusable
from dibs.model.jobs import State
from dibs.store.codec import class_of
from dibs.store.file import SCHEMA_VERSION
from dibs.store.store import Store
from examples import examples
from store.builders import NOON, a_request, submit


def everything_in(folder):
    """Every file with its content."""
    return {name: Path(folder, name).read_bytes() for name in sorted(os.listdir(folder))}


def a_filled_store(path, jobs=300):
    store = Store(path)
    submit(store, *[f"train --seed {number}" for number in range(jobs)])
    store.close()
    return Path(path)


# -- versions ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [SCHEMA_VERSION - 1, SCHEMA_VERSION + 1])
@pytest.mark.parametrize("log_is_left", [False, True])
def test_a_store_of_another_version_is_refused_and_left_as_it_is(path, version, log_is_left):
    file = a_filled_store(path)
    db = sqlite3.connect(path, isolation_level=None)
    db.execute(f"pragma user_version = {version}")
    if log_is_left:
        db.execute("pragma wal_checkpoint")
        db.execute("update jobs set message = 'not in the file yet'")
        before = everything_in(file.parent)
        db.close()
        shutil.rmtree(file.parent)
        file.parent.mkdir()
        for name, content in before.items():
            (file.parent / name).write_bytes(content)
    else:
        db.close()
    before = everything_in(file.parent)

    with pytest.raises(StoreUnusable, match=f"its schema is {version}, this version needs {SCHEMA_VERSION}"):
        Store(path)

    assert everything_in(file.parent) == before


def test_a_version_that_only_the_log_has_is_refused_too(path):
    a_filled_store(path)
    program = (
        "import os, sqlite3, sys; db = sqlite3.connect(sys.argv[1], isolation_level=None)\n"
        f"db.execute('pragma user_version = {SCHEMA_VERSION + 1}'); os._exit(0)"
    )
    subprocess.run([sys.executable, "-c", program, path], check=True)
    assert os.path.getsize(f"{path}-wal")

    with pytest.raises(StoreUnusable, match="another version of dibs wrote it"):
        Store(path)


def test_a_database_of_another_program_is_refused_and_left_as_it_is(path):
    with closing(sqlite3.connect(path)) as db:
        db.execute("create table photos (x)")
        db.commit()
    before = Path(path).read_bytes()

    with pytest.raises(StoreUnusable, match="it is not a store of dibs"):
        Store(path)

    assert Path(path).read_bytes() == before


# -- whose it is ---------------------------------------------------------------------------------------


def test_a_second_process_is_told_that_the_store_is_in_use(path):
    store = Store(path)
    submit(store, "train")
    program = f"from dibs.store.store import Store; Store({path!r})"

    second = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)

    assert FolderInUse.__name__ in second.stderr
    assert "another dibs works with it" in second.stderr
    submit(store, "more")
    store.close()


def test_a_program_that_only_reads_is_locked_out_and_does_no_harm(path):
    store = Store(path)
    submit(store, "train")

    with (
        closing(sqlite3.connect(path, timeout=0)) as reader,
        pytest.raises(sqlite3.OperationalError, match="locked"),
    ):
        reader.execute("select * from jobs").fetchall()

    submit(store, "more")
    assert store.counts() == {State.QUEUED: 2}
    store.close()


def test_a_killed_process_leaves_a_store_that_opens(path):
    program = f"""
import os, sys
sys.path.insert(0, {str(Path(__file__).parents[1])!r})
from dibs.store.store import Store
from store.builders import submit
store = Store({path!r})
submit(store, "kept")
with store.turn():
    from store.builders import a_request
    store.submit(a_request("not acknowledged"), "", 0.0)
    os.kill(os.getpid(), 9)
"""
    killed = subprocess.run([sys.executable, "-c", program])

    store = Store(path)

    assert killed.returncode == -9
    assert [job.request.command.shown for job in store.waiting("{}", NOON, 9)] == ["kept"]
    store.close()


def test_a_refused_store_can_be_opened_once_it_is_mended(path):
    file = a_filled_store(path)
    whole = file.read_bytes()
    file.write_bytes(whole[:5000])
    with pytest.raises(StoreUnusable):
        Store(path)

    file.write_bytes(whole)
    store = Store(path)

    assert store.counts() == {State.QUEUED: 300}
    store.close()


# -- damage --------------------------------------------------------------------------------------------


def flip(content, start, stop):
    return content[:start] + bytes(byte ^ 0xFF for byte in content[start:stop]) + content[stop:]


@pytest.mark.parametrize(
    "damage",
    [
        pytest.param(lambda content: b"", id="no bytes"),
        pytest.param(lambda content: content[:50], id="half a header"),
        pytest.param(lambda content: flip(content, 0, 100), id="header"),
        pytest.param(lambda content: flip(content, 16, 24), id="page size"),
        pytest.param(lambda content: flip(content, 100, 4096), id="first page"),
        pytest.param(lambda content: flip(content, 5 * 4096, 6 * 4096), id="page in the middle"),
        pytest.param(lambda content: flip(content, 5 * 4096, 5 * 4096 + 8), id="head of a page"),
        pytest.param(lambda content: content[: len(content) // 2], id="truncated"),
        pytest.param(lambda content: content[:-4096], id="last page missing"),
        pytest.param(lambda content: content[: 4096 * 2 + 17], id="truncated within a page"),
        pytest.param(lambda content: b"This is a text.\n" * 1000, id="another file"),
        pytest.param(lambda content: bytes(len(content)), id="zeros"),
    ],
)
def test_a_damaged_file_is_refused_in_one_sentence_and_not_touched(path, damage):
    file = a_filled_store(path)
    file.write_bytes(damage(file.read_bytes()))
    before = file.read_bytes()

    with pytest.raises(StoreUnusable) as refused:
        Store(path)

    assert file.read_bytes() == before
    assert path in refused.value.message
    assert "\n" not in refused.value.message.replace(path, "")
    assert "left as it is" in refused.value.remedy


@given(place=st.floats(0, 1), bits=st.integers(1, 255), length=st.integers(1, 64))
@settings(max_examples=examples(150), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_whatever_is_flipped_it_works_or_is_refused_and_never_falls(tmp_path, place, bits, length):
    whole = tmp_path / "whole.db"
    if not whole.exists():
        a_filled_store(str(whole), jobs=60)
    content = bytearray(whole.read_bytes())
    start = int(place * (len(content) - 1))
    for index in range(start, min(start + length, len(content))):
        content[index] ^= bits
    damaged = tmp_path / "damaged.db"
    damaged.write_bytes(content)

    try:
        store = Store(str(damaged))
    except StoreUnusable:
        assert damaged.read_bytes() == content
        return

    try:
        store.counts()
        store.open_attempts()
        for kind in store.waiting_classes():
            store.waiting(kind, NOON, 100)
        store.rows(State, -1)
        submit(store, "train --seed 3", "another")
    except StoreUnusable as error:
        assert error.remedy
    finally:
        store.close()
        for name in ("", "-wal"):
            Path(f"{damaged}{name}").unlink(missing_ok=True)


def test_damage_that_only_reading_shows_is_told_as_such(path):
    store = Store(path)
    submit(store, "train")
    with store.turn():
        store._db.execute("update jobs set request = '{half'")

    with pytest.raises(StoreUnusable, match="cannot read job 1: its row is damaged"):
        store.waiting(class_of(a_request()), NOON, 9)

    store.close()


def test_a_log_full_of_garbage_loses_nothing_that_was_in_the_file(path):
    file = a_filled_store(path, jobs=5)
    Path(f"{path}-wal").write_bytes(os.urandom(8192))

    store = Store(path)

    assert store.counts() == {State.QUEUED: 5}
    assert file.exists()
    store.close()


def test_a_folder_that_is_not_there_is_one_sentence(path):
    with pytest.raises(StoreUnusable, match=r"cannot make (.|\n)*: No such file or directory"):
        Store(f"{path}/nowhere/store.db")


# -- a full disk ---------------------------------------------------------------------------------------


@pytest.fixture
def small_disk(tmp_path):
    """A disk of one megabyte."""
    place = tmp_path / "small disk"
    place.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(place)], capture_output=True)
    if mounted.returncode:
        pytest.skip("only root can make a small disk")
    yield place
    subprocess.run(["umount", "-l", str(place)], check=True)


def fill(place):
    ballast = place / "ballast"
    with ballast.open("wb", buffering=0) as file:
        try:
            while True:
                file.write(bytes(4096))
        except OSError:
            return ballast


def test_a_full_disk_takes_the_turn_back_and_the_next_one_works_when_there_is_space(small_disk):
    store = Store(str(small_disk / "store.db"))
    submit(store, "before")
    ballast = fill(small_disk)

    with pytest.raises(StoreUnusable, match="full"):
        submit(store, *[f"job {number}" for number in range(300)])
    assert store.counts() == {State.QUEUED: 1}
    assert store.job(1).request.command.shown == "before"

    ballast.unlink()
    jobs = submit(store, *[f"job {number}" for number in range(300)])
    store.close()

    assert len({job.id for job in jobs}) == 300
    with closing(sqlite3.connect(store.path)) as db:
        assert db.execute("pragma integrity_check").fetchall() == [("ok",)]
        assert db.execute("select count(*) from jobs").fetchone() == (301,)


def test_a_store_that_does_not_fit_leaves_nothing_behind(small_disk):
    ballast = fill(small_disk)

    with pytest.raises(StoreUnusable):
        Store(str(small_disk / "store.db"))

    assert os.listdir(small_disk) == ["ballast"]
    ballast.unlink()
    Store(str(small_disk / "store.db")).close()


def test_a_limit_on_file_sizes_is_like_a_full_disk(path):
    store = Store(path)
    submit(store, "before")
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)

    resource.setrlimit(resource.RLIMIT_FSIZE, (os.path.getsize(f"{path}-wal"), limit[1]))
    try:
        with pytest.raises(StoreUnusable):
            submit(store, *[f"job {number}" for number in range(300)])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limit)
    submit(store, "after")

    assert store.counts() == {State.QUEUED: 2}
    store.close()
