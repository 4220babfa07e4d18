"""Random histories of turns, neighbours and crashes: no card is given twice, and everything comes to its end."""

import random

import pytest

from dibs.model.gpus import GpuProcess
from dibs.model.jobs import JobId
from dibs.policy.snapshot import SuspendRules
from engine.queue_world import a_wish
from engine.test_suspensions import GIB, SuspendingWorld, world
from engine.world import a_pool

__all__ = ["world"]
ADA = (GpuProcess(pid=4711, user="ada", memory=GIB),)


@pytest.mark.parametrize("seed", range(12))
def test_whatever_happens_everything_comes_to_its_end(world: SuspendingWorld, seed: int) -> None:
    draw = random.Random(seed)
    world.foreign.add(4711)
    world.pool = a_pool(*draw.choice([(1,), (1, 1), (2,)]))
    world.restart(SuspendRules(preemptible=True, slice=600.0, yields_to_others=True))
    world.read()

    for _ in range(60):
        _one_thing(world, draw)
    for _ in range(200):
        if world.engine.is_idle:
            break
        for job in list(world.moving):
            world.answer(job, "suspended" if world.moving[job] == "suspend" else "running")
        for run in world.machine.alive():
            if not run.stands_still and run.job not in world.moving:
                world.end(run.job)
        world.read()
        world.advance(61)

    assert world.engine.is_idle, {
        number: (world.state(number), world.sentence(number)) for number in world.states()
    }
    assert {world.state(number) for number in world.states()} <= {"succeeded"}


def _one_thing(world: SuspendingWorld, draw: random.Random) -> None:
    what = draw.choices(
        ["add", "pass", "answer", "end", "crash", "read", "ada", "suspend", "resume"],
        weights=[4, 6, 8, 2, 1, 2, 1, 1, 1],
    )[0]
    moving = list(world.moving)
    running = [run.job for run in world.machine.alive() if not run.stands_still and run.job not in moving]
    if what == "add":
        urgent, priority = draw.random() < 0.1, draw.choice([0, 0, 0, 1])
        wide = min(len(world.cards.pool.cards), draw.choice([1, 1, 2]))
        world.add(a_wish(project=draw.choice("abc"), gpus=wide, urgent=urgent, priority=priority))
    elif what == "pass":
        world.advance(draw.choice([1, 60, 300, 700]))
    elif what == "answer" and moving:
        job = draw.choice(moving)
        is_done = draw.random() < 0.9
        world.answer(job, "suspended" if (world.moving[job] == "suspend") is is_done else "running")
    elif what == "end" and running:
        world.end(draw.choice(running))
    elif what == "crash":
        world.crash()
        world.resume()
        world.read()
    elif what in ("read", "ada"):
        world.read(processes=ADA if what == "ada" else ())
    elif what in ("suspend", "resume") and world.acknowledged:
        world.do(what, draw.choice(sorted(world.acknowledged)))
        if what == "suspend":
            world.do("resume", *[JobId(job) for job in world.acknowledged])
