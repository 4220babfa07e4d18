"""Each plant is a bug in the daemon, and the checker of the queue's campaign must see it."""

import os
import signal

import pytest

from dibs.client.client import Client
from faults.queue_campaign import QueueCampaign
from faults.test_plants import PLANTS, planted
from stories.outside import Running, World, wait_until

QUEUE_PLANTS = {
    # The answer goes out before the disk has it.
    "acknowledges what is not durable": """
        from contextlib import contextmanager
        from dibs.store.store import Store
        @contextmanager
        def turn(self):
            if not self._db.in_transaction:
                self._db.execute("begin immediate")
            yield
        Store.turn = turn
    """,
    # A client that lost its answer asks again with the same key.
    "forgets the keys of calls": """
        from dibs.store.queue import QueueTables
        QueueTables.numbers_of = lambda self, key: None
        QueueTables.remember_call = lambda self, *call: None
    """,
    "requeues the lost": PLANTS["requeues the lost"],
    "forgets the running": PLANTS["forgets the running"],
}


class Planted:
    """A queue whose daemons have a bug. Its client starts them, as `dibs add` would start an honest one."""

    def __init__(self, world: World, plant: str) -> None:
        self.world = world
        self.campaign = QueueCampaign(world, seconds=0)
        self.daemons: list[Running] = []
        self._program = planted(world, QUEUE_PLANTS[plant]) if plant else None
        self._client = Client(str(self.campaign.root / "socket"), start=self._start, notice=lambda text: None)
        self._calls = 0

    def add(self, jobs: int) -> None:
        self._calls += 1
        names = [f"{self._calls}.{number}" for number in range(jobs)]
        lines = [{"command": self.world.ledger.held(name), "workdir": str(self.world.folder)} for name in names]
        environment = {name: self.world.environ[name] for name in ("PATH", "LEDGER")}
        told = self._client.add(lines, key=f"call {self._calls}", environment=environment)
        self.campaign.acknowledged |= {name: told["first"] + at for at, name in enumerate(names)}

    def _start(self) -> None:
        # The first daemon dies after it has stored its second call, before it answers.
        fault = "" if self.daemons else "after-commit:2"
        daemon = self.world.start("daemon", "run", program=self._program, env={"DIBS_FAULT": fault})
        self.daemons.append(daemon)
        wait_until(lambda: "listens" in daemon.stderr, show=lambda: daemon.stderr)


def _live_through(world: World, plant: str) -> QueueCampaign:
    """Jobs run, an answer is lost, a supervisor is killed, and another daemon comes."""
    world.environ["DIBS_NO_START"] = "1"
    queue = Planted(world, plant)
    queue.add(3)
    wait_until(lambda: len(world.ledger.running()) == 3, show=lambda: world.ledger.lines)
    os.kill(queue.campaign.shims()[0], signal.SIGKILL)
    queue.add(2)
    world.write("go", "")  # whatever ran still does when the next daemon has come
    queue.campaign.finish()
    assert len(queue.daemons) == 2
    return queue.campaign


def test_without_a_plant_there_is_nothing_to_complain_of(world: World) -> None:
    campaign = _live_through(world, "")

    assert campaign.complaints(may_be_lost=1) == []


@pytest.mark.parametrize(
    "plant, words",
    [
        ("acknowledges what is not durable", "was acknowledged and is not there"),
        ("forgets the keys of calls", "was started 2 times"),
        ("requeues the lost", "was started 2 times"),
        ("forgets the running", "was started 2 times"),
    ],
)
def test_the_checker_sees_a_daemon_that(world: World, plant: str, words: str) -> None:
    complaints = _live_through(world, plant).complaints(may_be_lost=1)

    assert any(words in complaint for complaint in complaints), complaints
