"""`dibs daemon install` in front of a real systemd: a user manager in namespaces of its own."""

import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

from dibs.client.starting import listens
from stories.outside import DIBS, Finished, Running, World, make_world, needs_root, wait_until

needs_systemd = pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="there is no systemd here")

SYSTEMD = "/lib/systemd/systemd"
NAME = "dibs.service"

# It takes systemd for booted, sees no control group but its own, and moves no process of other programs.
MANAGER = f"""
set -eu
mount -t cgroup2 none "$1"
group="$1$(sed -n 's/^0:://p' /proc/self/cgroup)/$2"
mkdir "$group"
echo 0 > "$group/cgroup.procs"
umount "$1"
exec unshare --cgroup bash -c '
set -eu
mount -t cgroup2 none /sys/fs/cgroup
mount -t tmpfs tmpfs /run
mkdir -p /run/systemd/system "$XDG_RUNTIME_DIR"
chmod 700 "$XDG_RUNTIME_DIR"
{SYSTEMD} --user &
wait'
"""
# A control group that is empty goes, and those in it before.
REMOVE = 'mount -t cgroup2 none "$1"; find "$1$(sed -n "s/^0:://p" /proc/self/cgroup)/$2" -depth -type d -delete'


@dataclass(frozen=True)
class Login:
    """A user of a machine that has systemd."""

    world: World
    manager: Running

    def start(self, *words: str) -> Running:
        return self.world.start(*words, program=(*self._inside, DIBS))

    def dibs(self, *words: str) -> Finished:
        return self.start(*words).wait()

    def systemctl(self, *words: str) -> Finished:
        return self.world.dibs("--user", *words, program=(*self._inside, "systemctl"))

    def shows(self, name: str) -> str:
        """What systemd says of the unit."""
        return self.systemctl("show", NAME, "--value", "-p", name).stdout.strip()

    def daemon(self) -> int:
        """The daemon's pid as we see it; it has another one where it lives."""
        return self._outside(int(self.shows("MainPID")))

    def _outside(self, number: int) -> int:
        for name in os.listdir("/proc"):
            with suppress(OSError):
                if name.isdigit() and _pids(name)[1:] == [number]:
                    return int(name)
        raise AssertionError(f"no process has pid {number} in there")

    @property
    def _inside(self) -> tuple[str, ...]:
        (first,) = Path(f"/proc/{self.manager.pid}/task/{self.manager.pid}/children").read_text().split()
        return ("nsenter", "-t", first, "--mount", "--pid", "--cgroup")


def _pids(pid: str) -> list[int]:
    """The numbers of a process, from our namespace to its own."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return [int(word) for line in lines if line.startswith("NSpid:") for word in line.split()[1:]]


@pytest.fixture
def ugly(tmp_path: Path) -> Iterator[World]:
    """A world whose folders have every character that means something in a unit."""
    world = make_world(tmp_path)
    state = tmp_path / "a \"b\" 'c' %h $d ${HOME} é\\x41;#"
    world.environ |= {
        "DIBS_STATE": str(state),
        "DIBS_POOL": "0",
        "DIBS_NO_START": "1",
        "HOME": str(tmp_path / "home"),
        "XDG_CONFIG_HOME": str(tmp_path / "config"),
        "XDG_RUNTIME_DIR": f"/run/user/{os.geteuid()}",
    }
    (tmp_path / "home").mkdir()
    yield world
    world.clean_up()


@pytest.fixture
def login(ugly: World, tmp_path: Path) -> Iterator[Login]:
    (tmp_path / "groups").mkdir()
    named = ("-", str(tmp_path / "groups"), f"dibs-test-{os.getpid()}")
    apart = ("unshare", "--mount", "--propagation", "private")
    manager = ugly.start(
        *("--pid", "--fork", "--mount-proc", "--kill-child", "bash", "-c", MANAGER, *named), program=apart
    )
    login = Login(ugly, manager)
    try:
        wait_until(lambda: manager.process.poll() is not None or _has_children(manager.pid))
        if manager.process.poll() is not None:
            pytest.skip(f"no user manager can be run here: {manager.stderr}")
        wait_until(
            lambda: login.systemctl("is-system-running").stdout.strip() in ("running", "degraded"),
            show=lambda: (login.systemctl("list-jobs"), manager.stderr),
        )
        yield login
    finally:
        manager.kill()
        remove = [*apart, "bash", "-c", REMOVE, *named]
        wait_until(lambda: not subprocess.run(remove, stderr=subprocess.DEVNULL).returncode)


def _has_children(pid: int) -> bool:
    return bool(Path(f"/proc/{pid}/task/{pid}/children").read_text())


@needs_root
@needs_systemd
def test_the_unit_starts_the_daemon_and_again_when_it_is_killed_and_jobs_go_on(login: Login) -> None:
    world = login.world

    installed = login.dibs("daemon", "install", "--now")
    assert installed.status == 0, installed
    wait_until(lambda: listens(world.environ), show=lambda: login.systemctl("status", NAME))
    job = world.add("--", f"touch up; until test -e go; do sleep 0.02; done; {world.ledger.job('only')}")
    wait_until(lambda: (world.folder / "up").exists())
    killed = login.daemon()
    os.kill(killed, signal.SIGKILL)
    wait_until(lambda: login.shows("NRestarts") == "1" and listens(world.environ))
    world.write("go", "")
    [over] = world.wait_for(job)

    assert login.systemctl("is-enabled", NAME).stdout == "enabled\n"
    assert (over["state"], over["attempts"]) == ("succeeded", 1)
    assert world.ledger.started() == ["only"]


@needs_root
@needs_systemd
def test_a_daemon_that_systemd_stops_leaves_its_jobs_to_the_next_one_and_an_uninstalled_unit_is_gone(
    login: Login,
) -> None:
    world = login.world
    assert login.dibs("daemon", "install", "--now").status == 0
    wait_until(lambda: listens(world.environ), show=lambda: login.systemctl("status", NAME))
    job = world.add("--", f"touch up; until test -e go; do sleep 0.02; done; {world.ledger.job('only')}")
    wait_until(lambda: (world.folder / "up").exists())

    stopped = login.systemctl("stop", NAME)
    result, held = login.shows("Result"), world.holders()
    started = login.systemctl("start", NAME)
    removed = login.dibs("daemon", "uninstall")
    again = login.dibs("daemon", "uninstall")
    wait_until(lambda: listens(world.environ))
    world.write("go", "")
    [over] = world.wait_for(job)

    assert (stopped.status, result, started.status) == (0, "success", 0)
    assert [holder.gpu for holder in held] == ["index-0"]
    assert removed.stderr.startswith("removed ") and "there is no unit" in again.stderr
    assert login.systemctl("is-enabled", NAME).status != 0
    assert list(Path(world.environ["XDG_CONFIG_HOME"]).rglob("*.service")) == []
    assert (over["state"], over["attempts"]) == ("succeeded", 1)


@needs_systemd
def test_both_units_are_what_systemd_wants(ugly: World, tmp_path: Path) -> None:
    wrote = ugly.dibs("daemon", "install")
    printed = ugly.dibs("daemon", "install", "--system")
    (tmp_path / "system").mkdir()
    (tmp_path / "system" / NAME).write_text(printed.stdout)

    said = [
        _verify("--user", tmp_path / "config" / "systemd" / "user" / NAME),
        _verify("--system", tmp_path / "system" / NAME),
    ]

    assert (wrote.status, printed.status) == (0, 0)
    assert said == ["", ""]


def _verify(whose: str, unit: Path) -> str:
    """What systemd has to say about a unit of ours; what it says of others is not ours."""
    command = ["systemd-analyze", whose, "--man=no", "verify", str(unit)]
    environ = os.environ | {"XDG_RUNTIME_DIR": str(unit.parent)}
    done = subprocess.run(command, capture_output=True, text=True, env=environ)
    return "\n".join(line for line in (done.stdout + done.stderr).splitlines() if NAME in line)


def test_a_folder_that_no_unit_can_name_is_refused_in_a_sentence(world: World, tmp_path: Path) -> None:
    world.environ["XDG_CONFIG_HOME"] = str(tmp_path / "config")

    ended = world.dibs("daemon", "install")

    assert ended.status == 1
    assert ended.stderr.splitlines()[0].endswith("systemd reads UTF-8 only")
    assert not (tmp_path / "config" / "systemd" / "user" / NAME).exists()
