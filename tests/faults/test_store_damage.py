"""The store is damaged while no daemon runs: it is refused, kept, and rebuilt from the journal beside it."""

import os
import random
import shutil
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dibs.errors import StoreUnusable
from dibs.store.rebuild import rebuild
from dibs.store.store import Store
from examples import examples
from store.builders import NOON, a_request
from store.campaign import RUNS, Books, picture

_CAMPAIGN = random.Random(14).choices(range(10_000), k=600)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A queue's folder as a killed daemon leaves it, its log beside it, and what is in it."""
    folder = tmp_path_factory.mktemp("queue") / "live"
    books = Books(str(folder))
    books.add(*[a_request(f"train --seed {number}") for number in range(400)])
    books.store._db.execute("pragma wal_checkpoint(truncate)")
    for choice in _CAMPAIGN:
        books.anything(choice)
    killed = folder.parent / "killed"
    shutil.copytree(folder, killed)
    books.close()
    return killed, picture(str(folder / "store.db"))


def again(whole, place):
    """A copy to damage."""
    shutil.copytree(whole[0], place)
    return place


def restored(folder):
    report = rebuild(str(folder), look=lambda attempt: RUNS, spec_of=lambda attempt: None, now=NOON + 1e6)
    return report, picture(str(folder / "store.db"))


def everything_in(folder):
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir()) if path.is_file()}


def flip(path, start, stop):
    content = path.read_bytes()
    path.write_bytes(content[:start] + bytes(byte ^ 0xFF for byte in content[start:stop]) + content[stop:])


def test_the_campaign_is_worth_its_name(whole):
    killed, content = whole
    states = {state for _, state, _ in content["tally"]}

    assert {"queued", "running", "held", "succeeded", "failed", "cancelled"} <= states
    assert len(content["attempts"]) > 10 and content["dependencies"] and content["suspensions"]
    assert (killed / "store.db-wal").stat().st_size > 100_000


@pytest.mark.parametrize(
    "damage",
    [
        pytest.param(lambda store: flip(store, 0, 100), id="header"),
        pytest.param(lambda store: os.truncate(store, 0), id="no bytes"),
        pytest.param(lambda store: os.truncate(store, 60), id="half a header"),
        pytest.param(lambda store: store.write_bytes(bytes(store.stat().st_size)), id="zeros"),
        pytest.param(lambda store: store.write_bytes(b"a text\n" * 999), id="another file"),
    ],
)
def test_a_damaged_store_is_refused_in_a_sentence_and_made_again(whole, tmp_path, damage):
    folder = again(whole, tmp_path / "queue")
    damage(folder / "store.db")
    before = everything_in(folder)

    with pytest.raises(StoreUnusable) as refused:
        Store(str(folder / "store.db"))
    kept = everything_in(folder)
    report, content = restored(folder)

    assert "\n" not in refused.value.message
    assert kept["store.db"] == before["store.db"]
    assert Path(report.old).read_bytes() == before["store.db"]
    assert content == whole[1]
    assert report.missing == []


@pytest.mark.parametrize(
    "damage",
    [
        pytest.param(lambda log: log.unlink(), id="deleted"),
        pytest.param(lambda log: log.write_bytes(b"garbage" * 9999), id="garbage"),
        pytest.param(lambda log: os.truncate(log, log.stat().st_size // 2), id="truncated"),
        pytest.param(lambda log: flip(log, 0, 32), id="header"),
        pytest.param(lambda log: flip(log, 50_000, 50_100), id="middle"),
    ],
)
def test_a_store_without_its_log_is_made_again_to_the_last_job(whole, tmp_path, damage):
    folder = again(whole, tmp_path / "queue")
    damage(folder / "store.db-wal")

    report, content = restored(folder)

    assert content == whole[1]
    assert report.missing == []


@given(
    place=st.floats(0, 1),
    length=st.integers(1, 5000),
    cut=st.none() | st.floats(0, 1),
    log=st.sampled_from(["kept", "deleted", "damaged"]),
)
@settings(max_examples=examples(40), deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_whatever_is_damaged_nothing_falls_and_everything_comes_back(
    whole, tmp_path_factory, place, length, cut, log
):
    folder = again(whole, tmp_path_factory.mktemp("damaged") / "queue")
    store = folder / "store.db"
    start = int(place * (store.stat().st_size - 1))
    flip(store, start, start + length)
    if cut is not None:
        os.truncate(store, int(cut * store.stat().st_size))
    if log == "deleted":
        (folder / "store.db-wal").unlink()
    elif log == "damaged":
        flip(folder / "store.db-wal", start, start + length)
    damaged = store.read_bytes()

    try:
        Store(str(store)).close()
        is_refused = False
    except StoreUnusable as refused:
        is_refused = True
        assert "\n" not in refused.message
        assert store.read_bytes() == damaged
    report, content = restored(folder)

    assert content == whole[1]
    assert not is_refused or Path(report.old).read_bytes() == damaged


@pytest.mark.parametrize("plant", ["written in the next turn", "ends are not written", "changes are not written"])
def test_a_journal_that_lags_behind_would_be_found_here(tmp_path, plant):
    folder = tmp_path / "queue"
    books = Books(str(folder), plant=plant)
    books.add(*[a_request(f"train --seed {number}") for number in range(9)])
    for choice in _CAMPAIGN:
        books.anything(choice)
    books.close()
    content = picture(str(folder / "store.db"))
    os.truncate(folder / "store.db", 0)

    _, after = restored(folder)

    assert after != content
