"""Counts our files whose functions run from `dibs add -- true` to the end of `dibs wait`: client, daemon and shim.

A newcomer who follows one job reads these files. What runs while a module is imported does not count, nor what the
daemon does before the job comes, while it is idle, and after the end, when it reads the last numbers that attempts
reported; nor `dataclass.py`, the methods of every dataclass.
"""

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

SOURCE = f"{Path(__file__).resolve().parents[1]}/src/dibs/"
NOT_READ = f"{SOURCE}dataclass.py"  # it does what the standard library's does, whose methods belong to no file
AFTER_END = 60.0  # seconds; `dibs wait` is slow while it is traced
IDLE = 5.0  # seconds; every regular task of the daemon comes round

# Runs first in each process. A function's code is "optimized" (flag 1); that of modules and classes is not.
TRACER = """
import os, signal, sys, threading
_seen = set()
_log = os.open({log!r}, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
def _is_importing(frame):
    while frame is not None:
        if frame.f_code.co_name == "<module>" and frame.f_code.co_filename.startswith({source!r}):
            return True
        frame = frame.f_back
    return False
def _note(frame, event, arg):
    name = frame.f_code.co_filename
    if event == "call" and frame.f_code.co_flags & 1 and name.startswith({source!r}):
        line = {role!r} + " " + name + " " + frame.f_code.co_name + "\\n"
        if line not in _seen and not _is_importing(frame):
            _seen.add(line)
            os.write(_log, line.encode())
signal.signal(signal.SIGUSR1, lambda *_: _seen.clear())
threading.setprofile(_note)
sys.setprofile(_note)
"""
MAIN = "from dibs.cli.main import main; sys.argv = ['dibs', *sys.argv[1:]]; main()"


def main() -> None:
    with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:
        log = f"{folder}/log"
        environment = {
            **os.environ,
            "DIBS_STATE": f"{folder}/state",
            "DIBS_LEASES": f"{folder}/leases",
            "DIBS_SOCKET": f"{folder}/socket",
            "DIBS_PROBE": "none",
            "DIBS_POOL": "0",
        }
        os.mkdir(f"{folder}/leases")
        shims = repr(_tracer(log, "shim"))
        patch = f"import dibs.supervise.launcher as launcher; launcher._START = {shims} + launcher._START\n"
        patch += f"import dibs.daemon.service as service; service._READ_TOGETHER = {AFTER_END}\n"
        daemon = _start(_tracer(log, "daemon") + patch + MAIN, environment, "daemon", "run")
        try:
            while not os.path.exists(f"{folder}/socket"):
                time.sleep(0.05)
            _dibs(_tracer(f"{folder}/first", "client"), environment)  # everything is loaded after one job
            time.sleep(1)
            idle = _calls(log, daemon.pid, lambda: time.sleep(IDLE))
            calls = _calls(log, daemon.pid, lambda: _dibs(_tracer(log, "client"), environment))
            found = {call.split(" ")[1] for call in calls - idle} - {NOT_READ}
        finally:
            daemon.terminate()
            daemon.wait()
    for name in sorted(found):
        print(name.removeprefix(SOURCE))
    print(f"{len(found)} files")


def _calls(log: str, daemon: int, act: Callable[[], None]) -> set[str]:
    """The functions that are called meanwhile, each with its process and its file."""
    os.truncate(log, 0)
    for pid in (daemon, *_children(daemon)):
        os.kill(pid, signal.SIGUSR1)  # forget what was seen
    act()
    return set(Path(log).read_text().splitlines())


def _tracer(log: str, role: str) -> str:
    return TRACER.format(log=log, source=SOURCE, role=role)


def _start(program: str, environment: dict[str, str], *words: str) -> "subprocess.Popen[bytes]":
    null = subprocess.DEVNULL
    return subprocess.Popen([sys.executable, "-c", program, *words], env=environment, stdout=null, stderr=null)


def _dibs(tracer: str, environment: dict[str, str]) -> None:
    for words in (["add", "--", "true"], ["wait", "@"]):
        assert _start(tracer + MAIN, environment, *words).wait() == 0


def _children(pid: int) -> list[int]:
    """The zygote is in a session of its own, and still our child's child."""
    found = [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    return [*found, *(grandchild for child in found for grandchild in _children(child))]


if __name__ == "__main__":
    main()
