"""A program for Weights & Biases, as its quickstart has it, in a sweep without a network: the real package."""

import json
import sys
from pathlib import Path

import pytest

from stories.outside import Finished, World

pytest.importorskip("wandb", reason="pip install wandb")

PROGRAM = """
import wandb

def main():
    with wandb.init(project="my-first-sweep") as run:
        for epoch in range(3):
            run.log({"score": run.config.x**3 + run.config.net["y"] + 2 - epoch, "epoch": epoch})
        run.summary["test"] = run.config.x

main()
"""
SWEEP = """
program: train.py
method: grid
name: sweep
metric: {goal: minimize, name: score}
command: [%s, "${program}"]
parameters:
  x: {values: [0.5, 2]}
  net: {parameters: {y: {value: 3}}}
"""
PATIENCE = 120.0


@pytest.fixture
def queue(world: World) -> World:
    world.environ["DIBS_POOL"] = "0,1"
    world.environ["XDG_CONFIG_HOME"] = str(world.folder.parent / "config")
    # wandb itself fails where a path is not UTF-8.
    world.environ["DIBS_STATE"] = str(world.folder.parent / "state")
    return world


@pytest.fixture
def project(queue: World) -> Path:
    folder = queue.folder.parent / "project"
    folder.mkdir()
    (folder / "sweep.yaml").write_text(SWEEP % sys.executable)
    return folder


def run_sweep(queue: World, project: Path) -> Finished:
    return queue.dibs("sweep", f"{project}/sweep.yaml", "-C", str(project), "-n", "0", "--wait", timeout=PATIENCE)


def test_the_quickstart_of_wandb_runs_as_it_is(queue: World, project: Path) -> None:
    (project / "train.py").write_text(PROGRAM)

    done = run_sweep(queue, project)

    assert done.status == 0, done
    assert "best score 3.125" in done.stderr and "train.py  # x=0.5" in done.stderr
    told = json.loads(queue.dibs("metrics", "2", "--json").stdout)
    series = {one["name"]: one for one in told["series"]}
    assert [series["score"][key] for key in ("source", "last", "reported", "max")] == ["wandb", 11.0, 3, 13.0]
    assert series["test"]["last"] == 2.0


def test_a_program_that_tells_wandb_nothing_is_told_so(queue: World, project: Path) -> None:
    (project / "train.py").write_text("print('done')")

    done = run_sweep(queue, project)

    assert done.status == 1
    shown = queue.dibs("sweep", "show").stdout
    assert "the program wrote no file of W&B: does it call wandb.init?" in shown
