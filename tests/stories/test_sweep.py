"""A search from outside: typed, followed, interrupted, mended and gone on with, against the real daemon."""

import csv
import io
import json
import os
import shutil
import signal
from pathlib import Path

import pytest

from dibs.client.sweeps import sweep as asked
from stories.outside import World, wait_until
from stories.terminal import Session

BRANIN = Path(__file__).resolve().parents[2] / "examples" / "sweep_branin.py"
LINE = "python3 branin.py --x {x} --y {y} --seconds 0.05"
SPACE = ("-p", "x", "-5.0..10.0", "-p", "y", "0.0..15.0", "-n", "0", "--metric", "loss")
PATIENCE = 120.0  # seconds for a search; only a failing test waits for so long


@pytest.fixture
def queue(world: World) -> World:
    world.environ["DIBS_POOL"] = "0,1"
    world.environ["XDG_CONFIG_HOME"] = str(world.folder.parent / "config")
    shutil.copy(BRANIN, world.folder / "branin.py")
    return world


def counts(world: World, number: int = 1) -> dict[str, int]:
    told: dict[str, int] = asked(world.client(), number)["counts"]
    return told


def test_a_newcomer_finds_the_best_and_pastes_it(queue: World) -> None:
    done = queue.dibs("sweep", LINE, *SPACE, "--samples", "12", "--seed", "1", "--wait", timeout=PATIENCE)

    assert done.status == 0, done
    assert done.stdout == "added sweep 1: 12 trials\n"
    assert "sweep 1 has finished: 12 complete; best loss " in done.stderr
    rows = list(csv.DictReader(io.StringIO(queue.dibs("sweep", "results", "--csv").stdout)))
    losses = sorted(float(row["loss"]) for row in rows)
    assert len(rows) == 12 and {row["state"] for row in rows} == {"complete"}
    best = queue.dibs("sweep", "best")
    assert f"loss {losses[0]:.6g} (" in best.stderr
    # Pasted into a shell it does what the trial did.
    again = queue.dibs("run", "--gpus", "0", "--", best.stdout.strip())
    assert f"loss {losses[0]:.5f}" in again.stdout


def test_show_tells_what_mattered_and_where_optunas_own_file_is(queue: World) -> None:
    queue.dibs("sweep", LINE, *SPACE, "--samples", "8", "--wait", "-q", timeout=PATIENCE)

    said = queue.dibs("sweep", "show", env={"LANG": "C.UTF-8"}, timeout=PATIENCE).stdout

    assert "what mattered" in said and "%" in said
    assert "optuna-dashboard " in said
    assert os.path.isfile(asked(queue.client(), 1)["journal"])


def test_on_a_terminal_progress_is_shown_and_ctrl_c_leaves_it_running(queue: World) -> None:
    session = Session(queue, "sweep", "sleep 60; echo {x}", "-p", "x", "1..4", "-n", "0", "--wait")
    session.expect("under way")

    session.type("\x03")

    session.expect("sweep 1 goes on")
    assert session.wait() == 130
    session.close()
    assert asked(queue.client(), 1)["state"] == "running"
    assert queue.dibs("sweep", "stop", "1").status == 0
    wait_until(lambda: not counts(queue)["open"], show=lambda: counts(queue))


def test_a_file_says_it_all_and_options_beside_it_go_first(queue: World) -> None:
    queue.write(
        "sweep.yaml",
        [
            "name: from-a-file",
            f"command: {LINE}",
            "parameters: {x: -5.0..10.0, y: [1, 2, 3]}",
            "method: random",
            "samples: 50",
            "seed: 3",
            "metric: loss",
            "num_gpus: 1",
            "priority: 4",
            "env: {A: file, B: file}",
        ],
    )

    done = queue.dibs(
        *["sweep", "sweep.yaml", "--samples", "4", "-p", "y", "7", "-n", "0", "--env", "A=typed", "--wait"],
        timeout=PATIENCE,
    )

    assert done.status == 0, done
    told = json.loads(queue.dibs("sweep", "results", "from-a-file", "--json").stdout)["trials"]
    assert len(told) == 4 and {trial["point"]["y"] for trial in told} == {"7"}
    job = queue.client().job(told[0]["job"])
    assert (job["num_gpus"], job["priority"]) == (0, 4)
    assert (job["env"]["A"], job["env"]["B"]) == ("typed", "file")


def test_what_dies_alike_is_held_with_the_cause_and_goes_on_when_it_is_mended(queue: World) -> None:
    words = (
        "sweep",
        "python3 missing.py {x}",
        "-p",
        "x",
        "1..9",
        "-n",
        "0",
        "--parallel",
        "1",
        "--metric",
        "loss",
    )

    held = queue.dibs(*words, "--wait", timeout=PATIENCE)

    assert held.status == 1
    assert "sweep 1 is held: 3 failed" in held.stderr
    assert "exit code 2" in queue.dibs("sweep", "show").stdout
    queue.write(
        "missing.py", "import os, sys\nopen(os.environ['DIBS_METRICS'], 'a').write(f'loss={sys.argv[1]}\\n')\n"
    )
    mended = queue.dibs("sweep", "retry-failed", "--wait", timeout=PATIENCE)
    assert mended.status == 0, mended
    assert counts(queue) == {"open": 0, "complete": 9, "pruned": 0, "failed": 0, "reused": 0}


def test_who_waits_does_not_notice_that_the_daemon_is_killed(queue: World) -> None:
    running = queue.start("sweep", LINE.replace("0.05", "0.5"), *SPACE, "--samples", "6", "--wait")
    wait_until(lambda: queue.daemon_pid() and "added" in running.stdout and counts(queue)["complete"])

    os.kill(queue.daemon_pid() or 0, signal.SIGKILL)

    done = running.wait(PATIENCE)
    assert done.status == 0, done
    assert "6 complete" in done.stderr
    assert len(list(queue.client().jobs())) == 6


def test_a_search_that_has_ended_goes_on_with_more_samples(queue: World) -> None:
    queue.dibs("sweep", LINE, *SPACE, "--samples", "4", "--wait", "-q", timeout=PATIENCE)
    before = json.loads(queue.dibs("sweep", "results", "--json").stdout)["trials"]

    done = queue.dibs("sweep", "resume", "--samples", "7", "--wait", timeout=PATIENCE)

    after = json.loads(queue.dibs("sweep", "results", "--json").stdout)["trials"]
    assert done.status == 0, done
    assert after[:4] == before and len(after) == 7


def test_a_result_is_reused_only_on_request_and_of_the_same_program(queue: World) -> None:
    queue.write("train.sh", 'echo "loss=$((DATA + $1))" >> "$DIBS_METRICS"\n')
    words = ("sweep", "sh train.sh {x}", "-p", "x", "1", "2", "-n", "0", "--metric", "loss", "--wait")

    def sweep(*more: str, data: str = "100") -> str:
        done = queue.dibs(*words, *more, env={"DATA": data}, timeout=PATIENCE)
        assert done.status == 0, done
        return done.stderr

    sweep()
    sweep()
    assert "2 of 2 are taken from sweep 2" in sweep("--reuse")
    assert "taken from" not in sweep("--reuse", data="500")
    assert "taken from" not in sweep("--reuse", "--env", "LAYERS=3")
    queue.write("train.sh", 'echo "loss=$((DATA - $1))" >> "$DIBS_METRICS"\n')
    assert "taken from" not in sweep("--reuse")

    assert [counts(queue, number)["reused"] for number in range(1, 7)] == [0, 0, 2, 0, 0, 0]
    assert len(list(queue.client().jobs())) == 10


def test_in_a_snapshot_trials_run_the_code_as_it_was(queue: World) -> None:
    queue.write("code.sh", 'echo "loss=1" >> "$DIBS_METRICS"; echo before $1\n')
    words = ("sweep", "bash code.sh {x}", "-p", "x", "1", "2", "-n", "0", "--metric", "loss", "--snapshot")
    queue.dibs("pause")
    queue.dibs(*words)
    queue.write("code.sh", "exit 1\n")

    queue.dibs("unpause")

    assert queue.dibs("sweep", "wait", timeout=PATIENCE).status == 0
    assert queue.client().log(1).data == b"before 1\n"


def test_a_command_that_is_called_like_a_verb_stands_behind_the_dashes(queue: World) -> None:
    queue.write("show", "#!/bin/sh\necho showing $1\n")
    (queue.folder / "show").chmod(0o755)

    done = queue.dibs("sweep", "-p", "x", "1", "-n", "0", "--wait", "--", "./show", "{x}", timeout=PATIENCE)

    assert done.status == 0, done
    assert queue.client().log(1).data == b"showing 1\n"


@pytest.mark.parametrize(
    "words",
    [
        ["echo {x}", "-p", "x", "0..0.5"],
        ["echo {x}", "-p", "y", "1"],
        ["echo {x}", "-p", "x", "1", "--where", "x.__class__"],
        ["nothing.yaml"],
    ],
)
def test_what_cannot_be_meant_starts_nothing(queue: World, words: list[str]) -> None:
    done = queue.dibs("sweep", *words)

    assert (done.status, done.stdout) == (2, "")
    assert len(done.stderr.splitlines()) == 2
    assert queue.daemon_pid() is None


def test_what_can_never_run_is_refused_and_nothing_is_kept(queue: World) -> None:
    done = queue.dibs("sweep", "echo {x}", "-p", "x", "1", "2", "-n", "3")

    assert done.status == 2
    assert "3 GPUs" in done.stderr
    assert json.loads(queue.dibs("sweep", "ls", "--json").stdout) == {"sweeps": []}


def test_info_says_which_trial_a_job_is(queue: World) -> None:
    queue.dibs("sweep", "echo {x}", "-p", "x", "1", "-n", "0", "--wait", timeout=PATIENCE)

    assert "trial 1 of sweep 1" in queue.dibs("info", "1").stdout
