"""A terminal for one command: it gets a pty, we relay bytes and the window's size.

Ctrl-C, colours, prompts and full-screen programs work as without dibs. When we die, the shim goes on reading the
pty, so that the command neither blocks nor loses its output.
"""

import contextlib
import fcntl
import os
import pty
import signal
import termios
import tty
from collections.abc import Callable
from typing import Any

from dibs.backends.protocol import AttachedStreams
from dibs.supervise.folder import open_own_file

_CHUNK = 65536


class Terminal:
    """Our terminal and the command's pty, tied together while it runs."""

    def __init__(self, add_reader: Callable[..., Any], remove_reader: Callable[[int], Any]) -> None:
        self._add_reader = add_reader
        self._remove_reader = remove_reader
        self._master, slave = pty.openpty()
        lifeline_for_shim, self._lifeline = os.pipe()  # the shim sees its end when we are gone
        self.attached = AttachedStreams(terminal=(self._master, slave, lifeline_for_shim))
        self._slave, self._lifeline_for_shim = slave, lifeline_for_shim
        self._saved: list[Any] | None = None
        self._log = -1
        self.follow_size()

    def begin(self, log: str) -> None:
        """The command has been handed over: type to it, show what it writes, and keep that in its log."""
        self._log = open_own_file(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        with contextlib.suppress(termios.error):
            self._saved = termios.tcgetattr(0)
            tty.setraw(0, termios.TCSANOW)  # what was typed ahead is for the command
        os.set_blocking(self._master, False)
        self._add_reader(self._master, self._show)
        self._add_reader(0, self._type)

    def follow_size(self) -> None:
        """Give the pty the size of our window."""
        with contextlib.suppress(OSError):
            fcntl.ioctl(self._master, termios.TIOCSWINSZ, fcntl.ioctl(0, termios.TIOCGWINSZ, b"\0" * 8))

    def pause(self) -> None:
        """The command has ended: show the rest and give our terminal back as it was. It may be tried again."""
        if self._log < 0:
            return
        while self._show():
            pass
        self._remove_reader(self._master)
        self._remove_reader(0)
        if self._saved is not None:
            with contextlib.suppress(termios.error):
                termios.tcsetattr(0, termios.TCSADRAIN, self._saved)
        os.close(self._log)
        self._log = -1

    def end(self) -> None:
        self.pause()
        for fd in (self._master, self._slave, self._lifeline, self._lifeline_for_shim):
            os.close(fd)

    def _show(self) -> bool:
        """Show one piece, and say whether there was one. A flood must not keep us from typed keys."""
        try:
            data = os.read(self._master, _CHUNK)
        except BlockingIOError:
            return False
        except OSError:
            self._remove_reader(self._master)  # EIO: every process of the command has closed it
            return False
        with contextlib.suppress(OSError):  # a full disk is no reason to stop showing
            os.write(self._log, data)
        _write_all(1, data)
        return bool(data)

    def _type(self) -> None:
        try:
            data = os.read(0, _CHUNK)
        except OSError:
            data = b""
        if not data:
            self._remove_reader(0)  # our own terminal is gone; the command goes on
            return
        with contextlib.suppress(OSError):
            _write_all(self._master, data)


def is_terminal() -> bool:
    """Whether stdin and stdout are our terminal, and it is not used by another command."""
    return os.isatty(0) and os.isatty(1) and not is_in_background()


def is_in_background() -> bool:
    """Whether our terminal belongs to another command now: then touching it would only stop us."""
    try:
        return os.tcgetpgrp(0) != os.getpgrp()
    except OSError:
        return False  # no terminal at all


def _write_all(fd: int, data: bytes) -> None:
    while data:
        try:
            data = data[os.write(fd, data) :]
        except BlockingIOError:
            # Rare: a paste larger than the pty's buffer. Waiting a moment loses nothing.
            signal.sigtimedwait([], 0.005)
        except OSError:
            return
