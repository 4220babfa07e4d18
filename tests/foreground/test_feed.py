"""A feed's threads and the loop that takes from them."""

import queue
import threading
import time
from collections.abc import Iterator

from dibs.foreground.feed import Feed, JobList
from dibs.inputs.entries import BadEntry
from stories.outside import wait_until

SOON = 60.0  # seconds; only a failing test waits for so long


def entries(count: int) -> Iterator[BadEntry]:
    for number in range(count):
        yield BadEntry(shown=str(number), message="no job at all", where="")


class Drained(queue.SimpleQueue[BadEntry]):
    """A queue that the loop empties at the worst moment: when an entry is about to be put."""

    feed: Feed

    def __init__(self, taken: list[BadEntry]) -> None:
        self._taken = taken

    def put(self, item: BadEntry, block: bool = True, timeout: float | None = None) -> None:
        self._taken += self.feed.take()
        super().put(item)


def test_a_line_that_comes_while_the_loop_takes_the_last_one_is_not_left_lying() -> None:
    is_closed, woken = threading.Event(), threading.Semaphore(0)
    taken: list[BadEntry] = []

    def an_open_pipe() -> Iterator[BadEntry]:
        yield from entries(2)
        is_closed.wait()

    feed = Feed([JobList(an_open_pipe(), is_quick=False)], woken.release)
    feed._entries = Drained(taken)
    feed._entries.feed = feed

    feed.start()
    wait_until(lambda: taken, show=lambda: taken)
    wakes = [woken.acquire(timeout=SOON) for _ in range(2)]
    taken += feed.take()

    assert wakes == [True, True]
    assert [entry.shown for entry in taken] == ["0", "1"]
    is_closed.set()


def test_an_eager_list_wakes_the_loop_once_until_it_comes() -> None:
    is_closed, woken = threading.Event(), threading.Semaphore(0)

    def an_open_pipe() -> Iterator[BadEntry]:
        yield from entries(100)
        is_closed.wait()

    feed = Feed([JobList(an_open_pipe(), is_quick=False)], woken.release)

    feed.start()
    wait_until(lambda: feed._entries.qsize() == 100, show=feed._entries.qsize)

    assert woken.acquire(timeout=SOON)
    assert not woken.acquire(timeout=0.05)
    is_closed.set()


def test_every_line_of_many_busy_pipes_arrives() -> None:
    woken = threading.Semaphore(0)
    feed = Feed([JobList(entries(2000), is_quick=False) for _ in range(8)], woken.release)
    taken = 0

    feed.start()
    while not feed.is_over:
        assert woken.acquire(timeout=SOON), f"the loop was not woken after {taken} lines"
        while batch := feed.take():
            taken += len(batch)
        feed.tell_waiting(0)

    assert taken == 16_000


def test_after_a_pause_several_lines_are_read_at_once() -> None:
    pulled: list[BadEntry] = []

    def counted() -> Iterator[BadEntry]:
        for entry in entries(1000):
            pulled.append(entry)
            yield entry

    feed = Feed([JobList(counted(), look_ahead=100)], lambda: None)
    feed.start()
    wait_until(lambda: len(pulled) == 101, show=lambda: len(pulled))
    while feed.take():
        pass

    feed.tell_waiting(99)
    time.sleep(0.05)  # in which nothing is read
    assert len(pulled) == 101
    feed.tell_waiting(49)

    wait_until(lambda: len(pulled) == 152, show=lambda: len(pulled))
    feed.stop()


def test_a_list_that_is_asked_for_one_job_at_a_time_is_read_on_when_none_waits() -> None:
    feed = Feed([JobList(entries(3), look_ahead=1)], lambda: None)
    feed.start()

    for number in range(3):
        wait_until(lambda number=number: feed._entries.qsize() == 1, show=feed._entries.qsize)
        assert [entry.shown for entry in feed.take()] == [str(number)]
        feed.tell_waiting(0)

    wait_until(lambda: feed.is_over, show=feed._entries.qsize)


class Slow(Feed):
    """Counts its readers so slowly that two threads can read the same number."""

    @property
    def _left(self) -> int:
        left = self._count
        time.sleep(0.001)
        return left

    @_left.setter
    def _left(self, left: int) -> None:
        self._count = left


def test_lists_that_end_at_the_same_moment_are_all_counted() -> None:
    together = threading.Barrier(16)

    def ends_with_the_others() -> Iterator[BadEntry]:
        together.wait()
        yield from ()

    feed = Slow([JobList(ends_with_the_others(), is_quick=False) for _ in range(16)], lambda: None)

    feed.start()
    for thread in feed._threads:
        thread.join(SOON)

    assert feed.is_over
