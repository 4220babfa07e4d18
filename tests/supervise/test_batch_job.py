"""The shim as a batch job: one attempt from its folder, a fence instead of a lock, commands as signals."""

import json
import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import dibs
from dibs.supervise import fence, folder
from dibs.supervise.batch_job import FENCED, NO_FOLDER
from stories.outside import World, wait_until
from supervise.hands import is_alive

SOURCE = str(Path(dibs.__file__).parents[1])
START = (
    "import sys; sys.path.append(sys.argv[1]); from dibs.supervise.batch_job import main;"
    " sys.exit(main(sys.argv[2]))"
)


class BatchJob:
    """An attempt's folder, and the command that runs it."""

    def __init__(self, world: World, line: str, **spec: Any) -> None:
        self.workdir = Path(world.folder)
        self.folder = str(self.workdir / "17.1")
        environment = self.workdir / "environment.json"
        environment.write_text(json.dumps({"PATH": os.environ["PATH"], "SLURM_OLD": "1", "KEPT": "1"}))
        usual = {
            "v": 1,
            "job": 17,
            "attempt": 1,
            "words": ["bash", "-c", line],
            "workdir": str(self.workdir),
            "umask": 0o022,
            "environment": str(environment),
            "env": {"CUDA_VISIBLE_DEVICES": ""},
            "stdout": f"{self.folder}/stdout",
            "stderr": f"{self.folder}/stderr",
            "time_limit": None,
            "grace": 10.0,
        }
        assert folder.prepare_unlocked(self.folder, usual | spec)

    def start(self, **environment: str) -> "subprocess.Popen[bytes]":
        words = [sys.executable, "-I", "-S", "-c", START, SOURCE, self.folder]
        return subprocess.Popen(words, env=environment, stdin=subprocess.DEVNULL)

    def run(self, **environment: str) -> int:
        return self.start(**environment).wait(60)

    @property
    def record(self) -> dict[str, Any]:
        found = folder.record_of(self.folder)
        assert found is not None
        return found

    def wait_for(self, name: str) -> str:
        path = self.workdir / name
        wait_until(lambda: path.exists() and path.read_text().endswith("\n"))
        return path.read_text()


@pytest.mark.parametrize(("line", "status", "outcome"), [("exit 4", 4, (4, None)), ("kill -9 $$", 137, (None, 9))])
def test_it_runs_one_attempt_and_ends_as_its_command_did(
    world: World, line: str, status: int, outcome: tuple[int | None, int | None]
) -> None:
    one = BatchJob(world, line)

    found = one.run(SLURMD_NODENAME="n7")

    assert found == status
    assert (one.record["state"], one.record["code"], one.record["signal"]) == ("ended", *outcome)
    assert one.record["node"] == "n7" and fence.holder(one.folder) == "n7"


def test_a_second_copy_starts_nothing(world: World) -> None:
    one = BatchJob(world, "echo ran >> ran; exit 3")
    copies = [one.start() for _ in range(8)]

    statuses = sorted(copy.wait(60) for copy in copies)

    assert statuses == [3] + [FENCED] * 7
    assert one.wait_for("ran") == "ran\n"
    assert one.record["code"] == 3


def test_without_a_folder_it_says_so_and_makes_none(world: World) -> None:
    one = BatchJob(world, "true")
    os.rename(one.folder, f"{one.folder}.away")

    assert one.run() == NO_FOLDER
    assert not os.path.exists(one.folder)


def test_the_command_sees_what_the_batch_system_gave_and_nothing_of_another_job(world: World) -> None:
    one = BatchJob(world, "echo $CUDA_VISIBLE_DEVICES:$DIBS_GPUS:$GPU:$SLURM_JOB_ID:$SLURM_OLD:$KEPT:$OTHER")

    one.run(CUDA_VISIBLE_DEVICES="1,3", SLURM_JOB_ID="55", OTHER="not ours")

    assert Path(one.folder, "stdout").read_text() == "1,3:1,3:cuda1,cuda3:55::1:\n"


def test_a_task_of_an_array_has_its_own_number_whatever_it_is_called_over_there(world: World) -> None:
    one = BatchJob(world, "echo $SLURM_ARRAY_TASK_ID", env={"DIBS_ARRAY_TASK_ID": "5000"})

    one.run(SLURM_ARRAY_JOB_ID="7", SLURM_ARRAY_TASK_ID="996")

    assert Path(one.folder, "stdout").read_text() == "5000\n"
    assert one.record["number"] == "7_996"


def test_the_folder_for_checkpoints_is_there(world: World) -> None:
    one = BatchJob(world, 'cd "$DIBS_CHECKPOINT_DIR"', env={"DIBS_CHECKPOINT_DIR": f"{world.folder}/kept/0/17"})

    assert one.run() == 0


@pytest.mark.parametrize(
    ("number", "by"), [(signal.SIGUSR1, "stop"), (signal.SIGTERM, "outside"), (signal.SIGUSR2, "stop")]
)
def test_a_signal_is_a_word(world: World, number: signal.Signals, by: str) -> None:
    # Who asks from outside insists soon; USR2 does so at once.
    grace = 0.2 if number is signal.SIGUSR1 else 1000.0
    line = "trap '' TERM; (setsid sleep 1000 & echo $! > sleeper); echo here > here; while :; do sleep 0.05; done"
    one = BatchJob(world, line, grace=grace, outside_grace=0.2)
    running = one.start()
    one.wait_for("here")

    running.send_signal(number)
    status = running.wait(60)

    assert (status, one.record["signal"], one.record["by"]) == (137, signal.SIGKILL, by)
    assert not is_alive(int(one.wait_for("sleeper")))


@pytest.mark.parametrize(("code", "by"), [(3, "outside"), (0, "")])
def test_a_command_that_obeys_the_batch_system_before_we_hear_of_it_was_ended_by_that(
    world: World, code: int, by: str
) -> None:
    one = BatchJob(world, f"trap 'exit {code}' TERM; echo $$ > here; while :; do sleep 0.05; done")
    running = one.start()
    command = int(one.wait_for("here"))

    running.send_signal(signal.SIGSTOP)
    running.send_signal(signal.SIGTERM)
    os.kill(command, signal.SIGTERM)
    wait_until(lambda: not is_alive(command))
    running.send_signal(signal.SIGCONT)
    status = running.wait(60)

    assert (status, one.record["code"], one.record["by"]) == (code, code, by)


TWO = {"SLURM_JOB_NUM_NODES": "2"}


@pytest.mark.parametrize(
    ("told", "cards"),
    [
        ({"SLURM_JOB_GPUS": "0,1"}, "0,1"),
        ({"SLURM_JOB_GPUS": "0,1", "SLURM_JOB_NUM_NODES": "1", "SLURM_GPUS": "2"}, "0,1"),
        ({"SLURM_JOB_GPUS": "0,1", "SLURM_JOB_NUM_NODES": "3"}, "0,1,+4"),
        ({"SLURM_JOB_GPUS": "3", "SLURM_GPUS": "h200:5"} | TWO, "3,+4"),
        ({"SLURM_JOB_GPUS": "3", "SLURM_GPUS_PER_TASK": "h200:1", "SLURM_NTASKS": "4"} | TWO, "3,+3"),
        ({"SLURM_GPUS": "a100:1,h200:2"} | TWO, "+3"),
        (TWO, ""),
        ({"CUDA_VISIBLE_DEVICES": "0", "SLURM_GPUS": "odd"} | TWO, "0,+1"),
    ],
)
def test_its_cards_are_those_of_this_node_and_the_number_of_those_of_others(
    world: World, told: dict[str, str], cards: str
) -> None:
    one = BatchJob(world, "true")

    one.run(**told)

    assert one.record.get("gpus", "") == cards


def test_a_folder_is_prepared_once(world: World) -> None:
    one = BatchJob(world, "exit 2")
    one.run()

    again = folder.prepare_unlocked(one.folder, {"words": ["false"]})

    assert not again
    assert one.record["code"] == 2
    assert sorted(os.listdir(one.folder)) == ["record", "started", "stderr", "stdout"]


def test_only_one_of_many_takes_the_fence(tmp_path: Path) -> None:
    with ThreadPoolExecutor(16) as pool:
        taken = list(pool.map(lambda number: fence.take(str(tmp_path), f"{number}"), range(64)))

    assert taken.count(True) == 1
    assert fence.holder(str(tmp_path)) == str(taken.index(True))
    assert os.listdir(tmp_path) == ["started"]
