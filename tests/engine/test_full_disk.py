"""A store that refuses a turn: nothing was started, nothing announced, everything happens later."""

import pytest

from dibs.errors import StoreUnusable
from dibs.leases.files import LeaseRefused
from dibs.model.events import Ended, Queued, Refused, Started, Trouble
from dibs.model.jobs import State
from engine.invariants import check_at_the_end
from engine.world import a_request


def test_a_job_that_the_store_did_not_take_is_not_acknowledged_and_not_told(make_world):
    world = make_world()
    world.store.is_full = True

    with pytest.raises(StoreUnusable):
        world.submit(a_request("one"))
    world.store.is_full = False
    world.turn()

    assert world.told() == []
    assert world.engine.is_idle
    (job,) = world.submit(a_request("one"))
    assert world.told(Queued) == [("queued", job.id)]
    assert world.running() == [job.id]


def test_a_fault_is_told_once_until_it_is_tried_again(make_world):
    world = make_world(1, 1, 1)
    world.submit(*(a_request(name) for name in ("one", "two", "three")))
    world.told()
    world.store.is_full = True

    for job in (1, 2, 3):
        world.end(job)
        world.turn()
    at_once = len(world.told(Trouble))
    world.advance(10.0)
    later = len(world.told(Trouble))

    assert (at_once, later) == (1, 5)
    world.store.is_full = False
    world.run_out()


def test_nothing_starts_that_is_not_recorded_and_no_lease_is_left(make_world):
    world = make_world()
    world.list.submit([a_request("one")], world.environment)
    world.acknowledged[1] = a_request("one")
    world.store.is_full = True

    world.settle_down()

    assert world.machine.ledger == []
    assert world.leases.holders() == []
    assert world.told(Started) == []

    world.store.is_full = False
    world.advance(2)

    assert world.running() == [1]
    world.run_out()
    check_at_the_end(world)


def test_what_was_acknowledged_before_is_still_told_after(make_world):
    world = make_world()
    world.list.submit([a_request("one"), (a_request("two"), "it can never run")], world.environment)
    world.acknowledged[1] = a_request("one")
    world.store.is_full = True

    world.settle_down()

    assert world.told(Queued, Refused) == [("queued", 1), ("refused", 2)]


def test_an_end_that_could_not_be_recorded_is_told_once_it_could(make_world):
    world = make_world()
    world.submit(a_request("one", retries=1), a_request("two"))
    world.told()
    world.store.is_full = True

    world.end(1, code=1)
    world.advance(20)

    assert world.told(Ended, Started) == []
    assert world.states() == {1: State.RUNNING, 2: State.QUEUED}

    world.store.is_full = False
    world.advance(2)

    assert world.told(Ended, Started) == [("ended", (1, "failed", world.now + 1)), ("started", (2, [0]))]
    world.run_out()
    check_at_the_end(world)


def test_the_lease_of_a_job_whose_end_was_recorded_late_is_not_given_on_in_vain(make_world):
    world = make_world()
    world.submit(a_request("one"), a_request("two"))
    world.store.is_full = True
    world.end(1)
    world.store.is_full = False

    world.advance(5)

    assert world.running() == [2]
    assert [holder.job for holder in world.leases.holders()] == ["2"]
    world.run_out()
    check_at_the_end(world)


def test_a_full_disk_is_not_counted_as_five_false_starts(make_world):
    world = make_world()
    world.machine.false_starts = 1
    world.list.submit([a_request("one")], world.environment)
    world.acknowledged[1] = a_request("one")
    world.turn()
    world.store.is_full = True
    world.settle_down()
    world.advance(60)

    world.store.is_full = False
    world.advance(3)

    assert world.running() == [1]


def test_that_a_gpu_is_kept_is_said_though_the_store_failed_in_that_moment(make_world):
    world = make_world()
    world.submit(a_request("one"))
    world.store.is_full = True
    world.told()

    world.kill_shim(1, command_too=False)
    world.store.is_full = False
    world.advance(5)

    assert [sentence[:28] for _, sentence in world.told(Trouble)] == ["the supervisor of job 1 is g"]


@pytest.mark.parametrize("method", ["open_attempt", "end_attempt"])
def test_an_error_in_the_middle_of_a_turn_is_like_one_at_its_end(make_world, monkeypatch, method):
    world = make_world()
    world.submit(a_request("one"), a_request("two"))
    original = getattr(world.store, method)

    def fail(*args):
        raise StoreUnusable("the disk is full")

    monkeypatch.setattr(world.store, method, fail)
    world.end(1)
    assert world.running() == []
    assert "2" not in [holder.job for holder in world.leases.holders()]

    monkeypatch.setattr(world.store, method, original)
    world.advance(3)

    assert world.running() == [2]
    world.run_out()
    check_at_the_end(world)


def test_a_lease_folder_that_cannot_be_read_keeps_the_gpu_of_a_lost_job(make_world, monkeypatch):
    world = make_world()
    world.submit(a_request("one"), a_request("two"))

    def refuse(*args, **more):
        raise LeaseRefused("cannot keep leases in /run/lock: Too many open files")

    monkeypatch.setattr(world.leases, "holders", refuse)
    world.kill_shim(1, command_too=False)
    assert world.running() == [1]

    monkeypatch.undo()
    world.machine.end(world.machine.alive()[0])
    world.advance(1)

    assert world.running() == [2]


def test_a_wish_that_cannot_be_left_stops_nothing(make_world, monkeypatch):
    world, other = make_world(1, 1, name="ours"), make_world(1, name="theirs")
    other.submit(a_request("theirs"))

    def refuse(*args, **more):
        raise LeaseRefused("cannot keep leases in /run/lock: No space left on device")

    monkeypatch.setattr(world.leases, "wish", refuse)
    world.submit(a_request("one"), a_request("two"))

    assert world.running() == [1]
    other.end(1)
    world.advance(1)
    assert world.running() == [1, 2]


def test_while_a_trouble_lasts_a_due_retry_does_not_keep_it_awake(make_world):
    world = make_world()
    world.submit(a_request("one", restartable=True))
    world.store.is_full = True
    world.kill_shim(1)
    world.store.is_full = False
    world.turn()  # the end is recorded, but the trouble lasts for two seconds

    wake_at = world.engine.wake_at

    assert wake_at == world.now + 2
    world.advance(2)
    assert world.running() == [1]


def test_a_refused_turn_leaves_the_very_state_from_before(make_world):
    world = make_world(1)
    world.submit(a_request("one"), a_request("two"))
    before = world.engine.state
    world.store.is_full = True

    world.end(1)

    assert world.engine.state is before
    assert [holder.job for holder in world.leases.holders()] == ["1"], "what the state says is still leased"
    world.store.is_full = False
    world.advance(3)
    assert world.running() == [2]
    assert [holder.job for holder in world.leases.holders()] == ["2"]


def test_a_refused_wish_leaves_the_very_state_from_before(make_world):
    world = make_world(1)
    world.submit(a_request("one"))
    before = world.engine.state
    world.store.is_full = True

    with pytest.raises(StoreUnusable):
        world.submit(a_request("two"))

    assert world.engine.state is before
