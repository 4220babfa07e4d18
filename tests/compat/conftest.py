"""The seed tools from outside: lines for bash, as they stand in their documents."""

import re
import shlex
import sys
from pathlib import Path
from typing import Any

import pytest

from stories.outside import Finished, Running, World

_BIN = str(Path(sys.executable).parent)


class Shell:
    """Runs lines in a world of its own, where the installed commands are on the PATH."""

    def __init__(self, world: World) -> None:
        self.world = world
        world.environ["PATH"] = f"{_BIN}:{world.environ['PATH']}"
        world.environ["SHELL"] = "/bin/bash"

    def __call__(self, line: str, **more: Any) -> Finished:
        """Run a line to its end. One that needs no shell is forked, which is faster."""
        words = shlex.split(line)
        if words[0] in ("simple_gpu_scheduler", "hog", "schedule") and not re.search(r"[|&;<>()$`*?\n~{]", line):
            return self.world.dibs(*words[1:], script=f"{_BIN}/{words[0]}", **more)
        return self.world.dibs("-c", line, program=("bash",), **more)

    def start(self, line: str, **more: Any) -> Running:
        """Start a line and come back at once; a single command takes the place of the shell."""
        return self.world.start("-c", line, program=("bash",), **more)


@pytest.fixture
def shell(world: World) -> Shell:
    return Shell(world)
