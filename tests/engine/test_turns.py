"""Histories of jobs that take turns on a card, with the clock turned by hand."""

import pytest

from dibs.model.gpus import declared_key
from dibs.policy.snapshot import SuspendRules
from engine.queue_world import a_wish
from engine.test_suspensions import GIB, SuspendingWorld, world

__all__ = ["world"]
SLICE = 600.0  # seconds


@pytest.fixture
def slicing(world: SuspendingWorld) -> SuspendingWorld:
    """Jobs hold 20 GiB of the card, and have it for ten minutes."""
    world.restart(SuspendRules(slice=SLICE))
    return world


def holds(world: SuspendingWorld, size: int) -> None:
    world.engine.meters.held_by = lambda key: {declared_key(0): size * GIB}  # type: ignore[method-assign]


def test_two_projects_take_turns_and_it_is_said_when_whose_turn_comes(slicing):
    world = slicing
    world.add(a_wish(project="a"), a_wish(project="b"))
    assert world.sentence(2) == "waits for job 1: its turn on GPU 0 comes in about 10 min"

    world.advance(SLICE - 60)
    assert world.moving == {}
    assert world.sentence(2) == "waits for job 1: its turn on GPU 0 comes in about 1 min"
    world.advance(60)
    assert world.moving == {1: "suspend"}
    assert "for job 2" in world.sentence(1)
    world.answer(1, "suspended")
    assert [world.state(1), world.state(2)] == ["suspended", "running"]
    assert world.sentence(1).endswith("; waits for job 2: its turn on GPU 0 comes in about 10 min")

    world.advance(SLICE)
    assert world.moving == {2: "suspend"}
    assert world.sentence(1).endswith("; waits for job 2 to be suspended, about 1s")
    world.answer(2, "suspended")
    assert world.moving == {1: "resume"}
    world.answer(1, "running")

    assert [world.state(1), world.state(2)] == ["running", "suspended"]
    world.advance(SLICE - 1)
    assert world.moving == {}
    world.advance(1)
    assert world.moving == {1: "suspend"}


def test_the_turns_go_on_after_a_crash(slicing):
    world = slicing
    world.add(a_wish(project="a"), a_wish(project="b"))
    world.advance(SLICE)
    world.answer(1, "suspended")
    world.advance(SLICE - 60)

    world.crash()
    world.resume()
    assert world.moving == {}
    world.advance(60)

    assert world.moving == {2: "suspend"}


def test_a_job_that_ends_before_its_slice_gives_the_card_back_at_once(slicing):
    world = slicing
    _, second = world.add(a_wish(project="a"), a_wish(project="b"))
    world.advance(SLICE)
    world.answer(1, "suspended")

    world.end(second)

    assert world.moving == {1: "resume"}


def test_a_dry_run_says_when_the_turn_would_come_and_where(slicing):
    world = slicing
    world.add(a_wish(project="a"))
    world.advance(240)

    (prospect,) = world.queue.check([a_wish(project="b")])

    assert prospect.reason.sentence == "waits for job 1: its turn on GPU 0 comes in about 6 min"
    assert (prospect.gpus, prospect.starts_at) == ((0,), pytest.approx(world.now + 360, abs=1))


def test_a_job_that_ends_by_itself_before_its_turn_is_over_is_waited_for(slicing):
    world = slicing
    world.add(a_wish(project="a", time_limit=120.0))

    (prospect,) = world.queue.check([a_wish(project="b")])

    assert "until" not in prospect.reason.sentence
    assert prospect.reason.sentence == "waits for a GPU: GPU 0 is held by job 1"
    assert prospect.starts_at == pytest.approx(world.now + 120, abs=15)


def test_what_the_memory_of_the_machine_cannot_take_is_refused_in_words(slicing):
    world = slicing  # 100 GiB are available
    world.add(a_wish(project="a"))
    holds(world, 80)
    world.add(a_wish(project="b"))

    world.advance(3 * SLICE)

    assert world.moving == {}
    assert world.sentence(2) == (
        "waits for a GPU: GPU 0 is held by job 1; they cannot take turns: job 1 holds 80G on its GPU,"
        " and the machine has 100G of memory available, and must take what both hold"
    )


def test_a_job_that_says_no_is_not_suspended_for_anothers_turn(slicing):
    world = slicing
    world.add(a_wish(project="a", preemptible=False), a_wish(project="b"))

    world.advance(3 * SLICE)

    assert world.moving == {}


def test_time_slices_make_no_job_preemptible_for_urgent_ones(slicing):
    world = slicing
    world.add(a_wish(project="a"))

    world.add(a_wish(project="a", urgent=True))

    assert world.moving == {}


def move_all(world: SuspendingWorld) -> None:
    """What is to be suspended or resumed is, at once."""
    while world.moving:
        job, what = next(iter(world.moving.items()))
        world.answer(job, "suspended" if what == "suspend" else "running")


def take_turns(world: SuspendingWorld, turns: int) -> list[int]:
    """Who has the card after each of so many turns."""
    found = []
    for _ in range(turns):
        world.advance(SLICE)
        move_all(world)
        found += [job for job in world.running() if world.state(job) == "running"]
    return found


def test_nobody_loses_a_turn_because_the_clock_was_set_back(slicing):
    world = slicing
    _, _, short = world.add(a_wish(project="a"), a_wish(project="b"), a_wish(project="c"))
    assert take_turns(world, 2) == [2, 3]
    world.end(short)
    move_all(world)
    assert world.state(1) == "running"

    world.clock_is_off -= 86400
    world.turn()
    move_all(world)
    (next_one,) = world.add(a_wish(project="c"))

    assert next_one.id in take_turns(world, 4)
