"""A Slurm whose clocks are wrong: those of a node and of the controller are ahead, that of a node is behind."""

import os
import shlex
import sys
import time
from collections.abc import Iterator

import pytest

from backends.private_slurm import FAKETIME, PrivateSlurm
from stories.on_slurm import PATIENCE, Afar, afar
from stories.outside import World, wait_until
from stories.test_slurm_accounting import moment

CLOCKS = {"n1": 100, "n2": -3600, "controller": 150}  # seconds
pytestmark = [
    pytest.mark.skipif(not FAKETIME, reason="only libfaketime shifts the clock of one program"),
    pytest.mark.parametrize(
        "slurm", [{"nodes": 2, "clocks": CLOCKS}], indirect=True, scope="module", ids=["clocks"]
    ),
]


@pytest.fixture
def there(world: World, slurm: PrivateSlurm) -> Iterator[Afar]:
    """Our supervisors see the clock of their node; the commands that they start see ours."""
    python = world.folder.parent / "python-there"
    cases = "".join(
        f"{node}) export {shlex.join(f'{name}={value}' for name, value in slurm.clock(node).items())};;\n"
        for node in slurm.nodes
    )
    python.write_text(f'#!/bin/sh\ncase $SLURMD_NODENAME in\n{cases}esac\nexec {sys.executable} "$@"\n')
    python.chmod(0o755)
    world.environ["DIBS_SLURM_PYTHON"] = str(python)
    with afar(world, slurm) as one:
        yield one


STAMPED = (
    "date +%s.%N > began-$DIBS_JOB_ID; until test -e go; do sleep 0.05; done; date +%s.%N > ended-$DIBS_JOB_ID"
)


def test_jobs_start_and_end_by_our_clock_though_nobody_looked(there: Afar) -> None:
    world = there.world
    there.daemon()
    jobs = [there.add("-n", "0", "--nodelist", node, "--", STAMPED) for node in ("n1", "n2")]
    wait_until(
        lambda: all((world.folder / f"began-{job}").exists() for job in jobs), show=there.squeue, seconds=PATIENCE
    )
    there.wait_until("running", *jobs)
    running = [there.job(job) for job in jobs]
    world.dibs("daemon", "stop")
    there.let_go()
    wait_until(lambda: not there.squeue(), show=there.squeue, seconds=PATIENCE)
    let_go = time.time()
    wait_until(lambda: time.time() > let_go + 8)  # by now a daemon that only looks would be wrong

    there.daemon()
    over = there.wait_for(*jobs)

    began = [float(world.read(f"began-{job}")) for job in jobs]
    ended = [float(world.read(f"ended-{job}")) for job in jobs]
    records = [there.attempt(job)["folder"] for job in jobs]
    assert [abs(os.stat(f"{folder}/record").st_mtime - let_go) < 60 for folder in records] == [True, True]
    for one, start in zip(running, began, strict=True):
        assert abs(moment(one["started_at"]) - start) < 3, one
    for one, start, end in zip(over, began, ended, strict=True):
        # As exact as Slurm, which starts a job a moment before its command and notes its end a moment after it.
        assert abs(moment(one["started_at"]) - start) < 6, one
        assert abs(moment(one["ended_at"]) - end) < 6, one
        assert abs(one["seconds"] - (end - start)) < 1, one
        assert abs(moment(one["ended_at"]) - moment(one["started_at"]) - (end - start)) < 2, one
    there.assert_nothing_is_left()


def test_when_a_job_would_start_is_told_by_our_clock(there: Afar) -> None:
    there.daemon()

    held = [there.add("-n", "2", "-t", "30m", "--", "sleep 600") for _ in range(2)]
    there.wait_until("running", *held)
    begin = time.time()
    job = there.add("-n", "2", "-t", "30m", "--", "true")

    def starts() -> float:
        told = there.world.client().why(job)["starts_at"]
        return moment(told) if told else 0.0

    wait_until(starts, show=lambda: there.world.client().why(job), seconds=PATIENCE)
    assert begin + 1700 < starts() < begin + 1880
