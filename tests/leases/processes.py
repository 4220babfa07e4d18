"""Other processes and other users, for real."""

import os
import signal
import traceback
from collections.abc import Callable
from dataclasses import dataclass

import pytest

STRANGER = 65534
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can be two users")


@dataclass
class Process:
    """A forked process. It and we talk in lines."""

    pid: int
    ears: int
    mouth: int

    def say(self, line: str) -> None:
        os.write(self.mouth, line.encode() + b"\n")

    def hear(self) -> str:
        """The next line, empty when the other side is gone."""
        line = b""
        while (byte := os.read(self.ears, 1)) not in (b"", b"\n"):
            line += byte
        return line.decode()

    def kill(self, number: int = signal.SIGKILL) -> None:
        os.kill(self.pid, number)
        self.end()

    def end(self) -> int:
        """Let it run to its end; its exit code."""
        os.close(self.mouth)
        _, status = os.waitpid(self.pid, 0)
        os.close(self.ears)
        return os.waitstatus_to_exitcode(status)


def start(act: Callable[[Process], object], *, uid: int | None = None) -> Process:
    """Fork a process that does this, and ends. Fork before you lock: a fork inherits what we hold."""
    from_child, to_parent = os.pipe()
    from_parent, to_child = os.pipe()
    pid = os.fork()
    if pid:
        os.close(to_parent)
        os.close(from_parent)
        return Process(pid, from_child, to_child)
    status = 1
    try:
        os.close(from_child)
        os.close(to_child)
        if uid is not None:
            os.setgroups([])
            os.setresgid(uid, uid, uid)
            os.setresuid(uid, uid, uid)
        act(Process(os.getppid(), from_parent, to_parent))
        status = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(status)
