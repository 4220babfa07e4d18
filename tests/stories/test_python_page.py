"""The page about Python, and its examples: every block is a program that runs."""

import json
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from stories.outside import World, wait_until

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "python.md").read_text()
BLOCKS = [
    pytest.param(found[1], id=f"line {PAGE[: found.start()].count(chr(10)) + 1}")
    for found in re.finditer(r"^```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
]


@pytest.fixture
def machine(world: World) -> World:
    """Two idle cards out of a file, a daemon, and the examples beside."""
    listed = [{"index": index, "uuid": f"GPU-{index}", "memory_total": 80 << 30} for index in range(2)]
    path = world.folder.parent / "cards.json"
    path.write_text(json.dumps(listed))
    world.environ |= {"DIBS_PROBE": f"fake:{path}", "XDG_CONFIG_HOME": str(world.folder.parent / "config")}
    world.environ["PATH"] = f"{Path(sys.executable).parent}:{world.environ['PATH']}"
    shutil.copytree(ROOT / "examples", world.folder / "examples")
    assert world.dibs("daemon", "start").status == 0  # forked: a program would have to execute it
    return world


def test_there_are_blocks_to_run() -> None:
    assert len(BLOCKS) >= 9


@pytest.mark.parametrize("block", BLOCKS)
def test_what_the_page_shows_works(machine: World, block: str) -> None:
    machine.write("block.py", block)

    ended = machine.start("block.py", program=[sys.executable]).wait(120)

    assert (ended.status, ended.stderr) == (0, "")


@pytest.mark.parametrize("name", ["functions", "commands", "lease"])
def test_the_examples_run_from_beginning_to_end(machine: World, name: str) -> None:
    ended = machine.start(f"examples/python_{name}.py", program=[sys.executable]).wait(120)

    assert (ended.status, ended.stderr) == (0, "")
    last = {
        "functions": "the best: {'lr': 0.4, 'loss': 0.216}",
        "commands": "as expected: job 4 failed: exit code 1",
        "lease": "and given back",
    }
    assert last[name] in ended.stdout.splitlines()[-1]


def test_a_program_on_stdin_and_one_behind_c_ship_their_functions(machine: World) -> None:
    # As in a notebook: there is no file that a job could import.
    code = "\n".join(
        [
            "import dibs",
            "factor = 3",
            "def helper(x): return x * factor",
            "class Point:",
            "    def __init__(self, x): self.x = x",
            "def work(point): return Point(helper(point.x))",
            "with dibs.Executor(num_gpus=1) as executor:",
            "    print([point.x for point in executor.map(work, [Point(1), Point(2)])])",
            "",
        ]
    )

    behind_c = machine.start("-c", code, program=[sys.executable]).wait(60)
    piped = subprocess.run(
        [sys.executable, "-"],
        input=code,
        cwd=machine.folder,
        env=machine.environ,
        capture_output=True,
        text=True,
        timeout=60,
    )

    assert (behind_c.status, behind_c.stdout, behind_c.stderr) == (0, "[3, 6]\n", "")
    assert (piped.returncode, piped.stdout, piped.stderr) == (0, "[3, 6]\n", "")


def test_a_program_that_ends_without_waiting_leaves_its_jobs_alone(machine: World) -> None:
    code = (
        "import dibs\n"
        "future = dibs.Executor(num_gpus=0).submit(str, 7)\n"
        "print(future.job.id, dibs.submit('true', num_gpus=0).id)\n"
    )

    ended = machine.start("-c", code, program=[sys.executable]).wait(60)

    assert (ended.status, ended.stdout) == (0, "1 2\n"), ended
    assert [job["state"] for job in machine.wait_for(1, 2)] == ["succeeded", "succeeded"]
    later = machine.start("-c", "import dibs; print(dibs.job_by_id(1).result())", program=[sys.executable])
    assert later.wait(60).stdout == "7\n"


@pytest.mark.parametrize("where", ["in the block", "at its end"])
def test_ctrl_c_ends_the_jobs_of_an_executor(machine: World, where: str) -> None:
    code = (
        "import dibs, time\n"
        "with dibs.Executor(num_gpus=2) as executor:\n"
        "    futures = [executor.submit(time.sleep, 600) for _ in range(3)]\n"
        "    print('added', flush=True)\n"
        f"    {'futures[0].result()' if where == 'in the block' else 'pass'}\n"
    )
    program = machine.start("-c", code, program=[sys.executable])
    wait_until(lambda: program.stdout == "added\n", show=lambda: program.stderr)
    wait_until(lambda: machine.client().page(state="running")["jobs"])

    program.signal(signal.SIGINT)
    ended = program.wait(60)

    assert ended.stderr.splitlines()[-1] == "KeyboardInterrupt"
    assert [job["state"] for job in machine.client().jobs()] == ["cancelled"] * 3
    assert list((machine.state / "queue" / "calls").iterdir()) == []


def test_an_error_that_nobody_catches_ends_with_what_to_do(machine: World) -> None:
    ended = machine.start("-c", "import dibs; dibs.submit('true', gpus=1)", program=[sys.executable]).wait(60)

    assert ended.status == 1
    assert ended.stderr.splitlines()[-2:] == [
        "dibs.errors.BadInput: there is no wish called 'gpus'",
        "did you mean num_gpus?",
    ]


def test_without_cloudpickle_commands_work_and_functions_are_refused_in_a_sentence(machine: World) -> None:
    code = (
        "import sys; sys.modules['cloudpickle'] = None\n"
        "import dibs\n"
        "print(dibs.submit('true', num_gpus=0).result())\n"
        "try: dibs.Executor(num_gpus=0).submit(str, 1)\n"
        "except dibs.DibsError as error: print(error.message, '-', error.remedy)\n"
    )

    ended = machine.start("-c", code, program=[sys.executable]).wait(60)

    assert ended.stdout.splitlines() == [
        "0",
        "cannot send a function to a job: cloudpickle is not installed - pip install 'dibs[python]', "
        "or submit a command instead",
    ]
