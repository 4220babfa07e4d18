"""The engine's side of the zygote and its shims: hands attempts over and reports their end."""

import json
import os
import socket
import subprocess
import sys
from collections.abc import Callable, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

_START = "import sys; sys.path.append(sys.argv[2]); from dibs.supervise.zygote import main; main(int(sys.argv[1]))"

# Waits for a descriptor to become readable; the same shape as asyncio's add_reader and remove_reader.
AddReader = Callable[..., Any]
RemoveReader = Callable[[int], Any]
# Called with the record as the shim left it, or None when the shim was killed: then read the folder.
WhenDone = Callable[[bytes | None], None]


class Launcher:
    """Keeps idle shims for the next attempts; starts a zygote when one is needed, replaces one that died."""

    def __init__(self, add_reader: AddReader, remove_reader: RemoveReader) -> None:
        self._add_reader = add_reader
        self._remove_reader = remove_reader
        self._zygote: socket.socket | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._idle: list[socket.socket] = []
        self._busy: dict[socket.socket, WhenDone] = {}

    def warm_up(self) -> None:
        """Start the zygote now, so that the first job does not wait for it."""
        if self._zygote is None:
            self._start_zygote()

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
        self.warm_up()
        assert self._zygote is not None
        try:
            socket.send_fds(self._zygote, [word], fds)
        except OSError:
            self._leave_zygote()
            self._start_zygote()
            socket.send_fds(self._zygote, [word], fds)

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

    def _start_zygote(self) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        root = str(Path(__file__).resolve().parents[2])
        with theirs:
            # Isolated and without site: nothing of the user's environment may reach the supervisor.
            self._process = subprocess.Popen(
                [sys.executable, "-I", "-S", "-X", "utf8", "-c", _START, str(theirs.fileno()), root],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
                cwd="/",
                env={"PATH": os.defpath, "LANG": "C.UTF-8"},
            )
        self._zygote = ours

    def _leave_zygote(self) -> None:
        if self._zygote is not None:
            self._zygote.close()
            self._zygote = None
        if self._process is not None:
            self._process.poll()
            self._process.returncode = 0  # not waited for: it may still have shims
            self._process = None


@lru_cache(maxsize=8)
def shim_message(control: str, stdin: bool, terminal: bool, note: str = "") -> bytes:
    """The message with the descriptors: the same for nearly every attempt."""
    wishes = {"control": control, "stdin": stdin, "terminal": terminal}
    return json.dumps({**wishes, "note": note} if note else wishes).encode()
