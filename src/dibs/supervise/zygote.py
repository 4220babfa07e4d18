"""The zygote: a small warm process that forks shims.

A fresh interpreter for each shim costs five times as much. The zygote is single-threaded, imports only what the
shim needs, ends after its last shim once its engine has ended, and may be killed at any time: its shims go on.

A message is one byte with one descriptor, the new shim's channel to the engine. Another byte, with a channel and
an order, asks for a warm process (warm/start.py) instead.
"""

import contextlib
import gc
import os
import signal
import socket

from dibs.supervise.shim import Shim, receive


def main(channel_fd: int) -> None:
    channel = socket.socket(fileno=channel_fd)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the kernel reaps our shims
    # Memory that is not written stays shared with the shims.
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
        pid = -1  # the channel closes below: the engine sees that its attempt was not started and tries again
    if pid == 0:
        try:
            channel.close()
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            if message == b"w":
                from dibs.supervise.warm.start import (
                    become_warm,
                )  # not in every shim: rarely used

                become_warm(*fds)
            Shim(socket.socket(fileno=fds[0])).serve()
        finally:
            os._exit(0)
    for fd in fds:
        os.close(fd)
