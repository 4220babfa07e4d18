"""The queue with a real Slurm beside it, from outside: the same commands, run by Slurm's nodes."""

import getpass
import json
import os
import re
import signal
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from backends.private_slurm import PrivateSlurm
from containers.private_engines import PrivateEngines
from containers.private_pyxis import asked_of_pyxis, containers_of_pyxis, pyxis_in
from stories.on_slurm import HOLD, PATIENCE, Afar, afar
from stories.outside import Ledger, World, kept_environment, processes_of, wait_until

pytestmark = pytest.mark.parametrize(
    "slurm", [{"kind": "h200", "is_preemptive": True}], indirect=True, scope="module", ids=["h200"]
)


@pytest.fixture
def there(world: World, slurm: PrivateSlurm) -> Iterator[Afar]:
    with afar(world, slurm) as one:
        yield one


@pytest.fixture
def plain(slurm: PrivateSlurm, tmp_path: Path) -> Iterator[Afar]:
    """In folders with plain names: pyxis can be told of no others."""
    (tmp_path / "work").mkdir()
    environ = kept_environment() | {
        "DIBS_STATE": str(tmp_path / "state"),
        "DIBS_LEASES": str(tmp_path / "leases"),
        "DIBS_PROBE": "none",
    }
    with afar(World(tmp_path / "work", environ, Ledger(tmp_path / "ledger")), slurm) as one:
        yield one


# -- as on this machine ------------------------------------------------------------------------------------


def test_a_job_there_has_its_folder_its_environment_its_cards_and_its_output(there: Afar) -> None:
    world = there.world
    there.daemon()
    line = (
        'pwd > where; echo "$CUDA_VISIBLE_DEVICES|$DIBS_GPUS|$GPU|$SEED|$ODD|$DIBS_ARRAY_ID"; umask; echo err >&2;'
        ' echo $SLURMD_NODENAME > node; echo loss=1 > "$DIBS_METRICS"; exit 3'
    )
    old = os.umask(0o027)
    try:
        job = there.add(
            *("-n", "2", "-J", "far away", "-P", "work", "--env", "SEED=7", "--", line), env={"ODD": "é \udcff"}
        )
    finally:
        os.umask(old)

    waited = world.dibs("wait", str(job), timeout=PATIENCE)
    [over] = there.wait_for(job)
    listed, info = world.dibs("ls", "--all"), world.dibs("info", str(job))

    node = world.read("node").strip()
    attempt = over["attempts_list"][0]
    assert waited.status == 3
    assert (over["state"], over["exit_code"], over["cause"], over["on"]) == ("failed", 3, "exit code", "slurm")
    assert (attempt["backend"], attempt["node"], attempt["node_gpus"]) == ("slurm", node, "0,1")
    assert world.read("where") == f"{world.folder}\n"
    assert world.client().log(job).data == "0,1|0,1|cuda0,cuda1|7|é \udcff|\n0027\n".encode(
        "utf-8", "surrogateescape"
    )
    assert world.client().log(job, stream="stderr").data == b"err\n"
    assert f"{node}:0,1" in listed.stdout and "far away" in listed.stdout
    assert f"node        {node}" in info.stdout and "on          slurm" in info.stdout
    assert (Path(attempt["folder"]) / "metrics").read_text() == "loss=1\n"
    there.assert_nothing_is_left()


def test_where_jobs_run_that_do_not_say_so_is_a_setting(there: Afar) -> None:
    there.world.environ["DIBS_BACKEND"] = "slurm"
    there.daemon()

    far = there.world.add("--", "echo at $SLURMD_NODENAME")
    near = there.world.add("--on", "local", "--", "echo at $SLURMD_NODENAME")
    over = there.wait_for(far, near)

    assert [(one["state"], one["on"]) for one in over] == [("succeeded", "slurm"), ("succeeded", "")]
    assert there.world.client().log(far).data.startswith(b"at n")
    assert there.world.client().log(near).data == b"at\n"
    there.assert_nothing_is_left()


def test_one_beyond_its_time_limit_is_timed_out(there: Afar) -> None:
    there.daemon()
    job = there.add("-t", "1s", "--grace", "0.5s", "--", "trap '' TERM; while :; do sleep 0.1; done")

    waited = there.world.dibs("wait", str(job), timeout=PATIENCE)

    assert waited.status == 124
    assert there.job(job)["state"] == "timed_out"
    there.assert_nothing_is_left()


def test_jobs_here_and_there_wait_for_each_other(there: Afar) -> None:
    there.daemon()
    ledger, world = there.world.ledger, there.world
    first = there.add("--", f"{HOLD}; {ledger.job('far')}")
    second = world.add("--after", str(first), "--", ledger.job("near"))
    third = there.add("--after", str(second), "--", ledger.job("again", status=4))
    fourth = world.add("--after", str(third), "--", ledger.job("never"))
    fifth = there.add("--after-fail", str(third), "--", ledger.job("mends"))
    there.wait_until_up(first)
    meanwhile = [there.job(number)["state"] for number in (second, third, fourth)]

    there.let_go()
    over = there.wait_for(first, second, third, fourth, fifth)

    assert meanwhile == ["queued"] * 3
    assert [one["state"] for one in over] == ["succeeded", "succeeded", "failed", "cancelled", "succeeded"]
    assert ledger.started() == ["far", "near", "again", "mends"]
    there.assert_nothing_is_left()


def test_an_ordinary_failure_is_tried_again_after_a_pause(there: Afar) -> None:
    there.daemon()
    job = there.add("--retries", "2", "--", 'echo "start one" >> "$LEDGER"; test -e fine || exit 9')
    wait_until(lambda: there.job(job)["attempts"] == 1 and there.job(job)["state"] == "queued", seconds=PATIENCE)
    why = there.world.dibs("why", str(job)).stdout

    there.world.write("fine", "")
    [over] = there.wait_for(job)

    assert "again" in why, why
    assert (over["state"], over["attempts"]) == ("succeeded", 2)
    assert [one["exit_code"] for one in over["attempts_list"]] == [9, 0]
    assert there.world.ledger.started() == ["one", "one"]
    there.assert_nothing_is_left()


def test_a_script_runs_there_as_large_as_it_asks(there: Afar) -> None:
    world = there.world
    there.daemon()
    world.write(
        "nodes.sh", "#!/bin/bash\n#SBATCH --nodes=2 --gpus-per-node=1 -J wide\nsrun hostname > ranks; sleep 60\n"
    )
    world.write(
        "tasks.sh", "#!/bin/bash\n#SBATCH --ntasks-per-node=2 --exclusive\nsrun sh -c 'echo $SLURM_PROCID'\n"
    )
    wide = there.add("-f", "nodes.sh")
    wait_until(
        lambda: (world.folder / "ranks").exists() and len(world.read("ranks").split()) == 2, seconds=PATIENCE
    )
    [allocated] = there.slurm.ask("squeue", "-h", "-t", "R", "-o", "%D %b").splitlines()

    both = there.add("-f", "tasks.sh")
    [over] = there.wait_for(both)
    world.dibs("kill", str(wide))
    [ended] = there.wait_for(wide)

    assert allocated == "2 gres:gpu:1"
    assert sorted(world.client().log(both).data.split()) == [b"0", b"1"]
    assert (over["num_gpus"], over["on_options"]) == (0, {"ntasks-per-node": "2", "exclusive": ""})
    assert (ended["state"], ended["attempts_list"][0]["node"]) == ("cancelled", "n1")
    there.assert_nothing_is_left()


def test_what_a_script_asks_for_each_gpu_cpu_or_node_is_what_slurm_gives_it(there: Afar) -> None:
    world = there.world
    there.daemon()
    asked = {
        "--gpus=2 --cpus-per-gpu=2 --mem-per-gpu=150M": "NumCPUs=4 mem=300M TresPerNode=gres:gpu:2",
        "-n 2 -c 2 --mem-per-cpu=60M --gpus-per-task=1": "NumCPUs=4 mem=240M NumTasks=2 TresPerTask=gres:gpu:1",
        "--exclusive": "NumCPUs=4 OverSubscribe=NO",
    }
    jobs = []
    for number, lines in enumerate(asked):
        world.write(f"{number}.sh", f"#!/bin/bash\n#SBATCH {lines}\nscontrol show job $SLURM_JOB_ID\n")
        jobs.append(there.add("-f", f"{number}.sh"))

    shown = [there.output(job) for job in there.wait_for(*jobs)]

    for given, told in zip(asked.values(), shown, strict=True):
        assert [part for part in given.split() if not re.search(rf"\b{part}\b", told)] == [], told
    there.assert_nothing_is_left()


@pytest.mark.parametrize(
    ("lines", "had"),
    [
        ("--nodes=2 --gpus-per-node=1", {"0,+1"}),
        ("--nodes=2 --gpus=3", {"0,1,+1", "0,+2"}),
        ("--ntasks=3 --gpus-per-task=h200:1 --nodes=2", {"0,1,+1", "0,+2"}),
    ],
)
def test_the_cards_of_a_script_are_those_of_all_its_nodes(there: Afar, lines: str, had: set[str]) -> None:
    world = there.world
    there.daemon()
    told = "scontrol show -d job $SLURM_JOB_ID | grep -o JOB_GRES=.*"
    world.write("wide.sh", f"#!/bin/bash\n#SBATCH {lines}\n{told}\n{HOLD}\n")
    job = there.add("-f", "wide.sh")
    there.wait_until_up(job)
    there.wait_until("running", job)
    wait_until(lambda: there.attempt(job)["node_gpus"] in had, show=lambda: there.attempt(job), seconds=PATIENCE)
    there.let_go()
    [over] = there.wait_for(job)

    cards = over["attempts_list"][0]["node_gpus"]
    slurms = int(there.output(over).rpartition(":")[2])
    assert cards in had
    assert sum(int(one) if one.startswith("+") else 1 for one in cards.split(",") if one) == slurms
    there.assert_nothing_is_left()


SEEN = (
    'echo "$SLURM_SUBMIT_DIR|$SLURM_JOB_NAME|$SLURM_NTASKS|$SLURM_JOB_NUM_NODES|$SLURM_GPUS_ON_NODE|'
    '$SLURM_CPUS_PER_TASK|$SLURM_ARRAY_TASK_ID of $SLURM_ARRAY_TASK_COUNT|$SLURM_RESTART_COUNT"\n'
    'echo "${SLURM_JOB_ID:+id}$SLURMD_NODENAME" > node; env -0 > environment\n'
)
# Slurm sets the first for `--gpus` only, and the second in a step.
NOT_OF_SLURM = {"SLURM_GPUS", "SLURM_STEP_GPUS"}


@pytest.mark.parametrize("place", ["slurm", "local"])
def test_a_script_is_told_what_scripts_of_hpc_centres_rely_on(there: Afar, place: str) -> None:
    world, host = there.world, os.uname().nodename.partition(".")[0]
    there.daemon()
    world.write(
        "job.sh",
        "#!/bin/bash\n#SBATCH --gres=gpu:1 -c 2 --mem=50M -J my-job --array=3,5\n"
        "#SBATCH --output=logs/%x-%N-%u_%2a.out --error=logs/%N-%A-%a.err --export=ALL,FOO=bar\n"
        f'echo "$FOO" >&2\n{SEEN}',
    )

    added = world.dibs("add", "-q", "--on", place, "-f", "job.sh", timeout=60)
    over = first, _ = there.wait_for(1, 2)
    nodes = [(one["attempts_list"][0]["node"] or host, one["array"]["task"]) for one in over]

    assert added.stdout == "1-2\n"
    said = f"{world.folder}|my-job|1|1|1|2|3 of 2|0\n"
    assert world.client().log(1).data == os.fsencode(said), Path(first["stderr"]).read_text()
    assert (world.read("node") == f"id{host}\n") is (place == "local")
    written = {path.name for path in (world.folder / "logs").iterdir()}
    errors = {f"{node}-1-{task}.err" for node, task in nodes}
    assert written == errors | {f"my-job-{node}-{getpass.getuser()}_{task:02}.out" for node, task in nodes}
    assert world.client().log(1, stream="stderr").data == b"bar\n"
    seen = {one.partition("=")[0] for one in world.read("environment").split("\0")}
    assert documented_variables() - seen == (NOT_OF_SLURM if place == "slurm" else set())
    there.assert_nothing_is_left()


def documented_variables() -> set[str]:
    """Those that docs/slurm.md promises; `_COUNT` stands for the name before it with another end."""
    text = (Path(__file__).parents[2] / "docs/slurm.md").read_text()
    found: list[str] = []
    for line in text.partition("#### Variables")[2].partition("\n#")[0].splitlines():
        for name in re.findall(r"`(\w+)`", line.partition("| ")[2].partition(" |")[0]):
            found.append(f"{found[-1].rpartition('_')[0]}{name}" if name.startswith("_") else name)
    return set(found)


def test_squeue_shows_the_jobs_own_name_and_folder(there: Afar) -> None:
    world = there.world
    there.daemon()
    first = there.add("-J", "first one", "--", HOLD)
    there.wait_until_up(first)

    second = there.add("-J", "second", "--array", "1-2", "--", f'echo "$SLURM_JOB_NAME $SLURM_SUBMIT_DIR"; {HOLD}')
    there.wait_until_up(second, second + 1)
    names = sorted(there.slurm.ask("squeue", "-h", "-r", "-o", "%j").splitlines())
    folders = there.slurm.ask("squeue", "-h", "-r", "-o", "%Z")
    there.let_go()
    over = there.wait_for(first, second, second + 1)

    # Behind it stands the mark: it must not get lost where something rewrites the comment.
    assert [name.partition(".dibs-")[0] for name in names] == ["first one", "second", "second"]
    assert folders.count(os.fsencode(world.folder).decode(errors="replace")) == 3
    assert [one["state"] for one in over] == ["succeeded"] * 3
    assert world.client().log(second).data == os.fsencode(f"second {world.folder}\n")
    there.assert_nothing_is_left()


def test_a_restartable_job_whose_place_was_taken_is_queued_again(there: Afar) -> None:
    there.daemon()
    job = there.add("--restartable", "--nodelist", "n1", "-n", "2", "--", f"echo start >> starts; {HOLD}")
    there.wait_until_up(job)

    there.slurm.ask("sbatch", "-p", "urgent", "-w", "n1", "--gres=gpu:2", "-o", "/dev/null", "--wrap", "sleep 1")
    wait_until(lambda: there.world.read("starts") == "start\n" * 2, show=lambda: there.job(job), seconds=PATIENCE)
    there.let_go()
    [over] = there.wait_for(job)

    assert (over["state"], over["attempts"]) == ("succeeded", 2)
    assert "a job that goes first took its place" in over["attempts_list"][0]["message"]
    there.assert_nothing_is_left()


def test_a_node_that_fails_is_named_in_the_list_of_jobs_at_once(there: Afar) -> None:
    """While the record of its end may still come, too."""
    there.daemon(env={"DIBS_SLURM_PATIENCE": "10s"})
    job = there.add("--nodelist", "n1", "-n", "0", "--", HOLD)
    there.wait_until_up(job)

    there.slurm.kill_node("n1")
    wait_until(
        lambda: "its node failed (n1)" in there.world.dibs("ls").stdout, show=there.squeue, seconds=PATIENCE
    )
    state = there.job(job)["state"]
    there.slurm.start_node("n1")
    there.wait_until("lost", job)
    listed = there.world.dibs("ls").stdout
    wait_until(lambda: "idle" in there.slurm.ask("sinfo", "-h", "-n", "n1", "-o", "%T"), seconds=PATIENCE)

    assert state == "running"
    assert "its node failed (n1)" in listed, listed
    there.assert_nothing_is_left()


def test_a_node_that_an_operator_sets_down_has_failed_for_its_jobs(there: Afar) -> None:
    world, slurm = there.world, there.slurm
    there.daemon()
    lost = there.add("--nodelist", "n1", "-n", "0", "--", HOLD)
    saves = f"trap 'exit 3' TERM; {HOLD}"
    polite = there.add("--nodelist", "n1", "-n", "0", "--", saves)
    again = there.add("--restartable", "--nodelist", "n1", "-n", "0", "--", f"echo start >> starts; {HOLD}")
    there.wait_until_up(lost, polite, again)
    there.wait_until("running", lost, polite, again)

    slurm.ask("scontrol", "update", "nodename=n1", "state=down", "reason=repair")
    over = there.wait_for(lost, polite)
    slurm.ask("scontrol", "update", "nodename=n1", "state=resume")
    wait_until(lambda: world.read("starts") == "start\n" * 2, show=lambda: there.job(again), seconds=PATIENCE)
    there.let_go()
    [restarted] = there.wait_for(again)

    assert [(one["state"], one["cause"], one["message"]) for one in over] == [
        ("lost", "lost", "its node failed (n1)")
    ] * 2
    assert (restarted["state"], restarted["attempts"]) == ("succeeded", 2)
    there.assert_nothing_is_left()


# -- looking -----------------------------------------------------------------------------------------------


def test_the_log_is_followed_while_it_runs_there(there: Afar) -> None:
    there.daemon()
    job = there.add("--", f"echo first; {HOLD}; echo last")
    following = there.world.start("log", "-f", str(job))

    wait_until(lambda: following.stdout == "first\n", show=lambda: following.stdout, seconds=PATIENCE)
    there.let_go()
    ended = following.wait(PATIENCE)

    assert (ended.status, ended.stdout) == (0, "first\nlast\n")
    there.assert_nothing_is_left()


def test_why_tells_what_slurm_waits_for_the_lower_priority_goes_last_and_who_is_held_waits_on(there: Afar) -> None:
    there.daemon()
    full = there.fill()
    low = there.add("--priority", "-5", "--", there.world.ledger.job("low"))
    high = there.add("--", there.world.ledger.job("high"))
    wait_until(lambda: len(there.squeue()) == 5, show=there.squeue, seconds=PATIENCE)
    there.wait_until("submitted", low, high)

    def told(number: int) -> str:
        return there.world.dibs("why", str(number)).stdout

    wait_until(lambda: "other jobs" in told(high), show=lambda: told(high), seconds=PATIENCE)
    nices = dict(line.split() for line in there.slurm.ask("squeue", "-h", "-o", "%j %y").splitlines())
    counted = json.loads(there.world.dibs("ls", "--json").stdout)
    held = there.world.dibs("hold", str(low))
    wait_until(
        lambda: "is held at Slurm: held by its owner" in told(low), show=lambda: told(low), seconds=PATIENCE
    )
    there.world.dibs("daemon", "restart")
    wait_until(
        lambda: "is held at Slurm: held by its owner" in told(low), show=lambda: told(low), seconds=PATIENCE
    )
    listed = there.world.dibs("ls").stdout
    informed = there.world.dibs("info", str(low)).stdout
    there.let_go()
    there.wait_for(*full, high)
    held_there = there.slurm.ask("squeue", "-h", "-o", "%r").split()
    released = there.world.dibs("release", str(low))
    over = there.wait_for(*full, low, high)

    (mark,) = {name.removeprefix("dibs-").split("-")[0] for name in nices}
    assert int(nices[f"dibs-{mark}-{low}.1"]) > int(nices[f"dibs-{mark}-{high}.1"]) == 0
    assert Counter(job["state"] for job in counted["jobs"]) == {"running": 3, "submitted": 2}
    assert (held.status, released.status, held_there) == (0, 0, ["JobHeldUser"]), (held, released)
    assert "is held at Slurm" in listed and "is held at Slurm" in informed, (listed, informed)
    assert {one["state"] for one in over} == {"succeeded"}
    there.assert_nothing_is_left()


# -- ending ------------------------------------------------------------------------------------------------

# Ignores TERM, and so does what it leaves behind: in sessions of their own, forked twice, one without environment.
HOSTILE = """\
import os, signal, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
for kind in range(3):
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            if kind == 1:
                os.execve(sys.executable, [sys.executable, "-c", "import time; time.sleep(1000)", os.getcwd()], {})
            time.sleep(1000)
        time.sleep(1000 if kind == 2 else 0)
        os._exit(0)
open("up-" + os.environ["DIBS_JOB_ID"], "w").close()
time.sleep(1000)
"""


def test_a_kill_ends_what_waits_there_what_runs_there_and_whatever_it_left_behind(there: Afar) -> None:
    there.daemon()
    there.world.write("hostile.py", HOSTILE)
    hostile = there.add("-n", "2", "--grace", "0.5s", "--", f"{sys.executable} hostile.py")
    trap = "trap 'touch asked; until test -e listed; do sleep 0.05; done; exit 0' TERM"
    polite = there.add("-n", "2", "--grace", "60s", "--", f"{trap}; {HOLD}")
    last = there.add("-n", "2", "--", HOLD)
    there.wait_until_up(hostile, polite, last)
    waiting = there.add("--", there.world.ledger.job("waiting"))
    wait_until(lambda: len(there.squeue()) == 4, show=there.squeue, seconds=PATIENCE)
    before = _descendants(there.world)

    killed = there.world.dibs("kill", str(hostile), str(polite), str(waiting))
    wait_until((there.world.folder / "asked").exists, seconds=PATIENCE)
    listed = there.world.dibs("ls", str(polite)).stdout
    there.world.write("listed", "")
    over = there.wait_for(hostile, polite, waiting)
    left = _descendants(there.world)
    there.let_go()
    [spared] = there.wait_for(last)

    assert killed.status == 0, killed
    assert len(before) >= 5, before
    assert left == {}
    assert [one["state"] for one in over] == ["cancelled"] * 3
    assert "ending" in listed and "running" not in listed, listed
    assert spared["state"] == "succeeded"
    assert there.world.ledger.started() == []
    there.assert_nothing_is_left()


def _descendants(world: World) -> dict[int, str]:
    """What the hostile one has started; one of them has nothing but its folder to tell whose it is."""
    return {
        pid: line
        for pid, line in processes_of(str(world.folder)).items()
        if "hostile.py" in line or "time.sleep" in line
    }


def test_suspend_and_resume_leave_what_is_there_as_it_is_and_say_why(there: Afar) -> None:
    there.daemon()
    runs, elements = there.add("-n", "0", "--", HOLD), there.add("-n", "0", "--array", "1-2", "--", HOLD)
    held, over = there.add("--hold", "--", "true"), there.add("-n", "0", "--", "true")
    there.wait_for(over)
    there.wait_until("running", runs, elements, elements + 1)

    def told(verb: str, *jobs: int) -> list[str]:
        done = there.world.dibs(verb, *map(str, jobs))
        assert (done.status, done.stdout) == (1, ""), done
        return [line.partition(" was left as it is: ")[2] for line in done.stderr.splitlines()]

    suspended, resumed = told("suspend", runs, elements, elements + 1, held, over), told("resume", runs, held)
    states = [there.job(number)["state"] for number in (runs, elements, elements + 1, held)]
    there.world.dibs("kill", str(held))
    there.let_go()
    ended = there.wait_for(runs, elements, elements + 1)

    away = "it runs on Slurm, and only jobs of this machine are suspended; `scontrol` is for that"
    assert suspended == [away] * 3 + ["it has not started, and is held", "it is over"]
    assert resumed == ["it is not suspended; it is running", "it is not suspended; it is held"]
    assert states == ["running"] * 3 + ["held"]
    assert {one["state"] for one in ended} == {"succeeded"}
    there.assert_nothing_is_left()


def test_one_that_is_killed_at_once_after_it_was_added_never_runs(there: Afar) -> None:
    there.daemon()
    ledger = there.world.ledger
    full = there.fill()  # a slow machine could have run them before they are killed
    added = [there.add("--", ledger.job("early")), there.add("--array", "1-3", "--", ledger.job("early"))]
    jobs = [added[0], *range(added[1], added[1] + 3)]

    there.world.client().act("kill", ids=jobs)
    over = there.wait_for(*jobs)
    there.let_go()
    there.wait_for(*full)

    assert {one["state"] for one in over} == {"cancelled"}, over
    assert ledger.started() == []
    there.assert_nothing_is_left()


# -- arrays ------------------------------------------------------------------------------------------------


def test_a_thousand_jobs_are_one_array_of_slurms_and_what_does_not_run_can_be_ended(there: Afar) -> None:
    there.world.environ["DIBS_SLURM_MOST_JOBS"] = "1003"
    there.daemon()
    full = there.fill()
    first = there.add("--array", "1-1000", "--", 'echo $DIBS_ARRAY_TASK_ID >> "$LEDGER"')
    wait_until(lambda: len(there.squeue()) == 1003, show=lambda: len(there.squeue()), seconds=PATIENCE)
    arrays = set(there.slurm.ask("squeue", "-h", "-r", "-o", "%F %j", "--state=PENDING").splitlines())

    there.let_go()
    wait_until(lambda: len(_lines(there.world)) >= 20, show=there.squeue, seconds=PATIENCE)
    killed = there.world.dibs("kill", f"{first}-{first + 999}", timeout=60)
    over = there.wait_for(*full, *range(first, first + 1000))[3:]

    ran = Counter(_lines(there.world))
    states = Counter(one["state"] for one in over)
    assert len(arrays) == 1 and arrays.pop().endswith(f"-{first}.1")
    assert killed.status == 0
    assert states["succeeded"] >= 20 and states["succeeded"] + states["cancelled"] == 1000, states
    assert max(ran.values()) == 1
    assert {int(task) for task in ran} >= {one["array"]["task"] for one in over if one["state"] == "succeeded"}
    there.assert_nothing_is_left()


def _lines(world: World) -> list[str]:
    return world.ledger.path.read_text().split() if world.ledger.path.exists() else []


def test_of_an_array_no_more_run_at_once_than_it_says_and_a_retry_is_a_job_by_itself(there: Afar) -> None:
    there.daemon()
    line = (
        'echo start $DIBS_ARRAY_TASK_ID - - >> "$LEDGER"; echo $SLURM_JOB_NAME >> names; sleep 0.3;'
        ' echo end $DIBS_ARRAY_TASK_ID - - >> "$LEDGER"; test $DIBS_ARRAY_TASK_ID.$DIBS_ATTEMPT != 3.1'
    )
    first = there.add("--array", "1-5%2", "--retries", "1", "--", line)

    over = there.wait_for(*range(first, first + 5))

    names = Counter(name.split("-", 2)[2] for name in there.world.read("names").split())
    assert {one["state"] for one in over} == {"succeeded"}
    assert [one["attempts"] for one in over] == [1, 1, 2, 1, 1]
    assert there.world.ledger.most_at_once() <= 2
    assert names == {f"{first}.1": 5, f"{first}_3.2": 1}
    there.assert_nothing_is_left()


# -- sweeps and Python -------------------------------------------------------------------------------------


def test_a_sweep_runs_there_and_knows_its_results(there: Afar) -> None:
    there.daemon()
    line = 'test -n "$SLURM_JOB_ID" && echo loss=$(({x} * {x})) >> "$DIBS_METRICS"'

    done = there.world.dibs(
        *("sweep", line, "-p", "x", "-1", "2", "3", "-n", "0", "--on", "slurm", "--metric", "loss", "--wait"),
        timeout=PATIENCE,
    )

    assert done.status == 0, done
    assert "3 complete; best loss 1" in done.stderr
    assert {job["on"] for job in there.world.client().jobs()} == {"slurm"}
    there.assert_nothing_is_left()


def test_python_submits_there(there: Afar) -> None:
    there.daemon()
    program = (
        "import dibs\n"
        "job = dibs.submit('echo at $SLURMD_NODENAME; exit 2', on='slurm', partition='gpu')\n"
        "try: job.result(100)\n"
        "except dibs.JobFailed as error: print(error.exit_code, job.log())\n"
    )

    done = there.world.dibs("-c", program, program=(sys.executable,), timeout=PATIENCE)

    assert done.stdout.startswith("2 at n"), done
    there.assert_nothing_is_left()


# -- what cannot be ----------------------------------------------------------------------------------------


def test_what_slurm_would_never_take_is_refused_at_once_and_nothing_is_stored(there: Afar) -> None:
    there.daemon()
    asked = {
        "there is no partition nowhere": ("--partition", "nowhere"),
        "no node has GPUs of type a100": ("--gpu-type", "a100"),
        "no node has 3 GPUs; the most is 2": ("-n", "3"),
        "no node has the feature odd": ("--constraint", "odd"),
    }

    said = {
        sentence: there.world.dibs("add", "--on", "slurm", *words, "--", "true", timeout=60)
        for sentence, words in asked.items()
    }

    for sentence, ended in said.items():
        assert ended.status == 2, ended
        assert ended.stderr.startswith(f"dibs: error: cannot run this on Slurm: {sentence}\n"), ended.stderr
        assert len(ended.stderr.splitlines()) == 2
    assert list(there.world.client().jobs()) == []
    there.assert_nothing_is_left()


def test_where_there_is_no_slurm_that_is_said_in_a_sentence(there: Afar) -> None:
    del there.world.environ["SLURM_CONF"]
    empty = there.world.folder.parent / "no slurm"
    empty.mkdir()
    there.world.environ["PATH"] = f"{empty}"
    there.daemon()

    ended = there.world.dibs("add", "--on", "slurm", "--", "true")
    near = there.world.dibs("add", "-q", "--", "true")

    assert ended.status == 69, ended
    assert ended.stderr.startswith("dibs: error: cannot use Slurm: "), ended.stderr
    assert len(ended.stderr.splitlines()) == 2
    assert (near.status, near.stdout) == (0, "1\n")
    there.assert_nothing_is_left()


def test_while_nobody_answers_a_job_is_taken_and_waits_and_runs_when_somebody_does(there: Afar) -> None:
    daemon = there.daemon()
    before = there.add("--", HOLD)
    there.wait_until("running", before)
    os.kill(_controller(there.slurm), signal.SIGSTOP)
    try:
        added = there.world.dibs("add", "-q", "--on", "slurm", "--", there.world.ledger.job("late"), timeout=60)
        job = int(added.stdout)
        there.wait_until("queued", job)
        why = there.world.dibs("why", str(job)).stdout
        edited = there.world.dibs("edit", str(job), "-J", "edited")
        held = there.world.dibs("hold", str(job))
        released = there.world.dibs("release", str(job))
        doomed = there.world.add("--on", "slurm", "--", there.world.ledger.job("doomed"))
        killed = there.world.dibs("kill", str(doomed))
        listed = there.world.dibs("ls")
        still = there.job(before)["state"]
        there.wait_until("cancelled", doomed)
    finally:
        os.kill(_controller(there.slurm), signal.SIGCONT)
    there.let_go()
    over = there.wait_for(before, job, doomed)

    assert added.status == 0, added
    assert added.stderr.startswith("dibs: cannot reach Slurm's controller: ") and added.stderr.count("\n") == 1
    assert "cannot reach Slurm's controller" in why
    assert [one.status for one in (edited, held, released)] == [0, 0, 0], (edited, held, released)
    assert there.job(job)["name"] == "edited"
    assert (killed.status, listed.status, still) == (0, 0, "running")
    assert [one["state"] for one in over] == ["succeeded", "succeeded", "cancelled"]
    assert there.world.ledger.started() == ["late"]
    assert "Traceback" not in daemon.stderr
    there.assert_nothing_is_left()


def _controller(slurm: PrivateSlurm) -> int:
    return int((slurm.folder / "run/slurmctld.pid").read_text())


# -- afterwards --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("is_shared", [False, True], ids=["own folder", "shared folder"])
def test_clean_removes_the_folders_of_what_ran_there(there: Afar, is_shared: bool) -> None:
    root, folders = there.world.state / "queue", "attempts/0/*"
    if is_shared:
        folders = f"q*/{folders}"  # other queues may share it
        root = there.world.folder.parent / "shared €\udcfd"
        there.world.environ["DIBS_SLURM_ROOT"] = str(root)
    there.daemon()
    job = there.add("--", "echo hi")
    there.wait_for(job)
    attempts = [path.name for path in root.glob(folders)]
    said = there.world.client().log(job).data

    cleaned = there.world.dibs("clean", "--yes")
    wait_until(lambda: not list(root.glob(folders)), show=lambda: list(root.rglob("*")))

    assert attempts == [f"{job}.1"]
    assert said == b"hi\n"
    assert cleaned.status == 0, cleaned
    assert [path.name for path in (root / "slurm").iterdir()] == []
    there.assert_nothing_is_left()


def test_a_rebuilt_queue_finds_what_runs_there_again(there: Afar) -> None:
    there.daemon()
    full = there.fill()
    job = there.add("--", f"{HOLD}; {there.world.ledger.job('waited', status=5)}")
    array = there.add("--array", "4-5", "--", there.world.ledger.job("element"))
    done = there.world.add("--", "exit 6")
    there.wait_for(done)
    wait_until(lambda: len(there.squeue()) == 6, show=there.squeue, seconds=PATIENCE)
    there.wait_until("running", *full)
    before = _seen(there)
    there.world.dibs("daemon", "stop")

    (there.world.state / "queue/store.db").unlink()
    rebuilt = there.world.dibs("doctor", "--rebuild", "--yes")
    there.daemon()
    again = _seen(there)
    there.let_go()
    over = there.wait_for(*full, job, array, array + 1)

    assert rebuilt.status == 0, rebuilt
    assert again == before
    assert [one["exit_code"] for one in over] == [0, 0, 0, 5, 0, 0]
    assert {one["attempts"] for one in over} == {1}
    assert Counter(there.world.ledger.started()) == {"waited": 1, "element": 2}
    there.assert_nothing_is_left()


def _seen(there: Afar) -> list[dict[str, object]]:
    return sorted(there.world.client().jobs(), key=lambda job: job["id"])


def test_a_daemon_that_ends_with_its_jobs_ends_those_there_too(there: Afar) -> None:
    there.daemon()
    full = there.fill()
    there.add("--", there.world.ledger.job("waiting"))

    stopped = there.world.dibs("daemon", "stop", "--jobs", timeout=PATIENCE)

    assert stopped.status == 0, stopped
    wait_until(lambda: not there.squeue(), show=there.squeue, seconds=PATIENCE)
    there.world.assert_nothing_is_left()
    there.daemon()
    assert [there.job(number)["state"] for number in full] == ["cancelled"] * 3
    there.let_go()
    there.world.dibs("wait", "4", timeout=PATIENCE)
    there.assert_nothing_is_left()


def test_an_image_is_run_by_apptainer_where_the_site_has_no_pyxis(there: Afar, engines: PrivateEngines) -> None:
    image = engines.image_for("apptainer")
    there.daemon()
    line = 'head -n 1 /etc/passwd; echo "$STAND_IN_CARDS $SEED"; echo loss=1 > "$DIBS_METRICS"; exit 3'

    job = there.add("--image", image, "--env", "SEED=7", "--", line, env=engines.environment)
    [over] = there.wait_for(job)

    assert over["exit_code"] == 3, Path(over["stderr"]).read_text()
    assert Path(over["stdout"]).read_text() == "root:x:0:0::/:/bin/sh\n--nv 7\n"
    assert (Path(over["folder"]) / "metrics").read_text() == "loss=1\n"


def test_pyxis_changes_nothing_but_the_root(plain: Afar, engines: PrivateEngines) -> None:
    """Slurm parses the options and starts the command, beside our shim: one test, as most of it is waiting."""
    world, slurm = plain.world, plain.slurm
    world.write("seen", "from outside\n")
    data = world.folder.parent / "data"
    data.mkdir()
    (data / "x").write_text("content\n")
    script = """
        pwd; cat seen; id -u; echo "$TOKEN,$MINE,$OF_IMAGE,$LD_LIBRARY_PATH,$CUDA_VISIBLE_DEVICES,$PATH"; umask
        cat /etc/passwd; echo made > made; echo loss=0.5 > $DIBS_METRICS; exit 3
    """
    stubborn = "trap '' TERM; busybox dd if=/dev/zero bs=64M count=1 | (sleep 2; cat > /dev/null); sleep 600"
    child = 'trap "echo child" TERM; echo ready; while :; do sleep 0.05; done'
    stopped = f"trap 'echo parent; sleep 0.3; exit 7' TERM; sh -c '{child}' & wait"
    saving = "trap 'echo saved; exit 0' USR1; while :; do sleep 0.05; done"
    variables = {"TOKEN": "a b $c", "LD_LIBRARY_PATH": "/host/lib", "OF_IMAGE": "of the host"}
    jobs = {
        "own": ("-n", "1", "--cpus", "2", "--env", "MINE=1", "--", script),
        "path": ("--env", "PATH=/mine:/bin", "--", 'echo "$PATH"'),
        "signalled": ("--", "sh", "-c", "kill -11 $$; sleep 9"),
        "missing": ("--", "no-such-program"),
        "mounted": ("--mount", f"{data}:/mnt/data:ro", "--", "sh", "-c", "cat /mnt/data/x; touch /mnt/data/y"),
        "no_image": ("--image", "registry.example/no/such", "--", "true"),
        "limited": ("-t", "4s", "--grace", "0.2s", "--", "sh", "-c", stubborn),
        "saved": ("-t", "8s", "--checkpoint-signal", "USR1@5", "--", "sh", "-c", saving),
        "killed": ("--grace", "5s", "--", "sh", "-c", stopped),
    }
    with pyxis_in(slurm, engines) as image:
        plain.daemon()
        number = {name: plain.add("--image", image, *words, env=variables) for name, words in jobs.items()}
        odd = ("--on", "slurm", "--image", image, "--mount", f"{data}:/mnt/a b")
        held = str(plain.add("--image", image, "--hold", "--", "true"))
        refused = [
            world.dibs(*words, timeout=60) for words in (("add", *odd, "--", "true"), ("edit", held, *odd[4:]))
        ]
        plain.wait_for_output(number["killed"], "ready")
        world.dibs("kill", held, str(number["killed"]))
        saved = number["saved"]
        wait_until(lambda: plain.job(saved)["attempts"] > 1, show=lambda: plain.job(saved), seconds=PATIENCE)
        world.dibs("kill", str(saved))
        over = dict(zip(jobs, plain.wait_for(*number.values()), strict=True))
        asked = asked_of_pyxis(slurm)
        wait_until(lambda: not plain.squeue(), show=plain.squeue, seconds=PATIENCE)
        wait_until(lambda: not containers_of_pyxis(slurm), show=lambda: containers_of_pyxis(slurm))

    said = {name: plain.output(job) for name, job in over.items()}
    lines = said["own"].splitlines()
    assert lines[:3] == [str(world.folder), "from outside", str(os.geteuid())], over["own"]
    assert lines[3:] == ["a b $c,1,of the host,,0,/bin", "0022", "root:x:0:0::/:/bin/sh"]
    assert (over["own"]["cause"], over["own"]["exit_code"]) == ("exit code", 3)
    assert world.read("made") == "made\n"
    assert (Path(over["own"]["folder"]) / "metrics").read_text() == "loss=0.5\n"
    assert said["path"] == "/mine:/bin\n"
    assert (over["signalled"]["cause"], over["signalled"]["signal"]) == ("signal", 11)
    assert (over["missing"]["cause"], over["missing"]["exit_code"]) == ("start error", 127)
    assert "no-such-program" in over["missing"]["message"]
    assert (said["mounted"], over["mounted"]["exit_code"], (data / "y").exists()) == ("content\n", 1, False)
    for odd in refused:
        assert odd.status == 2 and "pyxis cannot mount '/mnt/a b'" in odd.stderr, odd
    assert over["no_image"]["cause"] == "start error" and "failed to import" in over["no_image"]["message"]
    [used] = over["limited"]["attempts_list"]
    assert over["limited"]["state"] == "timed_out"
    assert 64 << 20 <= used["max_rss_bytes"] < 1 << 30, used
    assert Path(over["saved"]["attempts_list"][0]["folder"], "stdout").read_text() == "saved\n"
    assert over["killed"]["state"] == "cancelled"
    assert sorted(said["killed"].split()) == ["child", "parent", "ready"]  # each process heard it once
    assert {one["remap_root"] for one in asked} == {"no"}
    assert {one["image"] for one in asked} == {"box", "registry.example#no/such"}
