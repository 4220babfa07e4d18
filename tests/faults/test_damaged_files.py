"""Files of the queue are deleted, emptied, copied or put back: no job runs twice, and no end is made up."""

import os
import shutil
from pathlib import Path

from dibs.supervise.folder import blank_record, read_spec
from faults.campaign import kill_everything
from stories.outside import DIBS, World, needs_root, wait_until
from supervise.folder_damage import DAMAGES


def test_a_store_that_was_restored_from_a_copy_gives_no_number_twice(world: World) -> None:
    queue = world.state / "queue"
    world.run_daemon()
    first = world.add("--", world.ledger.job("first"))
    world.wait_for(first)
    world.dibs("daemon", "stop")
    copies = {name: (queue / name).read_bytes() for name in ("store.db", "journal.jsonl")}
    world.run_daemon()
    forgotten = world.add("--", f"echo an old log; {world.ledger.job('forgotten')}")
    world.wait_for(forgotten)
    world.dibs("daemon", "stop")

    for name, content in copies.items():
        (queue / name).write_bytes(content)
    daemon = world.run_daemon()
    job = world.add("--", world.ledger.job("new"))
    [over] = world.wait_for(job)
    log = world.dibs("log", str(job))
    world.dibs("daemon", "stop")

    assert (job, over["state"]) == (forgotten + 1, "succeeded")
    assert world.ledger.started() == ["first", "forgotten", "new"]
    assert "an old log" not in log.stdout
    assert f"new jobs are numbered from {forgotten + 1}" in daemon.stderr
    world.assert_nothing_is_left()


def test_a_job_that_ran_after_the_copy_was_made_is_lost_and_runs_no_second_time(world: World) -> None:
    queue = world.state / "queue"
    world.run_daemon()
    job = world.add("--hold", "--", f"echo said; {world.ledger.job('once')}")
    world.dibs("daemon", "stop")
    copies = {name: (queue / name).read_bytes() for name in ("store.db", "journal.jsonl")}
    world.run_daemon()
    world.dibs("release", str(job))
    world.wait_for(job)
    world.dibs("daemon", "stop")

    for name, content in copies.items():
        (queue / name).write_bytes(content)
    world.run_daemon()
    world.dibs("release", str(job))
    [over] = world.wait_for(job)
    again = world.dibs("retry", str(job))
    [repeated] = world.wait_for(job)
    world.dibs("daemon", "stop")

    assert (over["state"], over["attempts"]) == ("lost", 1)
    assert "is of another attempt" in over["message"]
    assert (again.status, repeated["state"], repeated["attempts"]) == (0, "succeeded", 2)
    assert world.ledger.started() == ["once", "once"]
    world.assert_nothing_is_left()


def test_a_job_whose_record_was_damaged_while_no_daemon_ran_is_lost(world: World) -> None:
    daemon = world.run_daemon(pool="0,1,2,3,4,5")
    jobs = {world.add("--", world.ledger.held(name)): damage for name, damage in DAMAGES.items()}
    other = world.add("--", world.ledger.held("other"))
    wait_until(lambda: len(world.ledger.started()) == len(jobs) + 1)
    daemon.kill()
    world.write("go", "")
    wait_until(lambda: not world.processes(), show=world.processes)

    attempts = world.state / "queue/attempts/0"
    for job, damage in jobs.items():
        damage(attempts / f"{job}.1", attempts / f"{other}.1")
    world.run_daemon(pool="0,1,2,3,4,5")
    over = world.wait_for(*jobs, other)
    world.dibs("daemon", "stop")

    assert [one["state"] for one in over] == [*["lost"] * len(jobs), "succeeded"]
    assert all("so it may have run" in one["message"] for one in over[:-1])
    assert sorted(world.ledger.started()) == sorted([*DAMAGES, "other"])
    world.assert_nothing_is_left()


def test_a_job_whose_folder_was_deleted_under_it_is_not_run_again(world: World) -> None:
    daemon = world.run_daemon()
    job = world.add("--", world.ledger.held("only"))
    wait_until(world.ledger.started)
    daemon.kill()
    shutil.rmtree(world.state / f"queue/attempts/0/{job}.1")

    world.run_daemon()
    running = world.client().job(job)
    world.write("go", "")
    [over] = world.wait_for(job)
    world.dibs("daemon", "stop")

    assert running["state"] == "running", "something of it holds its GPU"
    assert over["state"] == "lost"
    assert world.ledger.started() == ["only"]
    world.assert_nothing_is_left()


@needs_root
def test_a_file_system_that_came_back_without_a_reboot_is_no_proof_that_a_job_never_ran(world: World) -> None:
    """What was not synced is gone then, the mark of a start too, while the boot id is the same.

    In a mount namespace of its own the daemon sees the same files in another mount.
    """
    world.run_daemon(pool="0")
    job = world.add("--", world.ledger.job("only", 60))
    wait_until(world.ledger.started)
    folder = world.state / f"queue/attempts/0/{job}.1"
    blank = _blank_again(folder / "record")
    kill_everything(world)
    world.ledger.cut()
    wait_until(lambda: not world.holders(), show=world.holders)
    (folder / "record").write_bytes(blank)

    world.run_daemon(pool="0", program=("unshare", "--mount", DIBS))
    [over] = world.wait_for(job)
    world.dibs("daemon", "stop")

    assert (over["state"], world.ledger.started()) == ("lost", ["only"])
    world.assert_nothing_is_left()


def _blank_again(record: Path) -> bytes:
    """The record as it was before its shim took it."""
    spec = read_spec(os.fspath(record.parent))
    assert spec is not None
    return blank_record(spec)
