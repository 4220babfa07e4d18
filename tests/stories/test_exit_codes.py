"""The exit status of dibs run."""

import signal

import pytest

from stories.outside import World, wait_until


@pytest.mark.parametrize("jobs, status", [("true\ntrue", 0), ("true\nfalse", 1), ("exit 9", 1), ("", 0)])
def test_a_list_ends_with_0_only_if_all_succeeded(world: World, jobs: str, status: int) -> None:
    assert world.dibs("run", "--gpus", "0,1", input=jobs).status == status


def test_an_empty_list_is_told(world: World) -> None:
    ended = world.dibs("run", "--gpus", "0", input="# nothing\n\n")

    assert (ended.status, ended.said) == (0, ["the list is empty: nothing was run"])


def test_jobs_without_gpus_need_no_driver(world: World) -> None:
    one = world.dibs("run", "-n", "0", "--", "true")
    some = world.dibs("run", "-n", "0", input="echo a\n[num_gpus=1] echo b")

    assert one.status == 0, one
    assert (some.status, some.stdout) == (1, "[1] a\n")
    assert some.stderr.splitlines()[0].endswith(" without GPUs")
    assert "job 2 cannot run: it wants a GPU, but none may be used" in some.stderr


@pytest.mark.parametrize(
    "script, status",
    [("exit 0", 0), ("exit 7", 7), ("exit 255", 255), ("kill -9 $$", 137), ("kill -TERM $$", 143)],
)
def test_one_command_gives_its_own_exit_code(world: World, script: str, status: int) -> None:
    assert world.dibs("run", "--gpus", "0", "--", "bash", "-c", script).status == status


def test_a_command_that_is_not_there_is_127_with_its_name(world: World) -> None:
    ended = world.dibs("run", "--gpus", "0", "--", "no-such-program")

    assert ended.status == 127
    assert ended.said == ["dibs: cannot start no-such-program: No such file or directory"]


def test_the_time_limit_is_124(world: World) -> None:
    ended = world.dibs("run", "--gpus", "0", "-t", "0.5s", "--", "sleep", "60")

    assert ended.status == 124


def test_the_time_limit_ends_the_whole_tree_after_the_grace(world: World) -> None:
    job = "trap '' TERM; (trap '' TERM; setsid sleep 1000) & while :; do sleep 0.1; done"

    ended = world.dibs("run", "--gpus", "0", "-t", "0.3s", "--grace", "0.3s", input=job)

    assert ended.status == 1
    assert "ran out of time" in ended.stderr
    world.assert_nothing_is_left()


def test_stdin_is_the_commands_own(world: World) -> None:
    ended = world.dibs("run", "--gpus", "0", "--", "cat", input=b"a\xff\0b")

    assert (ended.status, ended.stdout) == (0, "a\udcff\0b")


def test_a_job_of_a_list_finds_its_input_empty(world: World) -> None:
    ended = world.dibs("run", "--gpus", "0", "--raw", input="cat; echo end\necho next")

    assert ended.stdout == "end\nnext\n"


def test_the_words_of_a_command_are_not_touched(world: World) -> None:
    ended = world.dibs("run", "--gpus", "0", "--", "printf", "%s|", "a b", "$HOME", "*", "\udcff", "")

    assert ended.stdout == "a b|$HOME|*|\udcff||"


def test_a_line_behind_dashes_is_for_the_shell(world: World) -> None:
    ended = world.dibs("run", "--gpus", "0", "--", "echo a | tr a b")

    assert ended.stdout == "b\n"


def test_fail_fast_ends_everything_at_the_first_failure(world: World) -> None:
    jobs = [world.ledger.job("long", 60), "while ! grep -q long $LEDGER; do sleep 0.05; done; exit 5", "true"]

    ended = world.dibs("run", "--gpus", "0,1", "--fail-fast", input="\n".join([*jobs, world.ledger.job("never")]))

    assert ended.status == 1
    assert world.ledger.started() == ["long"]
    assert world.ledger.ended() == []
    said = ended.said
    assert said.index("job 2 failed (exit code 5)") < said.index(
        "stopping after a failure (--fail-fast): asking 1 job to end"
    )
    assert "0 succeeded, 1 failed, 1 stopped, 2 not started" in ended.stderr


def test_after_the_last_allowed_failure_nothing_more_is_started(world: World) -> None:
    world.write("jobs.txt", ["exit 1", "true", "exit 2", world.ledger.job("never")])

    ended = world.dibs("run", "--gpus", "0", "--max-failures", "2", "-f", "jobs.txt")

    assert ended.status == 1
    assert "stopping after 2 failures (--max-failures): nothing more is started\n" in ended.stderr
    assert "1 succeeded, 2 failed, 1 not started" in ended.stderr
    assert world.ledger.lines == []


def test_a_signal_to_one_command_is_the_commands_to_answer(world: World) -> None:
    running = world.start("run", "--gpus", "0", "--", "bash", "-c", "trap 'exit 33' INT; echo up; sleep 60 & wait")
    wait_until(lambda: running.stdout == "up\n", show=lambda: running.stderr)

    running.signal(signal.SIGINT)

    assert running.wait().status == 33
    world.assert_nothing_is_left()
