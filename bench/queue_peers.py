"""Queues that take jobs in and run them on their own: dibs's daemon, and those it is measured against."""

import json
import os
import shutil
import socket
import subprocess
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from dibs_daemon import POOL, running, wait_until
from peers import Say, Tool, ToolFailed, clean_environment, dibs, fetched, installed, run_list

SLOTS = POOL.split(",")
GFLOW_VERSION = "0.4.18"
_GFLOW_MOST = 1_000  # jobs that it takes in one call
HYPERQUEUE_VERSION = "0.27.0"
TASK_SPOOLER, SEED, PARALLEL = "task-spooler", "simple_gpu_scheduler", "GNU parallel"


@dataclass(frozen=True, kw_only=True)
class Queue:
    """A way to queue jobs of `true` and to see the last one end."""

    name: str
    version: str
    keeps: str  # "yes" where the queue is on disk and a new daemon takes it up again
    run: Callable[
        [Path, int], float
    ]  # jobs in a fresh folder -> seconds from before the first add to the last end
    part: float = 1.0  # of the jobs: the slow ones get fewer
    is_slow: bool = False  # measured in one round only

    @property
    def is_on_disk(self) -> bool:
        return self.keeps == "yes"


def queues(tools: Sequence[Tool], say: Say) -> list[Queue]:
    """dibs first; a missing one is fetched, or named and left out."""
    found = [_dibs(), *_gflow(say), _hyperqueue(say), _nq(say)]
    listed = {tool.name: tool for tool in tools}
    for name, keeps in ((TASK_SPOOLER, "no"), (SEED, "no daemon"), (PARALLEL, "no daemon")):
        if tool := listed.get(name):
            found.append(_of_tool(tool, keeps))
    return [queue for queue in found if queue]


def _dibs() -> Queue:
    def run(folder: Path, jobs: int) -> float:
        lines = folder / "jobs.txt"
        lines.write_text("true\n" * jobs)
        with running(folder) as daemon:
            begin = time.perf_counter()
            daemon.dibs("add", "-q", "-f", str(lines))
            daemon.wait_for(jobs, limit_seconds=60 + jobs / 20)
            return time.perf_counter() - begin

    return Queue(name="dibs", version=dibs().version, keeps="yes", run=run)


def _of_tool(tool: Tool, keeps: str) -> Queue:
    def run(folder: Path, jobs: int) -> float:
        lines = folder / "jobs.txt"
        lines.write_text("true\n" * jobs)
        return run_list(tool, lines, SLOTS, folder, 60 + jobs / 20)

    return Queue(name=tool.name, version=tool.version, keeps=keeps, run=run, part=0.2)


# -- gflow -----------------------------------------------------------------------------------------


def _gflow(say: Say) -> list[Queue]:
    """Twice: four at a time, as asked for; and without any limit, which is the fastest it can do.

    Its processes are looked at every ten seconds, so that four at a time they are the slower way. In tmux, its
    default, a job tells its end at once.
    """
    home = fetched(say, "runqd", GFLOW_VERSION)
    if not home:
        return []

    def run(executor: str, limit: Sequence[str]) -> Callable[[Path, int], float]:
        return lambda folder, jobs: _gflow_round(home / "bin", executor, limit, folder, jobs)

    found = []
    if installed(say, "tmux", "tmux"):
        limit = ["--max-concurrent", str(len(SLOTS)), "--auto-close"]
        found.append(_gflow_queue("gflow", run("tmux", limit), part=0.002))
    else:
        say("without gflow four at a time: it needs tmux")
    return [*found, _gflow_queue("gflow, all at once", run("process", []), part=0.2)]


def _gflow_queue(name: str, run: Callable[[Path, int], float], part: float) -> Queue:
    return Queue(name=name, version=GFLOW_VERSION, keeps="yes", run=run, part=part, is_slow=True)


def _gflow_round(programs: Path, executor: str, limit: Sequence[str], folder: Path, jobs: int) -> float:
    environment = gflow_environment(programs, folder)
    port = configure_gflow(programs, folder, executor)
    calls = [(first, min(first + _GFLOW_MOST, jobs + 1) - 1) for first in range(1, jobs + 1, _GFLOW_MOST)]

    def counts() -> dict[str, int]:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/debug/metrics", timeout=60) as answer:
                found: dict[str, int] = json.load(answer)["jobs_by_state"]
        except OSError as error:
            raise ToolFailed(f"gflowd does not answer: {error}") from error
        return found

    with running_gflowd(programs, port, folder, environment):
        begin = time.perf_counter()
        for first, last in calls:
            submit = [str(programs / "gbatch"), "--array", f"{first}-{last}", *limit, "true"]
            done = subprocess.run(
                submit, env=environment, cwd=folder, stdin=subprocess.DEVNULL, capture_output=True, check=False
            )
            if done.returncode:
                said = done.stderr.decode(errors="replace").strip()[-200:]
                raise ToolFailed(f"gbatch ended with {done.returncode}: {said}")
        wait_until(
            lambda: counts().get("Finished", 0) >= jobs,
            f"gflow has not run {jobs:,} jobs",
            limit_seconds=120 + jobs / 10,
            pause_seconds=0.05,
        )
        return time.perf_counter() - begin


def configure_gflow(programs: Path, folder: Path, executor: str) -> int:
    """Write its settings; return the port on which its daemon will listen."""
    port = _free_port()
    config = folder / "home/.config/gflow/gflow.toml"
    config.parent.mkdir(parents=True)
    config.write_text(f'[daemon]\nhost = "127.0.0.1"\nport = {port}\n\n[executor]\ntype = "{executor}"\n')
    # tmux gives every job a login shell; what tells the end of a job must be found there.
    (folder / "home/.bash_profile").write_text(f'export PATH="{programs}:$PATH"\n')
    return port


class Gflowd:
    """gflow's daemon, in a folder of its own."""

    def __init__(self, programs: Path, port: int, folder: Path, environment: Mapping[str, str]) -> None:
        self._programs = programs
        self._port = port
        self._folder = folder
        self._environment = environment
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with open(self._folder / "gflowd.out", "ab") as out:
            self._process = subprocess.Popen(
                [str(self._programs / "gflowd")],
                env=self._environment,
                cwd=self._folder,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
            )
        health = f"http://127.0.0.1:{self._port}/health"
        wait_until(lambda: _answers(health), "gflowd does not answer", limit_seconds=30)

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def stop(self) -> None:
        """End it, and the tmux server of this folder with its jobs."""
        if self._process is not None:
            self._process.terminate()
            try:
                self._process.wait(20)
            except subprocess.TimeoutExpired:
                self.kill()
        if tmux := shutil.which("tmux"):
            subprocess.run([tmux, "kill-server"], env=self._environment, capture_output=True, check=False)


@contextmanager
def running_gflowd(programs: Path, port: int, folder: Path, environment: Mapping[str, str]) -> Iterator[Gflowd]:
    daemon = Gflowd(programs, port, folder, environment)
    try:
        daemon.start()
        yield daemon
    finally:
        daemon.stop()


def gflow_environment(programs: Path, folder: Path) -> dict[str, str]:
    home = folder / "home"
    for name in ("run", "tmux"):
        (home / name).mkdir(mode=0o700, parents=True)
    environment = clean_environment(folder)
    return environment | {
        "HOME": str(home),
        "XDG_CONFIG_HOME": str(home / ".config"),
        "XDG_DATA_HOME": str(home / ".local/share"),
        "XDG_RUNTIME_DIR": str(home / "run"),
        "TMUX_TMPDIR": str(home / "tmux"),
        "PATH": f"{programs}:{environment['PATH']}",
    }


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=5):
            return True
    except OSError:
        return False


def _free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port: int = one.getsockname()[1]
        return port


# -- HyperQueue and nq -----------------------------------------------------------------------------


def _hyperqueue(say: Say) -> Queue | None:
    home = fetched(say, "hyperqueue", HYPERQUEUE_VERSION)
    if not home:
        return None
    script = Path(__file__).with_name("with_hyperqueue.py")

    def run(folder: Path, jobs: int) -> float:
        words = [str(home / "bin/python"), str(script), str(folder / "hq"), str(jobs), str(len(SLOTS))]
        try:
            done = subprocess.run(
                words,
                env=clean_environment(folder),
                cwd=folder,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=120 + jobs / 20,
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            raise ToolFailed(f"HyperQueue was not done after {error.timeout:.0f} s") from error
        seconds = [line.split()[1] for line in done.stdout.splitlines() if line.startswith("seconds ")]
        if done.returncode or not seconds:
            raise ToolFailed(f"HyperQueue ended with {done.returncode}: {done.stderr.strip()[-200:]}")
        return float(seconds[0])

    return Queue(name="HyperQueue", version=HYPERQUEUE_VERSION, keeps="no", run=run, part=0.5)


def _nq(say: Say) -> Queue | None:
    command = installed(say, "nq", "nq")
    if not command:
        say("without nq: there is no such command")
        return None
    # One queue runs one job at a time: a queue for each slot, filled in turn.
    submit = (
        'for ((i = 0; i < $1; i++)); do NQDIR=q$((i % $2)) "$0" -q bash -c true || exit; done; '
        'for ((i = 0; i < $2; i++)); do NQDIR=q$i "$0" -w || exit; done'
    )

    def run(folder: Path, jobs: int) -> float:
        for slot in range(len(SLOTS)):
            (folder / f"q{slot}").mkdir()
        tool = Tool(
            name="nq", version="", argv=lambda *_: ["bash", "-c", submit, command, str(jobs), str(len(SLOTS))]
        )
        took = run_list(tool, Path(os.devnull), SLOTS, folder, 120 + jobs / 10)
        ran = sum(len(list((folder / f"q{slot}").glob(",*"))) for slot in range(len(SLOTS)))
        if ran != jobs:
            raise ToolFailed(f"nq ran {ran} of {jobs} jobs")
        return took

    return Queue(name="nq", version=package_version("nq"), keeps="no", run=run, part=0.1)


def package_version(package: str) -> str:
    """What the system's packages say: not every tool can tell its version."""
    ask = ["dpkg-query", "-W", "-f", "${Version}", package]
    try:
        return subprocess.run(ask, capture_output=True, text=True, check=False).stdout.partition("-")[0]
    except FileNotFoundError:
        return ""
