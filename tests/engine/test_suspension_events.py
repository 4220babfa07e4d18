"""What those hear who listen to the events of a suspension."""

import pytest

from engine.queue_world import a_wish
from engine.test_suspensions import SuspendingWorld, world

__all__ = ["world"]


def told(world: SuspendingWorld) -> list[tuple[str, str, str | None]]:
    """The events about suspensions: what has happened, why not, and on which rung."""
    rows = [row for row in world.store.events.since(0) if "rung" in row.body]
    return [(row.kind.removeprefix("job."), row.body["why_not"], row.body["rung"]) for row in rows]


def test_each_step_of_a_suspension_is_an_event(world):
    world.add(a_wish())

    world.do("suspend", 1)
    world.answer(1, "suspended")
    world.do("resume", 1)
    world.answer(1, "suspended", why="no room")
    world.advance(600)
    world.answer(1, "running")
    world.do("suspend", 1)
    world.answer(1, "running", code="stopped", why="its process 4711 is stopped")

    assert told(world) == [
        ("suspending", "", None),
        ("suspended", "", "cuda"),
        ("suspended", "", "cuda"),  # it is to go on
        ("resuming", "", "cuda"),
        ("suspended", "no room", "cuda"),
        ("resuming", "", "cuda"),
        ("resumed", "", "cuda"),
        ("suspending", "", None),
        ("not_suspended", "its process 4711 is stopped", None),
    ]


@pytest.mark.parametrize("steps", [0, 1, 2])
def test_a_job_that_ends_in_a_suspension_has_not_gone_on(world, steps):
    first, _ = world.add(a_wish(), a_wish(gpus=0))
    world.do("suspend", 1)
    if steps:
        world.answer(1, "suspended")
    if steps == 2:
        world.do("resume", 1)
    before = told(world)

    world.do("kill", 1)
    world.end(first, signal=15, by="stop")

    assert told(world) == before
    assert world.kinds()[-1] == "job.ended"
