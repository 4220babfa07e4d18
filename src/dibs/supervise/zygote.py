"""The zygote: a small warm process that forks shims.

A fresh interpreter for each costs five times as much. It is single-threaded, imports only what the shim needs,
ends after its last shim once its engine is gone, and may be killed at any time: its shims go on.

A message is one byte with one descriptor, the new shim's channel to the engine. Another byte, with a channel and
an order, asks for a warm process (warm/birth.py) instead.
"""

import contextlib
import gc
import os
import signal
import socket

from dibs.supervise.channel import receive
from dibs.supervise.shim import Shim


def main(channel_fd: int) -> None:
    channel = socket.socket(fileno=channel_fd)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the kernel reaps our shims
    # Memory that nobody touches stays shared with the shims.
    gc.collect()
    gc.freeze()
    gc.disable()
    while True:
        message, fds = receive(channel, 2)
        if not message:
            break
        _fork(message, fds, channel)
    channel.close()
    with contextlib.suppress(ChildProcessError):
        while True:
            os.wait()


def _fork(message: bytes, fds: list[int], channel: socket.socket) -> None:
    try:
        pid = os.fork()
    except OSError:
        pid = -1  # the channel closes below: the engine sees that its attempt never started and tries again
    if pid == 0:
        try:
            channel.close()
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            if message == b"w":
                from dibs.supervise.warm.birth import become_warm  # few want it, and every shim would carry it

                become_warm(*fds)
            Shim(socket.socket(fileno=fds[0])).serve()
        finally:
            os._exit(0)
    for fd in fds:
        os.close(fd)
