"""A forked dibs cannot be told from an executed one, except that it starts sooner."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from stories.fork_server import ForkedProcess
from stories.outside import DIBS, World, commands_for_shells, our_fork_server, wait_until

_SHOW = """
import json, os, signal, sys
streams = [[one.encoding, one.errors, one.line_buffering, one.name] for one in (sys.stdin, sys.stdout)]
umask = os.umask(0)
own = {
    "argv": sys.argv, "executable": sys.executable, "path": sys.path, "flags": list(sys.flags), "streams": streams,
    "environ": dict(os.environ), "cwd": os.getcwd(), "umask": umask, "fds": sorted(os.listdir("/proc/self/fd")),
    "group": os.getpgrp() == os.getpid(), "blocked": len(signal.pthread_sigmask(signal.SIG_BLOCK, ())),
    "ignored": [number for number in range(1, 32) if signal.getsignal(number) is signal.SIG_IGN],
    "interrupt": signal.getsignal(signal.SIGINT) is signal.default_int_handler,
    "shown": open("/proc/self/cmdline", errors="surrogateescape").read().rstrip(chr(0)),
    "variables": sorted(open("/proc/self/environ", errors="surrogateescape").read().rstrip(chr(0)).split(chr(0))),
}
print(json.dumps(own))
def yielder():
    yield from ()
"""


@pytest.mark.parametrize("options", [{}, {"umask": 0o027, "start_new_session": True}])
def test_a_forked_dibs_has_what_an_executed_one_has(world: World, options: dict[str, object]):
    world.write("show.py", _SHOW)
    words = ("run", "--gpus", "0", "-q", "-f", "show.py")

    forked = world.start(*words, env={"ODD": "a\nb é \udcff"}, **options)
    executed = world.start(*words, env={"ODD": "a\nb é \udcff"}, program=(DIBS,), **options)

    assert isinstance(forked.process, ForkedProcess)
    assert isinstance(executed.process, subprocess.Popen)
    assert forked.wait().status == executed.wait().status == 0
    assert json.loads(forked.stdout) == json.loads(executed.stdout)


def test_the_end_of_a_forked_dibs_is_told_as_that_of_any_process(world: World):
    world.environ["DIBS_NO_START"] = "1"

    killed = world.start("run", "--gpus", "0", "--", "sleep 60")
    with pytest.raises(subprocess.TimeoutExpired):
        killed.process.wait(0.05)
    killed.process.send_signal(signal.SIGKILL)

    assert killed.process.wait() == killed.process.poll() == -signal.SIGKILL
    assert world.dibs("ls").status == 69
    wait_until(lambda: not os.path.exists(f"/proc/{killed.pid}"))


def test_a_daemon_that_a_forked_command_starts_is_forked_too(world: World):
    world.environ |= {"DIBS_POOL": "0", "XDG_CONFIG_HOME": str(world.folder.parent / "config")}

    assert world.dibs("daemon", "start").status == 0

    pid = world.daemon_pid()
    status = Path(f"/proc/{pid}/status").read_text()
    assert f"PPid:\t{our_fork_server().pid}\n" in status
    words = Path(f"/proc/{pid}/cmdline").read_bytes().rstrip(b"\0").split(b"\0")
    assert words == [os.fsencode(sys.executable), b"-P", b"-m", b"dibs", b"daemon", b"run"]
    assert world.dibs("daemon", "stop").status == 0


def test_a_command_that_a_shell_starts_is_forked_and_passes_signals_on(world: World):
    world.environ["PATH"] = f"{commands_for_shells()}:{world.environ['PATH']}"
    world.write("show.py", _SHOW)
    line = "umask 027; exec dibs run --gpus 0 -q -f show.py"

    forked = world.dibs("-c", line, program=("bash",))
    running = world.start("-c", "exec dibs run --gpus 0 -- 'echo $$; exec sleep 60'", program=("bash",))
    wait_until(lambda: running.stdout, show=lambda: running.stderr)
    commands = [words for words in world.processes().values() if words.startswith(f"{sys.executable} {DIBS} run")]
    running.signal(signal.SIGINT)
    running.signal(signal.SIGINT)

    assert (forked.status, json.loads(forked.stdout)["umask"]) == (0, 0o027)
    assert json.loads(forked.stdout)["argv"] == [DIBS, "run", "--gpus", "0", "-q", "-f", "show.py"]
    assert len(commands) == 1
    assert running.wait().status == 130
    world.environ["PYTHONNOUSERSITE"] = "1"
    executed = world.dibs("-c", line, program=("bash",))
    assert json.loads(executed.stdout)["flags"] != json.loads(forked.stdout)["flags"]


def test_a_variable_that_an_interpreter_reads_at_its_start_gets_one(world: World):
    assert isinstance(world.start("--version", env={"PYTHONUTF8": "0"}).process, subprocess.Popen)
    assert isinstance(world.start("--version", env={"LANG": "C"}).process, subprocess.Popen)


def test_the_server_ends_with_the_process_whose_server_it_is(tmp_path: Path):
    code = (
        "import os, signal, sys; from pathlib import Path;"
        "from stories.outside import our_fork_server, make_world;"
        "make_world(Path(sys.argv[1])).dibs('--version'); print(our_fork_server().pid, flush=True);"
        "os.kill(os.getpid(), signal.SIGKILL)"
    )
    tests = str(Path(__file__).parents[1])

    killed = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)], env=os.environ | {"PYTHONPATH": tests}, capture_output=True
    )

    server = int(killed.stdout)
    wait_until(lambda: not os.path.exists(f"/proc/{server}"))


def test_every_process_that_a_world_started_is_found(world: World):
    started = {world.start(program=["sleep", "60"]).pid, world.run_daemon().pid}

    wait_until(lambda: started <= world.processes().keys(), show=world.processes)
