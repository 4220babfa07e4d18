"""Where short jobs follow each other in the slots of a card, the next one's start is recorded before it is due."""

import pytest

from dibs.model.events import Ended, Started
from dibs.model.jobs import State
from engine.invariants import check_at_the_end, check_now
from engine.world import Died, a_request


def some_jobs(count, **wishes):
    return [a_request(f"python train.py --seed {number}", **wishes) for number in range(count)]


def ahead(world):
    return [one.job.id for one in world.engine._ahead.next]


def test_the_next_ones_are_recorded_with_the_first_that_follows(make_world):
    world = make_world(2)
    world.submit(*some_jobs(9))
    assert ahead(world) == []

    world.end(1)

    assert ahead(world) == [4, 5]
    assert world.running() == [2, 3]
    assert world.engine.waiting == 6
    assert world.store.job(4).state is State.RUNNING  # it may have been started, as far as the disk knows
    world.run_out()
    check_at_the_end(world)


def test_the_next_one_starts_though_the_end_before_cannot_be_recorded(make_world):
    world = make_world(1)
    world.submit(*some_jobs(9))
    world.end(1)
    assert ahead(world) == [3]

    world.store.is_full = True
    world.end(2)

    assert world.running() == [3]
    assert world.states()[2] is State.RUNNING
    check_now(world)
    world.store.is_full = False
    world.advance(3)
    assert world.states()[2] is State.SUCCEEDED
    world.run_out()
    check_at_the_end(world)


def test_ends_are_told_before_the_starts_that_they_made_room_for(make_world):
    world = make_world(1)
    world.submit(*some_jobs(9))
    world.end(1)
    world.told()

    world.end(2)

    assert [kind for kind, _ in world.told(Ended, Started)] == ["ended", "started"]


def test_they_start_in_the_order_of_the_list_whichever_place_is_free_first(make_world):
    world = make_world(3)
    world.submit(*some_jobs(20))
    order = [1, 2, 3]

    for job in (2, 1, 4, 5, 3, 6):
        world.end(job)
        order += [one for one in world.running() if one not in order]

    assert order == list(range(1, 10))


def test_nothing_is_recorded_ahead_for_places_that_differ(make_world):
    world = make_world(1, 1)
    world.submit(*some_jobs(9))

    world.end(1)

    assert ahead(world) == []
    assert world.running() == [2, 3]


def test_after_a_failure_that_was_the_last_nothing_more_starts(make_world):
    world = make_world(2)
    world.engine.most_failures = 1
    world.submit(*some_jobs(9))
    world.end(1)
    (good,) = world.machine.alive(2)
    (bad,) = world.machine.alive(3)

    world.machine.end(bad, code=1)
    world.machine.end(good, code=0)
    world.settle_down()

    assert world.running() == []
    assert world.engine.waiting == 6


def test_a_more_urgent_job_goes_before_those_that_were_recorded(make_world):
    world = make_world(1)
    world.submit(*some_jobs(9))
    world.end(1)

    world.submit(a_request("urgent", priority=5))
    world.end(2)

    assert world.running() == [10]


def test_somebody_else_who_waits_for_the_card_goes_first(make_world):
    world = make_world(1)
    world.submit(*some_jobs(9))
    world.end(1)
    claims = world.machine.alive()[0].claims
    other = type(world.leases)(world.leases_folder, uid=world.leases._uid, user="other")
    other.wish(claims, job="theirs", since=world.now - 100)

    world.end(2)

    assert world.running() == []
    assert ahead(world) == []
    other.close()
    world.advance(1)
    assert world.running() == [3]


def test_draining_puts_them_back_into_the_line(make_world):
    world = make_world(1)
    world.submit(*some_jobs(9))
    world.end(1)

    world.engine.drain()
    world.settle_down()

    assert ahead(world) == []
    assert world.states()[3] is State.QUEUED
    world.end(2)
    assert world.running() == []


def test_behind_a_long_job_nobody_waits_for_longer_than_a_moment(make_world):
    world = make_world(2)
    world.submit(*some_jobs(5))
    world.end(1)

    world.advance(0.1)  # the others go on
    assert ahead(world) == []
    for job in (3, 4):
        world.end(job)

    assert world.running() == [2, 5]


@pytest.mark.parametrize("point", ["after-lease", "after-launch"])
def test_a_crash_after_it_has_stepped_in_loses_and_repeats_nothing(make_world, point):
    world = make_world(1)
    world.submit(*some_jobs(5))
    world.end(1)

    world.dies_at = point
    with pytest.raises(Died):
        world.end(2)
    world.crash()
    world.come_back()

    assert world.states()[2] is State.SUCCEEDED
    assert world.running() == [3]
    world.run_out()
    check_at_the_end(world)


def test_a_crash_before_it_has_stepped_in_leaves_it_in_the_line(make_world):
    world = make_world(1)
    world.submit(*some_jobs(5))
    world.end(1)
    assert ahead(world) == [3]

    world.crash()
    world.come_back()

    assert world.running() == [2]
    assert world.states()[3] is State.QUEUED
    world.run_out()
    check_at_the_end(world)


def test_the_store_knows_when_it_really_began(make_world):
    world = make_world(1)
    world.submit(*some_jobs(5))
    world.end(1)
    world.advance(0.03)
    world.end(2)
    began = world.now
    world.advance(0.01)
    world.end(3)

    (row,) = [row for row in world.store.listing.attempts(3) if row.attempt.number == 1]
    assert row.attempt.opened_at == began


def test_a_bug_at_the_start_of_the_next_one_forgets_no_end(make_world, monkeypatch):
    world = make_world(1)
    world.submit(*some_jobs(5))
    world.end(1)

    with monkeypatch.context() as patch:
        patch.setattr(world.backend, "submit", lambda *args, **more: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            world.end(2)
    world.turn()
    world.settle_down()

    assert world.states()[2] is State.SUCCEEDED
    world.run_out()
    check_at_the_end(world)
