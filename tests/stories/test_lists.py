"""Lists from files, pipes, generators, JSON lines and scripts, freely mixed."""

import json
import os
import subprocess

from stories.outside import World, wait_until


def test_several_files_a_dash_and_a_generator_are_one_list(world: World) -> None:
    world.write("a.txt", [world.ledger.job("a")])
    world.write("b.txt", ["# a comment", "", world.ledger.job("b")])
    world.write("c.py", f"def yielder():\n    yield {world.ledger.job('c')!r}\n")

    ended = world.dibs(
        "run", "--gpus", "0", "-f", "a.txt", "-f", "b.txt", "-f", "c.py", "-", input=world.ledger.job("d")
    )

    assert ended.status == 0, ended
    assert sorted(world.ledger.ended()) == ["a", "b", "c", "d"]


def test_a_command_behind_dashes_among_files_is_one_of_the_list(world: World) -> None:
    world.write("a.txt", [world.ledger.job("a")])

    ended = world.dibs("run", "--gpus", "0", "-f", "a.txt", "--", "bash", "-c", world.ledger.job("b"))

    assert ended.status == 0, ended
    assert sorted(world.ledger.ended()) == ["a", "b"]


def test_lines_are_joined_and_blocks_are_one_job(world: World) -> None:
    world.write("jobs.txt", ["echo one \\", "  two", "<<<", "for i in 3 4; do", "  echo block $i", "done", ">>>"])

    ended = world.dibs("run", "--gpus", "0", "-f", "jobs.txt")

    assert ended.stdout.splitlines() == ["[1] one two", "[2] block 3", "[2] block 4"]


def test_wishes_in_front_of_a_line_are_heard(world: World) -> None:
    world.write(
        "jobs.txt",
        [
            "[num_gpus=2 name=wide] echo $DIBS_JOB_NAME has $CUDA_VISIBLE_DEVICES",
            "[time=0.01 name=late] sleep 60",  # 0.6 seconds
            "[num_gpus=0] echo none=$CUDA_VISIBLE_DEVICES.",
            "[retries=1 name=again] echo try $DIBS_ATTEMPT; test $DIBS_ATTEMPT = 2",
        ],
    )

    ended = world.dibs("run", "--gpus", "0,1", "-f", "jobs.txt")

    assert ended.status == 1
    assert "[wide] wide has 0,1" in ended.stdout
    assert "[3] none=." in ended.stdout
    assert "[again] try 2" in ended.stdout
    assert "job 2 (late) ran out of time" in ended.stderr
    assert "3 succeeded, 1 failed" in ended.stderr


def test_json_lines_are_jobs_with_all_their_words(world: World) -> None:
    jobs = [
        {"command": ["printf", "%s|", "a b", "$HOME", "*"], "name": "words"},
        {"command": "echo $X", "env": {"X": "from json"}, "name": "text"},
    ]

    ended = world.dibs("run", "--gpus", "0", input="\n".join(map(json.dumps, jobs)))

    assert ended.stdout.splitlines() == ["[words] a b|$HOME|*|", "[text] from json"]


def test_a_script_with_sbatch_lines_is_one_job(world: World) -> None:
    world.write(
        "train.sh",
        ["#!/bin/bash", "#SBATCH --job-name=slurmy", "#SBATCH --gres=gpu:2", "echo on $CUDA_VISIBLE_DEVICES"],
    )

    ended = world.dibs("run", "--gpus", "3,5", "-f", "train.sh")

    assert (ended.status, ended.stdout) == (0, "[slurmy] on 3,5\n")


def test_a_slow_generator_is_pulled_as_it_comes(world: World) -> None:
    """The first job has ended before the generator gives the second: it waits for that."""
    world.write(
        "slow.py",
        "import os, time\n"
        "def yielder():\n"
        f"    yield {world.ledger.job('first')!r}\n"
        "    while 'end first' not in open(os.environ['LEDGER']).read() if os.path.exists(os.environ['LEDGER'])"
        " else True:\n"
        "        time.sleep(0.01)\n"
        f"    yield dict(command={world.ledger.job('second')!r}, name='x', num_gpus=1, env=dict(A='1'))\n",
    )

    ended = world.dibs("run", "--gpus", "0,1", "-f", "slow.py")

    assert ended.status == 0, ended
    assert world.ledger.ended() == ["first", "second"]


def test_a_generator_that_raises_in_the_middle_keeps_the_jobs_before_it(world: World) -> None:
    world.write(
        "bad.py",
        f"def yielder():\n    yield {world.ledger.job('one', 0.1)!r}\n    yield {world.ledger.job('two')!r}\n"
        "    yield 1 / 0\n",
    )

    ended = world.dibs("run", "--gpus", "0", "-f", "bad.py")

    assert ended.status == 2
    assert world.ledger.ended() == ["one", "two"]
    assert "bad.py line 4: ZeroDivisionError: division by zero" in ended.stderr
    assert "Traceback" not in ended.stderr


def test_an_endless_pipe_is_worked_on_as_it_grows(world: World) -> None:
    queue = world.folder / "gpu.queue"
    queue.touch()
    tail = subprocess.Popen(["tail", "-f", "-n", "+1", str(queue)], stdout=subprocess.PIPE)
    running = world.start("run", "--gpus", "0,1", stdin=tail.stdout)
    try:
        wait_until(lambda: running.stderr.startswith("run "), show=lambda: running.stderr)
        for number in range(3):
            with queue.open("a") as file:
                file.write(world.ledger.job(number) + "\n")
            wait_until(lambda number=number: str(number) in world.ledger.ended(), show=lambda: running.stderr)
        assert running.process.poll() is None
    finally:
        tail.kill()
        tail.wait()

    ended = running.wait()

    assert ended.status == 0, ended
    assert world.ledger.ended() == ["0", "1", "2"]


def test_the_shell_can_be_chosen(world: World) -> None:
    ended = world.dibs("run", "--gpus", "0", "--shell", "sh", "--raw", input="echo $0 ${BASH_VERSION:-no bash}")

    assert ended.stdout == "sh no bash\n"


def test_jobs_have_the_environment_and_the_folder_of_the_caller(world: World) -> None:
    ended = world.dibs("run", "--gpus", "0", "--raw", input="pwd; echo $SECRET", env={"SECRET": "é"})

    assert ended.stdout == f"{world.folder}\né\n"


def test_variables_of_the_call_come_before_the_callers_and_after_those_of_a_line(world: World) -> None:
    line = 'echo "$A,$B,$C"'
    own = json.dumps({"command": line, "env": {"C": "line"}})

    ended = world.dibs(
        *["run", "--gpus", "0", "--raw", "--env", "B=x=y", "--env", "C=call"],
        input=f"{line}\n{own}\n",
        env={"A": "mine", "B": "mine"},
    )
    single = world.dibs("run", "--gpus", "0", "--env", "B=é", "--", line, env={"A": "mine"})
    wrong = world.dibs("run", "--gpus", "0", "--env", "B", "--", "true")

    assert (ended.stdout, single.stdout) == ("mine,x=y,call\nmine,x=y,line\n", "mine,é,\n"), (ended, single)
    assert (wrong.status, "cannot read 'B' as a variable" in wrong.stderr) == (2, True)


def test_what_jobs_book_of_the_machine_is_counted(world: World) -> None:
    cpus = len(os.sched_getaffinity(0))
    line = f"[cpus={cpus}] {{ mkdir alone && sleep 0.1 && rmdir alone; }}"  # fails where another is in there
    world.write("jobs.txt", [*[line] * 3, f"[cpus={cpus + 1}] true"])

    ended = world.dibs("run", "-f", "jobs.txt", "--gpus", "0,1,2,3")

    assert ended.status == 1
    assert f"it wants {cpus + 1} CPUs, but this machine has {cpus}" in ended.stderr
    assert "3 succeeded" in ended.stderr
