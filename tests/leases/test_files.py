"""What is in the folder, and when to look again."""

import os

import pytest

from dibs.leases import files
from dibs.leases.files import Entry, GpuGuards, LeaseListing, LeaseRefused, close_all
from dibs.leases.lockers import user_name


def make(folder, *names):
    for name in names:
        with open(f"{folder}/{name}", "w"):
            pass


def test_files_are_found_by_gpu_in_the_order_of_their_slots(folder):
    make(folder, "dibs-claim-index-1-1000-10", "dibs-claim-index-1-1000-2", "dibs-wish-GPU-a:b.c-0-0")

    found = LeaseListing(folder).files()

    assert found == {
        ("claim", "index-1"): [
            Entry("dibs-claim-index-1-1000-2", 1000, 2),
            Entry("dibs-claim-index-1-1000-10", 1000, 10),
        ],
        ("wish", "GPU-a:b.c"): [Entry("dibs-wish-GPU-a:b.c-0-0", 0, 0)],
    }


def test_names_that_we_never_write_are_not_ours(folder):
    make(
        folder,
        "dibs-claim-x-1-64",
        "dibs-claim-x-01-0",
        "dibs-claim-x-1-00",
        "dibs-claim-é-1-1",
        "dibs-claim--1-1",
    )
    make(folder, "dibs-claim-x-1-1\n", "xdibs-claim-x-1-1", "dibs-guard-x", "dibs-claim-x-99999999999-1")

    found = LeaseListing(folder).files()

    assert found == {}


def test_a_file_made_within_the_same_tick_of_the_clock_is_seen(folder):
    listing = LeaseListing(folder)
    assert listing.files() == {}
    before = os.stat(folder)

    make(folder, "dibs-claim-index-0-0-0")
    os.utime(folder, ns=(before.st_atime_ns, before.st_mtime_ns))  # what a coarse clock would have said

    assert list(listing.files()) == [("claim", "index-0")]


def test_a_file_made_long_after_the_last_change_is_seen(folder):
    listing = LeaseListing(folder)
    os.utime(folder, (1000, 1000))
    assert listing.files() == listing.files() == {}

    make(folder, "dibs-claim-index-0-0-0")

    assert list(listing.files()) == [("claim", "index-0")]


def test_a_guard_that_is_replaced_while_we_lock_it_is_locked_anew(folder, monkeypatch):
    path = f"{folder}/dibs-guard-index-0"
    really_lock = files.lock

    def lock_too_late(opened):
        monkeypatch.setattr(files, "lock", really_lock)
        os.unlink(path)
        make(folder, "dibs-guard-index-0")
        return really_lock(opened)

    monkeypatch.setattr(files, "lock", lock_too_late)

    held = GpuGuards(folder, patience=1.0).hold(["index-0"])

    assert isinstance(held, list) and os.path.samestat(os.fstat(held[0]), os.stat(path))
    close_all(held)


def test_too_many_files_are_not_looked_at_and_one_sentence_says_so(folder, monkeypatch):
    monkeypatch.setattr(files, "MOST_FILES", 20)
    make(folder, *(f"dibs-claim-index-0-{uid}-0" for uid in range(50_000, 50_100)), *map(str, range(100)))
    listing = LeaseListing(folder)

    some = listing.some_files()

    assert sum(map(len, some.values())) == 21
    me = user_name(os.geteuid())
    assert listing.too_many == f"it has more than 20 lease files, most of them of {me}, and not all are looked at"
    with pytest.raises(LeaseRefused) as refused:
        listing.files()
    assert refused.value.message == f"cannot lease GPUs in {folder}: {listing.too_many}"
    assert "DIBS_LEASES" in refused.value.remedy


def test_other_files_in_the_folder_do_not_count(folder, monkeypatch):
    monkeypatch.setattr(files, "MOST_FILES", 20)
    make(folder, "dibs-claim-index-0-0-0", *(f"dibs-{number}" for number in range(100)))
    listing = LeaseListing(folder)

    assert list(listing.files()) == [("claim", "index-0")]
    assert listing.too_many == ""
