"""A day with the queue, from the outside: look, follow, change, repeat. A real daemon, declared GPUs."""

import json
import os
import re
import signal
from pathlib import Path

import pytest

from stories.outside import World, is_talking, wait_until
from stories.terminal import Session


@pytest.fixture
def queue(world: World) -> "Queue":
    """A queue with two GPUs of its own. The world ends its daemon."""
    world.environ["DIBS_POOL"] = "0,1"
    return Queue(world)


class Queue:
    """What a person types, and what a program reads."""

    def __init__(self, world: World) -> None:
        self.world = world

    def __call__(self, *words, **more):
        return self.world.dibs(*words, **more)

    def add(self, *words):
        done = self("add", "--parsable", *words)
        assert done.status == 0, done.stderr
        return done.stdout.strip()

    def job(self, reference):
        return json.loads(self("info", "--json", str(reference)).stdout)

    def state(self, reference):
        return self.job(reference)["state"]

    def wait_for(self, reference, state):
        wait_until(lambda: self.state(reference) == state, show=lambda: self.job(reference))


def test_the_exit_code_of_a_job_is_that_of_wait_and_of_many_the_highest(queue):
    fine, bad, killed = queue.add("--", "true"), queue.add("--", "exit 3;"), queue.add("--", "kill -9 $$;")

    statuses = [queue("wait", one).status for one in (fine, bad, killed)]

    assert statuses == [0, 3, 137]
    assert queue("wait", f"{fine}-{killed}").status == 137


def test_a_job_that_still_runs_after_the_timeout_is_75_and_one_beyond_its_limit_124(queue):
    long, limited = queue.add("--", "sleep", "60"), queue.add("-t", "1s", "--", "sleep", "60")

    assert queue("wait", long, "--timeout", "0.1s").status == 75
    assert queue("wait", limited).status == 124


def test_waiting_outlives_a_restart_of_the_daemon(queue, world):
    job = queue.add("--", "until test -e go; do sleep 0.05; done; exit 5;")
    queue.wait_for(job, "running")
    waiting = world.start("wait", job)
    follower = world.start("log", "-f", job)
    wait_until(lambda: is_talking(waiting.pid) and is_talking(follower.pid))

    os.kill(world.daemon_pid(), signal.SIGKILL)
    world.write("go", "")

    assert waiting.wait().status == 5
    assert follower.wait().status == 0


def test_those_who_look_do_not_start_a_daemon_that_was_stopped(queue, world):
    job = queue.add("--", "until test -e go; do sleep 0.05; done; exit 5;")
    queue.wait_for(job, "running")
    waiting, follower = world.start("wait", job), world.start("log", "-f", job)
    watcher = Session(world, "ls", "-w")
    watcher.expect("running")
    wait_until(lambda: is_talking(waiting.pid) and is_talking(follower.pid))

    assert queue("daemon", "stop").status == 0
    watcher.expect("the daemon is away")
    wait_until(lambda: "is away" in waiting.stderr and "is away" in follower.stderr)
    was_started = (world.state / "queue" / "socket").exists()
    queue("daemon", "start")
    world.write("go", "")

    assert not was_started
    assert waiting.wait().status == 5
    assert follower.wait().status == 0
    watcher.expect("failed: exit 5")
    watcher.close()


def test_ctrl_c_leaves_the_job_alone(queue, world):
    job = queue.add("--", "echo on; sleep 60;")
    queue.wait_for(job, "running")
    waiting, follower = world.start("wait", job), world.start("log", "-f", job)
    wait_until(lambda: is_talking(waiting.pid) and "on" in follower.stdout)

    waiting.signal(signal.SIGINT)
    follower.signal(signal.SIGINT)

    assert (waiting.wait().status, follower.wait().status) == (130, 0)
    assert queue.state(job) == "running"


def test_the_output_is_followed_from_before_the_start_to_the_end(queue, world):
    blockers = [queue.add("--", "sleep", "60") for _ in range(2)]
    job = queue.add("--", "echo one; sleep 0.5; echo two; echo three >&2;")
    follower = world.start("log", "-f", job)
    wait_until(lambda: "waits for" in follower.stderr, show=lambda: follower.stderr)

    queue("kill", *blockers)

    done = follower.wait()
    assert (done.status, done.stdout) == (0, "one\ntwo\n")
    assert "three\n" in done.stderr
    assert queue("log", "--err", job).stdout == "three\n"
    assert queue("log", "--lines", "1", job).stdout == "two\n"


def test_why_and_ls_and_info_say_the_same_sentence(queue):
    for _ in range(2):
        queue.add("--", "sleep", "60")
    job = queue.add("--", "true")
    queue.wait_for(1, "running")
    queue.wait_for(2, "running")

    sentence = json.loads(queue("why", "--json", job).stdout)["reason"]["sentence"]

    assert sentence.startswith("waits for ")
    for words in (("why", job), ("ls",), ("info", job)):
        assert sentence in queue(*words).stdout


def test_why_of_many_says_each_answer_once(queue):
    first = int(queue.add("--hold", "-J", "many", "--array", "1-30", "--", "true").partition("-")[0])
    queue("kill", str(first))
    other = int(queue.add("--begin", "tomorrow", "--", "true"))

    shown = sorted(queue("why", f"{first}-{other}").stdout.splitlines())
    told = json.loads(queue("why", "--json", f"{first}-{other}").stdout)

    assert shown[0] == f"1 job ({first}): cancelled"
    assert shown[1].startswith(f"1 job ({other}), the first of them: waits for its time")
    assert shown[2].startswith(f"29 jobs ({first + 1}-{first + 29}), the first of them: is held")
    assert len(shown) == 3
    assert {one["job"]: (one["state"], one["reason"] and one["reason"]["code"]) for one in told} == (
        {first: ("cancelled", None), other: ("queued", "begin")}
        | dict.fromkeys(range(first + 1, first + 30), ("held", "held"))
    )


def test_kill_ends_what_runs_and_what_waits(queue):
    jobs = [queue.add("--", "sleep", "60") for _ in range(3)]
    queue.wait_for(jobs[0], "running")

    done = queue("kill", f"{jobs[0]}-{jobs[2]}")

    assert done.status == 0
    assert queue("wait", *jobs).status == 143
    assert [queue.state(job) for job in jobs] == ["cancelled"] * 3
    assert queue("kill", jobs[0]).status == 1


def test_a_signal_reaches_the_command(queue, world):
    job = queue.add("--", 'trap "echo caught; exit 4" USR1; echo ready; while :; do sleep 0.05; done')
    wait_until(lambda: "ready" in queue("log", job).stdout)

    queue("kill", "--signal", "USR1", job)

    assert queue("wait", job).status == 4
    assert "caught" in queue("log", job).stdout


def test_what_failed_is_tried_again_under_its_number(queue, world):
    job = queue.add("--", "test -e fixed;")
    assert queue("wait", job).status == 1
    world.write("fixed", "")

    queue("retry", "--failed")

    assert queue("wait", job).status == 0
    assert [attempt["exit_code"] for attempt in queue.job(job)["attempts_list"]] == [1, 0]


def test_a_held_job_starts_when_it_is_released(queue):
    job = queue.add("--hold", "--", "true")
    assert queue.state(job) == "held"
    assert queue("wait", job, "--timeout", "0.3s").status == 75

    queue("release", job)

    assert queue("wait", job).status == 0


def test_a_paused_queue_starts_nothing_until_it_goes_on(queue):
    queue("pause")
    job = queue.add("--", "true")
    assert queue("wait", job, "--timeout", "0.3s").status == 75
    assert "paused" in queue("why", job).stdout

    queue("unpause")

    assert queue("wait", job).status == 0


def test_a_drained_gpu_gets_nothing_and_finishes_what_it_runs(queue, ledger):
    first = queue.add("--only", "0", "--", ledger.job("first", 60))
    queue.wait_for(first, "running")

    queue("gpus", "drain", "0")
    second = queue.add("--only", "0", "--", ledger.job("second"))
    marks = {one["index"]: one["mark"] for one in json.loads(queue("gpus", "--json").stdout)}

    assert marks[0] == "drained"
    assert queue("wait", second, "--timeout", "0.3s").status == 75
    assert queue.state(first) == "running"
    queue("kill", first)
    queue("gpus", "undrain", "0")
    assert queue("wait", second).status == 0


def test_an_edited_job_runs_what_it_was_changed_to(queue):
    queue("pause")
    job = queue.add("--", "echo old;")

    done = queue("edit", job, "--name", "new", "--priority", "5", "-t", "1h", "--", "echo new;")
    queue("unpause")

    assert done.status == 0
    assert queue("wait", job).status == 0
    assert queue("log", "new").stdout == "new\n"
    assert (queue.job(job)["priority"], queue.job(job)["time_limit_seconds"]) == (5, 3600.0)
    assert queue("edit", job, "--priority", "1").status == 1  # too late


def test_an_edited_job_has_the_variables_and_follows_the_jobs_that_it_was_given_later(queue, ledger):
    queue("pause")
    first = queue.add("--", ledger.job("first"))
    job = queue.add("--env", "A=1", "--env", "B=1", "--", f"echo $A$B; {ledger.job('second')}")

    done = queue("edit", job, "--env", "B=2", "--after", first, "--notify", "never", "--retry-on", "lost")
    queue("unpause")

    assert done.status == 0, done
    assert queue("wait", first, job).status == 0
    assert queue("log", job).stdout == "12\n"
    assert ledger.started() == ["first", "second"]
    assert (queue.job(job)["notify"], queue.job(job)["retry_on"]) == ("never", ["lost"])


def test_the_top_of_the_queue_is_the_next(queue, ledger):
    queue("pause")
    jobs = [queue.add("--only", "0", "--", ledger.job(name)) for name in ("a", "b", "c")]

    queue("edit", jobs[2], "--top")
    queue("unpause")

    assert queue("wait", *jobs).status == 0
    assert ledger.started() == ["c", "a", "b"]


def test_an_export_is_a_queue_that_can_be_imported_elsewhere(queue, tmp_path):
    queue("pause")
    first = queue.add("-J", "prepare", "--vram", "1G", "--", "printf '%s' \"ugly '$HOME'\";")
    queue.add("--after", first, "--tag", "x", "--", "echo", "b")
    queue.add("--array", "1-3%2", "--", "echo $DIBS_ARRAY_TASK_ID;")
    exported = queue("export").stdout

    done = queue("import", "-", input=exported)
    again = [json.loads(line) for line in queue("export", "6-10").stdout.splitlines()]

    assert done.status == 0, done.stderr
    before = [json.loads(line) for line in exported.splitlines()]
    for old, new in zip(before, again, strict=True):
        moved = {"after": [{**one, "job": one["job"] + 5} for one in old["after"]]}
        assert new == {**old, "id": old["id"] + 5, **moved}
    queue("unpause")
    assert queue("wait", "6-10").status == 0
    assert queue("log", "8_3").stdout == "3\n"


def test_clean_forgets_what_is_over_and_nothing_else(queue):
    done, running = queue.add("--", "true"), queue.add("--", "sleep", "60")
    queue("wait", done)
    folder = queue.job(done)["folder"]

    said = queue("clean", "--yes")

    assert said.stderr == "removed 1 job\n"
    assert queue("ls", "--ids", "--all").stdout == f"{running}\n"
    assert queue("info", done).status == 1
    wait_until(lambda: not Path(folder).exists() or not os.listdir(folder))


def test_references_mean_the_same_everywhere(queue):
    first = queue.add("-J", "train", "--", "echo first;")
    queue.add("--array", "1-2", "--", "echo task $DIBS_ARRAY_TASK_ID;")
    queue.add("--", "echo last;")
    queue("wait", "1-4")

    assert queue("log", "@").stdout == "last\n"
    assert queue("log", "@~3").stdout == "first\n"
    assert queue("log", "train").stdout == queue("log", first).stdout
    assert queue("log", "2_2").stdout == "task 2\n"
    assert queue("ls", "--ids", "2_", "1").stdout.split() == ["3", "2", "1"]
    assert queue("log", "no such job").status == 1


def test_hostile_text_is_shown_and_not_obeyed(queue, world):
    evil = "\x1b]52;c;aGk=\x07\x1b[2J\u202e\nx\udcff"
    job = queue.add("-J", evil, "-P", "../../x", "--tag", "\x1b[31m", "--", "printf", evil)
    assert queue("wait", job).status == 0

    for words in (("ls",), ("info", job), ("why", job), ("log", job), ("ls", "--all")):
        done = queue(*words)
        assert done.status == 0
        assert not re.search("[\x00-\x08\x0b-\x1f\x7f\u202e]", done.stdout.replace("\u202e\nx", ""))
    assert queue("log", "--raw", job).stdout == evil


def test_a_person_watches_the_queue(queue, world):
    job = queue.add("--", "sleep", "60")
    session = Session(world, "ls", "-w")
    try:
        session.expect("running")
        queue("kill", job)
        session.expect("cancelled")
        session.type("\x03")

        assert session.wait() == 0
    finally:
        session.close()
