"""A clock that is set while another system runs our jobs (faults.md, row 39)."""

import pytest

from engine.away_world import AwayWorld
from engine.queue_world import a_wish


@pytest.fixture
def world(away_world: AwayWorld) -> AwayWorld:
    return away_world


@pytest.mark.parametrize("jump", [-500_000.0, -3600.0, 3600.0])
def test_what_runs_there_is_looked_after_though_the_clock_was_set(world: AwayWorld, jump: float):
    (job,) = [one.id for one in world.add(a_wish("train", on="slurm"))]
    world.advance(1)
    world.cluster.start(world.cluster.pending()[0])
    world.advance(4)

    world.clock_is_off = jump
    world.turn()  # the timer that was set before counts seconds
    world.cluster.end(world.cluster.running()[0], code=3)
    world.advance(10)

    assert world.state(job) == "failed"
    assert world.cluster.starts() == {job: 1}
