"""Scripts with `#SBATCH` lines in the queue of this machine, from the outside."""

import pytest

from stories.outside import World, wait_until


@pytest.fixture
def queue(world: World) -> World:
    """With a GPU of its own."""
    world.environ["DIBS_POOL"] = "0"
    return world


def test_a_line_that_asks_for_more_than_this_machine_is_refused_unless_it_is_ignored(queue: World) -> None:
    queue.write("wide.sh", "#!/bin/bash\n#SBATCH --job-name=wide\n#SBATCH --nodes=2\necho ran on $SLURM_NNODES\n")

    refused = queue.dibs("add", "-f", "wide.sh")
    insisted = queue.dibs("add", "-q", "-f", "wide.sh", "--ignore", "nodes")
    waited = queue.dibs("wait", "1")

    assert refused.status == 2
    assert refused.stderr.splitlines() == [
        "dibs: error: wide.sh line 3: cannot do what --nodes=2 asks for: this is one machine",
        "  `--on slurm` passes it on; `--ignore nodes` runs the script without it",
    ]
    assert (insisted.status, insisted.stdout, waited.status) == (0, "1\n", 0), (insisted, waited)
    assert queue.dibs("log", "1").stdout == "ran on 1\n"


SAVES = """\
#!/bin/bash
#SBATCH --time=00:01:05
#SBATCH --signal=B:USR1@60
if test -e "$DIBS_CHECKPOINT_DIR/state"; then cat "$DIBS_CHECKPOINT_DIR/state"; exit 4; fi
trap 'echo "saved by $SLURM_RESTART_COUNT" > "$DIBS_CHECKPOINT_DIR/state"; exit 0' USR1
touch ready
until test -e go; do sleep 0.05; done
"""


def test_a_script_that_saves_at_its_signal_goes_on_with_what_it_saved(
    queue: World,
) -> None:
    queue.write("saves.sh", SAVES)

    signalled = queue.add("-f", "saves.sh")
    waited = queue.dibs("wait", str(signalled), timeout=60)
    (queue.folder / "ready").unlink()
    ignoring = queue.add("--ignore", "signal", "-f", "saves.sh")
    wait_until((queue.folder / "ready").exists)
    queue.write("go", "")
    ignored = queue.dibs("wait", str(ignoring))

    assert waited.status == 4
    assert queue.dibs("log", str(signalled)).stdout == "saved by 0\n"
    assert [queue.client().job(one)["attempts"] for one in (signalled, ignoring)] == [2, 1]
    assert (ignored.status, queue.client().job(ignoring)["checkpoint"]) == (0, None)
