"""Tests of quarantined GPUs: one at a time, in a process of its own, with a deadline.

`engine.health` says which GPU is due; the test is run here. The GPU is leased meanwhile, so that no job starts on
it.
"""

import asyncio
import contextlib
import logging
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import IO

from dibs.engine.engine import Engine
from dibs.engine.watch.health import CardTestResult, Health
from dibs.errors import DibsError
from dibs.leases.leases import Lease, Leases
from dibs.model.gpus import Claim, gpu_environment

log = logging.getLogger(__name__)

_DEADLINE = 60.0  # seconds that a test may take
_KILL_WITHIN = 5.0  # seconds in which a killed test should end; one that hangs in the driver cannot be killed
_BUSY = 60.0  # seconds, at most, until a GPU that is in use is tried again
_LONGEST_SLEEP = 60.0  # seconds; the wall clock may be set during the wait
_CHECK_EVERY = 0.05  # seconds
_OUTPUT_TAIL = 4096  # bytes of a test's output
_OURS = (sys.executable, "-P", "-m", "dibs.gpus.canary")
_NOTHING_TO_TEST_WITH = 3
_NOT_FOR_AMD = "there is nothing to test it with: the test of dibs is for NVIDIA GPUs (see the setting canary)"


class CanaryTests:
    """Tests one GPU after another for as long as the daemon runs."""

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
        self._not_before: dict[str, float] = {}  # GPUs that were in use when their test was due
        self._change = asyncio.Event()

    def wake(self, _: None = None) -> None:
        """Look again which tests are due: a GPU was quarantined or released."""
        self._change.set()

    async def run(self) -> None:
        """Test GPUs until cancelled."""
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
        """Test a GPU now, unless it is in use."""
        card = self._engine.cards.pool.card(key)
        self._not_before[key] = time.time() + self._pause
        if card is None:
            return
        if self._is_ours and card.gpu.is_amd:  # CUDA would show the test another GPU, if any
            self._health.tested(key, CardTestResult(None, _NOT_FOR_AMD))
            return
        claim = Claim(gpu=key, index=card.gpu.index, share=Fraction(1), address=card.gpu.address)
        try:
            lease = self._leases.take([claim], job="test", folder="", since=time.time())
        except (DibsError, OSError) as error:
            log.info("cannot test GPU %s: %s", card.gpu.number, error)
            return
        if not isinstance(lease, Lease):
            return  # it is in use, or another program waits for it
        try:
            result = await self._result(claim, lease)
        except OSError as error:
            log.info("cannot test GPU %s: %s", card.gpu.number, error)
            return
        finally:
            lease.close()
        del self._not_before[key]
        self._health.tested(key, result)

    async def _result(self, claim: Claim, lease: Lease) -> CardTestResult:
        # A file, not a pipe: the test must not block on output that is not read.
        with tempfile.TemporaryFile() as output:
            process = subprocess.Popen(
                self._words,
                env={**self._environ, **gpu_environment([claim])},
                cwd="/",
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                pass_fds=lease.fds,  # the GPU stays leased for as long as the test hangs on it
            )
            try:
                is_over = await _has_ended(process.pid, self._deadline)
            finally:
                # Its whole session. The process was not reaped yet, so its pid still belongs to it.
                os.killpg(process.pid, signal.SIGKILL)
            if not is_over:
                await _has_ended(process.pid, _KILL_WITHIN)
                process.poll()
                return CardTestResult(False, f"the test did not end within {self._deadline:g} seconds")
            code, message = process.wait(), _last_line(output)
        if code == 0:
            return CardTestResult(True)
        if self._is_ours and code == _NOTHING_TO_TEST_WITH:
            return CardTestResult(None, message)
        return CardTestResult(False, message or f"the test ended with {code}")


async def _has_ended(pid: int, seconds: float) -> bool:
    """Whether a child process ends within so many seconds. It is not reaped."""
    until = time.monotonic() + seconds
    while os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
        if time.monotonic() > until:
            return False
        await asyncio.sleep(_CHECK_EVERY)
    return True


def _last_line(output: IO[bytes]) -> str:
    output.seek(0, os.SEEK_END)
    output.seek(max(0, output.tell() - _OUTPUT_TAIL))
    lines = [" ".join(line.split()) for line in output.read().decode("utf-8", "replace").splitlines()]
    return next((line[:300] for line in reversed(lines) if line), "")
