"""What `dibs doctor` sees, says and leaves alone."""

import fcntl
import json
import os
import resource
import shutil
import socket
import subprocess
import sys
import threading
from pathlib import Path
from types import SimpleNamespace

import pytest

from cuda.machine import FakeMachine
from dibs.cli import doctor_checks, systemd
from dibs.cli.doctor_checks import OK, PROBLEM, WARNING, check_limits, check_login, check_up
from dibs.cluster.install import source_mark
from dibs.cluster.saved import Cluster, ClusterNode, remember
from dibs.model.jobs import State
from dibs.store.store import Store
from store.builders import a_request
from store.campaign import BAD, Books
from stories.outside import commands_for_shells, fill, kept_environment, needs_root
from stories.terminal import Session

NAMES = [
    *("settings", "state folder", "disk", "store", "journal", "daemon", "leases", "GPU driver", "limits", "login"),
]


@pytest.fixture
def environ(tmp_path):
    state = tmp_path / "state é\n"
    return kept_environment() | {
        "DIBS_STATE": str(state),
        "DIBS_LEASES": str(tmp_path / "leases"),
        "DIBS_PROBE": "none",
        "HOME": str(tmp_path),
    }


@pytest.fixture
def queue(environ):
    """A queue's folder with two jobs in it, one of which has failed."""
    state = Path(environ["DIBS_STATE"])
    state.mkdir(mode=0o700)
    (state / "queue").mkdir(mode=0o700)
    books = Books(str(state / "queue"))
    _, failed = books.add(a_request("waits"), a_request("fails"))
    books.end(books.start(failed.id), BAD)
    books.close()
    return state / "queue"


def everything_in(folder):
    return {
        str(path.relative_to(folder)): (path.stat().st_mode, path.read_bytes() if path.is_file() else None)
        for path in sorted(folder.rglob("*"))
    }


def states(environ):
    findings = check_up(environ)
    return {finding.name: finding.state for finding in sorted(findings, key=lambda one: one.state == PROBLEM)}


def finding(environ, name):
    return next(one for one in check_up(environ) if one.name == name)


# -- each check ----------------------------------------------------------------------------------------------


def test_a_machine_on_which_nothing_was_done_yet_has_no_problem(environ):
    found = states(environ)

    assert list(found) == NAMES
    assert PROBLEM not in found.values()
    assert not os.path.exists(environ["DIBS_STATE"])


def test_a_good_queue_is_good_and_stays_as_it_was(environ, queue):
    before = everything_in(queue)

    found = check_up(environ)

    assert [one.name for one in found if one.state == PROBLEM] == []
    assert "with 2 jobs" in finding(environ, "store").sentence
    assert finding(environ, "journal").sentence == "4 lines, all readable"
    assert everything_in(queue) == before


def test_a_log_that_a_killed_daemon_left_stays_where_it_is(environ, queue):
    store = Store(str(queue / "store.db"))
    with store.turn():
        store.queue.set("pool", "0,1")
    copy = {name: (queue / name).read_bytes() for name in ("store.db", "store.db-wal")}
    store.close()
    for name, content in copy.items():
        (queue / name).write_bytes(content)
    before = everything_in(queue)

    found = finding(environ, "store")

    assert found.state == OK
    assert everything_in(queue) == before


@pytest.mark.parametrize(
    ("break_it", "name", "says"),
    [
        pytest.param(lambda queue: os.truncate(queue / "store.db", 0), "store", "it is not a store", id="empty"),
        pytest.param(lambda queue: os.truncate(queue / "store.db", 9000), "store", "malformed", id="truncated"),
        pytest.param(lambda queue: os.unlink(queue / "store.db"), "store", "is gone, but its journal", id="gone"),
        pytest.param(lambda queue: os.chmod(queue.parent, 0o755), "state folder", "other users may", id="open"),
    ],
)
def test_what_is_broken_is_a_problem_with_something_to_do(environ, queue, break_it, name, says):
    break_it(queue)
    before = everything_in(queue)

    found = finding(environ, name)

    assert (found.state, says in found.sentence) == (PROBLEM, True), found
    assert found.remedy
    assert everything_in(queue) == before


def test_a_store_of_a_newer_dibs_is_told_from_a_damaged_one(environ, queue):
    store = Store(str(queue / "store.db"))
    store._db.execute("pragma user_version = 99")
    store.close()

    found = finding(environ, "store")

    assert (found.state, found.remedy) == (PROBLEM, "use that version again")


def test_damaged_lines_of_the_journal_are_counted(environ, queue):
    with (queue / "journal.jsonl").open("ab") as file:
        file.write(b"garbage\n{}\nhalf a line")

    found = finding(environ, "journal")

    assert (found.state, found.sentence.split(" lines")[0]) == (WARNING, "2 of 7")


def test_a_state_folder_on_the_network_is_a_problem(environ, queue, monkeypatch):
    monkeypatch.setattr(doctor_checks.paths, "network_file_system", lambda folder: "nfs4")

    found = finding(environ, "state folder")

    assert (found.state, "nfs4" in found.sentence) == (PROBLEM, True)


def test_a_home_on_the_network_is_avoided_and_that_is_said(environ, tmp_path, monkeypatch):
    monkeypatch.setattr(
        doctor_checks.paths,
        "network_file_system",
        lambda folder: "nfs4" if folder.startswith(str(tmp_path)) else "",
    )
    del environ["DIBS_STATE"]
    monkeypatch.setattr(doctor_checks.paths, "local_folder", lambda: "/var/tmp/nobody-has-this")

    found = finding(environ, "state folder")

    assert (found.state, found.sentence.endswith("so /var/tmp/nobody-has-this is used instead")) == (OK, True)


@pytest.mark.parametrize(
    ("free", "inodes", "state"),
    [(1 << 40, 1 << 20, OK), (1 << 28, 1 << 20, WARNING), (1 << 20, 1 << 20, PROBLEM), (1 << 40, 9, PROBLEM)],
)
def test_a_disk_that_is_nearly_full_is_named(environ, monkeypatch, free, inodes, state):
    class Disk:
        f_bavail, f_frsize, f_files, f_favail = free // 4096, 4096, 1 << 22, inodes

    monkeypatch.setattr(doctor_checks.os, "statvfs", lambda folder: Disk)

    assert finding(environ, "disk").state == state


def test_settings_that_cannot_be_read_are_a_problem(environ, tmp_path):
    (tmp_path / ".config/dibs").mkdir(parents=True)
    (tmp_path / ".config/dibs/config.toml").write_text("gpuss = 1\n")

    found = finding(environ, "settings")

    assert (found.state, "gpuss" in found.sentence) == (PROBLEM, True)


def test_whether_the_driver_can_suspend_jobs_is_said(environ, tmp_path):
    sentences = []
    for old in (False, True):
        machine = FakeMachine(tmp_path / f"machine {old}", old=old)
        found = check_up({**environ, **machine.environ})
        sentences += [one.sentence for one in found if one.name == "GPU driver" and "suspend" in one.sentence]

    assert sentences == [
        "this driver can suspend jobs",
        "this driver cannot suspend jobs: driver 550 is too old: 570 or newer",
    ]


def test_a_sick_driver_is_a_problem_and_hides_nothing_else(environ, tmp_path):
    found = states({**environ, "DIBS_PROBE": f"fake:{tmp_path}/missing.json"})

    assert found["GPU driver"] == PROBLEM
    assert list(found.values()).count(PROBLEM) == 1


def test_leases_of_ones_own_are_pointed_out(environ, tmp_path):
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o1777)

    alone, together = (finding(environ | more, "leases").state for more in ({}, {"DIBS_LEASES": str(shared)}))

    assert (alone, together) == (WARNING, OK)


# -- the daemon ----------------------------------------------------------------------------------------------


def test_a_socket_that_was_left_behind_is_no_problem(environ, queue):
    with socket.socket(socket.AF_UNIX) as left:
        here = os.open(queue, os.O_PATH)
        left.bind(f"/proc/self/fd/{here}/socket")
        os.close(here)

    found = finding(environ, "daemon")

    assert (found.state, "left behind" in found.sentence) == (OK, True)


def test_a_daemon_that_lives_but_does_not_listen_is_a_problem(environ, queue):
    with (queue / "lock").open("w") as lock:
        lock.write("4242")
        lock.flush()
        fcntl.flock(lock, fcntl.LOCK_EX)

        found = finding(environ, "daemon")
        store = finding(environ, "store")

    assert (found.state, "pid 4242" in found.sentence) == (PROBLEM, True)
    assert "in use by the daemon" in store.sentence


def test_a_daemon_that_does_not_answer_in_a_second_is_a_problem(environ, queue):
    with _a_listener(queue):
        found = finding(environ, "daemon")

    assert (found.state, "does not answer within 1 second" in found.sentence) == (PROBLEM, True)


@pytest.mark.parametrize(("version", "state"), [("0.0.1", WARNING), (None, OK)])
def test_a_daemon_of_another_version_is_pointed_out(environ, queue, version, state):
    from dibs.version import __version__

    body = json.dumps({"version": version or __version__, "pid": 7}).encode()
    head = b"HTTP/1.1 200 OK\r\nDibs-Version: 1\r\nContent-Length: %d\r\n\r\n" % len(body)
    with _a_listener(queue, head + body):
        found = finding(environ, "daemon")

    assert (found.state, "(pid 7)" in found.sentence) == (state, True)


# -- limits and login ----------------------------------------------------------------------------------------


def test_tight_limits_are_warned_of():
    code = (
        "import resource, sys; resource.setrlimit(resource.RLIMIT_NOFILE, (100, 100));"
        "from dibs.cli.doctor_checks import check_limits; print(check_limits({})[0].sentence)"
    )

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert done.stdout == "a process may open 100 files only\n"
    assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] < 256 or check_limits({})[0].state == OK


@pytest.fixture
def login(tmp_path):
    """A machine with systemd, as its programs tell it."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "systemd").mkdir()
    runtime = tmp_path / "runtime"
    runtime.mkdir(mode=0o700)

    def look(linger="yes", version="254", config=""):
        for name, text in (("loginctl", f"Linger={linger}"), ("systemctl", f"systemd {version} ({version}.4-1)")):
            program = tmp_path / "bin" / name
            program.write_text(f"#!/bin/sh\necho '{text}'\n")
            program.chmod(0o755)
        (tmp_path / "logind.conf").write_text(config)
        environ = {"PATH": str(tmp_path / "bin"), "XDG_RUNTIME_DIR": str(runtime)}
        return check_login(environ, running=str(tmp_path / "systemd"), logind=[str(tmp_path / "logind.conf")])

    return look


@pytest.mark.parametrize(
    ("machine", "says"),
    [
        ({}, ["linger is on, and processes may outlive a login"]),
        ({"linger": "no"}, ["linger is off, and processes may outlive a login"]),
        ({"version": "255"}, ["systemd#43361"]),
        ({"config": "# KillUserProcesses=no\n KillUserProcesses = yes\n"}, ["KillUserProcesses"]),
        ({"config": "KillUserProcesses=yes\nKillUserProcesses=no\n"}, ["linger is on"]),
    ],
)
def test_what_a_logout_would_do_is_told(login, machine, says):
    found = login(**machine)

    assert len(found) == len(says)
    for one, words in zip(found, says, strict=True):
        assert words in one.sentence
        assert one.state == OK or one.remedy


def test_a_program_that_hangs_is_not_waited_for(login, tmp_path, monkeypatch):
    monkeypatch.setattr(systemd, "_READ_SECONDS", 0.2)
    login()
    (tmp_path / "bin/loginctl").write_text("#!/bin/sh\nexec sleep 60\n")
    environ = {"PATH": str(tmp_path / "bin")}

    found = check_login(environ, running=str(tmp_path / "systemd"), logind=[])

    assert len(found) == 1


def test_where_there_is_no_systemd_nobody_is_asked(tmp_path):
    found = check_login({"PATH": ""}, running=str(tmp_path / "none"))

    assert [one.state for one in found] == [OK]


# -- the command ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("environment", ["nothing", "tiny path", "no home"])
def test_it_works_with_hardly_any_environment(environ, queue, environment):
    kept = {name: environ[name] for name in ("DIBS_STATE", "DIBS_LEASES", "DIBS_PROBE")}
    more = {"nothing": {}, "tiny path": {"PATH": "/nowhere"}, "no home": {"HOME": "/nowhere", "LC_ALL": "C"}}

    done = _doctor({**kept, **more[environment]})

    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    assert "store" in done.stdout


@needs_root
def test_a_store_that_cannot_be_checked_on_a_full_disk_need_not_be_rebuilt(environ, queue):
    disk = Path(environ["DIBS_STATE"]).with_name("disk")
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m,mode=700", "tmpfs", str(disk)], check=True)
    try:
        shutil.copytree(queue, disk / "queue")
        (disk / "queue").chmod(0o700)
        fill(disk)
        found = {one.name: one for one in check_up(environ | {"DIBS_STATE": str(disk)})}
    finally:
        subprocess.run(["umount", "-l", str(disk)], check=True)

    assert found["disk"].state == PROBLEM
    assert "cannot be checked now" in found["store"].sentence
    assert "`df -h`" in found["store"].remedy
    assert "--rebuild" not in found["store"].remedy


def test_a_problem_is_exit_status_1_and_json_says_the_same(environ, queue):
    os.truncate(queue / "store.db", 0)

    shown, as_json = _doctor(environ), _doctor(environ, "--json")

    found = {one["name"]: one for one in json.loads(as_json.stdout)}
    assert (shown.returncode, as_json.returncode) == (1, 1)
    assert list(found["store"]) == ["name", "state", "sentence", "remedy"]
    assert found["store"]["state"] == "problem"
    assert "dibs doctor --rebuild" in shown.stdout
    assert "Traceback" not in shown.stderr


def test_a_rebuild_is_not_begun_unasked(environ, queue):
    before = everything_in(queue)

    done = _doctor(environ, "--rebuild")

    assert done.returncode == 2
    assert "--yes" in done.stderr
    assert everything_in(queue) == before


def test_a_person_may_say_no(environ, queue, tmp_path):
    before = everything_in(queue)
    session = Session(SimpleNamespace(folder=tmp_path, environ=environ), "doctor", "--rebuild")

    session.expect("[y/N]")
    session.type("n\n")
    status = session.wait()
    session.close()

    assert status == 1
    assert everything_in(queue) == before


def test_a_rebuild_restores_the_jobs_and_says_where_the_old_store_is(environ, queue):
    os.truncate(queue / "store.db", 0)

    done = _doctor(environ, "--rebuild", "--yes")

    assert done.returncode == 0, done
    assert "restored 2 jobs and 1 attempts; the old store is" in done.stderr
    store = Store(str(queue / "store.db"))
    assert store.counts() == {State.QUEUED: 1, State.FAILED: 1}
    store.close()
    assert len(list(queue.glob("store.db.damaged-*"))) == 1


def test_what_could_not_be_restored_is_named(environ, queue):
    for file in (queue / "environments").iterdir():
        file.unlink()

    shown = _doctor(environ, "--rebuild", "--yes")
    as_json = _doctor(environ, "--rebuild", "--yes", "--json")

    assert shown.returncode == 1
    assert "missing: the environment of job 1-2 is gone" in shown.stderr
    assert json.loads(as_json.stdout)["missing"] == ["the environment of job 1-2 is gone"]


def test_a_rebuild_is_refused_while_a_daemon_works(environ, queue):
    with (queue / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)

        done = _doctor(environ, "--rebuild", "--yes")

    assert done.returncode == 2
    assert "a daemon works with it" in done.stderr


def test_there_must_be_something_to_rebuild(environ):
    done = _doctor(environ, "--rebuild", "--yes")

    assert done.returncode == 2
    assert "cannot find a queue" in done.stderr
    assert not os.path.exists(environ["DIBS_STATE"])


@needs_root
def test_a_state_folder_of_somebody_else_is_a_problem(environ, queue):
    os.chown(queue.parent, 65534, 65534)

    found = finding(environ, "state folder")

    assert (found.state, "belongs to uid 65534" in found.sentence) == (PROBLEM, True)


def _doctor(environ, *arguments):
    command = [shutil.which("dibs", path=commands_for_shells()), "doctor", *arguments]
    return subprocess.run(
        command, env=environ, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="surrogateescape"
    )


class _a_listener:
    """Listens at the daemon's socket and gives every caller the same answer, or none."""

    def __init__(self, queue, answer=b""):
        self._answer = answer
        self._socket = socket.socket(socket.AF_UNIX)
        here = os.open(queue, os.O_PATH)
        self._socket.bind(f"/proc/self/fd/{here}/socket")
        os.close(here)
        self._socket.listen()
        self._callers = []
        self._thread = threading.Thread(target=self._serve, daemon=True)

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *error):
        self._socket.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        for one in (self._socket, *self._callers):
            one.close()

    def _serve(self):
        while True:
            try:
                caller, _ = self._socket.accept()
            except OSError:
                return
            self._callers.append(caller)
            if self._answer:
                caller.recv(65536)
                caller.sendall(self._answer)


# -- Slurm -----------------------------------------------------------------------------------------------------


def about_slurm(environ):
    return [one for one in check_up(environ) if one.name == "Slurm"]


def test_nothing_is_said_of_a_slurm_that_nobody_uses(environ):
    assert about_slurm({**environ, "SLURM_CONF": "/nowhere"}) == []


def test_a_slurm_that_is_there_is_looked_at_though_nobody_has_used_it_yet(environ, slurm, tmp_path):
    theirs, silent = slurm.environment["SLURM_CONF"], tmp_path / "slurm.conf"
    silent.write_text("ClusterName=gone\nSlurmctldHost=nowhere.invalid\n")

    answers, *_ = about_slurm({**environ, "SLURM_CONF": theirs})
    does_not, *_ = about_slurm({**environ, "SLURM_CONF": str(silent)})

    assert (answers.state, does_not.state) == (OK, WARNING)


def test_a_slurm_that_answers_is_told_with_its_version_and_what_its_nodes_need(environ, slurm):
    environ |= {"DIBS_BACKEND": "slurm", "SLURM_CONF": slurm.environment["SLURM_CONF"]}

    answers, root, python, source = about_slurm(environ)

    assert answers.state == OK
    assert answers.sentence == f"its controller answers, version {slurm.ask('sinfo', '--version').split()[-1]}"
    assert (root.state, "which other machines may not see" in root.sentence) == (WARNING, True)
    assert (python.state, sys.executable in python.sentence) == (OK, True)
    assert (source.state, source.sentence.startswith("backends.slurm.source: ")) == (OK, True)


def test_what_slurms_nodes_lack_is_named_though_slurm_is_silent(environ, tmp_path):
    environ |= {
        "SLURM_CONF": f"{tmp_path}/none.conf",
        "DIBS_SLURM_ROOT": "/proc/here/no/folder/can/be",
        "DIBS_SLURM_PYTHON": f"{tmp_path}/python",
        "DIBS_SLURM_SOURCE": str(tmp_path),
    }

    answers, root, python, source = about_slurm(environ)

    assert (answers.state, "cannot use Slurm" in answers.sentence) == (PROBLEM, True)
    assert (python.state, "cannot be executed" in python.sentence) == (WARNING, True)
    assert (source.state, "the package dibs is not in it" in source.sentence) == (WARNING, True)
    assert all(one.remedy for one in (answers, root, python, source))


def test_hosts_of_a_cluster_that_have_another_version_are_told(environ, tmp_path):
    names = dict.fromkeys(("name", "host", "destination", "hostname", "address"), "a")
    node = ClusterNode(**names, cpus=1, memory_mib=1000)
    cluster = Cluster(
        name="cluster-1",
        base=f"{tmp_path}/cluster-1",
        local=f"{tmp_path}/local",
        uid=1,
        nodes=(node,),
        controller="a",
        ports=(1, 2),
        version="",
    )
    remember(environ, cluster)
    mark = tmp_path / "cluster-1" / "src" / "version"
    mark.parent.mkdir(parents=True)
    environ = {name: value for name, value in environ.items() if name != "SLURM_CONF"}
    told = []

    for text in (source_mark(), "0.0.9 abc"):
        mark.write_text(text)
        told.append([(one.state, one.sentence, one.remedy) for one in about_slurm(environ)][2:])

    older = (WARNING, "the cluster has another version of dibs than this one", "`dibs cluster up`")
    assert told == [[], [older]]


def test_a_folder_that_nobody_may_write_to_is_no_place_for_slurms_jobs(environ, tmp_path, monkeypatch):
    monkeypatch.setattr(doctor_checks.os, "access", lambda path, mode: path != str(tmp_path))

    root = about_slurm({**environ, "DIBS_SLURM_ROOT": f"{tmp_path}/jobs"})[1]

    assert (root.state, f"{tmp_path} cannot be written to" in root.sentence) == (PROBLEM, True)


def test_a_shared_folder_is_a_good_place_for_slurms_jobs(environ, tmp_path, monkeypatch):
    monkeypatch.setattr(doctor_checks.paths, "network_file_system", lambda folder: "nfs4")
    monkeypatch.setattr(doctor_checks.paths, "local_folder", lambda: str(tmp_path))

    root = about_slurm({**environ, "DIBS_SLURM_ROOT": f"{tmp_path}/jobs"})[1]

    assert (root.state, root.sentence.endswith("and is shared by nfs4")) == (OK, True)
