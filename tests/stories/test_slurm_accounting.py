"""The queue beside a Slurm with accounting: limits of accounts, and what is in its books afterwards."""

from collections.abc import Iterator

import pytest

from backends.private_slurm import PrivateSlurm
from stories.on_slurm import PATIENCE, Afar, afar
from stories.outside import World, wait_until

pytestmark = pytest.mark.parametrize(
    "slurm", [{"nodes": 1, "accounting": True}], indirect=True, scope="module", ids=["accounting"]
)


@pytest.fixture
def there(world: World, slurm: PrivateSlurm) -> Iterator[Afar]:
    with afar(world, slurm) as one:
        yield one


def test_an_array_above_the_limit_of_its_account_runs_in_parts(there: Afar, slurm: PrivateSlurm) -> None:
    slurm.manage("modify", "user", "root", "set", "MaxSubmitJobs=5")
    there.daemon()
    wait = "until test -e go; do sleep 0.05; done; echo $DIBS_ARRAY_TASK_ID >> ran"
    first = there.add("-n", "0", "--array", "1-12", "-J", "many", "--", wait)
    limited = there.add("-n", "0", "--array", "1-4%2", "-J", "few", "--", "echo few >> ran")

    wait_until(lambda: len(there.squeue()) == 5, show=there.squeue, seconds=PATIENCE)
    told = there.world.dibs("why", "many")
    there.let_go()
    over = there.wait_for(*range(first, limited + 4))
    slurm.manage("modify", "user", "root", "set", "MaxSubmitJobs=-1")

    assert "Slurm takes 5 of your jobs at once: its account has reached a limit: jobs submitted" in told.stdout, (
        told
    )
    assert {job["state"] for job in over} == {"succeeded"}
    assert sorted(there.world.read("ran").split()) == sorted([*map(str, range(1, 13)), *["few"] * 4])
    there.assert_nothing_is_left()
