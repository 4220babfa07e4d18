"""What turns an engine: as seldom as possible, and as often as needed."""

import asyncio
import threading
import time
from collections.abc import Callable, Coroutine
from types import SimpleNamespace
from typing import Any

import pytest

from dibs.engine import driver as module
from dibs.engine.announcer import Topic
from dibs.engine.driver import Driver
from dibs.engine.watch.metering import Meters
from dibs.engine.watch.sharing_rules import SharingRules
from dibs.gpus.probe import ProbeFailed, utc_now
from dibs.model.gpus import Reading
from stories.outside import PATIENCE


class Cards:
    def __init__(self) -> None:
        self.are_unsettled = False
        self.rules = SharingRules()
        self.seen: list[Reading | None] = []

    def saw(self, reading: Reading | None, failure: str = "") -> None:
        self.seen.append(reading)
        self.are_unsettled = False

    def wait_for_reading(self) -> None:
        self.seen.append(None)


class Engine:
    """Counts its turns; `on_turn` may do something in one."""

    def __init__(self) -> None:
        self.turns = 0
        self.running = self.waiting = 0
        self.wake_at: float | None = None
        self.looks_closely = False
        self.guards_cards = False
        self.cards = Cards()
        self.readings: Topic[Reading] = Topic()
        self.meters = Meters()
        self.state = SimpleNamespace(open={})
        self.on_turn: Callable[[], None] = lambda: None
        self.lease_checks = 0

    def check_leases(self) -> None:
        self.lease_checks += 1

    def turn(self) -> None:
        self.turns += 1
        self.on_turn()


class Probe:
    def __init__(self) -> None:
        self.reads = 0
        self.may_answer = threading.Event()
        self.may_answer.set()

    def read(self) -> Reading:
        self.reads += 1
        self.may_answer.wait(PATIENCE)
        return Reading(at=utc_now(), gpus=(), driver="fake")


def in_loop(story: Callable[[Any], Coroutine[Any, Any, None]], **more: Any) -> None:
    async def tell() -> None:
        engine = Engine()
        driver = Driver(asyncio.get_running_loop(), **more)
        driver.drive(engine)  # type: ignore[arg-type]
        try:
            await story(SimpleNamespace(engine=engine, driver=driver))
        finally:
            driver.stop()

    asyncio.run(tell())


async def until(condition: Callable[[], Any]) -> None:
    async with asyncio.timeout(PATIENCE):
        while not condition():
            await asyncio.sleep(0.002)


def test_many_who_ask_at_once_share_a_turn():
    async def story(it: Any) -> None:
        for _ in range(100):
            it.driver.ask_for_turn()
        await until(lambda: it.engine.turns)

        assert it.engine.turns == 1
        assert not it.driver.is_turn_due

    in_loop(story)


def test_the_engine_is_woken_when_it_wants_to_be():
    async def story(it: Any) -> None:
        it.engine.wake_at = time.time() + 0.1
        began = time.monotonic()
        it.driver.ask_for_turn()
        await until(lambda: it.engine.turns)
        it.engine.on_turn = lambda: setattr(it.engine, "wake_at", None)

        await until(lambda: it.engine.turns == 2)

        assert time.monotonic() - began > 0.05
        await asyncio.sleep(0.05)
        assert it.engine.turns == 2

    in_loop(story)


def test_a_bug_in_a_turn_is_handed_on_and_the_clock_is_set_all_the_same():
    bugs: list[Exception] = []

    async def story(it: Any) -> None:
        def planted() -> None:
            it.engine.on_turn = lambda: setattr(it.engine, "wake_at", None)
            raise ZeroDivisionError

        it.engine.on_turn = planted
        it.engine.wake_at = time.time()
        it.driver.ask_for_turn()

        await until(lambda: it.engine.turns == 2)

    in_loop(story, fell=bugs.append)

    assert [type(bug) for bug in bugs] == [ZeroDivisionError]


def test_without_work_the_cards_are_asked_rarely_and_with_work_as_often_as_the_setting_says():
    probe = Probe()

    async def story(it: Any) -> None:
        it.engine.cards.rules = SharingRules(reading_seconds=0.02)
        it.driver.watch(probe)
        await until(lambda: it.driver.has_looked and not it.driver.is_turn_due)
        await asyncio.sleep(0.1)
        idle = probe.reads
        await asyncio.sleep(0.3)
        assert probe.reads == idle

        it.engine.waiting = 1
        it.driver.ask_for_turn()

        await until(lambda: probe.reads > idle + 3)

    in_loop(story)


def test_the_first_job_after_a_quiet_time_waits_for_a_fresh_look(monkeypatch):
    monkeypatch.setattr(module, "_TOO_OLD", 0.0)
    probe = Probe()

    async def story(it: Any) -> None:
        it.driver.watch(probe)
        await until(lambda: it.driver.has_looked and not it.driver.is_turn_due)
        assert it.engine.cards.seen[-1] is not None
        probe.may_answer.clear()
        seen_in_turn: list[Reading | None] = []
        it.engine.on_turn = lambda: seen_in_turn.append(it.engine.cards.seen[-1])

        it.engine.waiting = 1
        it.driver.ask_for_turn()
        await until(lambda: seen_in_turn)

        assert seen_in_turn == [None]  # nothing is known of the cards: nothing may start
        assert it.driver.is_looking
        probe.may_answer.set()
        await until(lambda: seen_in_turn[-1] is not None)

    in_loop(story)


def test_a_card_that_was_left_is_asked_at_once():
    probe = Probe()

    async def story(it: Any) -> None:
        it.engine.cards.rules = SharingRules(reading_seconds=60.0)
        it.driver.watch(probe)
        await until(lambda: it.driver.has_looked and not it.driver.is_turn_due)
        reads = probe.reads
        it.engine.cards.are_unsettled = True

        it.driver.ask_for_turn()

        await until(lambda: probe.reads > reads and not it.engine.cards.are_unsettled)

    in_loop(story)


@pytest.mark.parametrize("answers", [True, False])
def test_a_look_comes_back_in_time_whether_the_driver_answers_or_not(answers):
    probe = Probe()

    async def story(it: Any) -> None:
        it.driver.watch(probe)
        await until(lambda: it.driver.has_looked)
        if not answers:
            probe.may_answer.clear()

        reading = await it.driver.look(0.2 if not answers else 10)

        assert (reading is not None) == answers
        probe.may_answer.set()

    in_loop(story)


def test_nothing_turns_any_more_after_the_end():
    async def story(it: Any) -> None:
        it.driver.stop()
        it.driver.ask_for_turn()
        await asyncio.sleep(0.02)

        assert it.engine.turns == 0

    in_loop(story)


def test_a_driver_that_fails_at_once_is_not_asked_without_end():
    async def story(it: Any) -> None:
        probe = FailingProbe()
        it.engine.cards = UnsettledCards()
        it.driver.watch(probe)
        await until(lambda: it.engine.cards.seen)
        for _ in range(20):
            it.driver.ask_for_turn()
            await asyncio.sleep(0.01)

        assert probe.reads < 10

    in_loop(story)


class FailingProbe(Probe):
    def read(self) -> Reading:
        self.reads += 1
        raise ProbeFailed("cannot ask the driver")


class UnsettledCards(Cards):
    """A job has left one of them, and the driver has not answered since."""

    def saw(self, reading: Reading | None, failure: str = "") -> None:
        self.seen.append(reading)
        self.are_unsettled = reading is None


def test_the_lease_files_are_checked_with_every_reading():
    async def story(it: Any) -> None:
        it.engine.running = 1
        it.engine.cards.rules = SharingRules(reading_seconds=0.01)
        it.driver.watch(Probe())
        await until(lambda: it.engine.lease_checks > 2)

        assert it.engine.lease_checks <= len(it.engine.cards.seen)

    in_loop(story)


def test_without_a_driver_they_are_checked_while_something_runs():
    async def story(it: Any) -> None:
        it.engine.cards.rules = SharingRules(reading_seconds=0.01)
        it.driver.ask_for_turn()
        await until(lambda: it.engine.turns)
        before = it.engine.lease_checks
        it.engine.running = 1
        it.driver.ask_for_turn()
        await until(lambda: it.engine.lease_checks > 2)

        assert before == 0

    in_loop(story)
