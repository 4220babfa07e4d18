"""What fits on a card."""

import json
import os
import stat
import time
from dataclasses import replace
from fractions import Fraction

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dibs.errors import BadInput
from dibs.leases.files import MOST_SLOTS, in_words
from dibs.leases.leases import Busy, Lease
from dibs.model.gpus import Claim
from leases.claims import NOON, a_claim, busy, some_leases, take, took


def test_a_lease_says_who_holds_the_card_and_for_what(folder):
    leases = some_leases(folder)

    lease = leases.take(
        [Claim(gpu="GPU-1", index=3, share=Fraction(1, 3), vram=5)], job="a\tb", folder="/runs/é", since=NOON
    )

    (holder,) = leases.holders()
    assert (holder.gpu, holder.uid, holder.pid) == ("GPU-1", os.geteuid(), os.getpid())
    assert (holder.share, holder.vram) == (Fraction(1, 3), 5)
    assert abs(holder.since - time.time()) < 60, "since it was taken, not since the wait for it began"
    assert (holder.job, holder.folder) == (r"a\tb", "/runs/é")
    lease.close()
    assert leases.holders() == []


def test_two_halves_fit_and_a_third_one_is_told_of_both(folder):
    leases = some_leases(folder)
    first = took(leases, a_claim(share="1/2"), job="one")
    second = took(leases, a_claim(share="1/2"), job="two")

    found = busy(leases, a_claim(share="1/2"))

    assert [holder.job for holder in found.holders] == ["one", "two"]
    assert found.waiting == () and found.guarded_by == ""
    first.close()
    second.close()


def test_three_thirds_fill_a_card_exactly(folder):
    leases = some_leases(folder)
    thirds = [took(leases, a_claim(share="1/3")) for _ in range(3)]

    found = busy(leases, a_claim(share="1/1000000"))

    assert sum(holder.share for holder in found.holders) == 1
    for lease in thirds:
        lease.close()


def test_of_two_cards_both_are_taken_or_none(folder):
    leases = some_leases(folder)
    held = took(leases, a_claim("index-1"), job="in the way")

    found = busy(leases, a_claim("index-0"), a_claim("index-1"))

    assert [holder.job for holder in found.holders] == ["in the way"]
    took(leases, a_claim("index-0")).close()
    held.close()


def test_two_slots_of_one_card_are_two_files_with_one_sum(folder):
    leases = some_leases(folder)

    both = took(leases, a_claim(share="1/2"), a_claim(share="1/2"))

    assert len(both.fds) == 2
    assert len(busy(leases, a_claim(share="1/2")).holders) == 2
    both.close()
    busy_with_itself = take(leases, a_claim(share="2/3"), a_claim(share="2/3"))
    assert busy_with_itself == Busy()


def test_a_job_for_no_card_takes_nothing(folder):
    leases = some_leases(folder)

    lease = leases.take([], job="cpu", folder="", since=NOON)

    assert isinstance(lease, Lease) and lease.fds == ()
    assert os.listdir(folder) == []


def test_files_are_reused_and_never_deleted(folder):
    leases = some_leases(folder)
    took(leases, a_claim(), job="a" * 300).close()
    files = sorted(os.listdir(folder))

    again = took(leases, a_claim(), job="b")

    assert files == [f"dibs-claim-index-0-{os.geteuid()}-0", "dibs-guard-index-0"]
    assert sorted(os.listdir(folder)) == files
    assert [holder.job for holder in leases.holders()] == ["b"]
    again.close()


def test_no_descriptor_is_left_behind(folder):
    leases = some_leases(folder)
    held = took(leases)
    before = os.listdir("/proc/self/fd")

    busy(leases, a_claim("index-1"), a_claim("index-0"))
    leases.wish([a_claim()], job="x", since=NOON)
    leases.holders()
    leases.close()

    assert os.listdir("/proc/self/fd") == before
    assert not any(os.get_inheritable(fd) for fd in held.fds)
    held.close()


def test_one_user_cannot_fill_the_folder_with_slots(folder):
    leases = some_leases(folder)
    slots = [took(leases, a_claim(share="1/1000")) for _ in range(MOST_SLOTS)]

    found = busy(leases, a_claim(share="1/1000"))

    assert len(found.holders) == MOST_SLOTS
    for lease in slots:
        lease.close()


@pytest.mark.parametrize("mask", [0o000, 0o077, 0o777])
def test_modes_are_as_specified_whatever_the_umask(folder, mask):
    leases = some_leases(folder)
    before = os.umask(mask)

    try:
        lease = took(leases)
        leases.wish([a_claim()], job="x", since=NOON)
    finally:
        os.umask(before)

    modes = {stat.S_IMODE(os.stat(f"{folder}/{name}").st_mode) for name in os.listdir(folder)}
    assert len(os.listdir(folder)) == 3 and modes == {0o1644}
    lease.close()
    leases.close()


def test_a_mode_lost_to_a_crash_is_mended(folder):
    leases = some_leases(folder)
    took(leases).close()
    for name in os.listdir(folder):
        os.chmod(f"{folder}/{name}", 0o600)

    took(leases).close()

    assert {stat.S_IMODE(os.stat(f"{folder}/{name}").st_mode) for name in os.listdir(folder)} == {0o1644}


@pytest.mark.parametrize("key", ["", "../evil", "a/b", "a b", "é", "x" * 200, "GPU-1\n"])
def test_a_key_that_leads_elsewhere_is_refused(folder, key):
    leases = some_leases(folder)

    with pytest.raises(BadInput):
        take(leases, a_claim(key))

    assert os.listdir(folder) == []


@pytest.mark.parametrize(("length", "kept"), [(4096, True), (40000, False)])
def test_a_folder_longer_than_any_path_is_left_out_and_the_share_still_counts(folder, length, kept):
    leases = some_leases(folder)
    long = "\udcff" * length

    lease = leases.take([a_claim(share="1/4")], job="\U0001f600" * 300, folder=long, since=NOON)

    (holder,) = leases.holders()
    assert (holder.share, holder.folder) == (Fraction(1, 4), long if kept else "")
    lease.close()


@pytest.mark.parametrize(
    "record",
    [
        b"",
        b"\xff\x00",
        b"[" * 5000,
        b"[]",
        b'{"share": "1/2"}',
        b'{"user": "u", "pid": 1, "job": "j", "since": 1, "share": "-1", "vram": 0, "folder": ""}',
        b'{"user": "u", "pid": 1, "job": "j", "since": 1, "share": "1e999999999", "vram": 0, "folder": ""}',
        b'{"user": "u", "pid": 1, "job": "j", "since": 1, "share": "1/0", "vram": 0, "folder": ""}',
        b'{"user": "u", "pid": 1, "job": "j", "since": NaN, "share": "1/2", "vram": 0, "folder": ""}',
        b'{"user": "u", "pid": 1, "job": "j", "since": 1e300, "share": "1/2", "vram": 0, "folder": ""}',
        b'{"user": "u", "pid": 1, "job": "j", "since": -1e300, "share": "1/2", "vram": 0, "folder": ""}',
        b'{"user": 5, "pid": 1, "job": "j", "since": 1, "share": "1/2", "vram": 0, "folder": ""}',
        b'{"user": "u", "pid": -1, "job": "j", "since": 1, "share": "1/2", "vram": 0, "folder": ""}',
        b'{"user": "u", "pid": 99999999999, "job": "j", "since": 1, "share": "1/2", "vram": 0, "folder": ""}',
        b'{"user": "u", "pid": 1, "job": "j", "since": 1, "share": "1/2", "vram": 1e40, "folder": ""}',
        b'{"user": "u", "pid": 1, "job": "j", "since": 1, "share": "1/2", "vram": 0, "folder": {"a": 1}}',
        b'{"user": "u", "pid": 1e999, "job": "j", "since": 1, "share": "1/2", "vram": 0, "folder": ""}',
    ],
)
def test_a_record_that_cannot_be_read_counts_as_a_whole_card(folder, record):
    leases = some_leases(folder)
    lease = took(leases, a_claim(share="1/4"))
    os.truncate(lease.fds[0], 0)
    os.pwrite(lease.fds[0], record, 0)

    found = busy(leases, a_claim(share="1/4"))

    (holder,) = found.holders
    assert (holder.share, holder.uid) == (Fraction(1), os.geteuid())
    assert holder.user
    lease.close()


def test_names_of_another_user_are_short_and_one_line(folder):
    leases = some_leases(folder)
    lease = took(leases, a_claim(share="1/4"))
    record = {"user": "u\n" * 1000, "pid": 1, "job": "j\u2028" * 3000, "since": 1, "share": "1/4", "vram": 0}
    os.truncate(lease.fds[0], 0)
    os.pwrite(lease.fds[0], json.dumps(record | {"folder": ""}).encode(), 0)

    (holder,) = (one.holder for one in leases._look(leases._listing.files(), "claim", "index-0").alive)

    assert holder.share == Fraction(1, 4)
    assert len(holder.user) == 64 and len(holder.job) == 200
    assert holder.user.isprintable() and holder.job.isprintable()
    lease.close()


shares = st.sampled_from(["1", "1/2", "1/3", "2/3", "1/4", "1/7"])
gpus = st.sampled_from(["index-0", "index-1"])
takes = st.lists(st.tuples(gpus, shares), min_size=1, max_size=3)
steps = st.lists(st.one_of(takes, st.integers(0, 9)), max_size=12)


@given(steps)
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_no_history_of_takes_and_ends_puts_more_than_one_card_on_a_card(folder, history):
    sides = [some_leases(folder), some_leases(folder)]
    open_leases: list[tuple[Lease, list[Claim]]] = []

    for number, step in enumerate(history):
        if isinstance(step, int):
            if open_leases:
                open_leases.pop(step % len(open_leases))[0].close()
            continue
        claims = [a_claim(gpu, share) for gpu, share in step]
        wanted = [claim for _, held in open_leases for claim in held] + claims
        fits = all(sum(claim.share for claim in wanted if claim.gpu == gpu) <= 1 for gpu in ("index-0", "index-1"))
        found = take(sides[number % 2], *claims)
        if isinstance(found, Lease):
            open_leases.append((found, claims))

        assert isinstance(found, Lease) == fits
        held_files = sorted(str(holder.share) for holder in sides[0].holders())
        assert held_files == sorted(str(claim.share) for _, held in open_leases for claim in held)

    for lease, _ in open_leases:
        lease.close()


def test_what_is_given_up_can_be_taken_by_others(folder):
    ours, others = some_leases(folder), some_leases(folder)
    lease = took(ours)
    assert busy(others, a_claim(share="1/2"))

    assert ours.lower([a_claim(share="1/4")], folder="/runs/1")

    took(others, a_claim(share="3/4"))
    assert busy(others, a_claim(share="1/10")).holders[0].share == Fraction(1, 4)
    lease.close()


def test_everything_else_in_the_record_stays(folder):
    ours = some_leases(folder)
    lease = took(ours)
    (before,) = ours.holders()

    ours.lower([replace(a_claim(share="1/4"), vram=9)], folder="/runs/1")

    (after,) = ours.holders()
    assert after == replace(before, share=Fraction(1, 4), vram=9)
    lease.close()


def test_an_engine_that_did_not_take_it_can_lower_it_too(folder):
    lease = took(some_leases(folder))

    assert some_leases(folder).lower([a_claim(share="1/4")], folder="/runs/1")

    assert some_leases(folder).holders()[0].share == Fraction(1, 4)
    lease.close()


def test_another_attempts_claim_is_left_alone(folder):
    ours = some_leases(folder)
    lease = took(ours, a_claim(share="1/2"))

    assert ours.lower([a_claim(share="1/4")], folder="/runs/2")

    assert ours.holders()[0].share == Fraction(1, 2)
    lease.close()


def test_of_many_holders_a_sentence_names_the_first_and_how_many_more(folder):
    leases = [took(some_leases(folder), a_claim(share="1/10"), job=f"job-{number}") for number in range(10)]

    words = in_words(busy(some_leases(folder)).holders)

    assert sum("job job-" in one for one in words) == 8
    assert words[-1] == "2 more"
    for lease in leases:
        lease.close()
