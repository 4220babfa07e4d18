"""A real daemon with two declared GPUs, in its own test world."""

from collections.abc import Iterator

import pytest

from cuda.machine import FakeMachine
from daemon.daemon_process import DaemonProcess
from stories.outside import World, make_world


@pytest.fixture
def daemon(world: World) -> Iterator[DaemonProcess]:
    """A daemon that runs."""
    one = DaemonProcess(world)
    one.start()
    yield one
    one.end()


@pytest.fixture
def suspending(world: World) -> Iterator[DaemonProcess]:
    """A daemon whose driver can suspend jobs, and knows what they have on a card."""
    world.environ |= FakeMachine(world.folder.parent / "machine", cards=2).environ
    one = DaemonProcess(world)
    one.start()
    yield one
    one.end()


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DaemonProcess]:
    """One daemon for a whole file, whose tests change nothing that others rely on."""
    yield from _of_a_file(tmp_path_factory)


@pytest.fixture(scope="module")
def paused(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DaemonProcess]:
    """Another one, with a paused queue of three jobs; the third depends on the second."""
    for one in _of_a_file(tmp_path_factory):
        one.post("/v1/pause", {})
        one.add("true", "true")
        one.add({"command": "true", "after": [{"job": 2}]})
        yield one


def _of_a_file(factory: pytest.TempPathFactory) -> Iterator[DaemonProcess]:
    world = make_world(factory.mktemp("shared"))
    one = DaemonProcess(world)
    one.start()
    yield one
    one.end()
    world.clean_up()
