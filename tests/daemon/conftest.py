"""A real daemon, with two declared GPUs, in a world of its own."""

from collections.abc import Iterator

import pytest

from daemon.house import House
from stories.outside import World, make_world


@pytest.fixture
def house(world: World) -> Iterator[House]:
    """A daemon that runs."""
    one = House(world)
    one.start()
    yield one
    one.end()


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    """One daemon for the questions of a whole file. Whoever asks it changes nothing that others rely on."""
    world = make_world(tmp_path_factory.mktemp("shared"))
    one = House(world)
    one.start()
    yield one
    one.end()
    world.clean_up()
