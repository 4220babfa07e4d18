"""Somebody without dibs starts on the card, from outside: a real daemon and a driver that is a fake."""

import re

from cuda.machine import FAKE_PROGRAM, GB, Program, goes_on, stands_still
from stories.outside import wait_until
from stories.test_making_room import MovingWorld, moving

__all__ = ["moving"]


def test_a_preemptible_job_leaves_the_card_to_somebody_without_dibs_until_it_is_quiet(moving: MovingWorld) -> None:
    moving.begin(DIBS_PREEMPTIBLE="on", DIBS_YIELD_TO_OTHERS="on")
    train = moving.add("train")
    moving.wait_until_held(train)

    environ = moving.machine.environ | {"FAKE_USER": "ada"}
    hers = Program(FAKE_PROGRAM, moving.ledger("hers"), environ, "--bytes", str(GB))
    try:
        moving.wait_for_state(train, "suspended")
        sentence = (
            rf"is suspended for the process {hers.pid} \(ada\) on GPU 0 since [0-9:]+, with 10G in the machine's"
            r" memory; goes on when GPU 0 has been quiet for 60s"
        )
        assert re.search(sentence, moving.why(train)), moving.why(train)
        assert re.search(sentence, moving.world.dibs("ls").stdout)
        assert stands_still(moving.ledger("train"))
        assert goes_on(moving.ledger("hers"))
    finally:
        hers.end()

    moving.machine.use(0)
    waiting = moving.add("waiting")
    wait_until(lambda: "kept for an earlier job" in moving.why(waiting), show=lambda: moving.why(waiting))
    assert re.search(sentence, moving.why(train)), moving.why(train)
    moving.end(train, waiting)
