"""This machine as a place where attempts run: a shim for each, watched through its channel or its FIFO."""

import os
import socket
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dibs.model.jobs import Attempt
from dibs.supervise import folder, records
from dibs.supervise.folder import AttemptFacts
from dibs.supervise.launcher import AddReader, Launcher, RemoveReader, WhenDone
from dibs.supervise.orphans import tell_orphans

if TYPE_CHECKING:
    from dibs.supervise.warm.keeping import WarmProcesses

_MOST_RETIRED = 64


@dataclass(frozen=True, slots=True)
class Attached:
    """Descriptors that connect a command to the person who waits for it."""

    stdin: int | None = None
    terminal: tuple[int, int, int] | None = None  # pty master, pty slave, pipe that ends with the front

    @property
    def fds(self) -> tuple[int, ...]:
        return (() if self.stdin is None else (self.stdin,)) + (self.terminal or ())


class LocalBackend:
    """Starts attempts here and tells when a shim has let one go. What became of it, `observe` tells."""

    def __init__(self, root: str, add_reader: AddReader, remove_reader: RemoveReader) -> None:
        self._control = f"{root}/control"
        self._launcher = Launcher(add_reader, remove_reader)
        self._warm: WarmProcesses | None = None
        self._add_reader = add_reader
        self._remove_reader = remove_reader
        self._retired: list[str] = []  # folders that may be used again
        self._told: dict[tuple[int, int], AttemptFacts] = {}  # what shims said at the end, until somebody asks
        self._watched: set[int] = set()  # FIFOs of adopted attempts

    def warm_up(self) -> None:
        os.makedirs(self._control, mode=0o700, exist_ok=True)
        self._launcher.warm_up()

    def submit(
        self,
        attempt: Attempt,
        spec: dict[str, Any],
        leases: Sequence[int],
        when_done: Callable[[], None],
        attached: Attached | None = None,
    ) -> None:
        """Hand an attempt to a shim. Raises OSError when its folder cannot be made: nothing was started then."""
        attached = attached or Attached()
        record, done = self._prepare(attempt, spec), self._hear(attempt, when_done)
        fds = [record, *attached.fds, *leases]
        stdin, terminal = attached.stdin is not None, attached.terminal is not None
        try:
            if "warm" in spec:
                self._get_warm().hand_over(spec, self._control, fds, done, stdin=stdin, terminal=terminal)
            else:
                self._launcher.hand_over(self._control, fds, done, stdin=stdin, terminal=terminal)
        finally:
            os.close(record)

    def adopt(self, attempt: Attempt, when_done: Callable[[], None]) -> bool:
        """Watch an attempt that another engine started; False when it cannot be watched (yet)."""
        fd = folder.watch(attempt.folder)
        if fd is None:
            return False

        def gone() -> None:
            self._unwatch(fd)
            when_done()

        # A FIFO's writing end is never readable; it reports an error once its reader is gone.
        self._add_reader(fd, gone)
        self._watched.add(fd)
        return True

    def observe(self, attempt: Attempt) -> AttemptFacts:
        """What became of an attempt: what its shim told us, or what stands in its folder."""
        return self._told.pop(attempt.key, None) or folder.facts(attempt.folder)

    def retire(self, attempt: Attempt) -> bool:
        """The outcome is safe in the store: a folder in which nothing else stands may be used again.

        Says whether it will be.
        """
        if len(self._retired) >= _MOST_RETIRED or not folder.is_silent(attempt.folder):
            return False
        self._retired.append(attempt.folder)
        return True

    def let_go_of(self, folders: Sequence[str]) -> None:
        """Use none of these folders again: somebody is going to remove them."""
        self._retired = [folder for folder in self._retired if folder not in folders]

    def tell(self, attempt: Attempt, word: str) -> bool:
        """Send `stop`, `kill` or `signal N` to an attempt; False when nobody hears it (yet).

        Where its supervisor was killed, its processes hear it themselves. One that waits for a warm process is
        taken back instead of being ended.
        """
        if self._warm is not None and word in ("stop", "kill") and self._warm.withdraw(attempt.key):
            return True
        if folder.tell(attempt.folder, word):
            return True
        seen = folder.facts(attempt.folder)
        return seen.has_started and not seen.is_locked and tell_orphans(attempt.folder, word)

    def close(self) -> None:
        """Leave. What runs goes on with its shim."""
        if self._warm is not None:
            self._warm.close()
        self._launcher.close()
        for fd in list(self._watched):
            self._unwatch(fd)

    @property
    def warm_processes(self) -> list[tuple[tuple[str, ...], int | None]]:
        """The modules of each, and its pid once it has imported them."""
        return [] if self._warm is None else self._warm.shown

    def _prepare(self, attempt: Attempt, spec: dict[str, Any]) -> int:
        record = folder.reuse(self._retired.pop(), attempt.folder, spec) if self._retired else None
        return folder.prepare(attempt.folder, spec) if record is None else record

    def _hear(self, attempt: Attempt, when_done: Callable[[], None]) -> WhenDone:
        """Called by whoever hears from the attempt's shim at its end."""

        def done(content: bytes | None) -> None:
            if content is not None and (found := records.decode(content)) is not None:
                self._told[attempt.key] = AttemptFacts(
                    is_locked=False, record=found, has_started=True, is_told=True
                )
            when_done()

        return done

    def _get_warm(self) -> "WarmProcesses":
        if self._warm is None:
            from dibs.supervise.warm.keeping import WarmProcesses  # few jobs want it

            self._warm = WarmProcesses(self._launcher, self._add_reader, self._remove_reader)
        return self._warm

    def _unwatch(self, fd: int) -> None:
        self._watched.remove(fd)
        self._remove_reader(fd)
        os.close(fd)


def is_free_port(port: int) -> bool:
    """Whether nobody uses this port now, at whatever address of the machine."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        try:
            probe.bind(("", port))
        except OSError:
            return False
        return True
