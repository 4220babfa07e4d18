"""A kernel that refuses a process what it asks for, by way of strace."""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from stories.outside import wait_until

FORKS = "fork,vfork,clone,clone3"

needs_strace = pytest.mark.skipif(shutil.which("strace") is None, reason="only strace makes a kernel that refuses")


@contextmanager
def refusing(pid: int, what: str, *options: str) -> Iterator[None]:
    """Until the end: `refusing(pid, "fork:error=EAGAIN")`. The options are strace's."""
    with tempfile.TemporaryFile() as said:
        inject = ["-e", f"inject={what}"]
        tracer = subprocess.Popen(["strace", "-o", "/dev/null", *options, *inject, "-p", str(pid)], stderr=said)
        try:
            wait_until(lambda: b"attached" in os.pread(said.fileno(), 65536, 0) or tracer.poll() is not None)
            if tracer.poll() is not None:
                pytest.skip("ptrace is not allowed here")
            yield
        finally:
            tracer.terminate()
            tracer.wait()
