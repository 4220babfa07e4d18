"""gpu-hog's README as written, and what was wrong with the original."""

import json
import os
import re
import signal
from pathlib import Path

from compat.conftest import Shell
from stories.outside import DIBS, wait_until


def test_a_job_file_makes_a_folder_for_each_job(shell: Shell) -> None:
    shell.world.write(
        "foo.txt", ["# jobs", "echo out && echo err >&2", "", "exit 4", "echo $CUDA_VISIBLE_DEVICES"]
    )

    ended = shell("hog --job_file foo.txt --gpus 1,2,3")

    assert ended.status == 1
    assert ended.stdout == ""
    assert _files(shell, "hog_run") == {
        "job_0": {"INFO", "SUCCESS", "job_0.OUT", "job_0.ERR"},
        "job_1": {"INFO", "FAILURE", "job_1.OUT", "job_1.ERR"},
        "job_2": {"INFO", "SUCCESS", "job_2.OUT", "job_2.ERR"},
    }
    assert shell.world.read("hog_run/job_0/job_0.OUT") == "out\n"
    assert shell.world.read("hog_run/job_0/job_0.ERR") == "err\n"
    assert shell.world.read("hog_run/job_2/job_2.OUT") == "3\n"
    info = shell.world.read("hog_run/job_1/INFO")
    assert {"job: job_1", "command: exit 4", "gpu: 2", "exit_code: 4"} < set(info.splitlines())


def test_messages_go_through_logging(shell: Shell) -> None:
    shell.world.write("foo.txt", ["true", "false"])

    ended = shell("hog --job_file foo.txt --gpus 0")

    assert all(re.match(r"\d{4}-\d\d-\d\d [\d:,]+ hog (INFO|ERROR): ", line) for line in ended.stderr.splitlines())
    assert "hog ERROR: job_1 failed: exit code 1\n" in ended.stderr
    assert "1 succeeded, 1 failed, 0 not started" in ended.stderr


def test_a_yielder_that_is_slower_than_five_seconds_loses_nothing(shell: Shell) -> None:
    shell.world.write(
        "test.py",
        """
import time
def yielder():
    yield "echo first"
    time.sleep(6)
    for i in range(3):
        yield f"echo later {i}"
""",
    )

    ended = shell("hog --job_yielder test.py --gpus 0,1")

    assert ended.status == 0, ended
    outputs = [shell.world.read(f"hog_run/job_{i}/job_{i}.OUT") for i in range(4)]
    assert outputs == ["first\n", "later 0\n", "later 1\n", "later 2\n"]


def test_a_yielder_that_raises_keeps_the_jobs_before_it(shell: Shell) -> None:
    shell.world.write("test.py", "def yielder():\n    yield 'true'\n    raise ValueError('no more')\n")

    ended = shell("hog --job_yielder test.py --gpus 0")

    assert ended.status == 2
    assert "hog: error: test.py line 3: ValueError: no more" in ended.stderr
    assert _files(shell, "hog_run")["job_0"] >= {"SUCCESS"}


def test_repeated_ids_run_jobs_side_by_side(shell: Shell) -> None:
    ledger = shell.world.ledger
    shell.world.write("foo.txt", ledger.rounds(6, at_once=6))

    ended = shell("hog --job_file foo.txt --gpus 0,0,1,2,2,2")

    assert ended.status == 0
    assert ledger.most_at_once() == 6
    assert sorted(ledger.gpus().values()) == ["0", "0", "1", "2", "2", "2"]


def test_folders_are_made_as_deep_as_wanted_and_named_by_the_prefix(shell: Shell) -> None:
    shell.world.write("foo.txt", ["true"])

    ended = shell("hog --job_file foo.txt --gpus 0 --output_dir results/today/here --prefix run-")

    assert ended.status == 0, ended
    assert _files(shell, "results/today/here") == {"run-0": {"INFO", "SUCCESS", "run-0.OUT", "run-0.ERR"}}


def test_a_rerun_leaves_no_mark_of_the_earlier_one(shell: Shell) -> None:
    shell.world.write("foo.txt", ["echo old; touch hog_run/job_0/model.bin", "true", "true"])
    shell("hog --job_file foo.txt --gpus 0")
    shell.world.write("foo.txt", ["false"])

    ended = shell("hog --job_file foo.txt --gpus 0")

    assert ended.status == 1
    assert _files(shell, "hog_run") == {"job_0": {"INFO", "FAILURE", "job_0.OUT", "job_0.ERR", "model.bin"}}
    assert shell.world.read("hog_run/job_0/job_0.OUT") == ""


def test_a_folder_in_which_jobs_of_a_killed_hog_run_is_left_alone(shell: Shell) -> None:
    shell.world.write("foo.txt", [shell.world.ledger.job("long", 30)])
    running = shell.world.start("--job_file", "foo.txt", "--gpus", "0", script=str(Path(DIBS).with_name("hog")))
    wait_until(shell.world.ledger.started, show=lambda: running.stderr)
    running.kill()

    ended = shell("hog --job_file foo.txt --gpus 0")
    freed = shell("dibs gpus release 0 --yes")

    assert ended.status == 2
    assert re.fullmatch(r"hog: error: jobs of an earlier run in hog_run are still running; .*\n", ended.stderr)
    assert freed.status == 0, freed
    shell.world.assert_nothing_is_left()


def test_the_gpu_file_is_followed_while_it_runs(shell: Shell) -> None:
    ledger = shell.world.ledger
    shell.world.write("gpus", "0\n")
    shell.world.write("foo.txt", [ledger.held("first"), ledger.job("second")])
    running = shell.start("exec hog --job_file foo.txt --gpu_file gpus")
    wait_until(ledger.started, show=lambda: running.stderr)

    shell.world.write("gpus", "0,3\n")
    wait_until(ledger.ended, show=lambda: running.stderr)
    shell.world.write("go", "")
    ended = running.wait()

    assert ended.status == 0, ended
    assert ledger.ended() == ["second", "first"]
    assert ledger.gpus() == {"first": "0", "second": "3"}


def test_gpus_may_be_named_by_uuid(shell: Shell) -> None:
    cards = [{"index": i, "uuid": f"GPU-{'ab'[i]}0000000"} for i in range(2)]
    probe = shell.world.folder.parent / "cards.json"
    probe.write_text(json.dumps(cards))
    shell.world.write("foo.txt", ["echo $CUDA_VISIBLE_DEVICES"])

    ended = shell("hog --job_file foo.txt --gpus GPU-b", env={"DIBS_PROBE": f"fake:{probe}"})

    assert ended.status == 0, ended
    assert shell.world.read("hog_run/job_0/job_0.OUT") == "1\n"


def test_a_second_signal_ends_the_running_jobs(shell: Shell) -> None:
    shell.world.write("foo.txt", [shell.world.ledger.job("long", 30)])
    running = shell.start("exec hog --job_file foo.txt --gpus 0")
    wait_until(shell.world.ledger.started, show=lambda: running.stderr)

    running.signal(signal.SIGTERM)
    wait_until(lambda: "nothing more is started" in running.stderr, show=lambda: running.stderr)
    running.signal(signal.SIGTERM)

    assert running.wait().status == 128 + signal.SIGTERM
    assert _files(shell, "hog_run")["job_0"] >= {"FAILURE"}
    shell.world.assert_nothing_is_left()


def test_a_bad_option_is_one_sentence(shell: Shell) -> None:
    shell.world.write("foo.txt", ["touch BAD"])
    refused = [
        "",
        "--gpus 0",
        "--job_file foo.txt",
        "--job_file missing.txt --gpus 0",
        "--job_yielder missing.py --gpus 0",
        "--job_yielder foo.txt --gpus 0",
        "--job_file foo.txt --gpus 0,x",
        "--job_file foo.txt --gpus ''",
        "--job_file foo.txt --gpus 0 --prefix a/b",
        "--job_file foo.txt --gpus 0 --output_dir foo.txt",
        "--job_file foo.txt --gpu_file missing",
        "--job_file foo.txt --gpus 0 --job_yielder test.py",
    ]

    for options in refused:
        ended = shell(f"hog {options}")

        assert (options, ended.status) == (options, 2)
        assert re.fullmatch(r"hog: error: .*\n", ended.stderr)
        assert not (shell.world.folder / "BAD").exists()


def _files(shell: Shell, output_dir: str) -> dict[str, set[str]]:
    root = Path(os.fspath(shell.world.folder)) / output_dir
    return {folder.name: set(os.listdir(folder)) for folder in root.iterdir() if not folder.name.startswith(".")}
