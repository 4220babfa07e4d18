"""The queue beside a Slurm with accounting: limits of accounts, and what is in its books afterwards."""

import time
from collections.abc import Iterator
from datetime import datetime

import pytest

from backends.private_slurm import PrivateSlurm, has_memory_cgroup
from stories.on_slurm import HOLD, PATIENCE, Afar, afar
from stories.outside import World, wait_until

WAIT = "until test -e go; do sleep 0.05; done"
pytestmark = pytest.mark.parametrize(
    "slurm", [{"nodes": 1, "accounting": True}], indirect=True, scope="module", ids=["accounting"]
)


@pytest.fixture
def there(world: World, slurm: PrivateSlurm) -> Iterator[Afar]:
    with afar(world, slurm) as one:
        yield one


def test_an_array_above_the_limit_of_its_account_runs_in_parts(there: Afar, slurm: PrivateSlurm) -> None:
    slurm.manage("modify", "user", "root", "set", "MaxSubmitJobs=4")
    there.daemon()
    told = "echo $DIBS_ARRAY_TASK_ID of $SLURM_ARRAY_TASK_MIN-$SLURM_ARRAY_TASK_MAX, $SLURM_ARRAY_TASK_COUNT"
    there.world.write("many.sh", f"#!/bin/bash\n#SBATCH -a 1-8 -J many\n{WAIT}; {told} >> ran\n")
    first = there.add("-f", "many.sh")
    limited = there.add("-n", "0", "--array", "1-4%2", "-J", "few", "--", "echo few >> ran")

    wait_until(lambda: len(there.squeue()) == 4, show=there.squeue, seconds=PATIENCE)
    why = why_not_yet(there, "many")
    there.let_go()
    over = there.wait_for(*range(first, limited + 4))
    slurm.manage("modify", "user", "root", "set", "MaxSubmitJobs=-1")

    assert "Slurm takes 4 of your jobs at once: its account has reached a limit: jobs submitted" in why, why
    assert {job["state"] for job in over} == {"succeeded"}
    ran = there.world.read("ran").splitlines()
    assert sorted(ran) == sorted([*(f"{task} of 1-8, 8" for task in range(1, 9)), *["few"] * 4])
    there.assert_nothing_is_left()


@pytest.mark.parametrize(
    ("limit", "told"),
    [
        ("MaxSubmitJobsPerUser=3", "jobs submitted (QOSMaxSubmitJobPerUserLimit)"),
        ("MaxSubmitJobsPerAccount=3", "jobs submitted (MaxSubmitJobsPerAccount)"),
    ],
)
def test_an_array_above_the_limit_of_a_qos_runs_in_parts_beside_jobs_without_it(
    there: Afar, slurm: PrivateSlurm, limit: str, told: str
) -> None:
    qos = limit.partition("=")[0].lower()
    slurm.manage("add", "qos", qos, limit)
    slurm.manage("modify", "user", "root", "set", f"qos+={qos}")
    there.daemon()
    beside = there.add("-n", "0", "--", HOLD)
    there.wait_until_up(beside)

    wait = f"{WAIT}; echo $DIBS_ARRAY_TASK_ID >> ran"
    first = there.add("-n", "0", "--qos", qos, "--array", "1-8", "-J", "many", "--", wait)
    wait_until(lambda: len(there.squeue()) == 4, show=there.squeue, seconds=PATIENCE)
    more = [there.add("-n", "0", "--", HOLD) for _ in range(2)]
    wait_until(lambda: len(there.squeue()) == 6, show=there.squeue, seconds=PATIENCE)
    why = why_not_yet(there, "many")
    there.let_go()
    over = there.wait_for(beside, *more, *range(first, first + 8))

    assert f"Slurm takes 3 of your jobs with --qos={qos} at once: its QOS has reached a limit: {told}" in why, why
    assert {job["state"] for job in over} == {"succeeded"}
    assert sorted(there.world.read("ran").split()) == [str(task) for task in range(1, 9)]
    there.assert_nothing_is_left()


def test_a_partition_that_is_closed_to_the_default_account_is_refused_when_a_job_is_added(
    there: Afar, slurm: PrivateSlurm
) -> None:
    """Slurm itself would take it and let it wait for ever."""
    for account in ("lab", "other"):
        slurm.ask("scontrol", "create", f"partitionname={account}", "nodes=n1", f"allowaccounts={account}")
    slurm.manage("modify", "user", "root", "set", "defaultaccount=lab")
    there.daemon()

    closed = there.world.dibs("add", "--on", "slurm", "-n", "0", "--partition", "other", "--", "true", timeout=60)
    wrong = there.world.dibs(
        *("add", "--on", "slurm", "-n", "0", "--partition", "lab", "--account", "root", "--", "true"), timeout=60
    )
    [over] = there.wait_for(there.add("-n", "0", "--partition", "lab", "--", "true"))
    slurm.manage("modify", "user", "root", "set", "defaultaccount=root")

    assert closed.status == 2 and "the partition other is closed to the account lab" in closed.stderr, closed
    assert wrong.status == 2 and "the partition lab is closed to the account root" in wrong.stderr, wrong
    assert over["state"] == "succeeded"
    there.assert_nothing_is_left()


def test_ends_are_told_as_slurms_books_have_them(there: Afar, slurm: PrivateSlurm) -> None:
    """What was cancelled, what ran out of memory unseen by its command, and when a job ran while nobody looked."""
    world = there.world
    there.daemon()
    killed = there.add("-n", "0", "--", HOLD)
    stamped = there.add(
        "-n", "0", "--", "date +%s.%N > began; until test -e end; do sleep 0.05; done; date +%s.%N > ended"
    )
    if has_memory_cgroup():
        child = there.add("-n", "0", "--mem", "100M", "--", "(head -c 300M /dev/zero | tail) & wait; exit 0")
        [short] = there.wait_for(child)
        assert (short["state"], short["exit_code"], short["cause"]) == ("failed", 0, "host-oom"), short
        assert "a process of it used more memory than Slurm gave it" in short["message"]
    there.wait_until_up(killed)
    number = there.attempt(killed)["backend_job"]
    world.dibs("kill", str(killed))
    there.wait_for(killed)
    wait_until(lambda: (world.folder / "began").exists(), seconds=PATIENCE)
    world.dibs("daemon", "stop")
    world.write("end", "")
    wait_until(lambda: not there.squeue(), show=there.squeue, seconds=PATIENCE)
    ended = float(world.read("ended"))
    wait_until(lambda: time.time() > ended + 3)  # by now a daemon that only looks would be wrong
    there.daemon()
    [job] = there.wait_for(stamped)

    assert abs(moment(job["started_at"]) - float(world.read("began"))) < 1.5, job
    assert abs(moment(job["ended_at"]) - ended) < 1.5, job
    assert in_the_books(slurm, number) == "CANCELLED"
    assert there.job(killed)["state"] == "cancelled"
    there.assert_nothing_is_left()


def test_what_slurm_has_forgotten_is_told_as_its_books_have_it(there: Afar, slurm: PrivateSlurm) -> None:
    there.daemon()
    lost = there.add("-n", "0", "--", HOLD)
    there.wait_until_up(lost)
    there.wait_until("running", lost)
    number = there.attempt(lost)["backend_job"]
    there.world.dibs("daemon", "stop")
    slurm.kill_node("n1")
    assert in_the_books(slurm, number) == "NODE_FAIL"
    ended = float(slurm.ask("env", "SLURM_TIME_FORMAT=%s", "sacct", "-nXP", "-j", number, "-o", "end").strip())
    slurm.start_node("n1")
    slurm.kill_controller()
    slurm.start_controller(afresh=True)
    wait_until(lambda: time.time() > ended + 3)  # by now a daemon that only looks would be wrong

    there.daemon()
    [over] = there.wait_for(lost)

    assert (over["state"], over["message"]) == ("lost", "its node failed (n1)"), over
    assert abs(moment(over["ended_at"]) - ended) < 1, over
    wait_until(lambda: "idle" in slurm.ask("sinfo", "-h", "-n", "n1", "-o", "%T"), seconds=PATIENCE)
    there.assert_nothing_is_left()


def test_of_an_array_only_the_element_is_cancelled_that_was_killed(there: Afar, slurm: PrivateSlurm) -> None:
    """Slurm gives the last element that starts the number of the whole array."""
    there.daemon()
    first = there.add("-n", "0", "--array", "1-2", "--", HOLD)
    there.wait_until_up(first, first + 1)
    numbers = [there.attempt(job)["backend_job"] for job in (first, first + 1)]

    there.world.dibs("kill", str(first + 1))
    [killed] = there.wait_for(first + 1)
    wait_until(lambda: len(there.squeue()) == 1, show=there.squeue, seconds=PATIENCE)
    there.let_go()
    [other] = there.wait_for(first)

    assert (killed["state"], other["state"]) == ("cancelled", "succeeded")
    assert [in_the_books(slurm, number) for number in numbers] == ["COMPLETED", "CANCELLED"]
    there.assert_nothing_is_left()


def why_not_yet(there: Afar, name: str) -> str:
    """Why the others of an array are not there yet, once the round that found it out is over."""
    return wait_until(
        lambda: next((said for said in [there.world.dibs("why", name).stdout] if "Slurm takes" in said), ""),
        show=lambda: there.world.dibs("why", name),
        seconds=PATIENCE,
    )


def in_the_books(slurm: PrivateSlurm, number: str) -> str:
    """The state of a job that is over; accounting hears of it a moment later."""
    said: list[str] = []

    def is_over() -> bool:
        said[:] = slurm.ask("sacct", "-n", "-X", "-P", "-j", number, "-o", "state").split()
        return bool(said) and said[0] not in ("PENDING", "RUNNING")

    wait_until(is_over, show=lambda: said)
    return said[0]


def moment(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()
