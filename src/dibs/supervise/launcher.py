"""The engine's side of the zygote and its shims: hands attempts over and reports their end."""

import json
import os
import socket
import subprocess
import sys
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

_START = "import sys; sys.path.append(sys.argv[2]); from dibs.supervise.zygote import main; main(int(sys.argv[1]))"
_SOURCE = os.path.realpath(f"{__file__}/../../..")  # the folder of the package

# Waits for a descriptor to become readable; the same shape as asyncio's add_reader and remove_reader.
AddReader = Callable[..., Any]
RemoveReader = Callable[[int], Any]
# Called with the record as the shim left it, or None when the shim was killed: then read the folder.
WhenDone = Callable[[bytes | None], None]


class Zygote:
    """A zygote that has just been started, and the channel to it. OSError where it cannot be started."""

    def __init__(self) -> None:
        self._channel, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            # Isolated and without site: nothing of the user's environment may reach the supervisor.
            self._process = subprocess.Popen(
                [sys.executable, "-I", "-S", "-X", "utf8", "-c", _START, str(theirs.fileno()), _SOURCE],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
                cwd="/",
                env={"PATH": os.defpath, "LANG": "C.UTF-8"},
            )

    def ask(self, word: bytes, fds: list[int]) -> None:
        """Have it fork a process with these descriptors, as soon as it has imported its modules."""
        socket.send_fds(self._channel, [word], fds)

    def leave(self) -> None:
        """Close the channel: it ends after its last shim."""
        self._channel.close()
        self._process.poll()
        self._process.returncode = 0  # not waited for: it may still have shims


def start_zygote_early() -> Zygote | None:
    """A zygote that imports its modules while the caller imports its own; None where none can be started now."""
    try:
        return Zygote()
    except OSError:
        return None  # the launcher tries it again, and its caller reports what is wrong


class Launcher:
    """Keeps idle shims for the next attempts; starts a zygote when one is needed, replaces one that died.

    `zygote` is one that was started early; None: there is none.
    """

    def __init__(self, add_reader: AddReader, remove_reader: RemoveReader, zygote: Zygote | None = None) -> None:
        self._add_reader = add_reader
        self._remove_reader = remove_reader
        self._zygote = zygote
        self._idle: list[socket.socket] = []
        self._busy: dict[socket.socket, WhenDone] = {}

    def warm_up(self) -> None:
        """Start the zygote now, so that the first job does not wait for it."""
        if self._zygote is None:
            self._zygote = Zygote()

    def hand_over(
        self,
        control: str,
        fds: Sequence[int],
        when_done: WhenDone,
        *,
        stdin: bool = False,
        terminal: bool = False,
        note: str = "",
    ) -> None:
        """Give an attempt's locked descriptors to a shim; the caller closes its copies afterwards.

        `control` is the folder for the shims' FIFOs. `when_done` is called when the shim has finished the attempt.
        A note goes into the job's log.
        """
        message = shim_message(control, stdin, terminal, note)
        while True:
            shim = self._idle.pop() if self._idle else self._new_shim()
            try:
                socket.send_fds(shim, [message], list(fds))
            except (BrokenPipeError, ConnectionError):
                self._forget(shim)  # killed while it was idle
                continue
            except OSError:
                self._idle.append(shim)
                raise
            self._busy[shim] = when_done
            return

    def close(self) -> None:
        """Close all channels: shims end after their attempt, the zygote after its last shim."""
        for shim in [*self._idle, *self._busy]:
            self._forget(shim)
        self._idle.clear()
        self._busy.clear()
        self._leave_zygote()

    def _new_shim(self) -> socket.socket:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self.ask_zygote(b"+", [theirs.fileno()])
        self._add_reader(ours.fileno(), self._heard, ours)
        return ours

    def ask_zygote(self, word: bytes, fds: list[int]) -> None:
        """Have the zygote fork a process with these descriptors; start the zygote first if there is none."""
        if self._zygote is not None:
            try:
                self._zygote.ask(word, fds)
                return
            except OSError:
                self._leave_zygote()
        self._zygote = Zygote()
        self._zygote.ask(word, fds)

    def _heard(self, shim: socket.socket) -> None:
        try:
            answer = shim.recv(4096)
        except OSError:
            answer = b""
        if answer:
            self._idle.append(shim)
        else:
            self._forget(shim)
            if shim in self._idle:
                self._idle.remove(shim)
        if when_done := self._busy.pop(shim, None):
            when_done(answer or None)

    def _forget(self, shim: socket.socket) -> None:
        if shim.fileno() >= 0:
            self._remove_reader(shim.fileno())
            shim.close()

    def _leave_zygote(self) -> None:
        if self._zygote is not None:
            self._zygote.leave()
            self._zygote = None


@lru_cache(maxsize=8)
def shim_message(control: str, stdin: bool, terminal: bool, note: str = "") -> bytes:
    """The message with the descriptors: the same for nearly every attempt."""
    wishes = {"control": control, "stdin": stdin, "terminal": terminal}
    return json.dumps({**wishes, "note": note} if note else wishes).encode()
