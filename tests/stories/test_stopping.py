"""Ctrl-C once, twice, three times; TERM, USR1 and HUP."""

import os
import signal
import subprocess

import pytest

from stories.outside import PATIENCE, Running, World, wait_until


def _running_list(world: World, job: str) -> Running:
    """Two jobs run, two wait."""
    world.write("jobs.txt", [job.replace("NAME", name) for name in "abcd"])
    running = world.start("run", "--gpus", "0,1", "-f", "jobs.txt")
    wait_until(lambda: len(world.ledger.started()) == 2, show=lambda: running.stderr)
    return running


def _let_them_end(world: World, running: Running) -> None:
    """Those that are held, once the signal was heard."""
    wait_until(lambda: "nothing more is started" in running.stderr, show=lambda: running.stderr)
    world.write("go", "")


def test_the_first_ctrl_c_lets_the_running_finish_and_says_so(world: World) -> None:
    running = _running_list(world, world.ledger.held("NAME"))

    running.signal(signal.SIGINT)
    _let_them_end(world, running)
    ended = running.wait()

    assert ended.status == 130
    assert sorted(world.ledger.ended()) == ["a", "b"]
    assert "stopping: nothing more is started; 2 jobs run on to the end" in ended.stderr
    assert "2 succeeded, 0 failed, 2 not started" in ended.stderr


def test_one_job_is_spoken_of_as_one(world: World) -> None:
    world.write("jobs.txt", [f"echo last words; {world.ledger.job('a', 60)}"])
    running = world.start("run", "--gpus", "0", "-f", "jobs.txt")
    wait_until(lambda: world.ledger.started(), show=lambda: running.stderr)

    running.signal(signal.SIGINT)
    wait_until(lambda: "1 job runs on to the end (Ctrl-C again ends it, a third time kills it)" in running.stderr)
    running.signal(signal.SIGINT)
    ended = running.wait()

    assert "stopping: asking 1 job to end (Ctrl-C again kills it)" in ended.stderr
    assert "    last words" not in ended.stderr  # its log is no explanation: the person is


def test_stopped_jobs_are_events_of_their_own_kind(world: World) -> None:
    world.write("jobs.txt", [world.ledger.job("a", 60)])
    running = world.start("run", "--gpus", "0", "-f", "jobs.txt", "--json")
    wait_until(lambda: world.ledger.started(), show=lambda: running.stderr)

    for how in ("drain", "ask"):
        running.signal(signal.SIGINT)
        wait_until(lambda how=how: f'"how": "{how}", "why": "SIGINT"' in running.stdout)
    ended = running.wait()

    assert ended.status == 130
    assert (ended.events[-1]["failed"], ended.events[-1]["stopped"]) == (0, 1)


def test_the_second_ctrl_c_asks_all_to_end(world: World) -> None:
    job = "trap 'echo bye NAME - $$ >> $LEDGER; exit 1' TERM; echo start NAME - $$ >> $LEDGER; sleep 60 & wait"
    running = _running_list(world, job)

    running.signal(signal.SIGINT)
    wait_until(lambda: "nothing more" in running.stderr)
    running.signal(signal.SIGINT)
    ended = running.wait()

    assert ended.status == 130
    assert sorted(line[1] for line in world.ledger.lines if line[0] == "bye") == ["a", "b"]
    assert "stopping: asking 2 jobs to end (Ctrl-C again kills them)" in ended.stderr
    assert "0 succeeded, 0 failed, 2 stopped, 2 not started" in ended.stderr
    world.assert_nothing_is_left()


def test_the_third_ctrl_c_kills(world: World) -> None:
    job = "trap '' TERM INT; echo start NAME - $$ >> $LEDGER; while :; do sleep 1; done"
    running = _running_list(world, job)

    for words in ("nothing more", "asking 2 jobs", "killing 2 jobs"):
        running.signal(signal.SIGINT)
        wait_until(lambda words=words: words in running.stderr, show=lambda: running.stderr)
    ended = running.wait()

    assert ended.status == 130
    assert ended.stderr.count("was stopped (SIGKILL)") >= 2
    world.assert_nothing_is_left()


@pytest.mark.parametrize(("number", "status"), [(signal.SIGTERM, 143), (signal.SIGUSR1, 1)])
def test_sigterm_and_sigusr1_are_the_same_with_their_own_exit_status(
    world: World, number: int, status: int
) -> None:
    running = _running_list(world, world.ledger.held("NAME"))

    running.signal(number)
    _let_them_end(world, running)
    ended = running.wait()

    assert ended.status == status
    assert len(world.ledger.ended()) == 2
    assert "2 not started" in ended.stderr


def test_sighup_changes_nothing(world: World) -> None:
    running = _running_list(world, world.ledger.held("NAME"))

    running.signal(signal.SIGHUP)
    world.write("go", "")
    ended = running.wait()

    assert ended.status == 0, ended
    assert len(world.ledger.ended()) == 4


def test_a_signal_while_the_list_is_still_open_ends_it(world: World) -> None:
    running = world.start("run", "--gpus", "0", stdin=subprocess.PIPE)
    running.say(world.ledger.job("a") + "\n")
    wait_until(lambda: world.ledger.ended() == ["a"], show=lambda: running.stderr)

    running.signal(signal.SIGINT)

    assert running.process.wait(PATIENCE) == 130


def test_a_waiting_list_ends_at_once(world: World) -> None:
    holder = world.start("run", "--gpus", "0", "--", "sleep", "60")
    wait_until(world.holders)
    running = world.start("run", "--gpus", "0", "--", "true")
    wait_until(lambda: "waits for a GPU" in running.stderr, show=lambda: running.stderr)

    running.signal(signal.SIGINT)
    ended = running.wait()

    assert ended.status == 130
    assert holder.process.poll() is None


def test_a_job_whose_supervisor_was_killed_is_ended_all_the_same(world: World) -> None:
    world.write("jobs.txt", [world.ledger.job("orphan", 60)])
    running = world.start("run", "--gpus", "0", "-f", "jobs.txt", "--output-dir", "out")
    wait_until(lambda: world.ledger.started(), show=lambda: running.stderr)
    control = next((world.folder / "out/.dibs/control").iterdir())
    os.kill(int(control.name.split("-")[0]), signal.SIGKILL)
    wait_until(lambda: "its GPU is kept" in running.stderr, show=lambda: running.stderr)

    for words in ("nothing more", "asking 1 job"):
        running.signal(signal.SIGINT)
        wait_until(lambda words=words: words in running.stderr, show=lambda: running.stderr)
    ended = running.wait()

    assert ended.status == 130
    assert "1 stopped" in ended.stderr  # its end was asked for, though it was not seen
    world.assert_nothing_is_left()


def test_a_signal_is_heard_by_a_job_whose_supervisor_is_only_just_starting(world: World) -> None:
    running = world.start("run", "--gpus", "0", "--", "sleep", "30")
    zygote = wait_until(
        lambda: next((pid for pid, line in world.processes().items() if "zygote" in line), None),
        show=lambda: running.stderr,
    )
    os.kill(zygote, signal.SIGSTOP)
    wait_until(lambda: world.holders() or running.process.poll() is not None)

    running.signal(signal.SIGTERM)
    os.kill(zygote, signal.SIGCONT)

    assert running.wait().status == 143
    world.assert_nothing_is_left()
