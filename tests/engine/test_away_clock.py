"""A clock that is set while another system runs our jobs (faults.md, row 39)."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from engine.away_world import AwayWorld
from engine.queue_world import a_wish
from engine.world import a_pool


@pytest.fixture
def world(tmp_path: Path) -> Iterator[AwayWorld]:
    (tmp_path / "state").mkdir()
    (tmp_path / "leases").mkdir()
    made = AwayWorld(root=str(tmp_path / "state"), leases_folder=str(tmp_path / "leases"), pool=a_pool(1))
    yield made
    made.close()


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
