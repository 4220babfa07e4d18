"""Attempts that are over here and come back over there, with a controller that goes on with what it had saved."""

from unittest.mock import patch

import pytest

from dibs.engine.queue.queue import Queue
from dibs.engine.remote.state import is_stray_over
from dibs.errors import BadInput
from dibs.model.jobs import ArrayTask, JobId
from engine.queue_world import a_wish
from engine.remote_world import RemoteWorld
from engine.test_remote import add, until_round
from engine.world import Died


@pytest.fixture
def world(remote_world: RemoteWorld) -> RemoteWorld:
    return remote_world


def kill(world: RemoteWorld, *jobs: int) -> None:
    world.do("kill", *jobs)
    world.advance(4)
    assert {world.state(job) for job in jobs} == {"cancelled"}
    assert not [key for key in world.cluster.known() if JobId(int(key[0].split("-")[1])) in jobs]


def troubles(world: RemoteWorld) -> list[str]:
    return [said for kind, said in world.told() if kind == "trouble"]


@pytest.mark.parametrize("another_is_open", [True, False])
def test_what_comes_back_though_it_is_over_is_taken_out_once_and_said_once(
    world: RemoteWorld, another_is_open: bool
):
    (job,) = add(world)
    if another_is_open:
        add(world)
    kill(world, job)
    world.cluster.jobs["q1-1", 1].is_known = True  # as it was saved
    world.advance(20)

    assert world.cluster.taken_out == [("q1-1", 1)]
    assert world.cluster.known() == [("q1-2", 1)] * another_is_open
    assert world.state(job) == "cancelled"
    assert troubles(world) == ["Slurm brought back what is over; it is taken out of its queue: 1.1"]


def test_elements_of_an_array_are_told_apart(world: RemoteWorld):
    first, second, third = world.add(
        *(a_wish("one", on="slurm", array=ArrayTask(JobId(0), number, 3)) for number in (4, 5, 6))
    )
    world.advance(1)
    world.do("kill", first.id, third.id)
    world.advance(4)
    world.cluster.revive()
    world.advance(20)

    assert world.cluster.taken_out == [("q1-1_4", 1), ("q1-1_6", 1)]
    assert world.state(second.id) == "submitted"
    assert world.cluster.known() == [("q1-1_5", 1)]


def test_a_task_that_its_array_has_already_is_refused(world: RemoteWorld):
    """Over there both would be the same: what cancels one would cancel the other."""
    (first,) = world.add(a_wish("one", on="slurm", array=ArrayTask(JobId(0), 1, 2)))
    second = a_wish("two", on="slurm", array=ArrayTask(first.id, 2, 2))

    with pytest.raises(BadInput, match=f"array {first.id} has a task 2 already"):
        world.add(second, second)
    world.add(second)
    with pytest.raises(BadInput, match=f"array {first.id} has a task 2 already"):
        world.add(second)
    world.advance(1)
    assert world.cluster.known() == [("q1-1_1", 1), ("q1-1_2", 1)]


def test_of_two_tasks_with_one_number_nothing_is_known_for_certain(world: RemoteWorld):
    """An earlier version added such."""
    (first,) = world.add(a_wish("one", on="slurm", array=ArrayTask(JobId(0), 1, 2)))
    second = a_wish("two", on="slurm", array=ArrayTask(first.id, 2, 2))
    with patch.object(Queue, "_check_arrays"):
        world.add(second, second)

    assert not is_stray_over(world.store.listing, "slurm", "q1", ("q1-1_2", 1))


def test_an_earlier_attempt_is_taken_out_and_the_one_that_runs_is_not(world: RemoteWorld):
    (job,) = add(world, retries=1)
    world.cluster.start(world.cluster.pending()[0])
    world.advance(4)
    world.cluster.lose(world.cluster.running()[0])
    world.advance(4)
    world.cluster.start(world.cluster.pending()[0])
    world.cluster.revive()
    world.advance(20)

    assert world.cluster.taken_out == [("q1-1", 1)]
    assert world.state(job) == "running"


@pytest.mark.parametrize("point", ["after-intent", "before-submit", "after-submit"])
def test_what_was_accepted_and_not_written_down_is_adopted(world: RemoteWorld, point: str):
    world.dies_at = point
    with pytest.raises(Died):
        add(world, 2)
    world.crash()
    world.resume()
    world.advance(200)

    assert world.cluster.taken_out == []
    assert {world.state(job) for job in (1, 2)} == {"submitted"}


def test_what_is_forgotten_and_comes_back_before_it_is_handed_over_again_is_adopted(world: RemoteWorld):
    (job,) = add(world)
    add(world)  # so that the cluster is observed
    for _ in range(3):  # after each time it waits here a little longer
        world.cluster.jobs["q1-1", 1].is_known = False
        world.advance(4)
    world.cluster.revive()
    world.advance(30)

    assert world.cluster.taken_out == []
    assert world.state(job) == "submitted"


def test_one_that_was_forgotten_and_then_cancelled_here_does_not_run_when_it_comes_back(world: RemoteWorld):
    (job,) = add(world)
    until_round(world)
    world.cluster.jobs["q1-1", 1].is_known = False
    world.queue.pause()
    world.settle_down()
    world.advance(1)
    assert (world.state(job), world.store.job(job).attempts) == ("queued", 0)
    world.do("kill", job)
    world.cluster.revive()
    world.advance(20)

    assert world.state(job) == "cancelled"
    assert world.cluster.taken_out == [("q1-1", 1)]
    assert world.cluster.pending() == []


def test_one_that_is_wanted_again_under_the_same_name_is_not_taken_out(world: RemoteWorld):
    (job,) = add(world)
    until_round(world)
    world.cluster.jobs["q1-1", 1].is_known = False
    world.queue.pause()
    world.settle_down()
    world.do("kill", job)
    world.cluster.revive()
    until_round(world)
    world.beside.pop(0)()  # it is seen
    world.turn()  # and found to be over
    world.queue.unpause()
    world.do("retry", job)
    world.advance(20)

    assert world.cluster.taken_out == []
    assert world.state(job) == "submitted"
    world.run_out()
    assert world.cluster.starts() == {job: 1}


def test_what_was_cleaned_away_is_left_to_the_fence(world: RemoteWorld):
    (job,) = add(world)
    kill(world, job)
    world.queue.clean(world.now + 1)
    world.cluster.revive()
    world.advance(200)

    assert world.cluster.taken_out == []


def test_what_does_not_go_is_tried_again_ever_more_seldom(world: RemoteWorld):
    (job,) = add(world)
    add(world)
    kill(world, job)
    world.cluster.is_deaf = True
    world.cluster.revive()
    world.advance(900)

    assert 3 <= len(world.cluster.taken_out) <= 5
    assert len(troubles(world)) == len(world.cluster.taken_out)


def test_a_new_engine_with_nothing_open_finds_it_too(world: RemoteWorld):
    (job,) = add(world)
    kill(world, job)
    world.crash()
    world.cluster.revive()
    world.resume()
    world.advance(4)

    assert world.cluster.taken_out == [("q1-1", 1)]
    assert world.cluster.known() == []


def test_a_queue_that_never_used_it_does_not_ask(world: RemoteWorld):
    world.add(a_wish("here"))
    world.run_out()
    world.crash()
    world.resume()
    world.advance(60)

    assert world.cluster.looks == 0


def test_some_minutes_after_the_last_one_the_controller_is_no_longer_asked(world: RemoteWorld):
    add(world)
    world.run_out()
    looks = world.cluster.looks
    world.advance(1200)

    assert 20 <= world.cluster.looks - looks <= 45
    assert world.engine.wake_at is None


def test_a_controller_that_is_away_is_waited_for_and_nothing_is_said_of_it(world: RemoteWorld):
    (job,) = add(world)
    kill(world, job)
    world.cluster.is_silent = True
    world.advance(3600)
    world.cluster.is_silent = False
    world.cluster.revive()
    world.advance(20)

    assert world.cluster.taken_out == [("q1-1", 1)]
    assert [said for said in troubles(world) if "cannot reach" in said] == []
    assert world.engine.remote is not None and world.engine.remote.trouble("slurm") == ""


def test_a_bug_in_a_look_though_nothing_is_open_is_told_once_and_ends_the_looks(world: RemoteWorld):
    add(world)
    world.run_out()
    world.cluster.bug = "a new version says something else"
    with pytest.raises(ValueError, match="a new version"):
        world.advance(60)
    world.advance(1200)

    assert world.engine.wake_at is None
