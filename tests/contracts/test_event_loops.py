"""What the driver and the terminal need of an event loop: the loops of asyncio and of `dibs run` have it alike."""

import asyncio
import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import pytest

from dibs.foreground.loop import ForegroundLoop
from stories.outside import PATIENCE


@pytest.fixture(params=[ForegroundLoop, asyncio.new_event_loop], ids=["foreground", "asyncio"])
def loop(request: pytest.FixtureRequest) -> Iterator[Any]:
    with closing(request.param()) as loop:
        yield loop


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    ends = os.pipe()
    yield ends
    for fd in ends:
        os.close(fd)


def run(loop: Any, until: Callable[[], bool] = lambda: True) -> None:
    """Run the loop until this holds after a round."""

    def look() -> None:
        if until():
            loop.stop()
        else:
            loop.call_soon(look)

    too_long = loop.call_later(PATIENCE, pytest.fail, "it never held")
    loop.call_soon(look)
    loop.run_forever()
    too_long.cancel()


def test_what_is_asked_for_soon_is_called_in_its_order_and_what_it_asks_for_in_the_next_round(loop):
    called: list[str] = []
    loop.call_soon(lambda: loop.call_soon(called.append, "asked for in a callback"))
    loop.call_soon(called.append, "first")
    loop.call_soon(called.append, "second")

    run(loop, lambda: len(called) == 3)

    assert called == ["first", "second", "asked for in a callback"]


def test_a_loop_that_was_stopped_runs_again(loop):
    called: list[int] = []
    for turn in range(2):
        loop.call_soon(called.append, turn)
        loop.stop()
        loop.run_forever()

    assert called == [0, 1]


def test_timers_are_called_in_the_order_of_their_moments_and_cancelled_ones_never(loop):
    called: list[str] = []
    loop.call_later(0.02, called.append, "later")
    never = loop.call_later(0.0, called.append, "never")
    loop.call_later(0.01, called.append, "sooner")
    never.cancel()

    run(loop, lambda: "later" in called)

    assert called == ["sooner", "later"]


def test_a_timer_that_a_callback_of_the_same_round_cancels_is_not_called(loop):
    called: list[str] = []
    loop.call_later(0.0, lambda: second.cancel())
    second = loop.call_later(0.0, called.append, "cancelled")

    run(loop)
    run(loop)

    assert called == []


def test_a_reader_is_called_until_it_is_removed(loop, pipe):
    seen: list[bytes] = []

    def read(size: int) -> None:
        seen.append(os.read(pipe[0], size))
        if len(seen) == 2:
            removed.append(loop.remove_reader(pipe[0]))

    removed: list[bool] = []
    loop.add_reader(pipe[0], read, 1)
    os.write(pipe[1], b"abc")

    run(loop, lambda: len(seen) == 2)
    run(loop)

    assert seen == [b"a", b"b"]
    assert removed == [True]
    assert not loop.remove_reader(pipe[0])


def test_another_reader_takes_the_place_of_the_first(loop, pipe):
    called: list[str] = []
    loop.add_reader(pipe[0], called.append, "first")
    loop.add_reader(pipe[0], lambda: (called.append("second"), loop.remove_reader(pipe[0])))
    os.write(pipe[1], b"x")

    run(loop, lambda: bool(called))

    assert called == ["second"]


def test_the_writing_end_of_a_pipe_is_readable_once_nobody_reads_it(loop):
    reading, writing = os.pipe()
    gone: list[bool] = []
    loop.add_reader(writing, lambda: gone.append(loop.remove_reader(writing)))
    run(loop)
    assert gone == []

    os.close(reading)
    run(loop, lambda: bool(gone))

    os.close(writing)
    assert gone == [True]


def test_a_thread_wakes_a_loop_that_waits(loop):
    thread = threading.Thread(target=lambda: loop.call_soon_threadsafe(loop.stop))
    loop.call_soon(thread.start)
    late = loop.call_later(PATIENCE, pytest.fail, "it was not woken")

    loop.run_forever()

    late.cancel()
    thread.join()


def test_a_thread_is_told_when_the_loop_has_been_closed(loop):
    loop.close()

    with pytest.raises(RuntimeError):
        loop.call_soon_threadsafe(print)
    assert loop.is_closed()


def test_signals_reach_the_loop_until_their_handler_is_removed(loop):
    heard: list[str] = []
    for number, name in ((signal.SIGUSR1, "one"), (signal.SIGUSR2, "two")):
        loop.add_signal_handler(number, heard.append, name)
    loop.call_soon(os.kill, os.getpid(), signal.SIGUSR1)
    loop.call_soon(os.kill, os.getpid(), signal.SIGUSR2)

    run(loop, lambda: len(heard) == 2)

    assert heard == ["one", "two"]
    assert loop.remove_signal_handler(signal.SIGUSR1)
    assert not loop.remove_signal_handler(signal.SIGUSR1)
    assert signal.getsignal(signal.SIGUSR1) is signal.SIG_DFL
    loop.close()
    assert signal.getsignal(signal.SIGUSR2) is signal.SIG_DFL


def test_an_error_of_a_callback_ends_the_loop_of_dibs_run():
    with closing(ForegroundLoop()) as loop:
        loop.call_soon(lambda: 1 // 0)

        with pytest.raises(ZeroDivisionError):
            loop.run_forever()
