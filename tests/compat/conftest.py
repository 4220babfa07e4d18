"""The seed tools from outside: lines for bash, as they stand in their documents."""

from typing import Any

import pytest

from stories.outside import Finished, Running, World, commands_for_shells


class Shell:
    """Runs lines in a world of its own, where the installed commands are on the PATH."""

    def __init__(self, world: World) -> None:
        self.world = world
        world.environ["PATH"] = f"{commands_for_shells()}:{world.environ['PATH']}"
        world.environ["SHELL"] = "/bin/bash"

    def __call__(self, line: str, **more: Any) -> Finished:
        """Run a line to its end."""
        return self.world.dibs("-c", line, program=("bash",), **more)

    def start(self, line: str, **more: Any) -> Running:
        """Start a line and come back at once; a single command takes the place of the shell."""
        return self.world.start("-c", line, program=("bash",), **more)


@pytest.fixture
def shell(world: World) -> Shell:
    return Shell(world)
