"""Asking probes that may hang."""

import queue
import threading
import time
from datetime import UTC, datetime, timedelta

import pytest

from dibs.gpus.probe import ProbeFailed, answer_within
from dibs.gpus.watcher import Watcher
from dibs.model.gpus import Gpu, GpuFault, GpuReading, Reading

NOON = datetime(2026, 11, 15, 12, tzinfo=UTC)
NEVER = 3600.0  # seconds between looks, where only asking shall bring one
LONG = 20.0  # seconds after which a test gives up


class SteeredProbe:
    """Each read reports that it began and waits for what the test lets it answer."""

    def __init__(self):
        self.begun = queue.Queue()
        self.answers = queue.Queue()
        self.reads = 0

    def read(self, *, energy=False):
        self.reads += 1
        self.begun.put(threading.current_thread())
        answer = self.answers.get()
        if isinstance(answer, Exception):
            raise answer
        return answer


@pytest.fixture
def probe():
    return SteeredProbe()


@pytest.fixture
def watch(probe):
    """Starts watchers, and ends them and their reads after the test."""
    watchers = []

    def start(**options):
        watcher = Watcher(probe, **options)
        watchers.append(watcher)
        watcher.start()
        return watcher

    yield start
    for watcher in watchers:
        watcher.stop()
        probe.answers.put(a_reading())


def a_reading(at=NOON):
    return Reading(at=at)


def wait_until(is_so, show):
    end = time.monotonic() + LONG
    while not is_so():
        assert time.monotonic() < end, f"waited in vain; saw last: {show()!r}"
        time.sleep(0.005)


def settle(probe, watch, **options):
    """A watcher whose first look is over."""
    watcher = watch(**options)
    probe.begun.get(timeout=LONG)
    first = a_reading()
    probe.answers.put(first)
    wait_until(lambda: watcher.latest is first, show=lambda: watcher.latest)
    return watcher


def test_the_first_look_happens_by_itself_in_a_named_daemon_thread(probe, watch):
    reading = a_reading()

    watcher = watch(interval=NEVER)

    thread = probe.begun.get(timeout=LONG)
    assert (thread.name, thread.daemon) == ("dibs-gpu-reader", True)
    probe.answers.put(reading)
    wait_until(lambda: watcher.latest is reading, show=lambda: watcher.latest)


def test_it_looks_again_after_the_interval(probe, watch):
    watcher = settle(probe, watch, interval=0.01)
    second = a_reading()

    probe.begun.get(timeout=LONG)
    probe.answers.put(second)

    wait_until(lambda: watcher.latest is second, show=lambda: watcher.latest)


def test_who_asks_gets_a_look_at_once(probe, watch):
    watcher = settle(probe, watch, interval=NEVER)
    got = queue.Queue()
    fresh = a_reading()

    watcher.ask(got.put)

    probe.begun.get(timeout=LONG)
    probe.answers.put(fresh)
    assert got.get(timeout=LONG) is fresh
    assert watcher.latest is fresh


def test_a_look_that_began_before_the_question_does_not_answer_it(probe, watch):
    watcher = watch(interval=NEVER)
    probe.begun.get(timeout=LONG)
    got = queue.Queue()
    older, fresh = a_reading(), a_reading()

    watcher.ask(got.put)

    probe.answers.put(older)
    probe.begun.get(timeout=LONG)
    assert got.empty()
    probe.answers.put(fresh)
    assert got.get(timeout=LONG) is fresh


def test_all_who_asked_before_a_look_share_it(probe, watch):
    watcher = watch(interval=NEVER)
    probe.begun.get(timeout=LONG)
    got = queue.Queue()
    shared = a_reading()

    for _ in range(100):
        watcher.ask(got.put)

    probe.answers.put(a_reading())
    probe.begun.get(timeout=LONG)
    probe.answers.put(shared)
    assert all(got.get(timeout=LONG) is shared for _ in range(100))
    assert probe.reads == 2


def test_a_callback_may_ask_again(probe, watch):
    watcher = settle(probe, watch, interval=NEVER)
    got = queue.Queue()
    fresh = a_reading()

    watcher.ask(lambda _reading: watcher.ask(got.put))

    for answer in (a_reading(), fresh):
        probe.begun.get(timeout=LONG)
        probe.answers.put(answer)
    assert got.get(timeout=LONG) is fresh


def test_a_probe_that_hangs_blocks_no_caller_and_answers_none_at_the_deadline(probe, watch):
    watcher = settle(probe, watch, interval=NEVER, deadline=0.05)
    before = watcher.latest
    got = queue.Queue()

    watcher.ask(got.put)

    probe.begun.get(timeout=LONG)
    assert got.get(timeout=LONG) is None
    assert watcher.latest is before


def test_who_asks_while_the_probe_hangs_is_answered_none_too(probe, watch):
    watcher = watch(interval=NEVER, deadline=0.05)
    probe.begun.get(timeout=LONG)
    got = queue.Queue()

    for _ in range(3):
        watcher.ask(got.put)
        assert got.get(timeout=LONG) is None

    assert probe.reads == 1


def test_a_probe_that_comes_back_after_hanging_is_used_again(probe, watch):
    watcher = settle(probe, watch, interval=NEVER, deadline=0.05)
    got = queue.Queue()
    watcher.ask(got.put)
    probe.begun.get(timeout=LONG)
    assert got.get(timeout=LONG) is None
    late = a_reading()

    probe.answers.put(late)

    wait_until(lambda: watcher.latest is late, show=lambda: watcher.latest)


def test_a_watcher_is_stale_until_its_first_reading(probe, watch):
    watcher = watch(interval=NEVER)

    is_stale = watcher.is_stale(NOON)

    assert is_stale


@pytest.mark.parametrize(
    ("age", "is_stale"), [(0, False), (2999, False), (3001, True), (-2999, False), (-3001, True)]
)
def test_a_reading_grows_stale_and_one_from_the_future_is_too(probe, watch, age, is_stale):
    watcher = settle(probe, watch, interval=1000, deadline=2000)

    answer = watcher.is_stale(NOON + timedelta(seconds=age))

    assert answer == is_stale


def test_a_failed_look_answers_none_keeps_the_last_good_reading_and_is_stale(probe, watch):
    watcher = settle(probe, watch, interval=NEVER)
    good = watcher.latest
    failure = ProbeFailed("cannot ask the driver")
    got = queue.Queue()

    watcher.ask(got.put)

    probe.begun.get(timeout=LONG)
    probe.answers.put(failure)
    assert got.get(timeout=LONG) is None
    assert (watcher.latest, watcher.failure) == (good, failure)
    assert watcher.is_stale(NOON)


def test_a_good_look_after_a_failed_one_is_fresh_again(probe, watch):
    watcher = settle(probe, watch, interval=NEVER)
    got = queue.Queue()

    for answer in (ProbeFailed("cannot ask the driver"), a_reading()):
        watcher.ask(got.put)
        probe.begun.get(timeout=LONG)
        probe.answers.put(answer)
        got.get(timeout=LONG)

    assert not watcher.is_stale(NOON)


def test_stopping_does_not_wait_for_a_probe_that_hangs_and_nothing_is_called_back(probe, watch):
    watcher = watch(interval=NEVER, deadline=0.05)
    reader = probe.begun.get(timeout=LONG)
    got = queue.Queue()
    watcher.ask(got.put)

    watcher.stop()
    called_before = got.qsize()  # the deadline may have passed already

    watcher.ask(got.put)
    probe.answers.put(a_reading())
    reader.join(LONG)
    assert not reader.is_alive()
    assert got.qsize() == called_before


def test_a_question_that_is_answered_in_time_is_answered():
    reading = a_reading()

    answer = answer_within(lambda: reading)

    assert answer is reading


def test_what_a_question_raises_reaches_who_asked():
    def fail():
        raise ProbeFailed("cannot ask the driver: it is sick")

    with pytest.raises(ProbeFailed) as caught:
        answer_within(fail)

    assert caught.value.message == "cannot ask the driver: it is sick"


def test_a_question_that_hangs_is_a_failed_probe():
    release = threading.Event()

    with pytest.raises(ProbeFailed) as caught:
        answer_within(release.wait, seconds=0.05)

    release.set()
    assert caught.value.message == "cannot ask the driver for its GPUs: no answer within 0.05 seconds"


def test_the_energy_that_was_told_last_is_still_shown(probe, watch):
    def a_look(energy, load):
        return Reading(at=NOON, gpus=(GpuReading(gpu=Gpu(key="GPU-a", index=0), load=load, energy=energy),))

    watcher = watch(interval=0.01)
    for reading in (a_look(None, 1), a_look(5.0, 2), a_look(None, 3)):
        probe.begun.get(timeout=LONG)
        probe.answers.put(reading)
    probe.begun.get(timeout=LONG)  # the third is over

    [seen] = watcher.latest.gpus
    assert (seen.load, seen.energy) == (3, 5.0)


def test_a_probe_that_falls_over_is_asked_again(probe, watch):
    watcher = watch(interval=NEVER)
    probe.begun.get(timeout=LONG)
    got = queue.Queue()
    watcher.ask(got.put)

    probe.answers.put(RuntimeError("can't start new thread"))
    probe.begun.get(timeout=LONG)
    assert "can't start new thread" in watcher.failure.message
    probe.answers.put(RuntimeError("can't start new thread"))
    assert got.get(timeout=LONG) is None

    fresh = a_reading()
    watcher.ask(got.put)
    probe.begun.get(timeout=LONG)
    probe.answers.put(fresh)
    assert got.get(timeout=LONG) is fresh


@pytest.mark.parametrize("is_late", [False, True])
def test_a_fault_that_no_answer_told_is_in_the_next_one_and_only_there(probe, watch, is_late):
    """It is told by the probe once: in a look that was not asked for, or that took too long."""
    watcher = watch(interval=NEVER, **({"deadline": 0.2} if is_late else {}))
    got = queue.Queue()
    first, second = GpuFault("GPU-a", 79), GpuFault("GPU-a", 45)
    probe.begun.get(timeout=LONG)
    if is_late:
        probe.answers.put(a_reading())
        watcher.ask(got.put)
        probe.begun.get(timeout=LONG)
        assert got.get(timeout=LONG) is None

    watcher.ask(got.put)
    probe.answers.put(Reading(at=NOON, faults=(first,)))
    probe.begun.get(timeout=LONG)
    probe.answers.put(Reading(at=NOON, faults=(second,)))

    answer = got.get(timeout=LONG)
    while is_late and answer is None:  # it was too late for this question as well
        watcher.ask(got.put)
        probe.begun.get(timeout=LONG)
        probe.answers.put(a_reading())
        answer = got.get(timeout=LONG)
    assert answer.faults == (first, second)
    watcher.ask(got.put)
    probe.begun.get(timeout=LONG)
    probe.answers.put(a_reading())
    assert got.get(timeout=LONG).faults == ()


def test_a_fault_read_beside_the_watcher_is_in_its_next_answer_and_only_there(probe, watch):
    watcher = settle(probe, watch, interval=NEVER)
    taken, own = GpuFault("GPU-0", 79), GpuFault("GPU-1", 31)
    got = queue.Queue()

    probe.answers.put(Reading(at=NOON, faults=(taken,)))
    beside = watcher.read()
    probe.begun.get(timeout=LONG)
    for faults in ((own,), ()):
        watcher.ask(got.put)
        probe.begun.get(timeout=LONG)
        probe.answers.put(Reading(at=NOON, faults=faults))
        told = got.get(timeout=LONG).faults
        assert told == ((taken, own) if faults else ())

    assert beside.faults == (taken,)


def test_a_card_that_tells_without_end_beside_the_watcher_fills_no_memory(probe, watch):
    watcher = settle(probe, watch, interval=NEVER)
    got = queue.Queue()

    for _ in range(30):
        probe.answers.put(Reading(at=NOON, faults=(GpuFault("GPU-0", 79),) * 10))
        watcher.read()
        probe.begun.get(timeout=LONG)
    watcher.ask(got.put)
    probe.begun.get(timeout=LONG)
    probe.answers.put(a_reading())

    assert len(got.get(timeout=LONG).faults) == 100
