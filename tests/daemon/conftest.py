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
    """One daemon for a whole file, whose tests change nothing that others rely on."""
    yield from _of_a_file(tmp_path_factory)


@pytest.fixture(scope="module")
def paused(tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    """Another one, with a paused queue of three jobs: the third follows the second."""
    for one in _of_a_file(tmp_path_factory):
        one.post("/v1/pause", {})
        one.add("true", "true")
        one.add({"command": "true", "after": [{"job": 2}]})
        yield one


def _of_a_file(factory: pytest.TempPathFactory) -> Iterator[House]:
    world = make_world(factory.mktemp("shared"))
    one = House(world)
    one.start()
    yield one
    one.end()
    world.clean_up()
