"""Tests of quarantined cards: one at a time, in a process of its own, with a deadline.

`engine.health` says which card is due; here are the hands. While a card is tested it is leased, so that nobody
starts there.
"""

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import IO

from dibs.daemon.daemon_log import log
from dibs.engine.engine import Engine
from dibs.engine.health import Health, Result
from dibs.errors import DibsError
from dibs.leases.leases import Lease, Leases
from dibs.model.claims import Claim, gpu_environment

_DEADLINE = 60.0  # seconds that a test may take
_DEATH = 5.0  # seconds in which a killed test should be gone; what hangs in the driver cannot be killed
_BUSY = 60.0  # seconds until a card that somebody holds is tried again, at the most
_LONGEST_SLEEP = 60.0  # seconds; the wall clock may be set while we wait for a moment of it
_LOOK_EVERY = 0.05  # seconds
_LAST_WORDS = 4096  # bytes of a test's output
_OURS = (sys.executable, "-P", "-m", "dibs.gpus.canary")
_NOTHING_TO_TEST_WITH = 3
_NOT_FOR_AMD = "there is nothing to test it with: dibs' own test is for NVIDIA's cards (see the setting canary)"


class Canaries:
    """Tests one card after another for as long as the daemon lives."""

    def __init__(
        self,
        engine: Engine,
        health: Health,
        leases: Leases,
        environ: Mapping[str, str],
        command: str,
        after: float,
        deadline: float = _DEADLINE,
    ) -> None:
        self._engine = engine
        self._health = health
        self._leases = leases
        self._environ = environ
        self._words: Sequence[str] = _OURS if command == "auto" else ("/bin/sh", "-c", command)
        self._is_ours = command == "auto"
        self._pause = min(_BUSY, after)
        self._deadline = deadline
        self._not_before: dict[str, float] = {}  # cards that somebody held when we came
        self._change = asyncio.Event()

    def look(self) -> None:
        """A card was quarantined, or is not any more."""
        self._change.set()

    async def run(self) -> None:
        """Until it is cancelled."""
        while True:
            self._change.clear()
            tests = {key: max(at, self._not_before.get(key, at)) for key, at in self._health.tests().items()}
            key = min(tests, key=lambda one: tests[one], default=None)
            pause = _LONGEST_SLEEP if key is None else min(max(0.0, tests[key] - time.time()), _LONGEST_SLEEP)
            if key is not None and not pause:
                await self.test(key)
                continue
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._change.wait(), pause)

    async def test(self, key: str) -> None:
        """Test a card now, unless somebody holds it."""
        card = self._engine.cards.pool.card(key)
        self._not_before[key] = time.time() + self._pause
        if card is None:
            return
        if self._is_ours and card.gpu.is_amd:  # CUDA would show it a card of NVIDIA's, if any
            self._health.tested(key, Result(None, _NOT_FOR_AMD))
            return
        claim = Claim(gpu=key, index=card.gpu.index, share=Fraction(1), address=card.gpu.address)
        try:
            lease = self._leases.take([claim], job="test", folder="", since=time.time())
        except (DibsError, OSError) as error:
            log.info("cannot test GPU %s: %s", card.gpu.number, error)
            return
        if not isinstance(lease, Lease):
            return  # somebody holds it, or stood in line before us
        try:
            result = await self._result(claim, lease)
        except OSError as error:
            log.info("cannot test GPU %s: %s", card.gpu.number, error)
            return
        finally:
            lease.close()
        del self._not_before[key]
        self._health.tested(key, result)

    async def _result(self, claim: Claim, lease: Lease) -> Result:
        # A file, not a pipe: whatever it writes, nobody has to read it in time.
        with tempfile.TemporaryFile() as output:
            process = subprocess.Popen(
                self._words,
                env={**self._environ, **gpu_environment([claim])},
                cwd="/",
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                pass_fds=lease.fds,  # the card stays taken for as long as the test hangs on it
            )
            try:
                is_over = await _has_ended(process.pid, self._deadline)
            finally:
                # All of its session. We have not waited for it, so that its number is still its own.
                os.killpg(process.pid, signal.SIGKILL)
            if not is_over:
                await _has_ended(process.pid, _DEATH)
                process.poll()
                return Result(False, f"the test did not end within {self._deadline:g} seconds")
            code, said = process.wait(), _last_words(output)
        if code == 0:
            return Result(True)
        if self._is_ours and code == _NOTHING_TO_TEST_WITH:
            return Result(None, said)
        return Result(False, said or f"the test ended with {code}")


async def _has_ended(pid: int, seconds: float) -> bool:
    """Whether a child of ours ends within so many seconds. It is not waited for."""
    until = time.monotonic() + seconds
    while os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
        if time.monotonic() > until:
            return False
        await asyncio.sleep(_LOOK_EVERY)
    return True


def _last_words(output: IO[bytes]) -> str:
    output.seek(0, os.SEEK_END)
    output.seek(max(0, output.tell() - _LAST_WORDS))
    lines = [" ".join(line.split()) for line in output.read().decode("utf-8", "replace").splitlines()]
    return next((line[:300] for line in reversed(lines) if line), "")
