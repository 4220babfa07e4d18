"""A queue of dibs in folders of its own, on a machine with a real card."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

_OURS = ("DIBS_", "CUDA_VISIBLE_DEVICES")


class World:
    """Every command goes to the daemon of one folder. At the end of `with` everything in it is ended.

    `plant` changes dibs in the daemon before it runs.
    """

    def __init__(self, folder: Path, *, plant: str = "", **variables: str) -> None:
        self._plant = plant
        self.folder = folder
        folder.mkdir(parents=True)
        self.environment = {name: value for name, value in os.environ.items() if not name.startswith(_OURS)} | {
            "DIBS_STATE": f"{folder}/state",
            "DIBS_LEASES": f"{folder}/leases",
            **variables,
        }

    def __enter__(self) -> "World":
        if self._plant:
            code = f"{self._plant}; from dibs.cli.main import main; main()"
            words = [sys.executable, "-c", code, "daemon", "run"]
            with open(self.folder / "daemon.log", "wb") as log:
                subprocess.Popen(words, env=self.environment, stderr=log, start_new_session=True)
            seconds_until(Path(f"{self.folder}/state/queue/socket").exists, "the daemon listens", 30)
        self.add("-n", "0", "--", "true")  # starts the daemon, where there is none
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def dibs(self, *words: str, may_fail: bool = False) -> str:
        """What a command prints."""
        done = self._run(words)
        if done.returncode and not may_fail:
            raise SystemExit(f"dibs {' '.join(words)} ended with {done.returncode}: {done.stderr or done.stdout}")
        return done.stdout

    def said(self, *words: str) -> str:
        """What a command says beside that, whether it fails or not."""
        return self._run(words).stderr.strip()

    def _run(self, words: Sequence[str]) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            [sys.executable, "-m", "dibs", *words],
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )

    def add(self, *words: str) -> str:
        """The numbers of the jobs, as `17` or `17-24`."""
        return self.dibs("add", "--parsable", *words).strip()

    def info(self, job: str | int) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.dibs("info", "--json", str(job)))
        return found

    def log(self, job: str | int) -> str:
        return self.dibs("log", str(job))

    def gpu(self) -> dict[str, Any]:
        """The first card."""
        found: dict[str, Any] = json.loads(self.dibs("gpus", "--json"))[0]
        return found

    def end(self, job: str) -> None:
        self.dibs("kill", job)
        self.dibs("kill", job, may_fail=True)
        self.dibs("wait", "-q", job, may_fail=True)

    @contextmanager
    def stranger(self, program: str, *words: str) -> Iterator[None]:
        """A program on the card that nobody asked dibs for, once it counts its steps."""
        ledger = self.folder / "stranger"
        process = subprocess.Popen([sys.executable, program, str(ledger), *words])
        try:
            seconds_until(ledger.exists, "a stranger is on the card", 30)
            yield
        finally:
            process.kill()
            process.wait()

    def stop(self) -> None:
        self.dibs("daemon", "stop", "--jobs", may_fail=True)


def numbers(jobs: str) -> range:
    """The jobs of `17` or `17-24`."""
    first, _, last = jobs.partition("-")
    return range(int(first), int(last or first) + 1)


def seconds_until(holds: Callable[[], bool], what: str, limit_seconds: float = 60) -> float:
    """How long it took."""
    begin = time.perf_counter()
    while not holds():
        if time.perf_counter() - begin > limit_seconds:
            raise SystemExit(f"{what}: not within {limit_seconds:g} seconds")
        time.sleep(0.05)
    return time.perf_counter() - begin


def python(code: str, environment: dict[str, str]) -> "subprocess.Popen[str]":
    """A program on the card that nobody asked dibs for; its first line is on stdout."""
    words: Sequence[str] = [sys.executable, "-c", code]
    return subprocess.Popen(words, env=environment, stdout=subprocess.PIPE, text=True)
