"""Histories of jobs that leave their card to people who work without dibs."""

import pytest

from dibs.model.gpus import GpuProcess, declared_key
from dibs.policy.snapshot import SuspendRules
from engine.queue_world import a_wish
from engine.test_suspensions import GIB, SuspendingWorld, at, world

__all__ = ["world"]
ADA = (GpuProcess(pid=4711, user="ada", memory=3 * GIB),)


@pytest.fixture(autouse=True)
def no_dibs(world: SuspendingWorld) -> None:
    """What ada runs is of no dibs."""
    world.foreign.add(4711)


@pytest.fixture
def neighbour(world: SuspendingWorld) -> SuspendingWorld:
    world.restart(SuspendRules(preemptible=True, yields_to_others=True))
    world.read()
    return world


def test_a_preemptible_job_makes_way_and_goes_on_when_the_card_has_been_quiet(neighbour):
    world = neighbour
    world.add(a_wish())
    world.read()
    assert world.moving == {}

    world.read(processes=ADA)
    assert world.moving == {1: "suspend"}
    world.answer(1, "suspended")
    since = at(world)
    world.read(processes=ADA)
    assert world.moving == {}
    why = f"is suspended for the process 4711 (ada) on GPU 0 since {since}"
    assert world.sentence(1) == f"{why}; goes on when GPU 0 has been quiet for 60s"

    world.now += 600
    world.read(processes=ADA)
    world.now += 1
    world.read()
    assert world.moving == {}
    assert world.sentence(1) == f"{why}; goes on when GPU 0 has been quiet for 60s"
    world.advance(50)
    world.read(processes=ADA)  # again
    world.read()
    world.advance(59)
    assert world.moving == {}
    world.advance(1)

    assert world.moving == {1: "resume"}


def test_a_job_that_waits_does_not_take_the_place_of_one_that_made_way(neighbour):
    world = neighbour
    world.add(a_wish(), a_wish())
    world.read(processes=ADA)
    world.answer(1, "suspended")

    world.read()
    world.advance(59)
    assert world.state(2) == "queued"
    world.advance(1)

    assert world.moving == {1: "resume"}


@pytest.mark.parametrize(
    ("rules", "wish"),
    [
        (SuspendRules(preemptible=True), {}),
        (SuspendRules(yields_to_others=True), {}),
        (SuspendRules(preemptible=True, yields_to_others=True), {"preemptible": False}),
        (SuspendRules(slice=600.0, yields_to_others=True), {}),
    ],
)
def test_nobody_makes_way_who_is_not_preemptible_or_where_it_is_not_set(world, rules, wish):
    world.restart(rules)
    world.read()
    world.add(a_wish(**wish))

    world.read(processes=ADA)

    assert world.moving == {}


def test_a_process_whose_owner_cannot_be_seen_may_be_of_the_job_itself(neighbour):
    world = neighbour
    world.add(a_wish())

    world.read(processes=(GpuProcess(pid=4711, user=None, memory=3 * GIB),))

    assert world.moving == {}


def test_after_a_restart_the_card_must_be_quiet_for_the_whole_time_again(neighbour):
    world = neighbour
    world.add(a_wish())
    world.read(processes=ADA)
    world.answer(1, "suspended")

    world.crash()
    world.resume()
    world.read()
    assert world.moving == {}
    world.advance(60)

    assert world.moving == {1: "resume"}


def test_a_job_makes_way_while_the_queue_is_paused(neighbour):
    world = neighbour
    world.add(a_wish())
    world.queue.pause("")
    world.settle_down()

    world.read(processes=ADA)

    assert world.moving == {1: "suspend"}


def test_why_says_of_a_job_that_should_make_way_why_it_stays(neighbour):
    world = neighbour
    world.add(a_wish())
    world.engine.meters.held_by = lambda key: {declared_key(0): 120 * GIB}  # type: ignore[method-assign]

    world.read(processes=ADA)

    assert world.moving == {}
    assert world.sentence(1) == (
        "is not suspended for the process 4711 (ada) on GPU 0: it holds 120G on its GPU, and the machine has 100G"
        " of memory available"
    )
