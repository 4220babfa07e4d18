"""A queue that this very process asks from Python."""

import pytest

from stories.outside import World, fork_daemons


@pytest.fixture
def here(world: World, monkeypatch: pytest.MonkeyPatch) -> World:
    """A world with two declared GPUs, whose environment and folder are ours as well."""
    world.environ |= {"DIBS_POOL": "0,1", "XDG_CONFIG_HOME": str(world.folder.parent / "config")}
    for name in ("DIBS_JOB_ID", "DIBS_GPUS", "CUDA_VISIBLE_DEVICES", "DIBS_METRICS"):
        monkeypatch.delenv(name, raising=False)
    for name, value in world.environ.items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(world.folder)
    fork_daemons(monkeypatch)
    return world
