"""Lease files that are deleted under running jobs: what the engines of both users do."""

import os

import pytest

from dibs.engine.queue.explain import Explain
from dibs.model.events import Trouble
from dibs.model.jobs import State
from engine.world import a_request


def delete_lease(world):
    (name,) = [name for name in os.listdir(world.leases_folder) if name.startswith("dibs-claim-")]
    os.unlink(f"{world.leases_folder}/{name}")
    return f"{world.leases_folder}/{name}"


def check(world):
    """What the loop does with every reading."""
    world.engine.check_leases()
    world.turn()
    world.settle_down()


def why(world, number):
    """What `dibs why` says."""
    return Explain(world.engine, lambda: world.now).why(number).reason.sentence


@pytest.mark.parametrize("restarts", [False, True])
def test_a_deleted_lease_is_made_again_before_another_engine_starts_there(make_world, restarts):
    ours, theirs = make_world(name="ours"), make_world(name="theirs")
    ours.submit(a_request("runs"))
    if restarts:
        ours.crash()
        ours.resume()
        check(ours)
    path = delete_lease(ours)

    check(ours)

    ((_, sentence),) = ours.told(Trouble)
    assert sentence.startswith(f"the lease file {path} of job 1 was deleted; it was made again")
    theirs.submit(a_request("waits"))
    assert theirs.running() == []
    ours.end(1)
    theirs.advance(1)
    assert theirs.running() == [1]


def test_a_lease_deleted_while_no_engine_ran_is_made_again_by_the_next(make_world):
    ours, theirs = make_world(name="ours"), make_world(name="theirs")
    ours.submit(a_request("runs"))
    ours.crash()
    delete_lease(ours)

    ours.resume()

    theirs.submit(a_request("waits"))
    assert theirs.running() == []


def test_both_engines_name_an_overlap_and_nothing_more_starts_there_until_it_ends(make_world):
    ours, theirs = make_world(name="ours"), make_world(name="theirs")
    ours.submit(a_request("mine"), a_request("my next"))
    delete_lease(ours)
    theirs.submit(a_request("yours"), a_request("your next"))
    assert theirs.running() == [1]
    for world in (ours, theirs):
        world.told()

    for world in (ours, theirs):
        check(world)

    for world in (ours, theirs):
        sentence = [sentence for _, sentence in world.told(Trouble)][-1]
        assert sentence.startswith("GPU 0 is overbooked: it is held by job ")
        assert sentence.count("(pid ") == 2
        assert sentence.endswith("; nothing more starts there until one of them has ended")
        assert "waits for a GPU: GPU 0 is overbooked: it is held by job " in why(world, 2)
        assert why(world, 1).startswith("GPU 0 is overbooked: it is held by job ")

    theirs.end(1)
    assert theirs.running() == []
    check(theirs)
    assert theirs.running() == []
    ours.end(1)
    for _ in range(3):
        for world in (ours, theirs):
            check(world)
            world.advance(1)
    assert len(ours.running()) + len(theirs.running()) == 1


def test_a_lease_deleted_right_before_its_job_ends_is_not_handed_on(make_world):
    ours, theirs = make_world(name="ours"), make_world(name="theirs")
    ours.submit(a_request("first"), a_request("next"))
    delete_lease(ours)
    theirs.submit(a_request("yours"))

    ours.end(1)

    assert theirs.running() == [1]
    assert ours.running() == []


@pytest.mark.parametrize("restarts", [False, True])
def test_a_command_without_a_supervisor_keeps_its_gpu_though_its_lease_was_deleted(make_world, restarts):
    world = make_world()
    world.submit(a_request("runs"), a_request("next"))
    delete_lease(world)
    if restarts:
        world.crash()
        world.kill_shim(1, command_too=False)
        world.resume()
    else:
        check(world)
        world.kill_shim(1, command_too=False)

    check(world)

    assert world.states() == {1: State.RUNNING, 2: State.QUEUED}
    assert [holder.folder for holder in world.leases.holders()] == [world.engine.state.open[1, 1].attempt.folder]
    run = world._run_of(1)
    run.is_alive = False
    world.machine._unlock(run)
    world.advance(1)
    assert world.states() == {1: State.LOST, 2: State.RUNNING}


def test_a_refusal_is_announced_once_and_the_other_leases_are_still_made_again(make_world):
    world = make_world(1, 1)
    world.submit(a_request("one"), a_request("two"))
    for name in os.listdir(world.leases_folder):
        os.unlink(f"{world.leases_folder}/{name}")
    first = world.pool.cards[0].gpu.key
    os.symlink("/nowhere", f"{world.leases_folder}/dibs-guard-{first}")

    check(world)
    check(world)

    refused, made = sorted(sentence for _, sentence in world.told(Trouble))
    assert refused.startswith("cannot use ") and "a symbolic link of" in refused
    assert "of job 2 was deleted; it was made again" in made
