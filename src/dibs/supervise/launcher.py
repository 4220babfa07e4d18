"""The engine's side of the zygote and its shims: hands an attempt over and tells when it is done."""

import json
import os
import socket
import subprocess
import sys
from collections.abc import Callable, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from dibs.supervise.channel import TURNED_AWAY

_START = "import sys; sys.path.append(sys.argv[2]); from dibs.supervise.zygote import main; main(int(sys.argv[1]))"

# Waits for a descriptor to become readable; the same shape as asyncio's add_reader and remove_reader.
AddReader = Callable[..., Any]
RemoveReader = Callable[[int], Any]
# Called with the record as the shim left it, or None when the shim was killed: then the folder tells.
WhenDone = Callable[[bytes | None], None]


class Launcher:
    """Keeps idle shims for the next attempts; starts a zygote when one is needed, replaces one that died."""

    def __init__(self, add_reader: AddReader, remove_reader: RemoveReader) -> None:
        self._add_reader = add_reader
        self._remove_reader = remove_reader
        self._zygote: socket.socket | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._idle: list[socket.socket] = []
        # Who is told: of the one that runs there, then of those that wait behind it, in order.
        self._busy: dict[socket.socket, list[WhenDone]] = {}

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
    ) -> socket.socket:
        """Give an attempt's locked descriptors to a shim, and tell which; the caller closes its copies afterwards.

        `control` is the folder for the shims' FIFOs. `when_done` is called when the shim has let the attempt go. A
        note goes into the job's log.
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
            self._busy[shim] = [when_done]
            return shim

    def hand_behind(self, shim: socket.socket, control: str, fds: Sequence[int], when_done: WhenDone) -> bool:
        """Give an attempt to a shim that still has another, to be run right after it if that ends well.

        False where it has none by now. If it takes longer than a moment, or does not end well, the shim lets go of
        the attempt without having run it.
        """
        if shim not in self._busy:
            return False
        try:
            socket.send_fds(shim, [shim_message(control, stdin=False, terminal=False, is_behind=True)], list(fds))
        except OSError:
            return False  # it was killed, and `_heard` will tell; or the kernel passes no more now
        self._busy[shim].append(when_done)
        return True

    def close(self) -> None:
        """Let everybody go: shims end after their attempt, the zygote after its last shim."""
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
        """Have the zygote fork somebody who gets these descriptors; start it first where there is none."""
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
        except ConnectionResetError:
            return  # killed while somebody waited there: its last words come after this, and then the end
        except OSError:
            answer = b""
        told = self._busy.pop(shim, [])
        if not answer:
            self._forget(shim)
            if shim in self._idle:
                self._idle.remove(shim)
        elif answer == TURNED_AWAY:
            self._busy[shim] = told[:1] + told[2:]
            told = told[1:2]
        elif told[1:]:
            self._busy[shim] = told[1:]
            told = told[:1]
        else:
            self._idle.append(shim)
        for when_done in told:
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
            self._process.returncode = 0  # not waited for: it may have shims to stay with
            self._process = None


@lru_cache(maxsize=8)
def shim_message(control: str, stdin: bool, terminal: bool, note: str = "", *, is_behind: bool = False) -> bytes:
    """What goes with the descriptors: the same for nearly every attempt."""
    wishes: dict[str, Any] = {"control": control, "stdin": stdin, "terminal": terminal}
    if note:
        wishes["note"] = note
    if is_behind:
        wishes["behind"] = True
    return json.dumps(wishes).encode()
