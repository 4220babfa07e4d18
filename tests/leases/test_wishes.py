"""Who waits for longer goes first."""

import os
import signal
import time

import pytest

from leases.claims import NOON, a_claim, busy, some_leases, took
from leases.processes import start


def wish_file(folder, slot=0):
    return f"{folder}/dibs-wish-index-0-{os.geteuid()}-{slot}"


def test_an_older_wish_goes_first(folder):
    early, late = some_leases(folder), some_leases(folder)
    early.wish([a_claim()], job="early", since=NOON)

    found = busy(late, since=NOON + 1)

    assert found.holders == ()
    assert [waiter.job for waiter in found.waiting] == ["early"]
    took(early, since=NOON).close()
    early.end_wishes()
    took(late, since=NOON + 1).close()


def test_a_younger_wish_and_our_own_block_no_other(folder):
    early, late = some_leases(folder), some_leases(folder)
    early.wish([a_claim()], job="early", since=NOON)
    late.wish([a_claim()], job="late", since=NOON + 1)

    lease = took(early, since=NOON)

    assert [waiter.job for waiter in early.waiting()] == ["early", "late"]
    lease.close()
    early.close()
    took(late, since=NOON + 2).close()
    late.close()


def test_wishes_count_with_their_share(folder):
    early, late = some_leases(folder), some_leases(folder)
    early.wish([a_claim(share="1/2")], job="early", since=NOON)

    lease = took(late, a_claim(share="1/2"), since=NOON + 1)

    busy(late, a_claim(share="1/4"), since=NOON + 1)
    lease.close()
    early.close()


@pytest.mark.parametrize("age", [60, -60])
def test_a_wish_that_is_not_renewed_is_no_wish(folder, age):
    stopped, other = some_leases(folder), some_leases(folder)
    stopped.wish([a_claim()], job="stopped", since=NOON)
    then = time.time() - age
    os.utime(wish_file(folder), (then, then))

    took(other, since=NOON + 1).close()

    assert other.waiting() == []
    stopped.wish([a_claim()], job="stopped", since=NOON)
    busy(other, since=NOON + 1)
    stopped.close()


def test_the_wish_of_a_killed_waiter_ends_with_it(folder):
    def wait(parent):
        leases = some_leases(folder)
        leases.wish([a_claim()], job="waits", since=NOON)
        parent.say("waiting")
        parent.hear()

    waiter = start(wait)
    assert waiter.hear() == "waiting"
    leases = some_leases(folder)
    assert [found.pid for found in busy(leases, since=NOON + 1).waiting] == [waiter.pid]

    waiter.kill(signal.SIGKILL)

    took(leases, since=NOON + 1).close()


def test_a_new_set_of_wishes_replaces_the_old_one(folder):
    leases = some_leases(folder)
    leases.wish([a_claim("index-0"), a_claim("index-1")], job="first", since=NOON)

    leases.wish([a_claim("index-1"), a_claim("index-2", "1/2"), a_claim("index-2", "1/4")], job="b", since=NOON)

    found = [(waiter.gpu, str(waiter.share), waiter.job) for waiter in leases.waiting()]
    assert found == [("index-1", "1", "b"), ("index-2", "3/4", "b")]
    leases.close()
    assert leases.waiting() == []


def test_wishes_of_several_processes_of_one_user_are_several_files(folder):
    sides = [some_leases(folder) for _ in range(3)]

    for number, side in enumerate(sides):
        side.wish([a_claim()], job=str(number), since=NOON + number)

    assert [waiter.job for waiter in sides[0].waiting()] == ["0", "1", "2"]
    assert os.path.exists(wish_file(folder, 2)) and not os.path.exists(wish_file(folder, 3))
    for side in sides:
        side.close()
