"""A test of a card as a process: its verdict, its deadline, and what it leaves behind."""

import asyncio
import os
import time
from pathlib import Path

import pytest

from dibs.daemon.canary import CanaryTests
from dibs.engine.watch.health import CardTestResult
from dibs.leases.leases import Lease, Leases
from dibs.model.gpus import Card, Claim, Gpu, Pool
from engine.queue_world import QueueWorld
from engine.world import a_pool
from stories.outside import processes_of

KEY = "index-0"


class Heard:
    """Hears what a test said, as `Health` does."""

    def __init__(self) -> None:
        self.results: list[CardTestResult] = []
        self.key = KEY

    def tests(self) -> dict[str, float]:
        return {KEY: 0.0} if not self.results else {}

    def tested(self, key: str, result: CardTestResult) -> None:
        assert key == self.key
        self.results.append(result)


class Place:
    def __init__(self, folder: Path) -> None:
        (folder / "queue").mkdir()
        (folder / "leases").mkdir()
        self.folder = folder
        self.world = QueueWorld(root=str(folder / "queue"), leases_folder=str(folder / "leases"), pool=a_pool(2))
        self.leases = Leases(str(folder / "leases"), uid=os.geteuid(), user="tester")
        self.heard = Heard()

    def canaries(self, command: str, deadline: float = 60.0) -> CanaryTests:
        environ = {"PATH": os.environ["PATH"], "FOLDER": str(self.folder)}
        return CanaryTests(
            self.world.engine,
            self.heard,  # type: ignore[arg-type]
            self.leases,
            environ,
            command,
            after=0.05,
            deadline=deadline,
        )

    def test(self, command: str, deadline: float = 60.0) -> CardTestResult | None:
        asyncio.run(self.canaries(command, deadline).test(KEY))
        return self.heard.results[-1] if self.heard.results else None


@pytest.fixture
def place(tmp_path: Path):
    one = Place(tmp_path)
    yield one
    one.world.close()


@pytest.mark.parametrize(
    ("command", "result"),
    [
        ("true", CardTestResult(True)),
        ("exit 3", CardTestResult(False, "the test ended with 3")),
        (
            "echo first; echo; echo '  it  computes wrongly '; echo >&2; exit 1",
            CardTestResult(False, "it computes wrongly"),
        ),
        ("kill -9 $$", CardTestResult(False, "the test ended with -9")),
        ('test "$CUDA_VISIBLE_DEVICES,$CUDA_DEVICE_ORDER" = 0,PCI_BUS_ID', CardTestResult(True)),
        ("yes | head -c 300000; exit 1", CardTestResult(False, "y")),
        ("/nonexistent/program", CardTestResult(False, "/bin/sh: 1: /nonexistent/program: not found")),
    ],
)
def test_a_command_ends_with_0_where_the_card_is_well(place: Place, command: str, result: CardTestResult) -> None:
    found = place.test(command)

    if "nonexistent" in command:  # each shell says it in its own words
        assert found is not None and not found.has_passed and "nonexistent" in found.sentence
    else:
        assert found == result
    assert place.leases.holders() == []


def test_a_test_that_hangs_is_ended_with_all_its_children(place: Place) -> None:
    found = place.test("sleep 600 & sleep 600", deadline=0.3)

    assert found == CardTestResult(False, "the test did not end within 0.3 seconds")
    until = time.monotonic() + 30
    while processes_of(str(place.folder)) and time.monotonic() < until:
        time.sleep(0.01)
    assert processes_of(str(place.folder)) == {}
    assert place.leases.holders() == []


def test_what_a_test_leaves_behind_is_ended(place: Place) -> None:
    found = place.test("sleep 600 & exit 0")

    assert found == CardTestResult(True)
    until = time.monotonic() + 30
    while processes_of(str(place.folder)) and time.monotonic() < until:
        time.sleep(0.01)
    assert processes_of(str(place.folder)) == {}


def test_a_card_with_a_lease_is_not_tested_until_it_is_free(place: Place) -> None:
    claim = Claim(gpu=KEY, index=0, share=place.world.pool.cards[0].slot_share)
    lease = place.leases.take([claim], job="ann's", folder="", since=time.time())
    assert isinstance(lease, Lease)
    canaries = place.canaries("true")

    async def run() -> list[CardTestResult]:
        running = asyncio.ensure_future(canaries.run())
        await asyncio.sleep(0.3)
        before = list(place.heard.results)
        lease.close()
        while not place.heard.results:
            await asyncio.sleep(0.01)
        running.cancel()
        return before

    before = asyncio.run(asyncio.wait_for(run(), 30))

    assert before == []
    assert place.heard.results == [CardTestResult(True)]


def test_our_own_test_is_not_for_amds_cards(place: Place) -> None:
    """On a machine of both makers CUDA would show it a card of NVIDIA's instead."""
    card = Gpu(key="AMD-1", index=0, address="0")
    place.world.engine.cards.pool = Pool(cards=(Card(gpu=card),))
    place.heard.key = card.key
    canaries = place.canaries("auto")
    canaries._words = ("true",)

    asyncio.run(canaries.test(card.key))

    (result,) = place.heard.results
    assert result.has_passed is None and "NVIDIA" in result.sentence
