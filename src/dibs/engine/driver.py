"""Runs an engine on an event loop: calls `turn` when something happened or is due, and has the cards read."""

import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from dibs.dataclass import dataclass
from dibs.model.events import Event
from dibs.supervise.launcher import AddReader, RemoveReader
from dibs.worker_thread import WorkerThread

if TYPE_CHECKING:
    from dibs.engine.engine import Engine
    from dibs.engine.watch.sampling import Sampler
    from dibs.gpus.probe import Probe
    from dibs.gpus.watcher import Watcher
    from dibs.model.gpus import Reading


_ASK_CLOSELY = 0.6  # seconds between two readings while jobs wait to learn what a similar one needs
_ASK_ON_GUARD = 0.2  # the same while jobs share a card whose need is not known yet
_ASK_WITHOUT_WORK = 30.0  # seconds between two readings while no job waits or runs
_TOO_OLD = 2.0  # seconds; after that another program may use a card that was free
_LONGEST_SLEEP = 60.0  # seconds; the wall clock may be set while a timer waits


class PendingCall(Protocol):
    """What `call_later` returns."""

    def cancel(self) -> None: ...


class EventLoop(Protocol):
    """What a driver needs of a loop: asyncio's, or the one of `dibs run`."""

    def call_soon(self, callback: Callable[..., object], *args: Any) -> object: ...

    def call_soon_threadsafe(self, callback: Callable[..., object], *args: Any) -> object:
        """RuntimeError where the loop is closed."""

    def call_later(self, delay: float, callback: Callable[..., object], *args: Any) -> PendingCall: ...

    def add_reader(self, fd: int, callback: Callable[..., object], *args: Any) -> object: ...

    def remove_reader(self, fd: int) -> bool: ...

    def is_closed(self) -> bool: ...


@dataclass(frozen=True, slots=True)
class Hooks:
    """What an engine needs of the loop. It calls `ask_for_turn` when it has something to do."""

    add_reader: AddReader
    remove_reader: RemoveReader
    announce: Callable[[Sequence[Event]], None]
    ask_for_turn: Callable[[], None]
    start_thread: Callable[[str], WorkerThread]  # of this name, with its results on the loop


class Driver:
    """The loop around one engine.

    It is built before the engine, which needs its `hooks`; `drive` then takes the engine. `after_turn` is called
    after each turn, `fell` with an unexpected error of one. Without `fell` the loop's own handler gets it.
    """

    def __init__(
        self,
        loop: EventLoop,
        *,
        after_turn: Callable[[], None] = lambda: None,
        fell: Callable[[Exception], None] | None = None,
    ) -> None:
        self.engine: Engine
        self.watcher: Watcher | None = None
        self.sampler: Sampler | None = None
        self.has_looked = False  # at the cards
        self._is_answered = True  # the last reading was answered
        self._loop = loop
        self._sampling_thread: WorkerThread | None = None
        self._after_turn = after_turn
        self._fell = fell
        self._turn_is_due = False
        self._timer: PendingCall | None = None
        self._wakes_at: float | None = None  # the moment that the timer is set for
        self._next_look: PendingCall | None = None
        self._next_check: PendingCall | None = None
        self._seen_at = 0.0  # time.monotonic of the last answer
        self._is_busy = True  # jobs wait or run: the cards are read often

    def hooks(self, announce: Callable[[Sequence[Event]], None]) -> Hooks:
        """What the engine is built with."""
        return Hooks(
            self._loop.add_reader, self._loop.remove_reader, announce, self.ask_for_turn, self._start_thread
        )

    def drive(self, engine: "Engine") -> None:
        self.engine = engine

    def watch(self, probe: "Probe") -> None:
        """Read the cards from now on: often while there is work, rarely while there is none."""
        from dibs.engine.watch.sampling import Sampler
        from dibs.gpus.watcher import Watcher

        self._sampling_thread = self._start_thread("sampler")
        self.sampler = Sampler(self.engine, self._sampling_thread.submit)
        self.watcher = Watcher(probe, interval=_ASK_WITHOUT_WORK)
        self.watcher.start()
        # Nothing starts before the first reading, so that a busy card is not given away in the first second.
        self.engine.cards.wait_for_reading()
        self._look()

    def _start_thread(self, name: str) -> WorkerThread:
        return WorkerThread(self._loop.call_soon_threadsafe, name)

    @property
    def is_looking(self) -> bool:
        """Whether a reading is under way that decisions have to wait for."""
        return self.watcher is not None and (not self.has_looked or self.engine.cards.are_unsettled)

    @property
    def is_turn_due(self) -> bool:
        return self._turn_is_due

    def ask_for_turn(self) -> None:
        """Schedule a turn, unless one is scheduled already."""
        if not self._turn_is_due:
            self._turn_is_due = True
            self._loop.call_soon(self._turn)

    async def look(self, seconds: float) -> "Reading | None":
        """A reading that begins now; None where the cards are not read or do not answer within these seconds."""
        import asyncio  # by those only that have its loop

        if self.watcher is None:
            return None
        answer: asyncio.Future[Reading | None] = asyncio.get_running_loop().create_future()

        def came(reading: "Reading | None") -> None:
            self._saw(reading)
            if not answer.done():
                answer.set_result(reading)

        self.watcher.ask(lambda reading: _call(self._loop, came, reading))
        try:
            return await asyncio.wait_for(answer, seconds)
        except TimeoutError:
            return None

    def stop(self) -> None:
        """Stop turns and readings."""
        if self.watcher:
            self.watcher.stop()
        if self.sampler and self._sampling_thread:
            self.engine.meters.close_all()
            self._sampling_thread.stop()
        for timer in (self._timer, self._next_look, self._next_check):
            if timer is not None:
                timer.cancel()
        self._turn_is_due = True  # so that no other is scheduled

    # -- turns -----------------------------------------------------------------------------------------

    def _turn(self) -> None:
        self._turn_is_due = False
        self._look_before_work()
        try:
            self.engine.turn()
        except Exception as error:
            if self._fell is None:
                raise
            self._fell(error)
        self._set_timer()
        # Not after a failure: a driver that fails at once would be asked without end. The next reading is soon.
        if self.watcher and self._is_answered and self.engine.cards.are_unsettled:
            self.watcher.ask(self._saw_from_thread)
        if self.watcher is None and self._next_check is None and self.engine.running:
            self._next_check = self._loop.call_later(self.engine.cards.rules.reading_seconds, self._check_leases)
        self._after_turn()

    def _set_timer(self) -> None:
        wake_at = self.engine.wake_at
        if self._timer is not None:
            if wake_at == self._wakes_at:
                return
            self._timer.cancel()
            self._timer = None
        if wake_at is not None:
            pause = min(max(0.0, wake_at - time.time()), _LONGEST_SLEEP)
            self._timer = self._loop.call_later(pause, self._wake_up)
        self._wakes_at = wake_at

    def _wake_up(self) -> None:
        self._timer = None
        self.ask_for_turn()

    # -- cards -----------------------------------------------------------------------------------------

    def _look_before_work(self) -> None:
        """The first job after an idle time waits for a new reading: other programs may use the cards by now."""
        has_work = bool(self.engine.running or self.engine.waiting)
        if self.watcher is None or has_work == self._is_busy:
            return
        self._is_busy = has_work
        if has_work:
            if self.has_looked and time.monotonic() - self._seen_at > _TOO_OLD:
                self.has_looked = False
                self.engine.cards.wait_for_reading()
            self._look()

    def _look(self) -> None:
        assert self.watcher is not None
        if self._next_look is not None:
            self._next_look.cancel()
        self.watcher.ask(self._saw_from_thread)
        often = self.engine.cards.rules.reading_seconds
        if self.engine.looks_closely:
            often = min(often, _ASK_CLOSELY)
        if self.engine.guards_cards:
            often = min(often, _ASK_ON_GUARD)
        pause = often if self._is_busy else max(often, _ASK_WITHOUT_WORK)
        self._next_look = self._loop.call_later(pause, self._look)

    def _check_leases(self) -> None:
        """Where there are no readings, the lease files are checked as often as cards are read."""
        self._next_check = None
        self.engine.check_leases()
        self.ask_for_turn()

    def _saw_from_thread(self, reading: "Reading | None") -> None:
        _call(self._loop, self._saw, reading)

    def _saw(self, reading: "Reading | None") -> None:
        assert self.watcher is not None
        self.has_looked = True
        self._is_answered = reading is not None
        self._seen_at = time.monotonic()
        failure = self.watcher.failure.message if self.watcher.failure else "no answer from the driver"
        self.engine.cards.saw(reading, failure)
        if reading is not None:
            self.engine.readings.publish(reading)
        self.engine.check_leases()
        self.ask_for_turn()


def _call(loop: EventLoop, callback: "Callable[[Reading | None], None]", reading: "Reading | None") -> None:
    """Call it on the loop, from a thread that may outlive the loop."""
    if not loop.is_closed():
        loop.call_soon_threadsafe(callback, reading)
