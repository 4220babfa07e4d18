"""The installed command from outside: started, fed, signalled, and judged by what it leaves behind."""

import atexit
import importlib.util
import json
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from dibs.client import starting
from dibs.client.client import Client, connect
from dibs.client.starting import lock_is_held
from dibs.leases.files import Holder
from dibs.leases.leases import Leases
from dibs.sweeps.adviser import _ENVIRONMENT
from stories.fork_server import ADVISER_MAIN, ADVISERS, PLANTED, ForkedProcess, ForkServer

DIBS = str(Path(sys.executable).parent / "dibs")
NOBODY = 65534
MUST_EXECUTE = "DIBS_TESTS_EXECUTE" in os.environ
PATIENCE = 60.0  # seconds; only a failing test waits for so long
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount and be two users")


def wait_until(
    condition: Callable[[], Any], show: Callable[[], Any] = lambda: "", seconds: float = PATIENCE
) -> Any:
    """The first true answer of `condition`; a timeout tells what `show` saw last."""
    until = time.monotonic() + seconds
    pause = 0.002
    while True:
        asked_at = time.monotonic()
        if found := condition():
            return found
        now = time.monotonic()
        if now > until:
            raise AssertionError(f"waited {seconds:g} seconds in vain; last seen: {show()!r}")
        # What takes long to ask, such as a command, must not keep the machine from what is waited for.
        time.sleep(max(pause, now - asked_at))
        pause = min(pause * 1.5, 0.05)


@dataclass(frozen=True)
class Finished:
    """How a command ended, as text; bytes that are no UTF-8 are surrogates."""

    status: int
    stdout: str
    stderr: str

    @property
    def said(self) -> list[str]:
        """The lines on stderr, without the first one that says where the run is."""
        return [line for line in self.stderr.splitlines() if not line.startswith("run ")]

    @property
    def events(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.stdout.splitlines()]


class Running:
    """A dibs that was started and goes on. Its streams are files: they need not be read in time."""

    def __init__(self, process: "subprocess.Popen[bytes] | ForkedProcess", stdout: Path, stderr: Path) -> None:
        self.process = process
        self.pid = process.pid
        self._stdout, self._stderr = stdout, stderr

    @property
    def stdout(self) -> str:
        return self._stdout.read_text(errors="surrogateescape")

    @property
    def stderr(self) -> str:
        return self._stderr.read_text(errors="surrogateescape")

    def say(self, text: str) -> None:
        """Write a piece of a list that is piped in."""
        assert self.process.stdin is not None
        self.process.stdin.write(text.encode())
        self.process.stdin.flush()

    def signal(self, number: int) -> None:
        self.process.send_signal(number)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def wait(self, seconds: float = PATIENCE) -> Finished:
        if self.process.stdin is not None:
            with suppress(OSError):
                self.process.stdin.close()
        try:
            status = self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"dibs has not ended\n{self.stdout[-2000:]}\n{self.stderr[-2000:]}") from None
        return Finished(status, self.stdout, self.stderr)


@dataclass
class Ledger:
    """What the jobs themselves wrote down: one appended line at each start and end, in the order of happening."""

    path: Path

    def job(self, name: object, seconds: float = 0.0, status: int = 0) -> str:
        """A job line that signs in and out. Dibs cannot make it up."""
        return self._line(name, f"sleep {seconds}", status)

    def held(self, name: object, status: int = 0) -> str:
        """A job line that signs in, and out once there is a file `go` in its folder."""
        return self._line(name, "until test -e go; do sleep 0.02; done", status)

    def rounds(self, jobs: int, at_once: int) -> list[str]:
        """Job lines by their numbers. Each waits for the others of its round: they are there at once, or never."""
        met = 'until test "$(grep -c ^start "$LEDGER")" -ge {}; do sleep 0.02; done'
        return [self._line(number, met.format(number // at_once * at_once + at_once)) for number in range(jobs)]

    def _line(self, name: object, work: str, status: int = 0) -> str:
        return (
            f'echo "start {name} ${{DIBS_GPUS:--}} $$" >> "$LEDGER"; {work}; '
            f'echo "end {name} ${{DIBS_GPUS:--}} $$" >> "$LEDGER"; exit {status}'
        )

    @property
    def lines(self) -> list[list[str]]:
        return [line.split() for line in self.path.read_text().splitlines()] if self.path.exists() else []

    def started(self) -> list[str]:
        return [line[1] for line in self.lines if line[0] == "start"]

    def ended(self) -> list[str]:
        return [line[1] for line in self.lines if line[0] == "end"]

    def gpus(self) -> dict[str, str]:
        """The GPUs each job saw, by its name."""
        return {line[1]: line[2] for line in self.lines if line[0] == "start"}

    def running(self) -> list[str]:
        return list((Counter(self.started()) - Counter(self.ended())).elements())

    def cut(self) -> None:
        """Note that everything that ran was killed."""
        with self.path.open("a") as file:
            file.write("cut\n")

    def overlaps(self, slots: int = 1) -> list[str]:
        """Where more jobs were on one GPU than it has slots."""
        complaints = []
        on: dict[str, set[str]] = {}
        for line in self.lines:
            if line[0] == "cut":
                on.clear()
                continue
            word, name, gpus, pid = line
            for gpu in () if gpus == "-" else gpus.split(","):
                holders = on.setdefault(gpu, set())
                (holders.add if word == "start" else holders.discard)(f"{name} ({pid})")
                if len(holders) > slots:
                    complaints.append(f"GPU {gpu} has {sorted(holders)} at once")
        return complaints

    def most_at_once(self) -> int:
        most = now = 0
        for line in self.lines:
            now += 1 if line[0] == "start" else -1
            most = max(most, now)
        return most


@dataclass
class World:
    """A machine of one's own: state, leases and a folder with an ugly name."""

    folder: Path
    environ: dict[str, str]
    ledger: Ledger
    _running: list[Running] = field(default_factory=list)
    _made_at: float = field(default_factory=time.time)

    @property
    def state(self) -> Path:
        return Path(self.environ["DIBS_STATE"])

    @property
    def leases(self) -> Path:
        return Path(self.environ["DIBS_LEASES"])

    def write(self, name: str, text: str | Iterable[str]) -> str:
        """A file in the folder; several lines, or text as it is. Returns its name."""
        content = text if isinstance(text, str) else "".join(f"{line}\n" for line in text)
        (self.folder / name).write_bytes(content.encode("utf-8", "surrogateescape"))
        return name

    def read(self, name: str) -> str:
        return (self.folder / name).read_text(errors="surrogateescape")

    def start(
        self,
        *arguments: str,
        env: Mapping[str, str | None] | None = None,
        stdin: Any = subprocess.DEVNULL,
        script: str = DIBS,
        program: Sequence[str] | None = None,
        **popen: Any,
    ) -> Running:
        """Start a script of ours and come back at once: forked from the server. Or `program`, executed."""
        number = len(self._running)
        out, err = (self.folder.parent / f"{stream}.{number}" for stream in ("stdout", "stderr"))
        environ = {name: value for name, value in (self.environ | dict(env or {})).items() if value is not None}
        with out.open("wb") as stdout, err.open("wb") as stderr:
            streams = {"stdin": stdin, "stdout": stdout, "stderr": stderr}
            process = _start(script, program, arguments, {"cwd": self.folder, "env": environ, **streams, **popen})
        self._running.append(Running(process, out, err))
        return self._running[-1]

    def dibs(
        self, *arguments: str, input: str | bytes | None = None, timeout: float = PATIENCE, **more: Any
    ) -> Finished:
        """Run dibs to its end."""
        if input is not None:
            source = self.folder.parent / "stdin"
            source.write_bytes(input if isinstance(input, bytes) else input.encode("utf-8", "surrogateescape"))
            # Through a pipe, as people do it.
            cat = subprocess.Popen(["cat", str(source)], stdout=subprocess.PIPE)
            more["stdin"] = cat.stdout
        try:
            return self.start(*arguments, **more).wait(timeout)
        finally:
            if input is not None:
                assert cat.stdout is not None
                cat.stdout.close()
                cat.wait()

    def holders(self) -> list[Holder]:
        """All holders of a GPU now."""
        if not self.leases.exists():
            return []
        return Leases(str(self.leases), uid=os.geteuid(), user="test").holders()

    def client(self) -> Client:
        """Asks this world's daemon, and starts none."""
        return connect(self.environ, start=False)

    def daemon_pid(self) -> int | None:
        """The daemon that holds this world's queue."""
        if not lock_is_held(f"{self.state}/queue"):
            return None
        text = (self.state / "queue" / "lock").read_text()
        return int(text) if text else None  # a daemon that has taken the lock writes its pid a moment later

    def run_daemon(self, *, pool: str = "0", **more: Any) -> Running:
        """A daemon in the foreground that listens. No command of this world starts another."""
        self.environ |= {"DIBS_POOL": pool, "DIBS_NO_START": "1"}
        daemon = self.start("daemon", "run", **more)
        wait_until(
            lambda: "listens at" in daemon.stderr or daemon.process.poll() is not None,
            show=lambda: daemon.stderr,
        )
        assert daemon.process.poll() is None, daemon.stderr
        return daemon

    def add(self, *arguments: str, **more: Any) -> int:
        """The number of the job, or of the first job, that `dibs add` put into the queue."""
        ended = self.dibs("add", "--parsable", *arguments, **more)
        assert ended.status == 0, ended
        return int(ended.stdout.split("-")[0])

    def wait_for(self, *jobs: int) -> list[dict[str, Any]]:
        """These jobs, once all are over."""
        client = self.client()
        wait_until(lambda: not client.wait(jobs, seconds=5)["waiting"], show=lambda: list(client.jobs()))
        return [client.job(number) for number in jobs]

    def processes(self) -> dict[int, str]:
        """Everything alive that belongs to this world: by its environment, its folder or its open files."""
        return processes_of(str(self.folder.parent), self._made_at)

    def assert_nothing_is_left(self) -> None:
        wait_until(lambda: not self.processes(), show=self.processes)
        assert self.holders() == []

    def clean_up(self) -> None:
        for running in self._running:
            if running.process.poll() is None:
                running.kill()
        until = time.monotonic() + 5
        while (left := self.processes()) and time.monotonic() < until:
            for pid in left:
                with suppress(OSError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(0.01)


def fill(disk: Path) -> Path:
    """Leave no byte free on a disk; removing the returned file makes room again."""
    ballast = disk / "ballast"
    with ballast.open("ab", buffering=0) as file:
        for size in (1 << 20, 1 << 12, 1):
            try:
                while file.write(b"x" * size) == size:
                    pass
            except OSError:
                continue
    return ballast


def _start(
    script: str, program: Sequence[str] | None, arguments: Sequence[str], options: dict[str, Any]
) -> "subprocess.Popen[bytes] | ForkedProcess":
    """Fork a script of ours, or one with a planted bug. Execute any other program, and all of them where
    DIBS_TESTS_EXECUTE is set or another user runs them.
    """
    if program is None and "user" in options:
        program = for_other_users()
    words = [*(program or (script,)), *arguments]
    is_ours = program is None or program[1:] == (f"{os.path.dirname(program[-1])}/{PLANTED}",)
    if is_ours and not MUST_EXECUTE:
        return our_fork_server().forks.Popen(words, **options)
    return subprocess.Popen(words, **options)


def fork_daemons(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the daemons that this very process starts forked as well."""
    if not MUST_EXECUTE:
        monkeypatch.setattr(starting, "subprocess", our_fork_server().forks)


@cache
def our_fork_server() -> ForkServer:
    """One for each process that runs tests."""
    return ForkServer(kept_environment())


@cache
def commands_for_shells() -> str:
    """The folders that a PATH begins with: our console scripts, forked where that is possible, and our Python."""
    installed = os.path.dirname(sys.executable)
    if MUST_EXECUTE:
        return installed
    place = tempfile.mkdtemp(prefix="dibs-forked-")
    atexit.register(shutil.rmtree, place)
    our_fork_server().put_commands(place)
    return f"{place}:{installed}"


@cache
def advisers_fork_server() -> ForkServer:
    """Another one, which has imported Optuna and its samplers."""
    server = ForkServer(adviser_environment(), ADVISER_MAIN)
    # Until it has imported them it does not fork, and a daemon that asks for a fork waits.
    words = [sys.executable, "-P", "-m", ADVISER_MAIN]
    server.forks.Popen(words, cwd="/", env=adviser_environment(), stdin=subprocess.DEVNULL).wait()
    return server


def adviser_environment() -> dict[str, str]:
    return {**kept_environment(), **_ENVIRONMENT}


@cache
def for_other_users() -> Sequence[str]:
    """dibs, where all users may read it, with an interpreter that all may run.

    Ours may lie in a home folder, as pyenv's does, and so may this checkout.
    """
    place = tempfile.mkdtemp(prefix="dibs-for-all-", dir="/tmp")
    atexit.register(shutil.rmtree, place)
    for name in ("dibs", "click", "pytimeparse", "pynvml"):
        found = importlib.util.find_spec(name)
        assert found is not None and found.origin is not None
        if found.submodule_search_locations:
            shutil.copytree(os.path.dirname(found.origin), f"{place}/{name}")
        else:
            shutil.copy(found.origin, place)
    subprocess.run(["chmod", "-R", "a+rX", place], check=True)
    start = f"import sys; sys.path.insert(0, {place!r}); from dibs.cli.main import main; main()"
    numbered = [f"/usr/bin/python3.{number}" for number in range(11, 20)]
    for python in (sys.executable, os.path.realpath(sys.executable), *numbered, "/usr/bin/python3"):
        check = [python, "-c", f"import sys; assert sys.version_info >= (3, 11); {start}", "--version"]
        try:
            if (
                subprocess.run(check, user=NOBODY, group=NOBODY, extra_groups=[], capture_output=True).returncode
                == 0
            ):
                return (python, "-c", start)
        except OSError:
            continue
    pytest.skip("there is no Python of 3.11 or newer here that another user may run")


def make_world(root: Path, *, is_utf8: bool = False) -> World:
    """With names that are no UTF-8, unless they must be: a container engine mounts no other folders."""
    folder = root / ("a 'folder', é $(touch BAD)" if is_utf8 else "a 'folder' é\n$(touch BAD) \udcff")
    folder.mkdir()
    state = root / ("state €" if is_utf8 else "state €\udcfe")
    environ = kept_environment() | {
        "DIBS_STATE": str(state),
        "DIBS_LEASES": str(root / "leases"),
        "DIBS_PROBE": "none",
        "LEDGER": str(root / "ledger"),
    }
    return World(folder, environ, Ledger(root / "ledger"))


def kept_environment() -> dict[str, str]:
    """What a world has of our own environment."""
    return {name: os.environ[name] for name in ("PATH", "HOME", "LANG", "TMPDIR", ADVISERS) if name in os.environ}


@contextmanager
def open_store(root: Path) -> Iterator[sqlite3.Connection]:
    """A run's store, read by another process once dibs is gone."""
    connection = sqlite3.connect(os.fsencode(root / "store.db"))
    try:
        yield connection
    finally:
        connection.close()


def is_talking(pid: int) -> bool:
    """Whether a command has a socket open, and so is past its own start."""
    with suppress(OSError):
        return any("socket:" in os.readlink(f"/proc/{pid}/fd/{fd}") for fd in os.listdir(f"/proc/{pid}/fd"))
    return False


def processes_of(place: str, made_at: float = 0.0) -> dict[int, str]:
    """{pid: command line} of what has this folder in its environment, among its files or as its own.

    A process that is older than the folder is not looked into, which costs much more than to see its age.
    """
    wanted = os.fsencode(place)
    found = {}
    # A fork server has a fork's files for a moment.
    servers = [one for one in (our_fork_server, advisers_fork_server) if one.cache_info().currsize]
    ours = {os.getpid(), *(server().pid for server in servers)}
    for name in os.listdir("/proc"):
        if not name.isdigit() or int(name) in ours:
            continue
        if not _is_older(name, made_at) and _belongs_to(name, wanted):
            with suppress(OSError):
                line = Path(f"/proc/{name}/cmdline").read_bytes().replace(b"\0", b" ")
                found[int(name)] = os.fsdecode(line)
    return found


def _is_older(pid: str, moment: float) -> bool:
    """Whether /proc already had it by then. The kernel's times of files lag a few milliseconds behind."""
    with suppress(OSError):
        return os.stat(f"/proc/{pid}").st_ctime < moment - 0.1
    return True


def _belongs_to(pid: str, place: bytes) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[0]
        if state in (b"Z", b"X"):
            return False
        if place in Path(f"/proc/{pid}/environ").read_bytes():
            return True
        links = [f"/proc/{pid}/cwd", *(f"/proc/{pid}/fd/{fd}" for fd in os.listdir(f"/proc/{pid}/fd"))]
    except OSError:
        return False
    for link in links:
        with suppress(OSError):
            if os.fsencode(os.readlink(link)).startswith(place):
                return True
    return False
