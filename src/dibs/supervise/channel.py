"""A shim's channel to its engine: attempts come with their locked descriptors, records go back.

Standard library only, everything imported at the top: the package may be deleted while we run.
"""

import json
import os
import socket
from array import array
from errno import EMFILE
from functools import lru_cache
from typing import Any

MOST_DESCRIPTORS = 250  # the kernel passes at most 253 at once
NOT_RUN = b"!"  # said instead of a record

_CUT_SHORT = int(socket.MSG_CTRUNC)  # as a number: `&` with a flag of Python's takes longer than the system call


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
def wishes_in(message: bytes) -> dict[str, Any]:
    """The same for nearly every attempt."""
    found: dict[str, Any] = json.loads(message)
    return found
