"""simple_gpu_scheduler's README and blog post as written, and what was wrong with the original."""

import os
import re
import signal
from collections import Counter

from compat.conftest import Shell
from stories.outside import wait_until


def test_the_loop_of_the_readme(shell: Shell) -> None:
    line = (
        'for i in {0..10}; do echo "echo job_id=$i device=\\$CUDA_VISIBLE_DEVICES && sleep 1"; done'
        " | simple_gpu_scheduler --gpus 0,1,2"
    )

    ended = shell(line)

    begun = [text for text in ended.stdout.splitlines() if text.startswith("Processing")]
    command = "echo job_id={} device=$CUDA_VISIBLE_DEVICES && sleep 1"
    assert ended.status == 0, ended
    assert begun[:3] == [f"Processing command `{command.format(i)}` on gpu {2 - i}" for i in range(3)]
    assert [re.search(r"job_id=(\d+)", text)[1] for text in begun] == [str(i) for i in range(11)]
    on = {match[1]: match[2] for match in re.finditer(r"^job_id=(\d+) device=(\d)$", ended.stdout, re.MULTILINE)}
    assert on == {re.search(r"=(\d+)", text)[1]: text[-1] for text in begun}


def test_a_file_of_commands_and_gpus_between_blanks(shell: Shell) -> None:
    met = "until test -e up_0 -a -e up_1 -a -e up_2; do sleep 0.02; done"
    line = f"echo run_{{0}} on $CUDA_VISIBLE_DEVICES; touch up_{{0}}; {met}"
    shell.world.write("gpu_commands.txt", [line.format(number) for number in range(3)])

    ended = shell("simple_gpu_scheduler --gpus 0 1 2 < gpu_commands.txt")

    assert ended.status == 0, ended
    assert {"run_0 on 2", "run_1 on 1", "run_2 on 0"} < set(ended.stdout.splitlines())


def test_a_queue_file_that_is_followed(shell: Shell) -> None:
    shell("touch gpu.queue; echo 'echo too early' >> gpu.queue")
    running = shell.start("tail -f -n 0 gpu.queue | simple_gpu_scheduler --gpus 0,1,2")
    tail = wait_until(
        lambda: [pid for pid, line in shell.world.processes().items() if line.startswith("tail")],
        show=shell.world.processes,
    )

    wait_until(lambda: _submit_until_seen(shell, running), show=lambda: running.stdout)
    shell('echo "echo my_command | tr a-z A-Z > logfile" >> gpu.queue')
    wait_until(lambda: "MY_COMMAND" in shell("cat logfile; true").stdout)
    os.kill(tail[0], signal.SIGTERM)

    assert running.wait().status == 0
    assert "too early" not in running.stdout


def test_a_fifo_as_a_queue(shell: Shell) -> None:
    shell("mkfifo queue")
    running = shell.start("exec simple_gpu_scheduler --gpus 0 < queue")

    writer = os.open(shell.world.folder / "queue", os.O_WRONLY)
    os.write(writer, b"echo first\n")
    wait_until(lambda: "\nfirst\n" in running.stdout, show=lambda: running.stdout)
    os.write(writer, b"echo second")
    os.close(writer)

    assert running.wait().status == 0
    assert running.stdout.endswith("second\n")


def test_a_hyperparameter_search_into_the_scheduler(shell: Shell) -> None:
    search = 'simple_hypersearch "echo lr={lr} bs={bs}" -p lr 0.001 0.0005 0.0001 -p bs 32 64 128'

    ended = shell(f"{search} | simple_gpu_scheduler --gpus 0,1,2")

    results = Counter(line for line in ended.stdout.splitlines() if line.startswith("lr="))
    assert ended.status == 0, ended
    assert results == Counter(f"lr={lr} bs={bs}" for lr in ("0.001", "0.0005", "0.0001") for bs in (32, 64, 128))


def test_words_with_commas_are_groups_that_are_given_whole(shell: Shell) -> None:
    jobs = (
        "echo one $CUDA_VISIBLE_DEVICES $GPU; until test -e two; do sleep 0.02; done\n"
        "echo two $CUDA_VISIBLE_DEVICES; touch two\n"
    )

    ended = shell("simple_gpu_scheduler --gpus 0,1 2", input=jobs)

    assert ended.status == 0, ended
    assert "on gpu 2\n" in ended.stdout
    assert "on gpu 0,1\n" in ended.stdout
    assert {"one 2 cuda2", "two 0,1"} < set(ended.stdout.splitlines())


def test_an_id_given_twice_runs_two_commands_at_once(shell: Shell) -> None:
    ledger = shell.world.ledger
    jobs = ledger.rounds(4, at_once=2)

    ended = shell("simple_gpu_scheduler --gpus 0,0", input="\n".join(jobs))

    assert ended.status == 0, ended
    assert ledger.most_at_once() == 2
    assert ledger.overlaps(slots=2) == []


def test_a_failure_is_told_and_ends_the_scheduler_with_1(shell: Shell) -> None:
    ended = shell("simple_gpu_scheduler --gpus 0", input="exit 3\necho fine\n")

    assert ended.status == 1
    assert "fine\n" in ended.stdout
    assert "command `exit 3` failed on gpu 0: exit code 3" in ended.stderr
    assert "1 of 2 commands failed; their output is kept in " in ended.stderr


def test_blank_lines_and_comments_occupy_no_gpu(shell: Shell) -> None:
    ended = shell("simple_gpu_scheduler --gpus 0", input="\n  \n# comment\n  # another\necho x # not one\n\n")

    assert ended.status == 0
    assert ended.stdout == "Processing command `echo x # not one` on gpu 0\nx\n"


def test_lines_run_in_the_users_own_shell(shell: Shell) -> None:
    line = "[[ a == a ]] && echo $0 ${BASH_VERSION:+bash}"

    in_bash = shell("simple_gpu_scheduler --gpus 0", input=line)
    without = shell("simple_gpu_scheduler --gpus 0", input="echo $0", env={"SHELL": "/usr/sbin/nologin"})

    assert in_bash.stdout.endswith("\n/bin/bash bash\n")
    assert without.stdout.endswith("\n/bin/sh\n")


def test_lines_are_run_word_for_word(shell: Shell) -> None:
    lines = ["[ 1 = 1 ] && echo test", "{ echo braces; }", 'cat <<< "here"', "echo caf\udce9"]

    ended = shell("simple_gpu_scheduler --gpus 0", input="\n".join(lines))

    output = [line for line in ended.stdout.splitlines() if not line.startswith("Processing")]
    assert ended.status == 0, ended
    assert output == ["test", "braces", "here", "caf\udce9"]
    assert "Processing command `echo caf\udce9` on gpu 0" in ended.stdout


def test_a_job_may_have_several_lines(shell: Shell) -> None:
    block = '<<<\nfor x in a b; do\n  echo "$x \\\\"\ndone\n>>>\n'
    jobs = f"echo one \\\n  and two\n{block}[num_gpus=2] \\\n|| echo no fields\n"

    ended = shell("simple_gpu_scheduler --gpus 0", input=jobs)

    begun = [line for line in ended.stdout.splitlines() if line.startswith("Processing")]
    assert ended.status == 0, ended
    assert len(begun) == 3
    assert begun[1] == 'Processing command `for x in a b; do\\n  echo "$x \\\\"\\ndone` on gpu 0'
    assert [line for line in ended.stdout.splitlines() if line not in begun] == [
        "one and two",
        "a \\",
        "b \\",
        "no fields",
    ]


def test_a_block_without_an_end_is_not_run(shell: Shell) -> None:
    ended = shell("simple_gpu_scheduler --gpus 0", input="echo fine\n<<<\ntouch BAD\n")

    assert ended.status == 1
    assert "stdin:2: the block that begins here has no end" in ended.stderr
    assert "1 of 2 commands failed; their output is kept in " in ended.stderr
    assert not (shell.world.folder / "BAD").exists()


def test_the_first_interrupt_lets_the_running_finish(shell: Shell) -> None:
    ledger = shell.world.ledger
    jobs = [ledger.held("running"), ledger.job("waiting")]
    shell.world.write("jobs", jobs)
    running = shell.start("exec simple_gpu_scheduler --gpus 0 < jobs")
    wait_until(lambda: ledger.started() == ["running"], show=lambda: running.stderr)

    running.signal(signal.SIGINT)
    wait_until(lambda: "nothing more is started" in running.stderr, show=lambda: running.stderr)
    shell.world.write("go", "")
    ended = running.wait()

    assert ended.status == 130
    assert "0 of 2 commands failed, 1 was not started; their output is kept in " in ended.stderr
    assert ledger.ended() == ["running"]
    assert ledger.started() == ["running"]
    shell.world.assert_nothing_is_left()


def test_gpus_of_two_schedulers_never_overlap(shell: Shell) -> None:
    ledger = shell.world.ledger
    shell.world.write("jobs", [ledger.job(number, 0.1) for number in range(4)])

    ended = shell("simple_gpu_scheduler --gpus 0 < jobs & simple_gpu_scheduler --gpus 0 < jobs & wait")

    assert ended.status == 0
    assert len(ledger.ended()) == 8
    assert ledger.overlaps() == []


def test_a_bad_option_is_one_sentence(shell: Shell) -> None:
    refused = [
        "",
        "--gpus",
        "--gpus x",
        "--gpus -1",
        "--gpus ,",
        "--gpus 0,1 1,2",
        "--gpu=9999999",
    ]

    for options in refused:
        ended = shell(f"simple_gpu_scheduler {options}", input="touch BAD\n")

        assert (options, ended.status) == (options, 2)
        assert re.fullmatch(r"simple_gpu_scheduler: error: .*\n", ended.stderr)
        assert not (shell.world.folder / "BAD").exists()


def test_only_the_bad_line_fails(shell: Shell) -> None:
    ended = shell("simple_gpu_scheduler --gpus 0", input="echo a\0b\necho fine\n")

    assert ended.status == 1
    assert "stdin:1: the command contains a NUL byte" in ended.stderr
    assert ended.stdout.endswith("fine\n")


def _submit_until_seen(shell: Shell, running) -> bool:
    """`tail -n 0` needs a moment before it sees what is appended; nothing tells when it has begun."""
    shell('echo "echo ready" >> gpu.queue')
    return "\nready\n" in running.stdout
