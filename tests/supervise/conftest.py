"""Supervisors in a folder with an ugly name."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from stories.outside import World
from supervise.hands import Hands


@pytest.fixture
def hands(world: World) -> Iterator[Hands]:
    """The world cleans up what a failing test leaves running."""
    one = Hands(Path(world.folder) / "run")
    yield one
    one.close()
