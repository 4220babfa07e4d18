"""Short Python jobs that share one import, from the outside."""

import json
import os
import signal
import sys
from pathlib import Path

import pytest

from stories.outside import World, wait_until

HEAVY = "open('imports', 'a').write('x')\nvalue = 42\n"
JOB = "import heavy, os, sys\nprint(heavy.value, sys.argv[1:], os.environ['DIBS_JOB_ID'])\n"
# It imports until a test lets it go on.
SLOW = "import os, time\nwhile not os.path.exists('on'): time.sleep(0.01)\n"


@pytest.fixture
def world_with_jobs(world: World) -> World:
    world.write("heavy.py", HEAVY)
    world.write("job.py", JOB)
    os.utime(world.folder / "heavy.py", (1e9, 1e9))
    return world


def imports(world: World) -> int:
    path = world.folder / "imports"
    return len(path.read_text()) if path.exists() else 0


def test_a_list_of_runs_imports_once(world_with_jobs: World) -> None:
    world = world_with_jobs
    lines = [f"{sys.executable} job.py {number}" for number in range(4)]

    ended = world.dibs("run", "--gpus", "0", "--warm", "heavy", "--raw", input="\n".join(lines))

    assert ended.status == 0, ended.stderr
    assert ended.stdout.splitlines() == [f"42 ['{number}'] {number + 1}" for number in range(4)]
    assert imports(world) == 1
    world.assert_nothing_is_left()


@pytest.mark.parametrize(
    "line",
    ["[warm=heavy,json] {} job.py a", '{{"command": "{} job.py a", "warm": ["heavy", "json"]}}'],
    ids=["prefix", "json"],
)
def test_a_line_may_wish_for_it(world_with_jobs: World, line: str) -> None:
    world = world_with_jobs
    jobs = line.format(sys.executable)

    ended = world.dibs("run", "--gpus", "0", "--raw", input=f"{jobs}\n{jobs}\n")

    assert (ended.status, imports(world)) == (0, 1), ended.stderr


def test_the_exit_code_is_the_jobs_own(world_with_jobs: World) -> None:
    world = world_with_jobs
    world.write("job.py", "import sys; sys.exit(37)")

    ended = world.dibs("run", "--gpus", "0", "--warm", "heavy", "--", sys.executable, "job.py")

    assert ended.status == 37
    assert imports(world) == 1


def test_what_no_module_can_be_is_refused(world: World) -> None:
    ended = world.dibs("run", "--gpus", "0", "--warm", "torch,;rm", "--", "true")

    assert ended.status == 2
    assert "cannot read ';rm' as a module; name modules like torch,transformers" in ended.stderr


def test_the_queue_forks_too_shows_it_and_keeps_it(world_with_jobs: World) -> None:
    world = world_with_jobs
    world.run_daemon(pool="0,1")

    jobs = [world.add("--warm", "heavy", "--", sys.executable, "job.py", str(n)) for n in range(3)]
    ended = world.wait_for(*jobs)
    shown = world.dibs("info", str(jobs[0])).stdout
    exported = json.loads(world.dibs("export", str(jobs[0])).stdout)

    assert [job["state"] for job in ended] == ["succeeded"] * 3
    assert [Path(job["stdout"]).read_text() for job in ended] == [f"42 ['{n}'] {jobs[n]}\n" for n in range(3)]
    assert imports(world) == 1
    assert any(line.split() == ["warm", "heavy"] for line in shown.splitlines()), shown
    assert exported["warm"] == ended[0]["warm"] == ["heavy"]
    [there] = [line for line in world.dibs("daemon", "status").stdout.splitlines() if line.startswith("warm ")]
    assert there.split()[:3] == ["warm", "heavy", "(pid"]


def test_a_job_that_cannot_be_forked_runs_all_the_same_and_its_log_says_why(world: World) -> None:
    world.run_daemon(pool="0")

    job = world.add("--warm", "no_such_module", "--", sys.executable, "-c", "print('ran')")
    (ended,) = world.wait_for(job)

    assert ended["state"] == "succeeded"
    assert Path(ended["stdout"]).read_text() == "ran\n"
    assert "not started warm: no_such_module cannot be imported: ModuleNotFoundError" in (
        Path(ended["stderr"]).read_text()
    )


def test_a_job_can_be_cancelled_while_its_modules_are_imported(world_with_jobs: World) -> None:
    world = world_with_jobs
    world.write("heavy.py", HEAVY + SLOW)
    world.run_daemon(pool="0")
    job = world.add("--warm", "heavy", "--", sys.executable, "job.py")
    wait_until(lambda: imports(world) == 1)

    world.dibs("kill", str(job))
    (ended,) = world.wait_for(job)
    other = world.add("--", "true")

    assert ended["state"] == "cancelled"
    assert world.wait_for(other)[0]["state"] == "succeeded"
    world.write("on", "")


@pytest.mark.parametrize("when", ["import", "run"])
def test_a_daemon_that_is_killed_neither_loses_nor_repeats_it(world_with_jobs: World, when: str) -> None:
    world = world_with_jobs
    world.write("heavy.py", HEAVY + (SLOW if when == "import" else ""))
    until = "import os, time\nopen('runs', 'a').write('x')\n"
    world.write("job.py", until + "while not os.path.exists('go'): time.sleep(0.01)\nraise SystemExit(5)\n")
    daemon = world.run_daemon(pool="0")
    job = world.add("--warm", "heavy", "--", sys.executable, "job.py")
    wait_until(lambda: imports(world) == 1)
    if when == "run":
        wait_until((world.folder / "runs").exists)

    daemon.kill()
    world.write("on", "")
    world.run_daemon(pool="0")
    world.write("go", "")
    (ended,) = world.wait_for(job)

    assert (ended["state"], ended["exit_code"]) == ("failed", 5)
    assert world.read("runs") == "x"


def test_a_warm_process_that_is_killed_takes_no_job_with_it(world_with_jobs: World) -> None:
    world = world_with_jobs
    world.write("job.py", "import os, time\nopen('up', 'w')\nwhile not os.path.exists('go'): time.sleep(0.01)\n")
    world.run_daemon(pool="0,1")
    first = world.add("--warm", "heavy", "--", sys.executable, "job.py")
    wait_until((world.folder / "up").exists)
    found = [pid for pid, line in world.processes().items() if line.startswith("dibs: warm heavy")]

    # Its shim carries its name too: the oldest of them is the warm process itself.
    os.kill(min(found, key=lambda pid: Path(f"/proc/{pid}").stat().st_ctime_ns), signal.SIGKILL)
    world.write("go", "")
    second = world.add("--warm", "heavy", "--", sys.executable, "job.py")
    ended = world.wait_for(first, second)

    assert [job["state"] for job in ended] == ["succeeded", "succeeded"]
    assert imports(world) == 2
