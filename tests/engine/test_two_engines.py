"""Two engines that know of each other only through the lease folder."""

import pytest

from dibs.model.events import Waits
from engine.invariants import check_at_the_end
from engine.world import a_request


def jobs(count, **wishes):
    return [a_request(f"job {number}", **wishes) for number in range(count)]


def pass_time(worlds, seconds=0.2):
    for world in worlds:
        world.advance(seconds)


def test_two_engines_never_use_one_gpu_at_once_and_take_turns(make_world):
    worlds = [make_world(name="ours"), make_world(name="theirs")]
    for world in worlds:
        world.submit(*jobs(4))
    pass_time(worlds)
    order = []

    for _ in range(8):
        running = [world for world in worlds if world.running()]
        assert len(running) == 1
        order.append(worlds.index(running[0]))
        running[0].end(running[0].running()[0])
        pass_time(worlds)

    assert order == [0, 1] * 4
    for world in worlds:
        check_at_the_end(world)


def test_slots_and_shares_of_two_engines_add_up_to_one_card(make_world):
    ours, theirs = make_world(2, name="ours"), make_world(4, name="theirs")
    ours.submit(*jobs(1))

    theirs.submit(*jobs(5))

    assert len(theirs.running()) == 2
    ours.end(1)
    theirs.advance(1)
    assert len(theirs.running()) == 4


def test_the_reason_names_the_other_engines_job(make_world):
    ours, theirs = make_world(name="ours"), make_world(name="theirs")
    theirs.submit(*jobs(1))

    ours.submit(*jobs(1))

    ((_, (_, sentence)),) = ours.told(Waits)
    assert sentence.startswith("waits for a GPU: GPU 0 is held by job 1 of ")


def test_a_wide_job_gets_its_gpus_from_an_engine_with_a_long_list_of_small_ones(make_world):
    busy, wide = make_world(1, 1, name="busy"), make_world(1, 1, name="wide")
    busy.submit(*jobs(20))
    wide.submit(a_request("wide", gpus=2))

    for _ in range(6):
        pass_time([wide, busy])
        if wide.running():
            break
        busy.end(busy.running()[0])
        pass_time([wide, busy])

    assert wide.running() == [1]
    assert busy.running() == []


@pytest.mark.parametrize("command_lives", [True, False])
def test_a_gpu_is_free_for_others_as_soon_as_nothing_of_a_dead_engines_job_is_left(make_world, command_lives):
    ours, theirs = make_world(name="ours"), make_world(name="theirs")
    theirs.submit(*jobs(1))
    ours.submit(*jobs(1))
    run = theirs.machine.alive()[0]
    theirs.crash()
    run.has_shim = False

    if not command_lives:
        theirs.machine.end(run)
    ours.advance(1)

    assert bool(ours.running()) == (not command_lives)
    theirs.open()


def test_an_engine_that_stops_waiting_blocks_no_other(make_world):
    first, second, third = (make_world(name=name) for name in ("first", "second", "third"))
    first.submit(*jobs(1))
    second.submit(*jobs(1))
    pass_time([second])
    third.submit(*jobs(1))

    second.engine.drain()
    second.settle_down()
    first.end(1)
    pass_time([third])

    assert third.running() == [1]
    assert third.leases.waiting() == []
