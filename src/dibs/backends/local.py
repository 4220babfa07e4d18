"""This machine as a place where attempts run: a shim for each, watched through its channel or its FIFO."""

import contextlib
import os
import socket
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from dibs.model.jobs import Attempt
from dibs.supervise import folder
from dibs.supervise.folder import Facts
from dibs.supervise.launcher import AddReader, Launcher, RemoveReader


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

    def __init__(self, add_reader: AddReader, remove_reader: RemoveReader) -> None:
        self._launcher = Launcher(add_reader, remove_reader)
        self._add_reader = add_reader
        self._remove_reader = remove_reader

    def warm_up(self) -> None:
        self._launcher.warm_up()

    def submit(
        self,
        attempt: Attempt,
        spec: dict[str, Any],
        leases: Sequence[int],
        when_done: Callable[[], None],
        attached: Attached | None = None,
    ) -> None:
        """Hand an attempt to a shim. Raises OSError when its folder cannot be made: then nothing was started."""
        attached = attached or Attached()
        exit_record = folder.prepare(attempt.folder, spec)
        try:
            self._launcher.hand_over(
                attempt.folder,
                [exit_record, *attached.fds, *leases],
                when_done,
                stdin=attached.stdin is not None,
                terminal=attached.terminal is not None,
            )
        finally:
            os.close(exit_record)

    def adopt(self, attempt: Attempt, when_done: Callable[[], None]) -> None:
        """Watch an attempt that another engine started."""
        fd = folder.watch(attempt.folder)
        if fd is None:
            when_done()
            return

        def gone() -> None:
            self._remove_reader(fd)
            os.close(fd)
            when_done()

        # A FIFO's writing end is never readable; it reports an error once its reader is gone.
        self._add_reader(fd, gone)

    def observe(self, attempt: Attempt) -> Facts:
        return folder.facts(attempt.folder)

    def tell(self, attempt: Attempt, word: str) -> None:
        """Send `stop`, `kill` or `signal N` to an attempt; nothing happens when it is over."""
        tell(attempt.folder, word)

    def close(self) -> None:
        self._launcher.close()


def tell(attempt_folder: str, word: str) -> bool:
    """Send a word to whatever shim looks after this folder; False when none does."""
    fd = folder.watch(attempt_folder)
    if fd is None:
        return False
    with contextlib.suppress(OSError):
        os.write(fd, word.encode() + b"\n")
    os.close(fd)
    return True


def free_port() -> int:
    """A port that nobody listens on now, for the processes of one job to meet."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
