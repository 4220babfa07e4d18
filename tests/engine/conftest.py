"""Worlds in folders with ugly names."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from engine.remote_world import RemoteWorld
from engine.world import World, a_pool


@pytest.fixture
def make_world(tmp_path: Path) -> Iterator[Callable[..., World]]:
    """`make_world(1, 2)`: two cards, the second with two slots."""
    worlds: list[World] = []

    def make(*slots: int, groups=(), name: str = "state 'é\n€", **more) -> World:
        root, leases = tmp_path / name, tmp_path / "leases"
        root.mkdir()
        leases.mkdir(exist_ok=True)
        pool = a_pool(*(slots or (1,)), groups=groups)
        worlds.append(World(root=str(root), leases_folder=str(leases), pool=pool, **more))
        return worlds[-1]

    yield make
    for world in worlds:
        world.close()


@pytest.fixture
def remote_world(tmp_path: Path) -> Iterator[RemoteWorld]:
    """One card here, and a cluster."""
    root, leases = tmp_path / "state", tmp_path / "leases"
    root.mkdir()
    leases.mkdir()
    world = RemoteWorld(root=str(root), leases_folder=str(leases), pool=a_pool(1))
    yield world
    world.close()
