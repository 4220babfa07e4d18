"""Processes that hold a card without asking dibs."""

import os
import pwd
import subprocess
import sys

import pytest

from dibs.gpus import processes
from dibs.gpus.processes import (
    BusyRules,
    ProcessOwners,
    attempt_folder_of,
    dibs_job_of,
    foreign_processes,
    pid_is_alive,
)
from dibs.model.gpus import Gpu, GpuProcess, GpuReading

NO_SUCH_PID = 2**22 + 1  # above the kernel's highest
ME = pwd.getpwuid(os.geteuid()).pw_name


def a_card_with(*processes):
    return GpuReading(gpu=Gpu(key="GPU-a", index=0), processes=processes)


def a_process(pid, user="ann", kind="compute", memory=None):
    return GpuProcess(pid=pid, user=user, memory=memory, kind=kind)


def test_a_compute_process_that_is_not_ours_is_foreign():
    ours, other = a_process(10), a_process(20)

    found = foreign_processes(a_card_with(ours, other), lambda pid: pid == 10, lambda _pid: True)

    assert found == (other,)


def test_who_only_draws_is_not_foreign():
    screen = a_process(10, user="root", kind="graphics")

    found = foreign_processes(a_card_with(screen), lambda _pid: False, lambda _pid: True)

    assert found == ()


@pytest.mark.parametrize(
    ("rules", "counted"),
    [
        (BusyRules(), {"small", "large", "unknown"}),
        (BusyRules(respect_graphics=True), {"small", "large", "unknown", "screen"}),
        (BusyRules(ignore_memory=200), {"large", "unknown"}),
        (BusyRules(respect_graphics=True, ignore_memory=100), {"small", "large", "unknown"}),
        (BusyRules(ignore_memory=101), {"large", "unknown"}),  # who holds as much is not overlooked
    ],
)
def test_the_rules_say_who_is_overlooked(rules, counted):
    processes = {
        "small": a_process(1, memory=100),
        "large": a_process(2, memory=1000),
        "unknown": a_process(3),
        "screen": a_process(4, kind="graphics", memory=50),
    }

    found = foreign_processes(a_card_with(*processes.values()), lambda _pid: False, lambda _pid: True, rules)

    assert found == tuple(process for name, process in processes.items() if name in counted)


def test_a_card_that_was_only_declared_has_no_foreign_process():
    card = a_card_with()

    found = foreign_processes(card, lambda _pid: False, lambda _pid: True)

    assert found == ()


@pytest.mark.parametrize(
    ("user", "alive", "counts"),
    [
        ("ann", True, True),
        ("ann", False, False),
        ("ann", None, False),  # in our sight when the card was read, and gone since
        (None, True, True),  # hidden in /proc, but the kernel knows it
        (None, False, False),
        (None, None, True),  # in another container: the reading is all we have
    ],
)
def test_only_who_may_still_be_alive_counts(user, alive, counts):
    process = a_process(10, user=user)

    found = foreign_processes(a_card_with(process), lambda _pid: False, lambda _pid: alive)

    assert found == ((process,) if counts else ())


@pytest.mark.parametrize("pid", [os.getpid(), 1], ids=["ours", "init"])
def test_a_running_process_is_alive_whichever_user_owns_it(pid):
    alive = pid_is_alive(pid)

    assert alive is True


def test_a_process_with_brackets_and_blanks_in_its_name_is_alive():
    rename = "open('/proc/self/comm', 'w').write('a) Z (b'); print(flush=True); input()"
    child = subprocess.Popen([sys.executable, "-c", rename], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    child.stdout.readline()

    alive = pid_is_alive(child.pid)

    child.communicate(b"\n", timeout=20)
    assert alive is True


def test_a_zombie_is_not_alive():
    child = subprocess.Popen(["true"])
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)

    alive = pid_is_alive(child.pid)

    child.wait()
    assert alive is False


@pytest.mark.parametrize(("sees_every_pid", "answer"), [(True, False), (False, None)])
def test_a_missing_pid_is_gone_only_where_every_pid_can_be_seen(monkeypatch, sees_every_pid, answer):
    monkeypatch.setattr(processes, "_sees_every_pid", lambda: sees_every_pid)

    alive = pid_is_alive(NO_SUCH_PID)

    assert alive is answer


@pytest.mark.parametrize("pid", [0, -1, 2**40])
def test_a_number_that_is_no_pid_is_unknown(monkeypatch, pid):
    monkeypatch.setattr(processes, "_sees_every_pid", lambda: False)

    alive = pid_is_alive(pid)

    assert alive is None


@pytest.fixture
def sleeping_with():
    """Starts processes with the given variables and ends them after the test."""
    children = []

    def start(**variables):
        child = subprocess.Popen(["cat"], env=variables, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        children.append(child)
        # Its environment is to be read once `cat` itself runs, and that is when it answers.
        child.stdin.write(b"awake?\n")
        child.stdin.flush()
        child.stdout.readline()
        return child.pid

    yield start
    for child in children:
        child.communicate()


@pytest.mark.parametrize(
    ("variables", "job"),
    [
        ({"DIBS_JOB_ID": "17", "DIBS_RUN": "brave-otter"}, "brave-otter/17"),
        ({"DIBS_JOB_ID": "17"}, "17"),
        ({"DIBS_RUN": "brave-otter"}, None),
        ({"DIBS_JOB_ID": ""}, None),
        ({}, None),
    ],
)
def test_a_process_of_ours_tells_its_job(sleeping_with, variables, job):
    pid = sleeping_with(**variables, PATH=os.environ["PATH"])

    answer = dibs_job_of(pid)

    assert answer == job


def test_a_process_that_is_not_there_has_no_job():
    job = dibs_job_of(NO_SUCH_PID)

    assert job is None
    assert attempt_folder_of(NO_SUCH_PID) is None


@pytest.mark.parametrize(
    ("variables", "folder"),
    [
        ({"DIBS_METRICS": "/state/attempts/0/17.1/metrics"}, "/state/attempts/0/17.1"),
        ({"DIBS_METRICS": "/somewhere"}, None),
        ({"DIBS_METRICS": "/data/metrics"}, None),
        ({}, None),
    ],
)
def test_a_process_of_ours_tells_its_attempt(sleeping_with, variables, folder):
    pid = sleeping_with(**variables, PATH=os.environ["PATH"])

    assert attempt_folder_of(pid) == folder


@pytest.fixture
def proc(tmp_path):
    def write(pid, name, started):
        folder = tmp_path / str(pid)
        folder.mkdir(exist_ok=True)
        between = " ".join(["0"] * 18)
        (folder / "stat").write_text(f"{pid} ({name}) S {between} {started} 1 1\n")

    write.root = str(tmp_path)
    return write


def test_a_process_has_a_user_and_a_name_with_anything_in_it(proc):
    proc(7, "a (b) c) d", 100)

    owner = ProcessOwners(proc.root).of(7)

    assert (owner.user, owner.name) == (ME, "a (b) c) d")


def test_what_is_known_is_not_looked_up_again(proc):
    proc(7, "train", 100)
    owners = ProcessOwners(proc.root)
    first = owners.of(7)
    proc(7, "another name", 100)

    assert owners.of(7) is first


def test_a_pid_that_comes_again_is_another_process(proc):
    proc(7, "train", 100)
    owners = ProcessOwners(proc.root)
    owners.of(7)
    proc(7, "bash", 200)

    assert owners.of(7).name == "bash"


@pytest.mark.parametrize("content", ["", "7 (a) S", "7"])
def test_what_cannot_be_read_has_no_owner(proc, content, tmp_path):
    (tmp_path / "8").mkdir()
    (tmp_path / "8" / "stat").write_text(content)

    assert ProcessOwners(proc.root).of(8) is None
    assert ProcessOwners(proc.root).of(9) is None


def test_our_own_process_is_ours():
    assert ProcessOwners().of(os.getpid()).user == ME


def test_not_every_process_is_remembered_for_ever(proc, monkeypatch):
    monkeypatch.setattr("dibs.gpus.processes._MOST_OWNERS", 3)
    owners = ProcessOwners(proc.root)
    for pid in range(1, 11):
        proc(pid, "x", pid)
        owners.of(pid)

    assert len(owners._known) <= 3
