"""Reads a probe again and again in a thread: a failing card can block its driver for minutes."""

import threading
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta

from dibs.dataclass import dataclass
from dibs.gpus.probe import Probe, ProbeFailed
from dibs.model.gpus import GpuFault, Reading

Callback = Callable[[Reading | None], None]
_MOST_FAULTS = 100  # not reported yet; a failing card may report faults without end


class Watcher:
    """Reads the GPUs repeatedly, in threads of its own.

    `latest` is the last good reading, with the last known energy; `failure` is why the newest read failed. A probe
    reports a fault once: the next answer contains the faults that no answer contained yet. Therefore other readers
    of the probe go through the watcher, which is a probe too. Callbacks come from a thread, with the watcher's
    lock held: hand the reading over (`loop.call_soon_threadsafe`) and return. After `stop` there are no callbacks.
    """

    def __init__(self, probe: Probe, *, interval: float = 1.0, deadline: float = 5.0) -> None:
        self.latest: Reading | None = None
        self.failure: ProbeFailed | None = None
        self._probe = probe
        self._interval = interval
        self._deadline = deadline
        self._asks: list[_Ask] = []  # oldest first
        self._untold: tuple[GpuFault, ...] = ()
        self._change = threading.Condition()
        self._stopped = threading.Event()

    def start(self) -> None:
        """Start the threads; the first read begins at once."""
        for name, work in (("dibs-gpu-reader", self._read_on), ("dibs-gpu-deadline", self._give_up_on)):
            threading.Thread(target=work, name=name, daemon=True).start()

    def ask(self, callback: Callback) -> None:
        """Call back with a reading that began after this moment, or with None at the deadline or a failure.

        All questions asked before a read begins share it.
        """
        with self._change:
            if self._stopped.is_set():
                return
            self._asks.append(_Ask(at=time.monotonic(), callback=callback))
            self._change.notify_all()

    def read(self, *, energy: bool = False) -> Reading:
        """Read once, in the caller's thread, without a deadline. The next answer contains its faults too."""
        reading = self._probe.read(energy=energy)
        with self._change:
            self._untold = (*self._untold, *reading.faults)[:_MOST_FAULTS]
        return reading

    def is_stale(self, now: datetime) -> bool:
        """Whether `latest` is missing or too old, or the newest read failed."""
        if self.latest is None or self.failure is not None:
            return True
        # A reading from the future is stale too: the clock was set back, and its age is unknown.
        return abs(now - self.latest.at) > timedelta(seconds=self._interval + self._deadline)

    def stop(self) -> None:
        """Let the threads end by themselves, without waiting for one that hangs in the driver."""
        with self._change:
            self._stopped.set()
            self._asks.clear()
            self._change.notify_all()

    def _read_on(self) -> None:
        while not self._stopped.is_set():
            begun = time.monotonic()
            reading, failure = self._look()
            with self._change:
                if reading is not None and self._untold:
                    reading = replace(reading, faults=(*self._untold, *reading.faults))
                self.latest, self.failure = _with_energy(reading, self.latest), failure
                is_told = self._answer_asked_before(begun, reading)
                if reading is not None:
                    self._untold = () if is_told else reading.faults[:_MOST_FAULTS]
                self._change.wait_for(lambda: self._asks or self._stopped.is_set(), timeout=self._interval)

    def _look(self) -> tuple[Reading | None, ProbeFailed | None]:
        try:
            return self._probe.read(), None
        except ProbeFailed as failure:
            return None, failure
        except Exception as error:  # a bug, or too many threads: the next read may succeed
            return None, ProbeFailed(f"cannot ask the driver for its GPUs: {error!r}")

    def _give_up_on(self) -> None:
        # It checks now and then instead of waiting for each ask: asks are frequent, hanging cards are rare.
        while not self._stopped.wait(self._deadline / 4):
            with self._change:
                self._answer_asked_before(time.monotonic() - self._deadline, None)

    def _answer_asked_before(self, moment: float, reading: Reading | None) -> bool:
        """Whether there was a question to answer."""
        asked, self._asks = (
            [ask for ask in self._asks if ask.at <= moment],
            [ask for ask in self._asks if ask.at > moment],
        )
        for ask in asked:
            ask.callback(reading)
        return bool(asked)


def _with_energy(reading: Reading | None, before: Reading | None) -> Reading | None:
    """The newer of the two. Most readings have no energy: the last known value is kept."""
    if reading is None or before is None:
        return reading or before
    known = {seen.gpu.key: seen.energy for seen in before.gpus if seen.energy is not None}
    if not known:
        return reading
    gpus = (
        replace(seen, energy=known.get(seen.gpu.key)) if seen.energy is None else seen for seen in reading.gpus
    )
    return replace(reading, gpus=tuple(gpus))


@dataclass(frozen=True, kw_only=True, slots=True)
class _Ask:
    at: float  # time.monotonic
    callback: Callback
