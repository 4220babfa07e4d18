"""What ends under the daemon, and what ends the daemon: the jobs are none the worse for it."""

import os
import signal
import sqlite3
import subprocess
import time
from contextlib import closing
from pathlib import Path

import pytest

from dibs.supervise import folder
from faults.campaign import is_shim
from stories.outside import World, is_talking, open_store, processes_of, wait_until

# Each loads half a second of code before it sees the lock; `make faults` starts all forty of faults.md, row 12.
DAEMONS = int(os.environ.get("DIBS_FAULT_DAEMONS", "10"))
HELD = "touch up-$DIBS_JOB_ID; until test -e go; do sleep 0.02; done"


def _wait_until_up(world: World, *jobs: int) -> None:
    wait_until(lambda: all((world.folder / f"up-{job}").exists() for job in jobs), show=world.processes)


def _pid(world: World, job: int) -> int:
    """Of its command."""
    found = wait_until(lambda: [one["pid"] for one in world.client().job(job)["attempts_list"][-1:] if one["pid"]])
    return int(found[0])


def _parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def _shims(world: World) -> list[int]:
    return [pid for pid in processes_of(str(world.state / "queue/control")) if is_shim(pid)]


def _stop(world: World) -> None:
    assert world.dibs("daemon", "stop").status == 0
    world.assert_nothing_is_left()


# -- supervisors and jobs that are killed ------------------------------------------------------------------


def test_the_gpu_of_a_job_without_a_supervisor_is_kept_while_the_job_lives(world: World) -> None:
    daemon = world.run_daemon()
    job = world.add("--", HELD)
    _wait_until_up(world, job)

    os.kill(_parent(_pid(world, job)), signal.SIGKILL)
    next_one = world.add("--", world.ledger.job("next"))
    wait_until(lambda: "its GPU is kept until its processes end" in daemon.stderr, show=lambda: daemon.stderr)
    meanwhile = [world.client().job(number)["state"] for number in (job, next_one)]
    world.write("go", "")
    over = world.wait_for(job, next_one)

    assert meanwhile == ["running", "queued"]
    assert [one["state"] for one in over] == ["lost", "succeeded"]
    assert "its supervisor was killed" in over[0]["message"]
    _stop(world)


@pytest.mark.parametrize("has_supervisor", [True, False])
def test_a_lease_that_was_deleted_while_no_daemon_ran_is_made_again(world: World, has_supervisor: bool) -> None:
    daemon = world.run_daemon()
    job = world.add("--", HELD)
    _wait_until_up(world, job)
    shim = _parent(_pid(world, job))
    daemon.kill()
    os.unlink(world.leases / f"dibs-claim-index-0-{os.geteuid()}-0")
    if not has_supervisor:
        os.kill(shim, signal.SIGKILL)

    world.run_daemon()
    next_one = world.add("--", world.ledger.job("next"))
    wait_until(world.holders)
    refused = world.dibs("run", "--gpus", "0", "--no-wait", "--", "true")
    meanwhile = [world.client().job(number)["state"] for number in (job, next_one)]
    world.write("go", "")
    over = world.wait_for(job, next_one)

    assert (refused.status, meanwhile) == (75, ["running", "queued"])
    assert [one["state"] for one in over] == ["succeeded" if has_supervisor else "lost", "succeeded"]
    _stop(world)


def test_a_job_without_a_supervisor_can_be_ended(world: World) -> None:
    daemon = world.run_daemon()
    job = world.add("--grace", "0.2s", "--", HELD)
    _wait_until_up(world, job)
    os.kill(_parent(_pid(world, job)), signal.SIGKILL)
    wait_until(lambda: "its GPU is kept" in daemon.stderr, show=lambda: daemon.stderr)

    world.dibs("kill", str(job))

    wait_until(lambda: not world.holders(), show=world.holders)
    world.wait_for(job)
    _stop(world)


def test_a_job_whose_output_is_a_pipe_without_a_reader_can_be_ended(world: World) -> None:
    world.run_daemon()
    os.mkfifo(world.folder / "pipe")
    job = world.add("-o", "pipe", "-t", "0.5s", "--grace", "0.1s", "--", "echo hi")
    wait_until(lambda: world.holders() or world.client().job(job)["ended_at"])

    world.dibs("kill", str(job))

    wait_until(lambda: not world.holders(), show=world.holders)
    world.wait_for(job)
    _stop(world)


def test_a_job_whose_supervisor_was_killed_before_the_start_is_started_by_another(world: World) -> None:
    world.run_daemon()
    first = world.add("--", "true")
    world.wait_for(first)
    (idle,) = _shims(world)
    os.kill(idle, signal.SIGSTOP)

    second = world.add("--", world.ledger.job("second"))
    attempt = world.state / f"queue/attempts/0/{second}.1"
    wait_until(lambda: attempt.exists() and folder.facts(str(attempt)).is_locked)
    os.kill(idle, signal.SIGKILL)
    [over] = world.wait_for(second)

    assert (over["state"], over["attempts"]) == ("succeeded", 1)
    assert world.ledger.started() == ["second"]
    _stop(world)


def test_an_exit_code_is_kept_though_its_supervisor_was_killed_before_it_was_read(world: World) -> None:
    daemon = world.run_daemon()
    job = world.add("--", f"{HELD}; exit 7")
    _wait_until_up(world, job)
    shim = _parent(_pid(world, job))

    daemon.signal(signal.SIGSTOP)
    world.write("go", "")
    attempt = str(world.state / f"queue/attempts/0/{job}.1")
    wait_until(lambda: folder.facts(attempt).exit_record, show=lambda: folder.facts(attempt))
    os.kill(shim, signal.SIGKILL)
    daemon.signal(signal.SIGCONT)
    [over] = world.wait_for(job)

    assert (over["state"], over["exit_code"], over["cause"]) == ("failed", 7, "exit code")
    _stop(world)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGUSR1])
def test_a_job_killed_from_outside_is_noticed_at_once_with_the_signal(
    world: World, number: signal.Signals
) -> None:
    world.run_daemon()
    job = world.add("--", "exec sleep 100")
    next_one = world.add("--", world.ledger.job("next"))
    waiting = world.start("wait", str(job))
    pid = _pid(world, job)
    wait_until(lambda: Path(f"/proc/{pid}/comm").read_text() == "sleep\n")
    wait_until(lambda: is_talking(waiting.pid))

    began = time.monotonic()
    os.kill(pid, number)
    ended = waiting.wait()
    took = time.monotonic() - began
    over, _ = world.wait_for(job, next_one)

    cause = "signal" if number is signal.SIGUSR1 else "killed"  # a program may send itself USR1
    assert (over["state"], over["signal"], over["exit_code"], over["cause"]) == ("failed", number, None, cause)
    assert ended.status == 128 + number
    assert took < 15  # it was told at once, not found by polling
    assert world.ledger.gpus() == {"next": "0"}
    _stop(world)


def test_the_queue_answers_and_goes_on_while_a_fork_storm_is_being_ended(world: World) -> None:
    world.run_daemon(pool="0,1")
    storm = "trap '' TERM; ulimit -u 2000; touch storm; while :; do sleep 9 & (sleep 9 &); done 2>/dev/null"
    job = world.add("--grace", "0.2s", "--", storm)
    wait_until(lambda: (world.folder / "storm").exists())

    killed = world.dibs("kill", str(job))
    answered = world.dibs("ls")
    beside = world.add("--", world.ledger.job("beside"))
    over = world.wait_for(job, beside)

    assert (killed.status, answered.status) == (0, 0)
    assert [one["state"] for one in over] == ["cancelled", "succeeded"]
    _stop(world)


# -- the daemon ends ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_jobs_that_end_while_there_is_no_daemon_are_found_as_they_ended(
    world: World, number: signal.Signals
) -> None:
    daemon = world.run_daemon(pool="0,1,2")
    world.write(
        "jobs.txt", [f"{HELD}; exit 4", f"{HELD}; exit 0", f"{HELD}; until test -e later; do sleep 0.02; done"]
    )
    world.add("-f", "jobs.txt")
    last = world.add("--", world.ledger.job("last"))
    _wait_until_up(world, 1, 2, 3)

    daemon.signal(number)
    ended = daemon.wait()
    world.write("go", "")
    wait_until(lambda: all(_record(world, job) for job in (1, 2)))
    world.run_daemon(pool="0,1,2")
    over = world.wait_for(1, 2, last)
    still = world.client().job(3)
    world.write("later", "")
    over += world.wait_for(3)

    assert ended.status == 0
    assert f"the daemon ends: got {number.name}; 3 running jobs go on without it" in ended.stderr
    assert [(one["state"], one["exit_code"], one["attempts"]) for one in over] == [
        ("failed", 4, 1),
        ("succeeded", 0, 1),
        ("succeeded", 0, 1),
        ("succeeded", 0, 1),
    ]
    assert still["state"] == "running"
    _stop(world)


def _record(world: World, job: int) -> object:
    return folder.facts(str(world.state / f"queue/attempts/0/{job}.1")).exit_record


def test_ctrl_c_in_the_terminal_of_the_daemon_leaves_the_jobs_alone(world: World) -> None:
    daemon = world.run_daemon(process_group=0)
    job = world.add("--", f"{HELD}; exit 3")
    _wait_until_up(world, job)

    os.killpg(daemon.pid, signal.SIGINT)
    ended = daemon.wait()
    is_listening = (world.state / "queue/socket").exists()
    world.run_daemon()
    world.write("go", "")
    [over] = world.wait_for(job)

    assert (ended.status, is_listening) == (0, False)
    assert "the daemon ends: got SIGINT; 1 running job goes on" in ended.stderr
    assert (over["exit_code"], over["attempts"]) == (3, 1)
    _stop(world)


def test_a_second_signal_while_the_daemon_ends_changes_nothing(world: World) -> None:
    daemon = world.run_daemon()
    job = world.add("--", HELD)
    _wait_until_up(world, job)

    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        daemon.signal(number)
    ended = daemon.wait()

    assert ended.status == 0, ended
    assert "Traceback" not in ended.stderr
    assert len(world.holders()) == 1
    world.write("go", "")
    world.assert_nothing_is_left()


def test_stop_with_jobs_asks_waits_the_grace_and_insists(world: World) -> None:
    world.run_daemon(pool="0,1,2")
    polite = world.add("--", f"trap 'touch asked; exit 0' TERM; {HELD}")
    stubborn = world.add("--grace", "3s", "--", f"trap 'touch ignored' TERM; {HELD}")
    queued = world.add("-n", "3", "--", world.ledger.job("queued"))
    _wait_until_up(world, polite, stubborn)

    stopped = world.dibs("daemon", "stop", "--jobs")

    assert stopped.status == 0, stopped
    assert (world.folder / "asked").exists() and (world.folder / "ignored").exists()
    world.assert_nothing_is_left()
    with open_store(world.state / "queue") as store:
        rows = dict(store.execute("select id, state from jobs").fetchall())
        signals = dict(store.execute("select job, signal from attempts").fetchall())
    assert rows == {polite: "cancelled", stubborn: "cancelled", queued: "queued"}
    assert signals == {polite: None, stubborn: signal.SIGKILL}


def test_stop_leaves_the_jobs_and_the_queue_for_the_next_daemon(world: World) -> None:
    world.run_daemon()
    running = world.add("--", f"{HELD}; exit 5")
    queued = world.add("--", world.ledger.job("queued"))
    _wait_until_up(world, running)

    stopped = world.dibs("daemon", "stop")
    alive, refused = world.holders(), world.dibs("add", "--", "true")
    world.run_daemon()
    world.write("go", "")
    over = world.wait_for(running, queued)

    assert (stopped.status, len(alive), refused.status) == (0, 1, 69)
    assert [(one["state"], one["exit_code"]) for one in over] == [("failed", 5), ("succeeded", 0)]
    assert world.ledger.started() == ["queued"]
    _stop(world)


# -- many at once ------------------------------------------------------------------------------------------


def test_of_many_daemons_that_begin_at_once_one_stays_and_the_others_say_why(world: World) -> None:
    world.environ["DIBS_POOL"] = "0"
    many = [world.start("daemon", "run") for _ in range(DAEMONS)]
    wait_until(
        lambda: sum(one.process.poll() is None for one in many) == 1, show=lambda: many[0].stderr, seconds=60
    )

    (left,) = [one for one in many if one.process.poll() is None]
    wait_until(lambda: "listens at" in left.stderr, show=lambda: left.stderr)
    gone = [one.wait() for one in many if one is not left]

    assert {one.status for one in gone} == {2}
    assert {len(one.stderr.splitlines()) for one in gone} == {2}
    assert all(f"runs already (pid {left.pid})" in one.stderr for one in gone), gone
    assert world.daemon_pid() == left.pid
    _stop(world)


# -- versions ----------------------------------------------------------------------------------------------


def test_after_a_downgrade_the_store_is_refused_and_left_alone(world: World) -> None:
    world.run_daemon()
    world.add("--hold", "--", "true")
    _stop(world)
    store = world.state / "queue/store.db"
    with closing(sqlite3.connect(os.fsencode(store))) as db:
        (version,) = db.execute("pragma user_version").fetchone()
        db.execute(f"pragma user_version = {version + 1}")
    before = store.read_bytes()

    run = world.dibs("daemon", "run")
    added = world.dibs("add", "--", "true", env={"DIBS_NO_START": "0"})

    assert (run.status, added.status) == (1, 69)
    for one in (run, added):
        assert "another version of dibs wrote it" in one.stderr
        assert "Traceback" not in one.stderr
    assert len(added.stderr.splitlines()) == 2
    assert store.read_bytes() == before
    assert "/queue away to start without its jobs" in added.stderr
    store.parent.rename(world.state / "old queue")
    assert world.add("--hold", "--", "true", env={"DIBS_NO_START": "0"}) == 1
    _stop(world)
    world.assert_nothing_is_left()


def test_a_second_program_finds_the_store_locked_and_does_no_harm(world: World) -> None:
    world.run_daemon()
    job = world.add("--", HELD)
    _wait_until_up(world, job)
    code = (
        "import sqlite3, sys; db = sqlite3.connect(sys.argv[1], timeout=0)\n"
        "try: db.execute('delete from jobs'); db.commit(); print('harm')\n"
        "except sqlite3.OperationalError as error: print(error)\n"
    )

    said = subprocess.run(
        ["python3", "-c", code, str(world.state / "queue/store.db")], capture_output=True, text=True, check=True
    )
    world.write("go", "")
    [over] = world.wait_for(job)

    assert said.stdout == "database is locked\n"
    assert over["state"] == "succeeded"
    _stop(world)
