"""A daemon of dibs with a folder of its own, for as long as a bench needs it."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from peers import ToolFailed, clean_environment, dibs_command, wait_at_most

from dibs.client.client import Client
from dibs.errors import DibsError
from dibs.paths import queue_folder, socket_path

POOL = "0,1,2,3"


class Daemon:
    """Every command goes to the daemon of one folder, and so does the client."""

    def __init__(self, folder: Path, *, descriptors: int | None = None) -> None:
        """`descriptors` is the daemon's `ulimit -n`."""
        self.folder = folder
        self.environment = clean_environment(folder) | {"DIBS_POOL": POOL}
        self.command = dibs_command()
        self.client = Client(socket_path(self.environment))
        self.pid = 0
        self._descriptors = descriptors

    @property
    def store(self) -> str:
        return f"{queue_folder(self.environment)}/store.db"

    def start(self) -> float:
        """Bring it up; return how many seconds it took until it answered."""
        words = [self.command, "daemon", "start"]
        if self._descriptors:
            words = ["bash", "-c", f'ulimit -n {self._descriptors}; exec "$@"', "limited", *words]
        took = self._run(words)
        self.pid = int(self.status()["pid"])
        return took

    def stop(self) -> None:
        """Ask it to end, and see that it has."""
        pid, self.pid = self.pid, 0
        if not pid:
            return
        self.client.close()
        try:
            self._run([self.command, "daemon", "stop", "--jobs"])
            wait_until(lambda: not _lives(pid), f"dibs's daemon {pid} has not ended", limit_seconds=60)
        finally:
            if _lives(pid):
                os.kill(pid, signal.SIGKILL)

    def dibs(self, *words: str, limit_seconds: float = 120) -> float:
        """Run one command and return its wall time in seconds."""
        return self._run([self.command, *words], limit_seconds)

    def status(self) -> dict[str, Any]:
        try:
            return self.client.status()
        except DibsError as error:
            raise ToolFailed(str(error)) from error

    def succeeded(self) -> int:
        """How many jobs have succeeded. Raises ToolFailed where one ended in another way."""
        counts: dict[str, int] = self.status()["counts"]
        if bad := {state: n for state, n in counts.items() if n and state in ("failed", "lost", "cancelled")}:
            raise ToolFailed(f"dibs ended jobs of `true` as {bad}")
        return counts.get("succeeded", 0)

    def wait_for(self, jobs: int, limit_seconds: float) -> None:
        """Return when so many jobs have succeeded. One look costs the daemon about a millisecond."""
        wait_until(
            lambda: self.succeeded() >= jobs, f"dibs has not run {jobs:,} jobs", limit_seconds, pause_seconds=0.05
        )

    def _run(self, words: list[str], limit_seconds: float = 120) -> float:
        errors = self.folder / "errors"
        quiet = subprocess.DEVNULL
        with open(errors, "wb") as stderr:
            begin = time.perf_counter()
            process = subprocess.Popen(
                words, stdin=quiet, stdout=quiet, stderr=stderr, env=self.environment, cwd=self.folder
            )
            status = wait_at_most(process, limit_seconds)
            took = time.perf_counter() - begin
        shown = " ".join(words[-3:])
        if status is None:
            process.kill()
            process.wait()
            raise ToolFailed(f"`{shown}` was not done after {limit_seconds:.0f} s")
        if status:
            said = errors.read_text(errors="replace").strip()[-300:]
            raise ToolFailed(f"`{shown}` ended with {status}: {said}")
        return took


@contextmanager
def running(folder: Path, *, descriptors: int | None = None) -> Iterator[Daemon]:
    """A daemon that answers, and is gone afterwards."""
    daemon = Daemon(folder, descriptors=descriptors)
    try:
        daemon.start()
        yield daemon
    finally:
        daemon.stop()


def wait_until(
    is_so: Callable[[], bool], complaint: str, limit_seconds: float, pause_seconds: float = 0.02
) -> None:
    deadline = time.monotonic() + limit_seconds
    while not is_so():
        if time.monotonic() > deadline:
            raise ToolFailed(f"{complaint} after {limit_seconds:.0f} s")
        time.sleep(pause_seconds)


def interpreter() -> str:
    """The Python that the command `dibs` starts with."""
    beside = Path(dibs_command()).parent / "python"
    return str(beside) if beside.exists() else sys.executable


def _lives(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
