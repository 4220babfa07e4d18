"""The daemon's life: one for each queue, an end that leaves the jobs alone, and what the next one finds."""

import json
import os
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest

from daemon.daemon_process import DaemonProcess
from daemon.listening import connect
from stories.outside import DIBS, World, wait_until


def test_stop_may_end_the_jobs_as_well(daemon: DaemonProcess):
    first = daemon.add("sleep 60", "sleep 60", "sleep 60")
    wait_until(lambda: daemon.state(first + 1) == "running")
    assert daemon.running is not None

    assert daemon.post("/v1/stop", {"jobs": True}) == {"stopping": True}

    assert daemon.running.wait().status == 0
    daemon.world.assert_nothing_is_left()
    daemon.start()
    assert [daemon.state(first + number) for number in range(2)] == ["cancelled"] * 2
    daemon.post("/v1/stop", {"jobs": True})


def _listens(daemon: DaemonProcess) -> bool:
    try:
        connect(daemon.socket).close()
    except OSError:
        return False
    return True


def test_the_process_that_starts_it_is_told_when_it_listens(world: World):
    daemon = DaemonProcess(world)
    reader, writer = os.pipe()
    running = world.start("daemon", "run", env={"DIBS_READY_FD": str(writer)}, pass_fds=(writer,))
    os.close(writer)

    said = os.read(reader, 100)

    assert said == b"\n"
    assert _listens(daemon)
    assert os.read(reader, 100) == b""  # it is closed, and no job has it either
    os.close(reader)
    running.process.terminate()
    running.wait()


def test_the_process_that_starts_it_is_told_why_it_cannot_begin(world: World):
    world.state.mkdir(parents=True, mode=0o700)
    (world.state / "queue").symlink_to("/tmp")
    reader, writer = os.pipe()
    running = world.start("daemon", "run", env={"DIBS_READY_FD": str(writer)}, pass_fds=(writer,))
    os.close(writer)

    said = os.read(reader, 10_000)

    os.close(reader)
    assert json.loads(said)["error"]["code"] == "folder-refused"
    assert running.wait().status != 0


@pytest.mark.parametrize("umask", [0o000, 0o077, 0o777])
def test_other_users_cannot_read_its_files(world: World, umask):
    daemon = DaemonProcess(world)
    before = os.umask(umask)
    try:
        daemon.running = world.start("daemon", "run", umask=umask)
    finally:
        os.umask(before)
    wait_until(lambda: _listens(daemon), show=lambda: daemon.running and daemon.running.stderr)

    modes = {path.name: stat.S_IMODE(path.lstat().st_mode) for path in daemon.queue.iterdir()}

    daemon.end()
    assert {mode & 0o077 for mode in modes.values()} == {0}
    assert (modes["socket"], modes["store.db"]) == (0o600, 0o600)


def test_an_idle_daemon_is_small_and_does_nothing(world: World):
    daemon = DaemonProcess(world)
    pid = daemon.start(program=(DIBS,)).pid  # a fork has the memory of its server
    daemon.get("/v1/status")
    wait_until(lambda: _ticks(pid) == _ticks_after(pid, 0.5))

    before = _ticks(pid)
    time.sleep(2)
    used = (_ticks(pid) - before) / os.sysconf("SC_CLK_TCK")

    rss = int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * 4096
    daemon.end()
    assert used <= 0.01
    assert rss < 80e6


def _ticks(pid: int) -> int:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return int(fields[11]) + int(fields[12])


def _ticks_after(pid: int, seconds: float) -> int:
    time.sleep(seconds)
    return _ticks(pid)


# -- bugs --------------------------------------------------------------------------------------------------

BUGGY = """
import os, sys
from dibs.engine.engine import Engine
from dibs.daemon.service import serve
turn, bugs = Engine.turn, int(sys.argv[1])
def planted(self):
    global bugs
    if self.waiting and bugs:
        bugs -= 1
        raise ZeroDivisionError("a planted bug")
    turn(self)
Engine.turn = planted
sys.exit(serve(os.environ, detached=False))
"""


def test_a_bug_in_a_turn_is_written_down_and_the_next_turn_goes_well(world: World):
    daemon = DaemonProcess(world)
    daemon.running = world.start(program=[sys.executable, "-c", BUGGY, "1"])
    wait_until(lambda: _listens(daemon), show=lambda: daemon.running and daemon.running.stderr)

    jobs = daemon.wait(daemon.add("true"))

    assert jobs[0]["state"] == "succeeded"
    assert daemon.log.count("ZeroDivisionError: a planted bug") == 1
    daemon.end()


def test_a_bug_that_comes_again_and_again_ends_the_daemon(world: World):
    daemon = DaemonProcess(world)
    daemon.running = world.start(program=[sys.executable, "-c", BUGGY, "1000"])
    wait_until(lambda: _listens(daemon), show=lambda: daemon.running and daemon.running.stderr)
    number = daemon.add("true")

    ended = daemon.running.wait()

    assert ended.status == 1
    assert "3 unexpected errors within 10 seconds" in ended.stderr
    daemon.start()
    assert daemon.wait(number)[0]["state"] == "succeeded"
    daemon.end()


# -- few descriptors, one log ------------------------------------------------------------------------------


def test_with_few_descriptors_a_flood_of_callers_leaves_room_for_the_jobs(world: World):
    daemon = DaemonProcess(world)
    daemon.running = world.start(
        program=["bash", "-c", f"ulimit -n 256; exec {sys.executable} -m dibs daemon run"]
    )
    wait_until(lambda: _listens(daemon), show=lambda: daemon.running and daemon.running.stderr)
    flood = [connect(daemon.socket) for _ in range(400)]

    jobs = daemon.wait(daemon.add("true"))

    for one in flood:
        one.close()
    assert jobs[0]["state"] == "succeeded"
    assert "out of system resource" not in daemon.log
    daemon.end()


def test_the_log_is_bounded(tmp_path):
    code = (
        "import sys\n"
        "from dibs.daemon.service import log, open_log\n"
        "open_log(sys.argv[1], also_on_stderr=False)\n"
        "for number in range(5000): log.info('line %d of many \\udcff %s', number, 'x' * 800)\n"
    )

    subprocess.run([sys.executable, "-c", code, str(tmp_path / "daemon.log")], check=True)

    sizes = {path.name: path.stat().st_size for path in tmp_path.iterdir()}
    assert sizes.keys() == {"daemon.log", "daemon.log.1"}
    assert max(sizes.values()) <= 1024**2
    assert "line 4999 of many \\udcff" in (tmp_path / "daemon.log").read_text()
