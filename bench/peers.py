"""The tools that run a list of commands on some slots: dibs, and those it is measured against."""

import os
import select
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

CACHE = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "dibs-bench"
SEED = "simple_gpu_scheduler"
SEED_VERSION = "0.1.4"

Say = Callable[[str], None]


class ToolFailed(Exception):
    """A tool did not do its list."""


@dataclass(frozen=True, kw_only=True)
class Tool:
    """A way to run a list of commands."""

    name: str
    version: str
    argv: Callable[[str, Sequence[str]], list[str]]  # from a job file (also on stdin) and one GPU id per slot
    slot: str = ""  # what a job line writes to say on which slot it is; empty: it cannot know
    wrap: Callable[[str], str] = str  # makes a bash line fit for this tool's shell
    clean_up: list[str] = field(default_factory=list)  # run after each list, not timed


@dataclass
class Scratch:
    """A folder on the disk that is measured. Every run gets a new one in it, and nothing is deleted on the way:
    ext4 allocates inodes slowly for minutes after many were freed."""

    root: Path
    used: int = 0

    def folder(self) -> Path:
        self.used += 1
        folder = self.root / str(self.used)
        folder.mkdir()
        return folder


def dibs(shell: str = "") -> Tool:
    """The dibs that was installed beside this interpreter, or in the repository's own environment."""
    command = dibs_command()
    version = subprocess.run([command, "--version"], capture_output=True, text=True, check=True).stdout.split()[-1]
    return Tool(
        name=f"dibs --shell {shell}" if shell else "dibs",
        version=version,
        argv=lambda jobs, gpus: [
            *(command, "run", "-q", "--gpus", ",".join(gpus), "-f", jobs),
            *(["--shell", shell] if shell else []),
        ],
        slot="$CUDA_VISIBLE_DEVICES",
    )


def dibs_command() -> str:
    for folder in (Path(sys.executable).parent, Path(__file__).parents[1] / ".venv/bin"):
        if (folder / "dibs").exists():
            return str(folder / "dibs")
    raise SystemExit("bench: cannot find the command dibs: `pip install -e .` first")


def peers(say: Say) -> list[Tool]:
    """Every peer that can be had here; a missing one is fetched, or named and left out."""
    found = [_xargs(say), _seed(say), _parallel(say), _task_spooler(say)]
    return [tool for tool in found if tool]


def shell_loop() -> Tool:
    """The limit: the next command follows the last one in a bare shell loop, one loop per slot."""
    loop = (
        "for ((slot = 0; slot < $2; slot++)); do (export SLOT=$slot; i=0; while IFS= read -r line; do "
        '((i++ % $2 == slot)) && bash -c "$line" </dev/null; done <"$1"; true) & done; wait'
    )
    return Tool(
        name="shell loop (the limit)",
        version="",
        argv=lambda jobs, gpus: ["bash", "-c", loop, "loop", jobs, str(len(gpus))],
        slot="$SLOT",
    )


def run_list(tool: Tool, jobs: Path, gpus: Sequence[str], folder: Path, limit_seconds: float) -> float:
    """Run every line of a file and return how many seconds it took. Raises ToolFailed where it did not."""
    environment = clean_environment(folder)
    errors = folder / "errors"
    try:
        with open(jobs, "rb") as stdin, open(errors, "wb") as stderr:
            begin = time.perf_counter()
            process = subprocess.Popen(
                tool.argv(str(jobs), gpus),
                stdin=stdin,
                stdout=subprocess.DEVNULL,
                stderr=stderr,
                env=environment,
                cwd=folder,
            )
            status = wait_at_most(process, limit_seconds)
            if status is None:
                process.terminate()
                process.wait(30)
                raise ToolFailed(f"{tool.name} was not done after {limit_seconds:.0f} s")
            took = time.perf_counter() - begin
    finally:
        if tool.clean_up:
            subprocess.run(tool.clean_up, env=environment, capture_output=True, check=False)
    if status:
        last = errors.read_text(errors="replace").strip().splitlines()[-3:]
        raise ToolFailed(f"{tool.name} ended with {status}: {' / '.join(last)}")
    return took


def wait_at_most(process: subprocess.Popen[bytes], limit_seconds: float) -> int | None:
    """The exit code, or None. Without the 50 ms steps in which `Popen.wait` looks when it is given a limit."""
    handle = os.pidfd_open(process.pid)
    try:
        ready, _, _ = select.select([handle], [], [], limit_seconds)
    finally:
        os.close(handle)
    return process.wait() if ready else None


def clean_environment(folder: Path) -> dict[str, str]:
    """What a fresh login would have, with every tool's files under `folder`.

    Nothing of Python's: PYTHONDONTWRITEBYTECODE alone doubles the start of whatever is not compiled yet. dibs
    believes the GPU numbers it is given unless DIBS_PROBE was set outside (empty: ask the driver).
    """
    for name in ("state", "leases", "tmp"):
        (folder / name).mkdir(mode=0o700, exist_ok=True)
    kept = {name: os.environ[name] for name in ("PATH", "HOME", "USER", "LOGNAME") if name in os.environ}
    return kept | {
        "LC_ALL": "C.UTF-8",  # EPOCHREALTIME has the locale's decimal sign
        "SHELL": shutil.which("bash") or "/bin/bash",
        "DIBS_STATE": str(folder / "state"),
        "DIBS_LEASES": str(folder / "leases"),
        "DIBS_PROBE": os.environ.get("DIBS_PROBE", "none"),
        "TMPDIR": str(folder / "tmp"),
        "PARALLEL_HOME": str(folder / "tmp"),
        "TS_SOCKET": str(folder / "tsp"),
    }


def _xargs(say: Say) -> Tool | None:
    command = shutil.which("xargs")
    if not command:
        say("without xargs: there is no such command")
        return None
    return Tool(
        name="xargs",
        version=_version([command, "--version"]),
        # `-d` for lines with quotes in them; otherwise as people write it.
        argv=lambda _, gpus: [
            *(command, "-d", "\n", f"-P{len(gpus)}", "--process-slot-var=SLOT"),
            *("-I{}", "bash", "-c", "{}"),
        ],
        slot="$SLOT",
    )


def _seed(say: Say) -> Tool | None:
    """By its path: dibs installs a command of the same name."""
    home = fetched(say, SEED, SEED_VERSION)
    if not home:
        return None
    command = home / "bin" / SEED
    return Tool(
        name=SEED,
        version=SEED_VERSION,
        argv=lambda _, gpus: [str(command), "--gpus", *gpus],
        slot="$CUDA_VISIBLE_DEVICES",
        # It gives lines to /bin/sh, which has no EPOCHREALTIME.
        wrap=lambda line: f"exec bash -c {shlex.quote(line)}",
    )


def _parallel(say: Say) -> Tool | None:
    command = installed(say, "parallel", "parallel")
    version = _version([command, "--version"]) if command else ""
    if not command or "GNU" not in version:
        say("without GNU parallel: its command `parallel` is not here, or belongs to another tool")
        return None
    return Tool(
        name="GNU parallel",
        version=version.removeprefix("GNU parallel").strip(),
        argv=lambda _, gpus: [command, "--will-cite", f"-j{len(gpus)}"],
        slot="$PARALLEL_JOBSLOT",  # {%} is filled in in templates only, not in lines from stdin
    )


def _task_spooler(say: Say) -> Tool | None:
    command = installed(say, "tsp", "task-spooler")
    if not command:
        say("without task-spooler: its command `tsp` is not here")
        return None
    # `-n`, its cheapest way: without files for output. Jobs start in order, so that waiting for the last ones of
    # a fresh server, one per slot, is waiting for all.
    submit = (
        'export TS_SLOTS=$2; n=0; while IFS= read -r line; do "$0" -n bash -c "$line" </dev/null >/dev/null; '
        '((++n)); done <"$1"; for ((id = n > $2 ? n - $2 : 0; id < n; id++)); do "$0" -w $id || exit; done'
    )
    return Tool(
        name="task-spooler",
        version=next((word for word in _version([command, "-V"]).split() if word.startswith("v")), "").lstrip("v"),
        argv=lambda jobs, gpus: ["bash", "-c", submit, command, jobs, str(len(gpus))],
        clean_up=[command, "-K"],
    )


def fetched(say: Say, package: str, version: str) -> Path | None:
    """The virtual environment that holds a package of PyPI, made where it is missing."""
    home = CACHE / f"{package}-{version}"
    done = home / "installed"
    if done.exists():
        return home
    say(f"installing {package} {version} into {home}")
    steps = [
        [sys.executable, "-m", "venv", "--clear", str(home)],
        [str(home / "bin/pip"), "install", "-q", f"{package}=={version}"],
    ]
    if why := _do(steps):
        say(f"without {package}: {why}")
        return None
    done.touch()
    return home


def installed(say: Say, command: str, package: str) -> str | None:
    """The path of a command, from a system package where it is missing and we are root."""
    if not shutil.which(command) and os.geteuid() == 0 and shutil.which("apt-get"):
        say(f"installing the system package {package}")
        install = ["apt-get", "install", "-y", "--no-install-recommends", package]
        if _do([install]):
            _do([["apt-get", "update"], install])
    return shutil.which(command)


def _do(steps: Sequence[Sequence[str]]) -> str:
    """Run commands one after another; empty, or the last words of the one that failed."""
    environment = _with(os.environ, DEBIAN_FRONTEND="noninteractive")
    for step in steps:
        done = subprocess.run(step, capture_output=True, text=True, env=environment, check=False)
        if done.returncode:
            return (done.stderr.strip().splitlines() or [f"{step[0]} ended with {done.returncode}"])[-1]
    return ""


def _version(argv: Sequence[str]) -> str:
    said = subprocess.run(argv, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)
    first = (said.stdout or said.stderr).strip().splitlines()[:1]
    return first[0].removeprefix("xargs (GNU findutils)").strip() if first else ""


def _with(environment: Mapping[str, str], **more: str) -> dict[str, str]:
    return {**environment, **more}
