"""Scheduler's document as written, and what was wrong with the original."""

import json
import os
import re
import signal

import pytest

from compat.conftest import Shell
from dibs.compat.schedule import preferred_order
from stories.outside import wait_until

_TRAIN = """
import os, sys
print(sys.argv[1:], os.environ["GPU"], os.environ["CUDA_VISIBLE_DEVICES"])
print("to stderr", file=sys.stderr)
sys.exit(3)
"""


@pytest.mark.parametrize(("mode", "first_line"), [(0o644, ""), (0o755, "#!/usr/bin/env python3"), (0o755, "")])
def test_the_example_of_the_document(shell: Shell, mode: int, first_line: str) -> None:
    shell.world.write("train.py", first_line + _TRAIN)
    os.chmod(shell.world.folder / "train.py", mode)

    ended = shell('schedule "train.py foo --bar 5" --forced_gpu 2 --verbose')

    assert ended.status == 3
    assert ended.stdout == "['foo', '--bar', '5'] cuda2 2\n"
    told = (
        r"to stderr\nschedule: task `train.py foo --bar 5` completed: exit code 3, GPU cuda2, PID \d+, start .*\n"
    )
    assert re.fullmatch(told, ended.stderr)


def test_a_task_is_a_line_for_the_shell(shell: Shell) -> None:
    ended = shell("""schedule 'echo "$GPU" | tr a-z A-Z; cat; exit 7'""", input="from stdin\n")

    assert (ended.status, ended.stdout, ended.stderr) == (7, "CUDA0\nfrom stdin\n", "")


def test_several_gpus_and_a_preferred_one(shell: Shell) -> None:
    ended = shell("schedule 'echo $GPU $CUDA_VISIBLE_DEVICES' -gc 2; schedule 'echo $GPU' -pg 3")

    assert ended.status == 0, ended
    assert ended.stdout == "cuda0,cuda1 0,1\ncuda3\n"


def test_a_preferred_gpu_that_is_taken_is_not_waited_for(shell: Shell) -> None:
    running = shell.start("exec schedule 'echo on; sleep 30' -fg 3")
    wait_until(lambda: running.stdout == "on\n", show=lambda: running.stderr)

    ended = shell("schedule 'echo $GPU' -pg 3")
    running.signal(signal.SIGINT)

    assert ended.stdout in ("cuda0\n", "cuda1\n", "cuda2\n")
    assert running.wait().status == 130


def test_instead_of_the_preferred_gpu_a_random_one_is_taken() -> None:
    orders = {preferred_order(2, [0, 1, 2, 3]) for _ in range(100)}

    assert {order[0] for order in orders} == {"2"}
    assert {order[1] for order in orders} == {"0", "1", "3"}
    assert {"".join(sorted(order)) for order in orders} == {"0123"}


def test_a_preferred_gpu_that_does_not_exist_is_told_and_another_is_taken(shell: Shell) -> None:
    ended = shell("schedule 'echo ran' -pg 9")

    assert (ended.status, ended.stdout) == (0, "ran\n")
    assert (
        ended.stderr == "schedule: there is no GPU 9 to prefer: there are GPU 0, 1, 2, 3; any free one is taken\n"
    )


def test_output_goes_to_files(shell: Shell) -> None:
    shell.world.write("out", "old")

    ended = shell("schedule 'echo a; echo b >&2' -o out -e err; schedule 'echo c; echo d >&2' -o both -e both")
    bare = shell("schedule 'echo e; echo f >&2' -o -e")

    assert (ended.status, ended.stdout, ended.stderr) == (0, "", "")
    assert [shell.world.read(name) for name in ("out", "err", "both")] == ["a\n", "b\n", "c\nd\n"]
    assert (bare.stdout, bare.stderr) == ("e\n", "f\n")


def test_a_forced_gpu_is_waited_for(shell: Shell) -> None:
    ledger = shell.world.ledger
    jobs = [ledger.held(i) for i in range(3)]
    shell.world.write("run", [f"schedule '{job}' -fg 2 &" for job in jobs] + ["wait"])

    running = shell.start("source ./run")
    waits = "schedule: waits for a GPU: GPU 2 is held by job 1 of "
    wait_until(lambda: running.stderr.count(waits) == 2, show=lambda: running.stderr)
    shell.world.write("go", "")
    ended = running.wait()

    assert ended.status == 0
    assert set(ledger.gpus().values()) == {"2"}
    assert len(ledger.ended()) == 3
    assert ledger.overlaps() == []


def test_the_pool_holds_for_everybody_and_unavailable_gpus_are_not_used(shell: Shell) -> None:
    shell("schedule -i 5 3 4")

    shown = shell("schedule -s")
    forced = shell("schedule true -fg 3")
    many = shell("schedule true -gc 4")
    most = shell("schedule 'echo $GPU' -gc 3")

    assert (shown.status, shown.stdout) == (0, "user  GPU  taskPID  start\n")
    assert "GPU 3, 4 marked as unavailable" in shown.stderr
    assert forced.status == 2 and "it wants GPU 3 only, which is not among GPU 0, 1, 2" in forced.stderr
    assert many.status == 2 and "it wants 4 GPUs, but only 3 may be used" in many.stderr
    assert most.stdout == "cuda0,cuda1,cuda2\n"


def test_an_unavailable_gpu_is_released(shell: Shell) -> None:
    shell("schedule -i 5 3 4")

    ended = shell("schedule -rg 3 0")
    used = shell("schedule 'echo $GPU' -fg 3")

    assert (ended.status, ended.stderr) == (0, "schedule: GPU 3 is available again\nschedule: GPU 0 is free\n")
    assert used.stdout == "cuda3\n"


def test_the_status_shows_who_uses_what(shell: Shell) -> None:
    running = shell.start("exec schedule 'echo $$; exec sleep 30' -fg 1")
    pid = wait_until(lambda: running.stdout.strip(), show=lambda: running.stderr)
    # The supervisor writes the command's pid down a moment after its start.
    wait_until(lambda: f" {pid} " in shell("schedule -s").stdout)

    shown = shell("schedule -s")
    refused = shell("schedule --release_gpu 1")

    assert re.fullmatch(rf"user +GPU +taskPID +start\n\S+ +1 +{pid} +\d{{4}}-\d\d-\d\d [\d:]{{8}}\n", shown.stdout)
    assert refused.status == 1
    assert re.search(rf"GPU 1 is held by job 1 of \S+, pid {pid}; `dibs gpus release 1` ends", refused.stderr)
    running.signal(signal.SIGTERM)
    assert running.wait().status == 128 + signal.SIGTERM


def test_nothing_stale_can_block_a_gpu(shell: Shell) -> None:
    running = shell.start("exec schedule 'echo $$; exec sleep 30' -fg 1")
    wait_until(lambda: running.stdout.strip(), show=lambda: running.stderr)
    shell.world.clean_up()  # kill -9 of everything

    ended = shell("schedule 'echo $GPU' -fg 1")

    assert (ended.status, ended.stdout, ended.stderr) == (0, "cuda1\n", "")


def test_the_pool_is_what_the_driver_shows(shell: Shell) -> None:
    probe = shell.world.folder.parent / "cards.json"
    probe.write_text(json.dumps([{"index": i, "uuid": f"GPU-{i}"} for i in range(2)]))
    fake = {"DIBS_PROBE": f"fake:{probe}"}

    two = shell("schedule 'echo $GPU' -gc 2", env=fake)
    three = shell("schedule true -gc 3", env=fake)
    init = shell("schedule -i 3", env=fake)
    one = shell("schedule 'echo $GPU'", env=fake | {"CUDA_VISIBLE_DEVICES": "1"})

    assert two.stdout == "cuda0,cuda1\n"
    assert three.status == 2 and "only 2 may be used" in three.stderr
    assert init.status == 2 and "the driver shows 2" in init.stderr
    assert one.stdout == "cuda1\n"


def test_a_bad_option_is_one_sentence(shell: Shell) -> None:
    refused = [
        "true -fg 9",
        "true -fg -1",
        "true -gc 0",
        "true -gc 5",
        "true -gc x",
        "true -gc 2 -fg 1",
        "''",
        "true -o missing/out",
        "-i 0",
        "-i 2 2",
        "-rg 7",
        "true extra",
    ]

    for options in refused:
        ended = shell(f"schedule {options}")

        assert (options, ended.status) == (options, 2)
        assert re.fullmatch(r"schedule: error: .*\n", ended.stderr)


@pytest.mark.parametrize(
    ("marked", "options", "remedy"),
    [
        ("4", "-gc 5", "-gc is at most 4 here"),
        ("4 1", "-gc 5", "-gc is at most 4 here"),
        ("4 1 3", "-gc 3", "`schedule -rg 1 3` makes GPU 1, 3 available"),
        ("4 1", "-fg 1", "`schedule -rg 1` makes GPU 1 available"),
    ],
)
def test_the_remedy_is_for_what_is_in_the_way(shell: Shell, marked: str, options: str, remedy: str) -> None:
    ended = shell(f"schedule -i {marked}; schedule true {options}")

    assert ended.status == 2
    assert ended.stderr.endswith(f"; {remedy}\n")


def test_without_a_task_the_usage_is_shown(shell: Shell) -> None:
    ended = shell("schedule -v")

    assert ended.status == 2
    assert ended.stderr.startswith("usage: schedule [-h] [-gc GPU_COUNT] [-i INIT [INIT ...]] [-v] [-o [OUT]]\n")
    assert "schedule: error: there is no task to start" in ended.stderr
