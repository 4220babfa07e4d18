"""A machine whose driver is fake_libcuda.c, with cards in a file; and the programs that tests run on the first."""

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

from dibs.gpus.cuda_checkpoint import find_cuda_checkpoint
from dibs.gpus.detect import find_probe
from dibs.supervise.orphans import process_at

HERE = Path(__file__).parent
FAKE_PROGRAM = str(HERE / "fake_program.py")
REAL_PROGRAM = str(HERE / "real_program.py")
CARD = "GPU-3f2a9b10-0000-4000-8000-000000000000"
GB = 2**30
PATIENCE = 60.0  # seconds


class FakeMachine:
    """Its `environ` is for dibs and for the programs."""

    program = FAKE_PROGRAM
    gigabytes = 10  # that a program holds, of a card of 16
    context = 0  # bytes that it holds beside them

    def __init__(self, folder: Path, *, old: bool = False, cards: int = 1) -> None:
        self.folder = folder
        folder.mkdir(parents=True)
        self._cards = folder / "cards.json"
        uuids = [CARD, *(f"{CARD[:-1]}{number}" for number in range(1, cards))]
        memory = {"memory_total": 16 * GB, "memory_used": 0}
        self._cards.write_text(
            json.dumps([{"index": at, "uuid": uuid, **memory} for at, uuid in enumerate(uuids)])
        )
        self.library = folder / f"libcuda.so.{'550.54.14' if old else '580.159.04'}"
        self.library.write_bytes(built(old))
        self.environ = {
            "FAKE_CUDA": str(folder),
            "DIBS_CUDA_LIBRARY": str(self.library),
            "DIBS_PROBE": f"fake:{self._cards}",
        }

    @property
    def used(self) -> int:
        """Without what killed processes had: a real driver takes that back."""
        card = json.loads(self._cards.read_text())[0]
        dead = [one["memory"] for one in card.get("processes", []) if process_at(one["pid"]) is None]
        return int(card["memory_used"] - sum(dead))

    def use(self, size: int, *, total: int = 16 * GB) -> None:
        """What somebody else has on the card."""
        self._cards.write_text(
            json.dumps([{"index": 0, "uuid": CARD, "memory_total": total, "memory_used": size}])
        )

    def state(self, pid: int) -> str:
        return (self.folder / f"{pid}.state").read_text()

    def calls(self, pid: int) -> list[str]:
        """The driver's calls about it but for those that only look."""
        path = self.folder / f"{pid}.calls"
        return [word for word in path.read_text().split() if word != "state"] if path.exists() else []


class RealMachine:
    """The same, where there is a card, which nothing else may use meanwhile."""

    program = REAL_PROGRAM
    gigabytes = 1
    context = GB

    def __init__(self) -> None:
        path = os.environ.get("LD_LIBRARY_PATH")  # where the driver may be
        self.environ = {"DIBS_PROBE": ""} | ({} if path is None else {"LD_LIBRARY_PATH": path})
        self._probe = find_probe(os.environ)
        self._driver = find_cuda_checkpoint(os.environ)
        self._before = self._used()

    @property
    def used(self) -> int:
        return max(0, self._used() - self._before)

    def state(self, pid: int) -> str:
        assert self._driver is not None
        return str(self._driver.state(pid))

    def _used(self) -> int:
        assert self._probe is not None
        return self._probe.read(energy=False).gpus[0].memory_used or 0


@cache
def built(old: bool) -> bytes:
    """The library: once for a test process."""
    with tempfile.NamedTemporaryFile(suffix=".so") as file:
        words = ["gcc", "-O1", "-shared", "-fPIC", "-o", file.name, str(HERE / "fake_libcuda.c")]
        subprocess.run([*words, *(["-DOLD"] if old else [])], check=True)
        return Path(file.name).read_bytes()


class Program:
    """A CUDA program of its own, not below dibs."""

    def __init__(self, program: str, ledger: Path, environ: dict[str, str], *arguments: str) -> None:
        self.ledger = ledger
        self._process = subprocess.Popen(
            [sys.executable, "-S", program, str(ledger), *arguments], env={**os.environ, **environ}
        )
        self.pid = self._process.pid
        wait_for(lambda: steps(ledger), f"{program} counts")

    @property
    def children(self) -> list[int]:
        return [int(pid) for pid in Path(f"/proc/{self.pid}/task/{self.pid}/children").read_text().split()]

    def end(self) -> None:
        self._process.kill()
        self._process.wait()


def steps(ledger: Path) -> int:
    """How many steps it has counted; each of them once, and in order."""
    counted = ledger.read_text().splitlines() if ledger.exists() else []
    assert counted == [str(number) for number in range(1, len(counted) + 1)], f"{ledger}: a step is lost"
    return len(counted)


def stands_still(ledger: Path) -> bool:
    before = steps(ledger)
    time.sleep(0.1)  # twenty steps
    return steps(ledger) == before


def goes_on(ledger: Path) -> bool:
    before = steps(ledger)
    wait_for(lambda: steps(ledger) > before, "it goes on")
    return True


def wait_for(condition: Callable[[], Any], what: str) -> Any:
    until = time.monotonic() + PATIENCE
    while not (found := condition()):
        assert time.monotonic() < until, f"waited in vain: {what}"
        time.sleep(0.01)
    return found
