"""The event loop of `dibs run`: what the engine's driver and the terminal need of asyncio's, without its import.

Importing asyncio takes as long as importing the whole engine. An error of a callback ends `run_forever`.
"""

import heapq
import selectors
import signal
import socket
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from itertools import count
from typing import Any


class Timer:
    """A callback that is due at a moment."""

    __slots__ = ("callback",)

    def __init__(self, callback: Callable[[], object]) -> None:
        self.callback: Callable[[], object] | None = callback

    def cancel(self) -> None:
        self.callback = None


class ForegroundLoop:
    """Has the methods of asyncio's loop that it has in common with it, with their meaning. For the main thread."""

    def __init__(self) -> None:
        self._ready: deque[Callable[[], object]] = deque()
        self._timers: list[tuple[float, int, Timer]] = []  # a heap; the number keeps the order of equal moments
        self._number = count()
        self._selector = selectors.DefaultSelector()
        self._handlers: dict[int, Callable[[], object]] = {}  # of signals
        self._is_stopping = False
        self._is_closed = False
        # Other threads and the interpreter's signal handler write to it.
        self._woken, self._waker = socket.socketpair()
        self._woken.setblocking(False)
        self._waker.setblocking(False)
        self.add_reader(self._woken.fileno(), self._read_wakes)

    def run_forever(self) -> None:
        """Call what is due until `stop`, or until a callback raises an error."""
        while True:
            self._run_once()
            if self._is_stopping:
                self._is_stopping = False
                return

    def stop(self) -> None:
        """End `run_forever` after the callbacks that are due now."""
        self._is_stopping = True

    def is_closed(self) -> bool:
        return self._is_closed

    def close(self) -> None:
        if self._is_closed:
            return
        self._is_closed = True
        for number in list(self._handlers):
            self.remove_signal_handler(number)
        self._selector.close()
        self._woken.close()
        self._waker.close()

    # -- callbacks -------------------------------------------------------------------------------------

    def call_soon(self, callback: Callable[..., object], *values: Any) -> None:
        self._ready.append(partial(callback, *values) if values else callback)

    def call_soon_threadsafe(self, callback: Callable[..., object], *values: Any) -> None:
        """The same from another thread. RuntimeError where the loop is closed."""
        if self._is_closed:
            raise RuntimeError("the event loop is closed")
        self.call_soon(callback, *values)
        self._wake()

    def call_later(self, delay: float, callback: Callable[..., object], *values: Any) -> Timer:
        timer = Timer(partial(callback, *values))
        heapq.heappush(self._timers, (time.monotonic() + delay, next(self._number), timer))
        return timer

    def add_reader(self, fd: int, callback: Callable[..., object], *values: Any) -> None:
        """Call this whenever the descriptor is readable or has an error; it replaces an earlier callback."""
        call = partial(callback, *values)
        try:
            self._selector.register(fd, selectors.EVENT_READ, call)
        except KeyError:
            self._selector.modify(fd, selectors.EVENT_READ, call)

    def remove_reader(self, fd: int) -> bool:
        """False where the descriptor had no reader."""
        if self._is_closed:
            return False
        try:
            self._selector.unregister(fd)
        except KeyError:
            return False
        return True

    def add_signal_handler(self, number: int, callback: Callable[..., object], *values: Any) -> None:
        signal.set_wakeup_fd(self._waker.fileno())
        self._handlers[number] = partial(callback, *values)
        signal.signal(number, _leave_to_loop)
        signal.siginterrupt(number, False)

    def remove_signal_handler(self, number: int) -> bool:
        """The signal does again what it does without a handler. False where it had none."""
        if self._handlers.pop(number, None) is None:
            return False
        signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)
        if not self._handlers:
            signal.set_wakeup_fd(-1)
        return True

    # -- one round -------------------------------------------------------------------------------------

    def _run_once(self) -> None:
        for key, _ in self._selector.select(self._patience()):
            self._ready.append(partial(self._call_reader, key.fd, key.data))
        now = time.monotonic()
        while self._timers and self._timers[0][0] <= now:
            timer = heapq.heappop(self._timers)[2]
            if timer.callback is not None:
                self._ready.append(partial(_call_timer, timer))
        for _ in range(len(self._ready)):  # what they add is for the next round
            self._ready.popleft()()

    def _patience(self) -> float | None:
        """Seconds to wait for a descriptor."""
        while self._timers and self._timers[0][2].callback is None:
            heapq.heappop(self._timers)
        if self._ready or self._is_stopping:
            return 0.0
        return max(0.0, self._timers[0][0] - time.monotonic()) if self._timers else None

    def _call_reader(self, fd: int, call: Callable[[], object]) -> None:
        """Call it, unless a callback of this round has removed it."""
        key = self._selector.get_map().get(fd)
        if key is not None and key.data is call:
            call()

    def _wake(self) -> None:
        with suppress(OSError):  # it is full, so the loop will wake up; or it has just been closed
            self._waker.send(b"\0")

    def _read_wakes(self) -> None:
        with suppress(BlockingIOError):
            while woken := self._woken.recv(4096):
                for number in filter(None, woken):
                    if number in self._handlers:
                        self.call_soon(self._handlers[number])


def _call_timer(timer: Timer) -> None:
    """A callback of this round may have cancelled it."""
    if timer.callback is not None:
        timer.callback()


def _leave_to_loop(number: int, frame: object) -> None:
    """The interpreter has written the signal's number to the loop's socket."""
