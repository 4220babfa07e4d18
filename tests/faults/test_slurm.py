"""Faults around a Slurm that runs our jobs: never twice, never lost. Each job signs its own start and end."""

import os
import random
import signal
import time
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from backends.private_slurm import PrivateSlurm
from faults.queue_campaign import QueueCampaign, pause
from faults.refusing import needs_strace, refusing
from faults.test_plants import planted
from stories.on_slurm import HOLD, PATIENCE, Afar, afar
from stories.outside import Running, World, open_store, wait_until

SAVED = 6.0  # seconds; the controller saves its state every five, at moments that cannot be seen


@pytest.fixture
def there(world: World, slurm: PrivateSlurm) -> Iterator[Afar]:
    with afar(world, slurm) as one:
        yield one


def _assert_all_ran_once(there: Afar, *names: str) -> None:
    """These and no others, from beginning to end; the store is whole and nothing is left anywhere."""
    ledger = there.world.ledger
    assert Counter(ledger.started()) == Counter(ledger.ended()) == dict.fromkeys(names, 1)
    there.assert_nothing_is_left()
    with open_store(there.world.state / "queue") as store:
        assert store.execute("pragma integrity_check").fetchone() == ("ok",)
        assert store.execute("select job from attempts where ended_at is null").fetchall() == []


def _copies(there: Afar, before: set[str]) -> Counter[str]:
    """How often each name was given to Slurm since then; it remembers for ten minutes."""
    rows = there.slurm.ask("squeue", "-h", "-r", "-a", "-t", "all", "-o", "%A %j_%K").splitlines()
    return Counter(name for number, name in (row.split() for row in rows) if number not in before)


def _known(there: Afar) -> set[str]:
    return set(there.slurm.ask("squeue", "-h", "-r", "-a", "-t", "all", "-o", "%A").split())


# -- the daemon is killed ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "fault", ["after-commit:2", "after-intent:1", "before-submit:1", "after-submit:1", "after-submit:2"]
)
def test_a_daemon_that_is_killed_at_this_point_loses_nothing_and_hands_nothing_over_twice(
    there: Afar, fault: str
) -> None:
    world = there.world
    world.environ["DIBS_POOL"] = "0,1"
    before = _known(there)
    line = f"{HOLD}; {world.ledger.job('$DIBS_ARRAY_TASK_ID')}"

    # The daemon that it starts dies there, and a command that finds none starts another one.
    array = there.add("--array", "1-3", "--", line, env={"DIBS_FAULT": fault})
    if fault == "after-submit:2":
        wait_until(lambda: len(there.squeue()) == 3, show=there.squeue, seconds=PATIENCE)
    single = there.add("--", f"{HOLD}; {world.ledger.job('single')}")
    wait_until(lambda: _daemons(world) >= 2, show=world.daemon_pid, seconds=PATIENCE)
    there.wait_until_up(*range(array, array + 3), single)
    there.wait_until("running", *range(array, array + 3), single)
    there.let_go()
    waited = world.dibs("wait", f"{array}-{single}", timeout=PATIENCE)

    assert waited.status == 0, (waited, there.squeue())
    assert set(_copies(there, before).values()) == {1}
    _assert_all_ran_once(there, "1", "2", "3", "single")


def _daemons(world: World) -> int:
    """How many there have been; if there is none, there is one more afterwards."""
    if world.daemon_pid() is None:
        world.dibs("daemon", "start")
    return (world.state / "queue/daemon.log").read_text().count("listens at")


def test_a_daemon_that_is_killed_again_and_again_loses_nothing_and_runs_nothing_twice(there: Afar) -> None:
    there.world.environ["DIBS_BACKEND"] = "slurm"
    chance = random.Random(7)
    before = _known(there)
    campaign = QueueCampaign(there.world, seconds=0.3)

    for _ in range(5):
        call = campaign.add(3)
        pause(chance, 1.5)
        campaign.kill_daemon()
        call.end()
        pause(chance, 0.5)
        campaign.kill_daemon()
    assert campaign.add(1).end() == 0  # this one is the last to end
    campaign.finish()

    assert len(campaign.acknowledged) > 3
    # Cards of different nodes have the same numbers.
    assert [words for words in campaign.complaints() if "at once" not in words] == []
    assert set(_copies(there, before).values()) == {1}
    assert there.squeue() == []


# -- the controller is killed ------------------------------------------------------------------------------


def test_a_controller_that_is_killed_at_once_and_later_loses_nothing_that_waits_and_runs_nothing_twice(
    there: Afar,
) -> None:
    world, slurm = there.world, there.slurm
    daemon = there.daemon()
    holders = [there.add("-n", "2", "--", f"{HOLD}; {world.ledger.job(f'holder{number}')}") for number in range(3)]
    array = there.add("--array", "1-4", "-n", "2", "--", world.ledger.job("$DIBS_ARRAY_TASK_ID"))
    late = there.add("-n", "2", "--", world.ledger.job("late"))
    numbers = [*holders, *range(array, array + 4), late]
    wait_until(lambda: len(there.squeue()) == 8, show=there.squeue, seconds=PATIENCE)

    slurm.kill_controller()
    slurm.start_controller()
    # Each waiting job is known again, or was submitted again.
    _wait_until_all_are_known(there, numbers)
    time.sleep(SAVED)
    slurm.kill_controller()
    daemon.kill()
    daemon = there.daemon()
    slurm.start_controller()
    there.let_go()
    over = _wait_out(there, numbers)

    starts = Counter(world.ledger.started())
    # What ran when the controller forgot it was ended by its node, or Slurm still has it.
    assert {one["state"] for one in over[3:]} == {"succeeded"}, over
    assert all(starts[name] == 1 for name in ("1", "2", "3", "4", "late")), starts
    for number, one in enumerate(over[:3]):
        assert one["state"] == "succeeded" or (one["state"] == "lost" and one["message"]), one
        assert starts[f"holder{number}"] <= 1
    assert {one["attempts"] for one in over} == {1}
    assert "Traceback" not in daemon.stderr
    there.assert_nothing_is_left()


def test_what_was_killed_while_it_waited_and_comes_back_with_the_controller_is_taken_out(there: Afar) -> None:
    world, slurm = there.world, there.slurm
    for _ in slurm.nodes:  # nothing of ours is open when it comes back
        slurm.ask("sbatch", "--job-name=other", "--gres=gpu:2", "-o", "/dev/null", "--wrap", "sleep 600")
    daemon = there.daemon()
    doomed = there.add("-n", "2", "--", world.ledger.job("doomed"))
    array = there.add("--array", "1-2", "-n", "2", "--", world.ledger.job("$DIBS_ARRAY_TASK_ID"))
    killed = range(doomed, array + 2)
    wait_until(lambda: len(there.squeue()) == 6, show=there.squeue, seconds=PATIENCE)
    slurm.wait_until_saved()
    saved = (slurm.folder / "state/job_state").read_bytes()

    world.dibs("kill", *map(str, killed))
    there.wait_until("cancelled", *killed)
    slurm.kill_controller()
    (slurm.folder / "state/job_state").write_bytes(saved)  # as if it had died at once
    slurm.start_controller()
    wait_until(lambda: "brought back" in daemon.stderr, show=there.squeue, seconds=PATIENCE)
    wait_until(lambda: set(there.squeue()) == {"other"}, show=there.squeue, seconds=PATIENCE)

    assert {there.job(number)["state"] for number in killed} == {"cancelled"}
    assert daemon.stderr.count("brought back") == 1
    assert world.ledger.started() == []
    slurm.clear()
    there.assert_nothing_is_left()


def _wait_until_all_are_known(there: Afar, jobs: list[int]) -> None:
    def is_known() -> bool:
        there.slurm.resume()
        rows = there.slurm.ask("squeue", "-h", "-r", "-o", "%j").split()
        open_ones = [job for job in jobs if not there.job(job)["ended_at"]]
        return len(rows) == len(open_ones)

    wait_until(is_known, show=there.squeue, seconds=PATIENCE)


def _wait_out(there: Afar, jobs: list[int]) -> list[dict[str, Any]]:
    """These, once they are over; meanwhile drained nodes are resumed."""

    def is_over() -> bool:
        there.slurm.resume()
        return not there.world.client().wait(jobs, seconds=1)["waiting"]

    wait_until(is_over, show=lambda: ([there.job(job) for job in jobs], there.squeue()), seconds=PATIENCE)
    return [there.job(job) for job in jobs]


# -- a node is killed --------------------------------------------------------------------------------------


def test_a_node_that_dies_loses_its_jobs_and_who_may_be_tried_again_runs_elsewhere(there: Afar) -> None:
    world, slurm = there.world, there.slurm
    daemon = there.daemon()
    line = f'echo start $DIBS_JOB_ID $SLURMD_NODENAME - >> "$LEDGER"; {HOLD}'
    doomed = there.add("-n", "2", "--", line)
    tried = there.add("-n", "2", "--retries", "1", "--", line)
    there.wait_until_up(doomed, tried)
    there.wait_until("running", doomed, tried)
    dead = {number: there.attempt(number)["node"] for number in (doomed, tried)}

    for node in dead.values():
        slurm.kill_node(node)
    [lost] = _wait_out(there, [doomed])
    wait_until(lambda: there.job(tried)["attempts"] == 2, show=lambda: there.job(tried), seconds=PATIENCE)
    there.wait_until("running", tried)
    there.let_go()
    [again] = _wait_out(there, [tried])
    down = world.dibs("gpus", "--on", "slurm").stdout
    for node in dead.values():
        slurm.start_node(node)
    wait_until(
        lambda: slurm.ask("sinfo", "-h", "-N", "-t", "idle", "-o", "%N").split() == slurm.nodes,
        show=lambda: slurm.ask("sinfo", "-N"),
        seconds=PATIENCE,
    )
    back = there.add("--nodelist", dead[doomed], "--", "true")
    there.wait_for(back)

    assert (lost["state"], lost["attempts"], lost["message"]) == ("lost", 1, f"its node failed ({dead[doomed]})")
    assert (again["state"], [one["cause"] for one in again["attempts_list"]]) == ("succeeded", ["lost", None])
    assert again["attempts_list"][1]["node"] not in dead.values()
    assert "down" in down
    assert there.attempt(back)["node"] == dead[doomed]
    assert Counter(world.ledger.started()) == {str(doomed): 1, str(tried): 2}
    assert "Traceback" not in daemon.stderr
    there.assert_nothing_is_left()


# -- the disk refuses --------------------------------------------------------------------------------------


def _refusing(world: World, daemon: Running) -> Any:
    queue = world.state / "queue"
    files = [word for name in ("store.db", "store.db-wal", "journal.jsonl") for word in ("-P", f"{queue}/{name}")]
    # Its first thread only, which is the one that writes: the other one starts Slurm's commands with vfork, in the
    # middle of which strace could not let it go.
    return refusing(daemon.pid, "write,pwrite64,fdatasync,ftruncate:error=ENOSPC", *files)


@needs_strace
def test_on_a_full_disk_nothing_is_lost_of_what_runs_and_waits_there(there: Afar) -> None:
    world = there.world
    daemon = there.daemon()
    names = [f"running{number}" for number in range(3)]
    running = [there.add("-n", "2", "--", f"{HOLD}; {world.ledger.job(name)}") for name in names]
    there.wait_until_up(*running)
    waiting = [there.add("-n", "2", "--", world.ledger.job(f"waiting{number}")) for number in range(2)]
    wait_until(lambda: len(there.squeue()) == 5, show=there.squeue, seconds=PATIENCE)

    with _refusing(world, daemon):
        said = len(daemon.stderr)
        there.let_go()
        wait_until(lambda: len(world.ledger.ended()) == 5, show=there.squeue, seconds=PATIENCE)
        wait_until(lambda: len(daemon.stderr) > said, show=lambda: daemon.stderr, seconds=PATIENCE)
        meanwhile = {there.job(number)["state"] for number in (*running, *waiting)}
    over = there.wait_for(*running, *waiting)

    assert meanwhile <= {"running", "submitted"}
    assert {(one["state"], one["attempts"]) for one in over} == {("succeeded", 1)}
    assert "Traceback" not in daemon.stderr
    _assert_all_ran_once(there, *names, "waiting0", "waiting1")


@needs_strace
def test_what_was_killed_before_it_was_handed_over_stays_so_though_the_disk_cannot_take_it_down(
    there: Afar,
) -> None:
    world = there.world
    daemon = there.daemon()
    controller = int((there.slurm.folder / "run/slurmctld.pid").read_text())
    os.kill(controller, signal.SIGSTOP)
    try:
        doomed = there.add("--", world.ledger.job("doomed"))
        killed = world.dibs("kill", str(doomed))
        with _refusing(world, daemon):
            said = len(daemon.stderr)
            os.kill(controller, signal.SIGCONT)
            wait_until(lambda: len(daemon.stderr) > said, show=lambda: daemon.stderr, seconds=PATIENCE)
            # A few rounds: a daemon that forgot the kill would hand it over now.
            time.sleep(3)
    finally:
        os.kill(controller, signal.SIGCONT)
    [over] = there.wait_for(doomed)

    assert killed.status == 0
    assert over["state"] == "cancelled"
    assert world.ledger.started() == []
    assert "Traceback" not in daemon.stderr
    there.assert_nothing_is_left()


# -- we ourselves ------------------------------------------------------------------------------------------


def test_a_bug_in_one_round_does_not_end_all_rounds(there: Afar) -> None:
    plant = """
        from dibs.backends.slurm.backend import SlurmBackend
        honest, count = SlurmBackend.observe, []
        def observe(self, refs):
            count.append(1)
            if len(count) == 2:
                raise ValueError("planted")
            return honest(self, refs)
        SlurmBackend.observe = observe
    """
    daemon = there.daemon(program=planted(there.world, plant))
    job = there.add("--", f"sleep 1; {there.world.ledger.job('one')}")

    [over] = there.wait_for(job)

    assert over["state"] == "succeeded"
    assert "planted" in daemon.stderr
    _assert_all_ran_once(there, "one")
