"""A shim's channel to its engine: attempts come with their locked descriptors, records go back.

The engine may send the next attempts while one still runs. They wait in the socket, and their locks with them; so
one short command follows the other without a word in between. If the first takes longer, they are turned away.

Standard library only, everything imported at the top: the package may be deleted while we run.
"""

import contextlib
import json
import os
import socket
from array import array
from errno import EMFILE
from functools import lru_cache
from typing import Any

MOST_DESCRIPTORS = 250  # the kernel passes at most 253 at once
NOT_RUN = b"!"  # said instead of a record
TURNED_AWAY = b"<"  # said while a command runs: the first of those that wait behind it was not run

_CUT_SHORT = int(socket.MSG_CTRUNC)  # as a number: `&` with a flag of Python's takes longer than the system call


class Channel:
    """The shim's end."""

    def __init__(self, engine: socket.socket) -> None:
        self._engine = engine
        self._is_broken = False

    def fileno(self) -> int:
        return self._engine.fileno()

    def next(self) -> tuple[dict[str, Any], list[int]] | None:
        """Wait for an attempt: what is wished for, and its descriptors; None when no more will come."""
        if self._is_broken:
            return None
        message, fds = receive(self._engine, MOST_DESCRIPTORS)
        return (_wishes_in(message), fds) if message else None

    def answer(self, record: bytes) -> None:
        """Say how the attempt ended, once nothing of it is left. OSError: the engine is gone."""
        self._engine.send(record)

    def refuse(self, fds: list[int]) -> None:
        """Say that an attempt was not run, once its locks are free."""
        for fd in fds:
            os.close(fd)
        with contextlib.suppress(OSError):  # the engine is gone: no more will come
            self._engine.send(NOT_RUN)

    def turn_away(self) -> bool:
        """Give back the first of those that wait; False when there is nobody to give it back to.

        The engine takes back whatever waits when we close: then we end with what runs.
        """
        try:
            message, fds = receive(self._engine, MOST_DESCRIPTORS)
            for fd in fds:
                os.close(fd)
            if message:
                self._engine.send(TURNED_AWAY)
                return True
        except OSError:
            pass
        self._is_broken = True
        return False


def receive(channel: socket.socket, most: int) -> tuple[bytes, list[int]]:
    """A message and its descriptors, which no command inherits.

    Not `socket.recv_fds`: it takes flags and forgets them, and a command that inherits its attempt's lock would
    look like a living shim.
    """
    fds = array("i")
    room = socket.CMSG_LEN(most * fds.itemsize)
    message, ancillary, flags, _ = channel.recvmsg(4096, room, socket.MSG_CMSG_CLOEXEC)
    for level, kind, data in ancillary:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            fds.frombytes(data[: len(data) - len(data) % fds.itemsize])
    if flags & _CUT_SHORT:
        # A lock may be among those that did not arrive. Whoever receives ends here, and nothing was started.
        for fd in fds:
            os.close(fd)
        raise OSError(EMFILE, os.strerror(EMFILE))
    return message, list(fds)


@lru_cache(maxsize=8)
def _wishes_in(message: bytes) -> dict[str, Any]:
    """The same for nearly every attempt."""
    found: dict[str, Any] = json.loads(message)
    return found
