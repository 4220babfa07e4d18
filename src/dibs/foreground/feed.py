"""Reads job lists in threads of their own, so that a slow generator or an endless pipe does not block the loop."""

import queue
import threading
from collections.abc import Callable, Iterable, Sequence

from dibs.dataclass import dataclass
from dibs.errors import DibsError
from dibs.inputs.entries import BadEntry, Entry

_BATCH = 500  # entries accepted in one transaction
_AT_ONCE = 64  # entries that are read after a pause; one at a time each would cost a transaction


@dataclass(frozen=True, slots=True)
class JobList:
    """A job list to be read.

    `look_ahead` is how many waiting jobs are enough for now: a pipe is read on, a generator is pulled only as
    far as there is work for it.
    """

    entries: Iterable[Entry]
    look_ahead: int = 10_000
    is_quick: bool = True  # a file: read in order with the other files; otherwise a thread of its own


class Feed:
    """Hands entries to the loop in batches. `wake` is called from a thread when there is something to take."""

    def __init__(self, lists: Sequence[JobList], wake: Callable[[], None]) -> None:
        self._wake = wake
        self._entries: queue.SimpleQueue[Entry] = queue.SimpleQueue()
        self._room = threading.Condition()
        self._waiting = 0  # jobs in the queue, as the loop last told us, plus what we have read since
        self._few = 0  # with fewer waiting jobs than that, a paused reader goes on
        self._stopped = False
        self._wake_is_due = False  # the loop was woken and has not come yet
        self.errors: list[DibsError] = []
        quick = [one for one in lists if one.is_quick]
        readers = [[one] for one in lists if not one.is_quick] + ([quick] if quick else [])
        self._left = len(readers)
        self._threads = [
            threading.Thread(target=self._read, args=(reader,), name="dibs-feed", daemon=True)
            for reader in readers
        ]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def take(self) -> list[Entry]:
        """The entries read so far, at most one batch. Call it until there is none."""
        with self._room:
            self._wake_is_due = False  # before taking: an entry put after this wakes the loop again
        batch: list[Entry] = []
        while len(batch) < _BATCH:
            try:
                batch.append(self._entries.get_nowait())
            except queue.Empty:
                break
        return batch

    def tell_waiting(self, waiting: int) -> None:
        """Say how many jobs wait, so that reading goes on when there are few."""
        with self._room:
            self._waiting = waiting + self._entries.qsize()
            if self._waiting < self._few:
                self._few = 0
                self._room.notify_all()

    @property
    def is_over(self) -> bool:
        """Every list has been read and taken."""
        return self._left == 0 and self._entries.empty()

    def stop(self) -> None:
        """Read nothing more. A thread that waits for input is left behind."""
        with self._room:
            self._stopped = True
            self._room.notify_all()

    def _read(self, lists: Sequence[JobList]) -> None:
        try:
            for one in lists:
                for entry in one.entries:
                    if not self._make_room(one.look_ahead):
                        return
                    self._entries.put(entry)
                    self._wake_once()
        except DibsError as error:
            # The jobs before it go on; the display shows the error and the run counts as failed.
            self.errors.append(error)
        finally:
            with self._room:
                self._left -= 1
            self._wake()

    def _make_room(self, enough: int) -> bool:
        """Count one more waiting job, once there are not enough of them; False where nothing more is read."""
        with self._room:
            few = enough if self._waiting < enough else enough - min(_AT_ONCE, enough // 2)
            while self._waiting >= few and not self._stopped:
                self._few = max(self._few, few)
                self._room.wait()
            self._waiting += 1
            return not self._stopped

    def _wake_once(self) -> None:
        """Wake the loop, unless it has been woken and will come anyway."""
        with self._room:
            was_due, self._wake_is_due = self._wake_is_due, True
        if not was_due:
            self._wake()


def refusal(entry: BadEntry) -> tuple[str, str]:
    """What is shown of a bad line, and the sentence that says why it cannot run."""
    return entry.shown, f"{entry.where}: {entry.message}" if entry.where else entry.message
