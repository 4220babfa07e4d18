"""The queue with a Slurm whose nodes see nothing of our state folder, from outside.

The Python that runs on the nodes covers the state folder with an empty one first: whatever a job has of it was
carried there, and whatever comes back was fetched.
"""

import shlex
import subprocess
import sys
from collections.abc import Iterator

import pytest

from backends.private_slurm import PrivateSlurm
from backends.private_sshd import PrivateSshd
from stories.on_slurm import PATIENCE, Afar, afar
from stories.outside import World, wait_until

_COVERS = (
    subprocess.run(["unshare", "-m", "mount", "-t", "tmpfs", "none", "/mnt"], capture_output=True).returncode == 0
)
pytestmark = pytest.mark.skipif(not _COVERS, reason="covering a folder on the nodes needs the right to mount")


@pytest.fixture
def there(world: World, slurm: PrivateSlurm, sshd: PrivateSshd) -> Iterator[Afar]:
    beside = world.folder.parent
    python = beside / "python-there"
    cover = f'mount -t tmpfs none {shlex.quote(str(world.state))} && exec {shlex.quote(sys.executable)} "$@"'
    python.write_bytes(
        f'#!/bin/sh\nexec unshare -m sh -c {shlex.quote(cover)} python "$@"\n'.encode("utf-8", "surrogateescape")
    )
    python.chmod(0o755)
    world.environ |= {
        "DIBS_SLURM_SSH": shlex.join(sshd.ssh),
        "DIBS_SLURM_NODE_ROOT": str(beside / "on the nodes"),
        "DIBS_SLURM_PYTHON": str(python),
    }
    with afar(world, slurm) as one:
        yield one


def _python(there: Afar, program: str) -> list[str]:
    """What a program of ours prints."""
    ended = there.world.dibs("-c", program, program=(sys.executable,), timeout=PATIENCE)
    assert ended.status == 0, ended
    return ended.stdout.splitlines()


def test_functions_go_there_and_what_they_return_or_raise_comes_back(there: Afar) -> None:
    there.daemon()
    program = """
import dibs, hashlib, os, sys

def work(x, data=b""):
    if x == 3:
        raise ValueError("three is odd")
    return x * x, hashlib.sha256(data).digest(), data

def leave():
    sys.exit(7)

big = os.urandom(9_000_000)
with dibs.Executor(on="slurm", num_gpus=0) as pool:
    small, heavy, odd = pool.submit(work, 2), pool.submit(work, 5, big), pool.submit(work, 3)
    gone = pool.submit(leave)
    print(small.result()[0])
    print(heavy.result() == (25, hashlib.sha256(big).digest(), big))
    try:
        odd.result()
    except ValueError as error:
        print(repr(error), "in work" in str(error.__cause__))
    try:
        gone.result()
    except dibs.JobFailed as error:
        print(error.exit_code)
"""

    said = _python(there, program)

    assert said == ["4", "True", "ValueError('three is odd') True", "7"]
    assert list((there.world.state / "queue/calls").iterdir()) == []
    there.assert_nothing_is_left()


SAVES = """\
#!/bin/bash
#SBATCH --time=00:01:01 --signal=B:USR1@58
cd "$DIBS_CHECKPOINT_DIR" || exit 9
if test -e sum; then sha256sum --check --status sum && stat -c %Y last && cat deep/er/state; exit; fi
save() {
    mkdir -p deep/er; echo "saved by $DIBS_ATTEMPT" > deep/er/state
    head -c 9000000 /dev/urandom > big; touch -d @1000000000 big; ln -s big last; ln -s /etc/passwd out
    sha256sum big last > sum; exit 0
}
trap save USR1
while :; do sleep 0.05; done
"""


def test_what_an_attempt_saves_is_there_for_the_next_and_its_output_in_the_file_that_was_named(
    there: Afar,
) -> None:
    there.daemon()
    named = there.world.state / "out/of job %j"
    there.world.write("saves.sh", SAVES)
    job = there.add("-o", str(named), "-f", "saves.sh")
    sweep = there.world.dibs(
        *("sweep", 'echo loss={x} >> "$DIBS_METRICS"', "-p", "x", "1", "2", "-n", "0", "--on", "slurm"),
        *("--metric", "loss", "--wait"),
        timeout=PATIENCE,
    )

    [over] = there.wait_for(job)

    saved = there.world.state / f"queue/checkpoints/0/{job}"
    output = there.world.state / f"out/of job {job}"
    assert (over["state"], over["attempts"]) == ("succeeded", 2), there.world.client().log(job).data
    assert output.read_text() == "1000000000\nsaved by 1\n"
    assert there.world.client().log(job).data == output.read_bytes()
    assert sorted(path.name for path in saved.iterdir()) == ["big", "deep", "last", "sum"]
    assert "2 complete; best loss 1" in sweep.stderr, sweep
    there.assert_nothing_is_left()


def test_a_job_that_waits_there_is_held_and_released_there(there: Afar) -> None:
    there.daemon()
    there.slurm.ask("scontrol", "update", "partitionname=gpu", "state=down")
    held = there.add("-n", "0", "--", "echo ran >> ran")
    array = there.add("-n", "0", "--array", "1-2", "--", "echo element >> ran")
    jobs = (held, array, array + 1)
    wait_until(lambda: len(there.squeue()) == 3, show=there.squeue, seconds=PATIENCE)
    there.wait_until("submitted", *jobs)

    def reasons() -> list[str]:
        return sorted(there.slurm.ask("squeue", "-h", "-r", "-o", "%r").split())

    hold = there.world.dibs("hold", str(held), str(array))
    wait_until(lambda: reasons().count("JobHeldUser") == 2, show=reasons, seconds=PATIENCE)
    why = wait_until(
        lambda: next(
            (said for said in [there.world.dibs("why", str(held)).stdout] if "is held at Slurm" in said), ""
        ),
        seconds=PATIENCE,
    )
    there.slurm.ask("scontrol", "update", "partitionname=gpu", "state=up")
    [other] = there.wait_for(array + 1)
    still = reasons()
    release = there.world.dibs("release", str(held), str(array))
    over = there.wait_for(*jobs)

    assert (hold.status, release.status) == (0, 0), (hold, release)
    assert "held by its owner" in why
    assert (other["state"], still) == ("succeeded", ["JobHeldUser"] * 2)
    assert {one["state"] for one in over} == {"succeeded"}
    assert sorted(there.world.read("ran").split()) == ["element", "element", "ran"]
    there.assert_nothing_is_left()


def test_one_that_is_held_there_can_be_killed(there: Afar) -> None:
    there.daemon()
    there.slurm.ask("scontrol", "update", "partitionname=gpu", "state=down")
    job = there.add("-n", "0", "--", "echo ran >> ran")
    wait_until(lambda: len(there.squeue()) == 1, show=there.squeue, seconds=PATIENCE)
    there.world.dibs("hold", str(job))
    wait_until(
        lambda: there.slurm.ask("squeue", "-h", "-o", "%r").split() == ["JobHeldUser"],
        show=there.squeue,
        seconds=PATIENCE,
    )

    killed = there.world.dibs("kill", str(job))
    [over] = there.wait_for(job)
    there.slurm.ask("scontrol", "update", "partitionname=gpu", "state=up")

    assert (killed.status, over["state"]) == (0, "cancelled")
    there.assert_nothing_is_left()
    assert not (there.world.folder / "ran").exists()


def test_a_job_whose_node_does_not_see_the_state_folder_fails_with_that_sentence(there: Afar) -> None:
    """Where that was not said in the settings: no attempt follows, which could only end in the same way."""
    for name in ("DIBS_SLURM_SSH", "DIBS_SLURM_NODE_ROOT"):
        del there.world.environ[name]
    there.daemon()
    jobs = (
        there.add("-n", "0", "--restartable", "--", "true"),
        there.add("-n", "0", "--array", "1-2", "--", "true"),
    )

    over = there.wait_for(jobs[0], jobs[1], jobs[1] + 1)

    assert {(one["state"], one["cause"], one["attempts"]) for one in over} == {("failed", "start error", 1)}, over
    for one in over:
        told = "its folder is not there on n"
        assert told in one["message"] and "on a file system that all nodes share?" in one["message"], one
    there.assert_nothing_is_left()
