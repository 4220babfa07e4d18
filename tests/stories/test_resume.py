"""Going on after a failure, an edited list, a kill -9."""

import re
import signal
import subprocess
from collections import Counter

from stories.outside import World, wait_until


def test_resume_runs_only_what_has_not_succeeded(world: World) -> None:
    world.write(
        "jobs.txt",
        [world.ledger.job("good"), f"{{ {world.ledger.job('bad').removesuffix('exit 0')} test -e fixed; }}"],
    )
    arguments = ("run", "--gpus", "0", "-f", "jobs.txt", "--output-dir", "out")

    first = world.dibs(*arguments)
    world.write("fixed", "")
    second = world.dibs(*arguments, "--resume")

    assert (first.status, second.status) == (1, 0), second
    assert Counter(world.ledger.ended()) == {"good": 1, "bad": 2}
    assert "1 succeeded, 1 had succeeded before, 0 failed" in second.stderr
    assert (world.folder / "out/job_2/SUCCESS").exists() and not (world.folder / "out/job_2/FAILURE").exists()


def test_an_inserted_line_shifts_nothing_and_twins_are_told_apart(world: World) -> None:
    a, b = world.ledger.job("a"), world.ledger.job("b")
    arguments = ("run", "--gpus", "0", "-f", "jobs.txt", "--output-dir", "out")
    world.write("jobs.txt", [a, b, a])
    world.dibs(*arguments)

    world.write("jobs.txt", [world.ledger.job("new"), a, b, a, a])
    ended = world.dibs(*arguments, "--resume")

    assert ended.status == 0, ended
    assert Counter(world.ledger.ended()) == {"a": 3, "b": 1, "new": 1}


def test_an_earlier_run_is_not_run_twice_by_accident(world: World) -> None:
    world.write("jobs.txt", [world.ledger.job("a")])
    arguments = ("run", "--gpus", "0", "-f", "jobs.txt", "--output-dir", "out")
    world.dibs(*arguments)

    again = world.dibs(*arguments)
    fresh = world.dibs(*arguments, "--fresh")

    assert again.status == 2
    assert "out holds an earlier run" in again.stderr
    assert fresh.status == 0
    assert world.ledger.ended() == ["a", "a"]


def test_after_a_kill_the_running_go_on_are_adopted_and_recorded(world: World) -> None:
    """Three run, three wait. The end of the first three is watched by the next dibs."""
    world.write("jobs.txt", [world.ledger.held(number, status=number % 2) for number in range(6)])
    arguments = ("run", "--gpus", "0,1,2", "-f", "jobs.txt", "--output-dir", "out")
    running = world.start(*arguments)
    wait_until(lambda: len(world.ledger.started()) == 3, show=lambda: running.stderr)

    running.kill()
    held = {holder.gpu for holder in world.holders()}
    again = world.start(*arguments, "--resume")
    wait_until(lambda: again.stderr.count("going on with it") == 3, show=lambda: again.stderr)
    world.write("go", "")
    ended = again.wait()

    assert held == {"index-0", "index-1", "index-2"}
    assert ended.status == 1
    assert ended.stderr.count("was still running; going on with it") == 3
    assert "3 succeeded, 3 failed" in ended.stderr
    assert Counter(world.ledger.ended()) == {str(number): 1 for number in range(6)}
    assert world.ledger.overlaps() == []
    world.assert_nothing_is_left()


def test_what_ended_while_nobody_watched_is_recorded_with_its_exit_code(world: World) -> None:
    world.write("jobs.txt", [world.ledger.held(number, status=number) for number in range(3)])
    arguments = ("run", "--gpus", "0,1,2", "-f", "jobs.txt", "--output-dir", "out")
    running = world.start(*arguments)
    wait_until(lambda: len(world.ledger.started()) == 3, show=lambda: running.stderr)

    running.kill()
    world.write("go", "")
    wait_until(lambda: not world.processes(), show=world.processes)
    ended = world.dibs("run", "--output-dir", "out", "--resume", "--gpus", "0", "--max-failures", "1")

    assert ended.status == 1
    infos = [world.read(f"out/job_{number}/info") for number in (1, 2, 3)]
    assert ["exit_code: 0" in infos[0], "exit_code: 1" in infos[1], "exit_code: 2" in infos[2]] == [True] * 3
    # Failures of the run before do not count: one job is tried again, and its failure is the one allowed.
    assert sorted(world.ledger.ended()) == ["0", "1", "1", "2"]


def test_another_dibs_does_not_get_the_gpus_of_a_killed_one(world: World) -> None:
    running = world.start("run", "--gpus", "0", "--", "bash", "-c", world.ledger.held("mine"))
    wait_until(lambda: world.ledger.started(), show=lambda: running.stderr)

    running.kill()
    refused = world.dibs("run", "--gpus", "0", "--no-wait", "--", "true")
    waiting = world.start("run", "--gpus", "0", "--", "bash", "-c", world.ledger.job("yours"))
    wait_until(lambda: "waits for a GPU" in waiting.stderr, show=lambda: waiting.stderr)
    world.write("go", "")
    waited = waiting.wait()

    assert refused.status == 75
    assert waited.status == 0
    assert world.ledger.ended() == ["mine", "yours"]
    assert world.ledger.overlaps() == []


def test_a_run_is_resumed_by_its_printed_name_and_the_last_one_of_this_folder_without(world: World) -> None:
    world.write("jobs.txt", [world.ledger.job("a", status=1), world.ledger.job("b")])
    first = world.dibs("run", "--gpus", "0", "-f", "jobs.txt")
    name = re.search(r"`--resume (\S+)`", first.stderr)
    assert name

    with_list = world.dibs("run", "--gpus", "0", "-f", "jobs.txt", "--resume", name[1])
    without_list = world.dibs("run", "--gpus", "0", "--resume")

    assert (with_list.status, without_list.status) == (1, 1)
    assert Counter(world.ledger.ended()) == {"a": 3, "b": 1}


def test_the_last_run_of_this_folder_may_have_an_output_folder(world: World) -> None:
    world.write("older.txt", [world.ledger.job("older", status=1)])
    world.write("jobs.txt", [world.ledger.job("a", status=1), world.ledger.job("b")])
    world.dibs("run", "--gpus", "0", "-f", "older.txt")
    world.dibs("run", "--gpus", "0", "-f", "jobs.txt", "--output-dir", "out")

    resumed = world.dibs("run", "--gpus", "0", "--resume")

    assert resumed.status == 1, resumed
    assert Counter(world.ledger.ended()) == {"older": 1, "a": 2, "b": 1}


def test_a_resumed_list_has_todays_environment(world: World) -> None:
    world.write("jobs.txt", ["echo $COLOUR >> seen; test $COLOUR = green"])
    arguments = ("run", "--gpus", "0", "-f", "jobs.txt", "--output-dir", "out")
    world.dibs(*arguments, env={"COLOUR": "red"})

    ended = world.dibs(*arguments, "--resume", env={"COLOUR": "green"})

    assert ended.status == 0, ended
    assert world.read("seen") == "red\ngreen\n"


def test_a_run_resumed_from_another_folder_runs_where_it_was_begun(world: World) -> None:
    first = world.dibs("run", "--gpus", "0", input="pwd >> $LEDGER; false")
    name = re.search(r"`--resume (\S+)`", first.stderr)
    assert name

    world.dibs("run", "--gpus", "0", "--resume", name[1], cwd="/")

    first_line, _, second_line = world.ledger.path.read_text(errors="surrogateescape").rpartition(
        str(world.folder)
    )
    assert first_line == f"{world.folder}\n" and second_line == "\n"


def test_resuming_one_command_that_had_succeeded_is_a_success(world: World) -> None:
    arguments = ("run", "--gpus", "0", "--output-dir", "out")
    world.dibs(*arguments, "--", "bash", "-c", world.ledger.job("once"))

    ended = world.dibs(*arguments, "--resume", "--", "bash", "-c", world.ledger.job("once"))

    assert ended.status == 0, ended
    assert world.ledger.ended() == ["once"]


def test_a_stopped_run_goes_on_where_it_was(world: World) -> None:
    world.write("jobs.txt", [world.ledger.held(number) for number in range(5)])
    arguments = ("run", "--gpus", "0", "-f", "jobs.txt", "--output-dir", "out")
    running = world.start(*arguments)
    wait_until(lambda: world.ledger.started(), show=lambda: running.stderr)
    running.signal(signal.SIGINT)
    wait_until(lambda: "nothing more is started" in running.stderr, show=lambda: running.stderr)
    world.write("go", "")
    stopped = running.wait()

    ended = world.dibs(*arguments, "--resume")

    assert (stopped.status, ended.status) == (130, 0)
    assert Counter(world.ledger.ended()) == {str(number): 1 for number in range(5)}


def test_starting_over_while_jobs_of_a_killed_run_still_run_is_refused(world: World) -> None:
    world.write("jobs.txt", [world.ledger.job("a", 60)])
    arguments = ("run", "--gpus", "0", "-f", "jobs.txt", "--output-dir", "out")
    running = world.start(*arguments)
    wait_until(lambda: world.ledger.started(), show=lambda: running.stderr)
    running.kill()

    ended = world.dibs(*arguments, "--fresh")

    assert ended.status == 2
    assert "still running" in ended.stderr


def test_a_folder_of_a_running_dibs_is_refused(world: World) -> None:
    arguments = ("run", "--gpus", "0", "--output-dir", "out")
    running = world.start(*arguments, "--", "sleep", "60")
    wait_until(world.holders)

    for more in ((), ("--resume",), ("--fresh",)):
        ended = world.dibs(*arguments, *more, input="true")
        assert ended.status == 2
        assert f"out belongs to a dibs run that is still there (pid {running.pid})" in ended.stderr


def test_a_piped_list_is_resumed_too(world: World) -> None:
    jobs = world.ledger.job("a") + "\n" + world.ledger.job("b")
    arguments = ("run", "--gpus", "0", "--output-dir", "out")
    world.dibs(*arguments, input=jobs)

    ended = world.dibs(*arguments, "--resume", "-", input=jobs)

    assert ended.status == 0, ended
    assert "2 had succeeded before" in ended.stderr
    assert len(world.ledger.ended()) == 2


def test_a_generator_can_be_resumed(world: World) -> None:
    world.write(
        "jobs.py",
        f"def yielder():\n    for n in range(3):\n        yield {world.ledger.job('X')!r}.replace('X', str(n))\n",
    )
    arguments = ("run", "--gpus", "0", "-f", "jobs.py", "--output-dir", "out")
    running = world.start(*arguments, stdin=subprocess.DEVNULL)
    wait_until(lambda: world.ledger.started(), show=lambda: running.stderr)
    running.kill()

    ended = world.dibs(*arguments, "--resume")

    assert ended.status == 0, ended
    assert Counter(world.ledger.ended()) == {"0": 1, "1": 1, "2": 1}


def test_what_ended_while_nobody_looked_is_counted_once(world: World) -> None:
    world.write("list.txt", [world.ledger.held("a"), world.ledger.held("b", status=3), world.ledger.job("c")])
    arguments = ("run", "--gpus", "0,1", "-f", "list.txt", "--output-dir", "out")
    running = world.start(*arguments)
    wait_until(lambda: len(world.ledger.started()) == 2, show=lambda: running.stderr)
    running.kill()
    world.write("go", "")
    wait_until(lambda: len(world.ledger.ended()) == 2)
    wait_until(lambda: not world.holders())

    ended = world.dibs(*arguments, "--resume")

    assert "1 succeeded, 1 had succeeded before, 1 failed" in ended.stderr, ended
    assert "job 2 failed (exit code 3) in the run before" in ended.stderr
    assert ended.status == 1
    assert (world.folder / "out" / "job_1" / "SUCCESS").exists()


def test_a_success_whose_mark_was_lost_with_its_run_gets_it_back(world: World) -> None:
    world.write("list.txt", ["true", "sleep 0.2; true"])
    arguments = ("run", "--gpus", "0", "-f", "list.txt", "--output-dir", "out")
    world.start(*arguments, env={"DIBS_FAULT": "after-intent:2"}).wait()
    assert not (world.folder / "out" / "job_1" / "SUCCESS").exists()

    ended = world.dibs(*arguments, "--resume")

    assert ended.status == 0, ended
    assert (world.folder / "out" / "job_1" / "SUCCESS").exists()


def test_a_line_that_is_not_in_the_list_any_more_is_not_in_the_table(world: World) -> None:
    world.write("list.txt", ["exit 3"])
    arguments = ("run", "--gpus", "0", "-f", "list.txt", "--output-dir", "out")
    world.dibs(*arguments)
    world.write("list.txt", ["echo fine"])

    ended = world.dibs(*arguments, "--resume")

    assert ended.status == 0, ended
    assert "exit 3" not in ended.stderr


def test_a_line_that_can_never_run_has_a_folder_that_says_so(world: World) -> None:
    ended = world.dibs("run", "--gpus", "0", "--output-dir", "out", input="[num_gpus=7] true\ntrue")

    assert ended.status == 1, ended
    assert (world.folder / "out" / "job_1" / "FAILURE").exists()
    assert "it wants 7 GPUs" in world.read("out/job_1/info")
