"""From `dibs add` to the end of the job, with the real daemon that the first command starts."""

import json
import os
import signal
import stat
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from stories.outside import DIBS, World, open_store, wait_until
from stories.terminal import Session


@pytest.fixture
def queue(world: World) -> World:
    """A world whose queue has two GPUs."""
    world.environ["DIBS_POOL"] = "0,1"
    world.environ["XDG_CONFIG_HOME"] = str(world.folder.parent / "config")
    return world


def added(world: World, *words: str, **more: object) -> int:
    ended = world.dibs("add", "--quiet", *words, **more)
    assert ended.status == 0, ended
    return int(ended.stdout)


def output(world: World, job: int) -> str:
    return world.client().log(job).data.decode("utf-8", "surrogateescape")


def test_the_first_add_starts_the_daemon_and_returns_while_the_job_goes_on(queue: World) -> None:
    words = f'n=$({DIBS} add --quiet -- "sleep 60"); echo "got $n"'

    ended = subprocess.run(
        ["bash", "-c", words], env=queue.environ, cwd=queue.folder, capture_output=True, text=True, timeout=30
    )

    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "got 1\n", "")
    wait_until(lambda: queue.client().job(1)["state"] == "running")
    queue.dibs("daemon", "stop", "--jobs")
    queue.assert_nothing_is_left()


def test_forty_at_once_start_one_daemon_and_get_forty_numbers(queue: World) -> None:
    calls = [queue.start("add", "--quiet", "--hold", "--", "true") for _ in range(40)]

    ended = [call.wait(60) for call in calls]

    assert [one.stderr for one in ended] == [""] * 40
    assert sorted(int(one.stdout) for one in ended) == list(range(1, 41))
    daemons = [line for line in queue.processes().values() if "daemon run" in line]
    assert len(daemons) == 1, daemons


def test_a_name_means_every_job_of_the_list_however_many_requests_it_took(queue: World) -> None:
    queue.write("l", [f"true {number}" for number in range(1000)])

    assert queue.dibs("add", "--hold", "-J", "many", "-f", "l").stdout == "added jobs 1-1000\n"
    assert queue.dibs("add", "--hold", "--quiet", "--after", "many", "--", "true").stdout == "1001\n"

    assert len(queue.client().job(1001)["after"]) == 1000
    assert "1000" in queue.dibs("kill", "many").stderr
    assert queue.dibs("wait", "many", "-q").status != 75
    assert {job["state"] for job in queue.client().jobs(name="many")} == {"cancelled"}


def test_folder_environment_and_umask_are_those_of_the_add(queue: World) -> None:
    (queue.folder / "sub").mkdir()

    job = added(
        queue,
        *["-C", "sub", "--env", "B=b\udcff", "--", 'pwd; umask; echo "$A|$B|$LD_PRELOAD|$DIBS_JOB_ID"'],
        env={"A": "a \udcfe\n", "LD_PRELOAD": "", "BASH_ENV": "/nowhere", "PYTHONPATH": "/nowhere"},
        umask=0o027,
    )

    queue.wait_for(job)
    folder = str(queue.folder / "sub")
    assert output(queue, job) == f"{folder}\n0027\na \udcfe\n|b\udcff||{job}\n"


def test_nothing_of_the_submitters_shell_reaches_the_daemon(queue: World) -> None:
    added(
        queue,
        "--",
        "true",
        env={"PYTHONPATH": "/nowhere", "BASH_ENV": "/x", "SECRET": "1", "CUDA_VISIBLE_DEVICES": "7"},
    )

    pid = queue.daemon_pid()
    names = {
        part.split(b"=")[0].decode() for part in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0") if part
    }
    assert {"DIBS_STATE", "DIBS_POOL", "PATH"} <= names
    assert not names & {"PYTHONPATH", "BASH_ENV", "LEDGER", "SECRET", "CUDA_VISIBLE_DEVICES"}
    assert os.readlink(f"/proc/{pid}/cwd") == "/"
    assert os.getsid(pid or 0) == pid
    assert stat.S_IMODE(os.stat(queue.state / "queue" / "daemon.log").st_mode) == 0o600


def test_a_restart_leaves_the_running_job_alone_and_sees_its_end(queue: World) -> None:
    gate = queue.folder.parent / "gate"
    job = added(queue, "--", f"until [ -e '{gate}' ]; do sleep 0.02; done; exit 7")
    wait_until(lambda: queue.client().job(job)["state"] == "running")
    before = queue.daemon_pid()

    ended = queue.dibs("daemon", "restart")
    gate.touch()

    assert ended.status == 0, ended
    assert queue.daemon_pid() not in (before, None)
    [over] = queue.wait_for(job)
    assert (over["state"], over["exit_code"], over["attempts"]) == ("failed", 7, 1)


def test_stop_leaves_jobs_alone_and_with_jobs_it_ends_them(queue: World) -> None:
    job = added(queue, "--", "sleep 60")
    wait_until(lambda: queue.client().job(job)["state"] == "running")

    first = queue.dibs("daemon", "stop")
    assert "running jobs go on" in first.stderr
    assert queue.daemon_pid() is None
    assert any("sleep 60" in line for line in queue.processes().values())
    queue.dibs("daemon", "start")
    second = queue.dibs("daemon", "stop", "--jobs")

    assert (first.status, second.status) == (0, 0)
    queue.assert_nothing_is_left()


def test_a_killed_daemon_is_started_again_by_the_next_add(queue: World) -> None:
    first = added(queue, "--", "true")
    queue.wait_for(first)
    os.kill(queue.daemon_pid() or 0, signal.SIGKILL)

    second = added(queue, "--", "true")

    assert second == first + 1
    queue.wait_for(second)


def test_a_key_is_added_once(queue: World) -> None:
    first = queue.dibs("add", "--once", "nightly", "--", "true")
    again = queue.dibs("add", "--once", "nightly", "--", "true")

    assert first.stdout == "added job 1\n"
    assert again.stdout == "job 1 has the key nightly already\n"
    assert len(list(queue.client().jobs())) == 1


def test_the_tasks_of_an_array_know_their_numbers_and_write_where_they_were_told(queue: World) -> None:
    ended = queue.dibs("add", "--array", "2,4", "-o", "out_%a.txt", "--", "echo task $DIBS_ARRAY_TASK_ID")

    assert ended.stdout == "added jobs 1-2 (an array)\n"
    queue.wait_for(1, 2)
    assert queue.read("out_2.txt") == "task 2\n"
    assert queue.read("out_4.txt") == "task 4\n"


def test_a_job_waits_for_the_one_before_it(queue: World) -> None:
    first = added(queue, "--", "sleep 0.3; echo one >> order")
    second = added(queue, "--after", "@", "--", "echo two >> order")

    queue.wait_for(first, second)

    assert queue.read("order") == "one\ntwo\n"


def test_a_snapshot_runs_the_code_as_it_was(queue: World) -> None:
    queue.write("code.sh", "echo before\n")
    job = added(queue, "--hold", "--snapshot", "--", "bash", "code.sh")
    queue.write("code.sh", "echo after\n")

    queue.dibs("release", str(job))

    queue.wait_for(job)
    assert output(queue, job) == "before\n"


def test_what_a_job_wrote_in_its_snapshot_is_kept_and_it_is_said_where(queue: World) -> None:
    queue.write("code.sh", "echo 0.93 > result\n")
    ended = queue.dibs("add", "--snapshot", "--", "bash", "code.sh")
    queue.wait_for(1)
    info = queue.dibs("info", "1")

    cleaned = queue.dibs("clean", "--yes", "--json")

    [folder] = map(Path, json.loads(cleaned.stdout)["kept"])
    assert folder.name in ended.stderr and folder.name in info.stdout
    assert [(one.name, one.read_text()) for one in folder.iterdir()] == [("result", "0.93\n")]


def test_a_list_from_a_pipe_runs_whole(queue: World) -> None:
    ended = queue.dibs("add", "-n", "0", input="".join(f"echo {number} >> all\n" for number in range(50)))

    assert ended.stdout == "added jobs 1-50\n"
    queue.wait_for(*range(1, 51))
    assert sorted(map(int, queue.read("all").split())) == list(range(50))


def test_what_can_never_run_is_refused_and_nothing_is_stored(queue: World) -> None:
    path = queue.write("jobs.txt", ["true"] * 2500 + ["[num_gpus=3] true"])

    ended = queue.dibs("add", "-f", path)

    assert ended.status == 2
    assert "3 GPUs" in ended.stderr
    assert list(queue.client().jobs()) == []


def test_a_dry_run_adds_nothing(queue: World) -> None:
    ended = queue.dibs("add", "--dry-run", "-n", "2", "--", "true")

    assert (ended.status, ended.stdout) == (0, "would start now on GPU 0,1\n")
    assert list(queue.client().jobs()) == []


def test_a_daemon_that_cannot_start_says_why_in_one_sentence(queue: World) -> None:
    added(queue, "--hold", "--", "true")
    queue.dibs("daemon", "stop")
    store = queue.state / "queue" / "store.db"
    store.write_bytes(b"this is no store" * 1000)

    ended = queue.dibs("add", "--", "true")

    assert ended.status == 69
    assert "cannot start the daemon: " in ended.stderr
    assert len(ended.stderr.splitlines()) == 2, ended.stderr
    assert store.read_bytes().startswith(b"this is no store")
    queue.assert_nothing_is_left()


def test_a_setting_that_cannot_be_meant_is_told_before_anything_starts(queue: World) -> None:
    ended = queue.dibs("add", "--", "true", env={"DIBS_GPU_FAILURES": "many"})

    assert ended.status == 2
    assert "DIBS_GPU_FAILURES: cannot read 'many' as gpu_failures" in ended.stderr
    assert queue.processes() == {}


def test_where_starting_is_turned_off_the_exit_status_is_69(queue: World) -> None:
    queue.dibs("config", "set", "no_start", "true")

    ended = queue.dibs("add", "--", "true")

    assert ended.status == 69
    assert "no_start" in ended.stderr
    assert queue.daemon_pid() is None


def test_inside_a_job_no_daemon_is_started_that_would_end_with_it(queue: World) -> None:
    ended = queue.dibs("run", "--gpus", "0", "--", DIBS, "add", "--", "true")

    assert ended.status == 69
    assert "would end with that job" in ended.stdout + ended.stderr
    queue.assert_nothing_is_left()


def test_a_job_can_add_jobs_to_the_queue_it_is_in(queue: World) -> None:
    first = added(queue, "--", f"{DIBS} add --quiet -- true")

    queue.wait_for(first)

    assert output(queue, first) == "2\n"
    queue.wait_for(2)


def test_what_is_known_about_the_code_is_kept_with_the_job(queue: World) -> None:
    queue.write("train.py", "print(1)\n")
    git = ["git", "-c", "user.name=x", "-c", "user.email=x@y"]
    for words in (["init", "-q", "-b", "main"], ["add", "."], ["commit", "-q", "-m", "first"]):
        subprocess.run([*git, *words], cwd=queue.folder, check=True)
    queue.write("train.py", "print(2)\n")

    job = added(queue, "--", "true")

    code = queue.client().job(job)["code"]
    assert (code["branch"], code["is_dirty"]) == ("main", True)
    assert "+print(2)" in code["diff"]


def test_on_a_terminal_the_next_useful_command_is_named(queue: World) -> None:
    session = Session(queue, "add", "--hold", "--", "true")

    session.expect("added job 1")
    session.expect("dibs log -f 1")

    assert session.wait() == 0
    session.close()


def test_what_a_jobs_file_registered_for_the_end_is_done(queue: World) -> None:
    queue.write("jobs.py", "import atexit\natexit.register(open, 'done', 'w')\ndef yielder():\n    yield 'true'\n")

    ended = queue.dibs("add", "-f", "jobs.py")

    assert ended.stdout == "added job 1\n"
    assert (queue.folder / "done").exists()


def test_an_answer_that_cannot_be_written_is_one_sentence(queue: World) -> None:
    with open("/dev/full", "wb") as full:
        ended = queue.dibs("add", "--hold", "--", "true", stdout=full)

    assert ended.status == 1
    assert ended.stderr == "dibs: error: cannot write: the disk is full\n"


def test_a_daemon_of_another_version_is_told_of(queue: World) -> None:
    added(queue, "--hold", "--", "true")

    ended = queue.dibs("add", "--hold", "--", "true", program=OLDER)

    assert ended.stdout == "added job 2\n"
    [line] = ended.stderr.splitlines()
    assert line.startswith("dibs: the daemon is version ") and "dibs daemon restart" in line


_OLDER = "from dibs import version; version.__version__ = '0.0.1'; from dibs.cli.main import main; main()"
OLDER = (sys.executable, "-c", _OLDER)


@pytest.mark.parametrize(
    "env",
    [
        {"HOME": None, "LANG": None, "PATH": "/usr/bin:/bin", "XDG_CONFIG_HOME": None},
        {"LC_ALL": "C", "TERM": "weird", "XDG_RUNTIME_DIR": "/nowhere"},
        {"PATH": ""},
    ],
)
def test_a_poor_environment_is_enough(queue: World, env: dict[str, str | None]) -> None:
    job = added(queue, "-J", "é\udcff", "--", "/bin/sh", "-c", "echo hi", env=env)

    [over] = queue.wait_for(job)
    assert (over["state"], over["name"]) == ("succeeded", "é\udcff")


def test_a_line_with_a_nul_byte_is_refused_with_its_place(queue: World) -> None:
    path = queue.write("jobs.txt", "true\necho \0\n")

    ended = queue.dibs("add", "-f", path)

    assert ended.status == 2
    assert "jobs.txt:2: the command contains a NUL byte" in ended.stderr
    assert queue.daemon_pid() is None


def test_the_daemons_log_is_followed_into_the_next_file(queue: World) -> None:
    added(queue, "--hold", "--", "true")
    log = queue.state / "queue" / "daemon.log"
    following = queue.start("daemon", "log", "-f")
    wait_until(lambda: "listens at" in following.stdout, show=lambda: following.stdout)

    log.rename(f"{log}.1")
    log.write_text("a new file\n")

    wait_until(lambda: "a new file" in following.stdout, show=lambda: following.stdout)


def test_adds_among_short_jobs_leave_no_job_that_is_shown_running_and_does_not_run(world: World) -> None:
    world.environ |= {"DIBS_POOL": "0", "XDG_CONFIG_HOME": str(world.folder.parent / "config")}
    added(world, "--", "true")
    (world.folder / "list").write_text("true\n" * 300)

    many = world.start("add", "--quiet", "-f", "list")
    for _ in range(12):
        added(world, "--", "true")
    assert many.wait(60).status == 0
    client = world.client()
    wait_until(lambda: client.status()["counts"].get("succeeded") == 313, show=client.status)
    assert world.dibs("daemon", "stop").status == 0

    root = world.state / "queue"
    lines = [json.loads(line)["k"] for line in (root / "journal.jsonl").read_text().splitlines()]
    assert lines.count("start") == lines.count("end") == 313
    with open_store(root) as store:
        kinds = Counter(kind for (kind,) in store.execute("select kind from events"))
    assert kinds["job.started"] == kinds["job.ended"] == 313
