"""A person at a terminal, made of the standard library."""

import fcntl
import os
import pty
import select
import signal
import struct
import termios
import time
from contextlib import suppress

from stories.outside import DIBS, PATIENCE, World


class Session:
    """A dibs on a terminal of its own."""

    def __init__(self, world: World, *arguments: str, size: tuple[int, int] = (24, 80)) -> None:
        self.text = b""
        self._status: int | None = None
        self.pid, self._fd = pty.fork()
        if self.pid == 0:
            try:
                os.chdir(world.folder)
                _resize(0, size)
                os.execve(DIBS, [DIBS, *arguments], world.environ | {"TERM": "xterm"})
            finally:
                os._exit(99)

    def type(self, keys: str) -> None:
        os.write(self._fd, keys.encode())

    def resize(self, rows: int, columns: int) -> None:
        """The kernel sends SIGWINCH to the foreground process group."""
        _resize(self._fd, (rows, columns))

    def expect(self, words: str, seconds: float = PATIENCE) -> None:
        """Read until these words have come; what came before them is forgotten."""
        until = time.monotonic() + seconds
        while words.encode() not in self.text:
            assert self._read(until), f"waited for {words!r} in vain; last seen: {self.text[-2000:]!r}"
        self.text = self.text.partition(words.encode())[2]

    def wait(self, seconds: float = PATIENCE) -> int:
        """Read to the end; the exit code, or -n for a signal."""
        until = time.monotonic() + seconds
        while self._read(until):
            pass
        assert time.monotonic() < until, f"it has not ended; last seen: {self.text[-2000:]!r}"
        return self._reap()

    def kill(self) -> None:
        os.kill(self.pid, signal.SIGKILL)
        self._reap()

    def close(self) -> None:
        if self._status is None:
            with suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)
            self._reap()
        os.close(self._fd)

    def _reap(self) -> int:
        if self._status is None:
            self._status = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        return self._status

    def _read(self, until: float) -> bool:
        ready, _, _ = select.select([self._fd], [], [], max(0.0, until - time.monotonic()))
        if not ready:
            return False
        try:
            data = os.read(self._fd, 65536)
        except OSError:  # EIO: the other side is closed
            return False
        self.text += data
        return bool(data)


def _resize(fd: int, size: tuple[int, int]) -> None:
    fcntl.ioctl(fd, termios.TIOCSWINSZ, struct.pack("HHHH", *size, 0, 0))
