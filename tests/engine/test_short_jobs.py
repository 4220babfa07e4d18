"""Short jobs that follow each other while more are added: what is shown as running runs, and a kill is kept."""

import json
from pathlib import Path

import pytest

from dibs.engine.queue.queue import AddCall
from dibs.model.jobs import JobId, State
from engine.invariants import check_at_the_end, check_now
from engine.queue_world import QueueWorld, a_wish
from engine.world import a_pool

SHORT = 0.001  # seconds


@pytest.fixture(params=[(1,), (4,), (1, 1)], ids=["one card", "slots of one card", "two cards"])
def world(request, tmp_path):
    root, leases = tmp_path / "queue", tmp_path / "leases"
    root.mkdir()
    leases.mkdir()
    world = QueueWorld(root=str(root), leases_folder=str(leases), pool=a_pool(*request.param))
    yield world
    world.close()


def add_while_one_ends(world, number):
    """The engine hears of the end and of the new job in the same turn."""
    world.machine.end(world.machine.alive()[0], code=0, seconds=SHORT)
    call = AddCall(key=f"beside {number}", requests=(a_wish(f"more {number}"),), environment={"HOME": "/"})
    added = world.queue.add(call)
    world.acknowledged[JobId(added.first)] = call.requests[0]
    world.settle_down()


def running(world):
    return [job for job, state in world.states().items() if state is State.RUNNING]


def test_a_job_shown_running_runs_and_every_start_is_told(world):
    world.add(*(a_wish(f"number {number}") for number in range(40)))

    for number in range(12):
        add_while_one_ends(world, number)
        assert running(world) == world.running()
        for _ in range(2):
            world.machine.end(world.machine.alive()[0], code=0, seconds=SHORT)
            world.settle_down()
            assert running(world) == world.running()
        check_now(world)
    world.run_out()

    kinds = world.kinds()
    assert kinds.count("job.started") == kinds.count("job.ended") == 52
    lines = [json.loads(line)["k"] for line in Path(world.journal.path).read_text().splitlines()]
    assert lines.count("start") == lines.count("end") == 52
    check_at_the_end(world)


def test_a_job_acknowledged_as_killed_never_runs(world):
    world.add(*(a_wish(f"number {number}") for number in range(40)))
    for number in range(6):
        add_while_one_ends(world, number)
    started = {run.job for run in world.machine.ledger}

    never_begun = [job for job in running(world) if job not in started]
    waiting = [job for job in world.states() if job not in started][:5]
    world.do("kill", *never_begun, *waiting)
    for run in world.machine.alive():
        world.machine.end(run, code=0, seconds=SHORT)
    world.settle_down()
    world.run_out()

    assert {run.job for run in world.machine.ledger}.isdisjoint([*never_begun, *waiting])
    check_at_the_end(world)
