"""What is measured of open attempts, until they end. The sampler fills it, where the cards are read."""

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from dibs.engine.turn.state import Key
from dibs.engine.watch import series
from dibs.engine.watch.meter import Meter
from dibs.engine.watch.series import Series
from dibs.model.jobs import Attempt
from dibs.model.usage import Usage

_WRITE_EVERY = 10.0  # seconds
_LEAST_SAMPLES = 2  # of a series that is kept

# Does work in a thread and calls back on the loop; False where it cannot now.
Aside = Callable[[Callable[[], Any], Callable[[Any], Any]], bool]


@dataclass(slots=True)
class Measured:
    """One attempt that is measured."""

    meter: Meter
    shim: int
    folder: str
    written_at: float
    aside: Aside  # where its file is written
    is_steady: bool = False

    @property
    def is_worth_keeping(self) -> bool:
        return self.meter.samples >= _LEAST_SAMPLES

    def is_due(self, now: float) -> bool:
        """Whether its file is old. One that is merged from many looks changes rarely."""
        pause = max(_WRITE_EVERY, self.meter.series.step)
        return self.is_worth_keeping and now - self.written_at >= pause

    def writing(self, now: float) -> Callable[[], None]:
        """What writes the file as it is now, in any thread."""
        folder, usage, columns = self.folder, self.meter.usage(now), self.meter.series.columns()
        return lambda: series.write(folder, usage, columns)

    def write(self, now: float) -> None:
        self.written_at = now
        self.aside(self.writing(now), _ignore)


class Meters:
    """By attempt. Empty where the cards are not read."""

    def __init__(self, ticks: Callable[[], float] = time.monotonic) -> None:
        self._ticks = ticks
        self._measured: dict[Key, Measured] = {}

    def __len__(self) -> int:
        return len(self._measured)

    def __contains__(self, key: Key) -> bool:
        return key in self._measured

    def __getitem__(self, key: Key) -> Measured:
        return self._measured[key]

    def items(self) -> Iterator[tuple[Key, Measured]]:
        return iter(list(self._measured.items()))

    def add(self, key: Key, measured: Measured) -> None:
        self._measured[key] = measured

    def keep_only(self, keys: Iterable[Key]) -> None:
        """Forget the others: they never ran."""
        kept = set(keys)
        self._measured = {key: one for key, one in self._measured.items() if key in kept}

    def usage_of(self, key: Key) -> Usage | None:
        """What an open attempt has used so far; None before the first look at it."""
        measured = self._measured.get(key)
        return None if measured is None or not measured.meter.samples else measured.meter.usage(self._ticks())

    def series_of(self, key: Key) -> Series | None:
        measured = self._measured.get(key)
        return None if measured is None else measured.meter.series

    def close(self, attempt: Attempt) -> bool:
        """An attempt has ended, and that is recorded: keep its series; say whether there is one."""
        measured = self._measured.pop(attempt.key, None)
        if measured is None or not measured.is_worth_keeping:
            return False
        measured.write(self._ticks())
        return True

    def close_all(self) -> None:
        """We leave, and the attempts go on: the next engine goes on with their files."""
        for measured in self._measured.values():
            if measured.is_worth_keeping:
                measured.writing(self._ticks())()
        self._measured.clear()


def _ignore(_: None) -> None:
    pass
