"""A queue with two declared GPUs for all tests of a file, and this process as one of its users."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from stories.outside import World, make_world


@pytest.fixture(scope="module")
def queue(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """A daemon for all tests of a file: a second each would be a minute together."""
    world = make_world(tmp_path_factory.mktemp("queue"))
    world.environ["XDG_CONFIG_HOME"] = str(world.folder.parent / "config")
    world.run_daemon(pool="0,1")
    yield world
    world.dibs("daemon", "stop", "--jobs")
    world.clean_up()


@pytest.fixture
def here(queue: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder to work in, as the user whose queue it is."""
    folder = tmp_path / "a folder"
    folder.mkdir()
    for name, value in queue.environ.items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(folder)
    return folder
