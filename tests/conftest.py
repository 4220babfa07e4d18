"""Fixtures for whoever runs the installed command."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import settings

from stories.outside import Finished, Ledger, World, make_world

# The same examples each time, so that a red run is red for everybody; how long one takes says nothing on a busy
# machine. DIBS_EXPLORE=1 looks for new ones.
settings.register_profile("the same each time", derandomize=True, deadline=None)
settings.register_profile("explore", deadline=None)
settings.load_profile("explore" if os.environ.get("DIBS_EXPLORE") else "the same each time")

# They listen at the page's own port, or the next one that is free: one after the other each gets what it expects.
_AT_THE_DOOR = ("web/", "daemon/test_door", "faults/test_door")


@pytest.hookimpl(tryfirst=True)  # before xdist looks
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Several processes share the tests by file, so that a file's daemon is started once."""
    for item in items:
        file = item.path.relative_to(Path(__file__).parent).as_posix()
        group = "door" if file.startswith(_AT_THE_DOOR) else file
        item.add_marker(pytest.mark.xdist_group(group))


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    """A state folder, a lease folder and an ugly working folder of one's own, and no driver."""
    one = make_world(tmp_path)
    yield one
    one.clean_up()


@pytest.fixture
def dibs(world: World) -> Callable[..., Finished]:
    """Runs the installed command: `dibs("run", "-", input="...")`."""
    return world.dibs


@pytest.fixture
def ledger(world: World) -> Ledger:
    """What the jobs themselves wrote down."""
    return world.ledger
