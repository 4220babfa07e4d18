"""A cluster whose cards have a type and are divided into parts, one for each GiB."""

from pathlib import Path

import pytest

from backends.private_slurm import PrivateSlurm
from backends.sites import Site, slurm_backend
from dibs.backends.protocol import NodeGpus, Resources
from dibs.model.jobs import Wishes
from stories.outside import World, wait_until

GIB = 1024**3


@pytest.mark.parametrize("slurm", [{"nodes": 1, "kind": "h200", "shards": 16}], indirect=True)
def test_jobs_share_a_card_by_their_memory_and_others_have_one_of_a_type(
    slurm: PrivateSlurm, world: World
) -> None:
    root = Path(world.folder) / "run"
    site = Site(root, slurm_backend(slurm, root))
    line = "echo $DIBS_GPUS ${SLURM_SHARDS_ON_NODE:-whole} >> cards; until test -e go; do sleep 0.05; done"
    small = Resources(wishes=Wishes(vram=3 * GIB))
    whole = Resources(wishes=Wishes(gpu_type="h200"))
    missing = site.submission("true", wanted=Resources(wishes=Wishes(gpu_type="a100")))

    answer = site.backend.submit([*(site.submission(line, wanted=one) for one in (small, small, whole)), missing])
    wait_until(lambda: site.wait_for("cards").count("\n") == 3, show=lambda: site.wait_for("cards"))
    (node,) = site.backend.nodes()
    (site.workdir / "go").touch()

    cards = sorted(line.split() for line in site.wait_for("cards").splitlines())
    assert sorted(part for _, part in cards) == ["3", "3", "whole"]
    assert len({card for card, part in cards if part == "3"}) == 1, "two that fit are on one card"
    assert {card for card, _ in cards} == {"0", "1"}
    assert (node.gpus, node.shards) == ((NodeGpus(type="h200", total=2, used=1),), 16)
    assert answer.refused[missing.ref].remedy == "there are h200"
