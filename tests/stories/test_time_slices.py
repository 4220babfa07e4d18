"""Projects take turns on a card, from outside: a real daemon, real processes, and a driver that is a fake."""

import re

from cuda.machine import GB, goes_on, steps
from stories.outside import wait_until
from stories.test_making_room import MovingWorld, moving

__all__ = ["moving"]


def test_two_projects_take_turns_on_the_card_and_no_step_is_lost(moving: MovingWorld) -> None:
    moving.begin(DIBS_SLICE="1s")
    first = moving.add("first", "-P", "a", gigabytes=0)
    wait_until(lambda: steps(moving.ledger("first")))
    # What it takes here is learned from this: until then slices are longer than they were set.
    moving.world.dibs("suspend", "1")
    moving.world.dibs("resume", "1")

    second = moving.add("second", "-P", "b", gigabytes=0)
    wait_until(lambda: "its turn on GPU 0 comes in about" in moving.why(second), show=lambda: moving.why(second))
    told = moving.world.dibs("add", "--dry-run", "-P", "c", "--", "true").stdout
    assert re.search(r"would start about .* on GPU 0: waits for job .*: its turn on GPU 0 comes in about", told), (
        told
    )
    moving.wait_for_state(first, "suspended")
    assert re.search(r"is suspended for job 2 since", moving.why(first)), moving.why(first)
    moving.wait_for_state(second, "running")
    assert goes_on(moving.ledger("second"))
    moving.wait_for_state(second, "suspended")
    moving.wait_for_state(first, "running")
    assert goes_on(moving.ledger("first"))

    moving.end(first)
    moving.wait_for_state(second, "running")
    assert goes_on(moving.ledger("second"))
    moving.end(second)


def test_what_the_memory_of_the_machine_cannot_take_is_not_suspended_and_it_is_said(moving: MovingWorld) -> None:
    moving.begin(DIBS_SLICE="1s")
    moving.machine.use(0, total=1000 * GB)
    first = moving.add("first", "-P", "a", gigabytes=900)
    moving.wait_for_state(first, "running")
    second = moving.add("second", "-P", "b")

    sentence = "they cannot take turns: job 1 (first): it holds 900G on its GPU, and the machine has"
    wait_until(lambda: sentence in moving.why(second), show=lambda: moving.why(second))
    assert moving.job(first)["state"] == "running"
    moving.end(first, second)
