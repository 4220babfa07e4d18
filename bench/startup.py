"""What it costs to start dibs: CPU time beside a bare interpreter."""

import json
import os
import statistics
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from peers import Say, Scratch, ToolFailed, clean_environment, dibs_command
from report import Report, Table, Target, number

BARE = "python -c pass"
SUBMIT = "python -c 'import dibs; dibs.submit'"
MOST = {"dibs --help": 5.0, "dibs gpus": 6.0, "python -c 'import dibs'": 1.5, SUBMIT: 8.0}


def measure(scratch: Scratch, *, times: int, say: Say) -> Report:
    folder = scratch.folder()
    # Eight cards out of a file: `dibs gpus` does all its own work, and the driver none.
    cards = folder / "cards.json"
    cards.write_text(json.dumps([_card(index) for index in range(8)]))
    environment = clean_environment(folder) | {"DIBS_PROBE": f"fake:{cards}"}
    command = dibs_command()
    python = str(Path(command).parent / "python")
    if not os.path.exists(python):
        python = sys.executable
    wanted = {
        BARE: [python, "-c", "pass"],
        "python -c 'import click'": [python, "-c", "import click"],
        "dibs --help": [command, "--help"],
        "dibs run --help": [command, "run", "--help"],
        "dibs gpus": [command, "gpus"],
        "python -c 'import pynvml'": [python, "-c", "import pynvml"],
        "python -c 'import dibs'": [python, "-c", "import dibs"],
        SUBMIT: [python, "-c", "import dibs; dibs.submit"],
    }
    skipped: list[str] = []
    for name in list(wanted):
        if why := _why_not(wanted[name], environment):
            say(f"without `{name}`: {why}")
            skipped.append(f"Left out: `{name}`: {why}")
            del wanted[name]

    seen: dict[str, list[float]] = {name: [] for name in wanted}
    for _ in range(times):
        for name, argv in wanted.items():
            seen[name].append(cpu_seconds(argv, environment))
    medians = {name: statistics.median(values) for name, values in seen.items()}
    ratios = {name: median / medians[BARE] for name, median in medians.items()}
    return Report(
        title="Start",
        how=f"CPU time (user + system, by wait4) of one command, median of {times}, in turn, all compiled before."
        " `dibs gpus` sees eight cards out of a file: without the driver's own time.",
        tables=[
            Table(
                title="",
                columns=["command", "CPU ms", "x bare"],
                rows=[[f"`{name}`", number(1e3 * medians[name]), f"{ratios[name]:.1f}"] for name in wanted],
            )
        ],
        targets=[_target(name, most, ratios.get(name)) for name, most in MOST.items()],
        notes=["`import pynvml` is paid by `dibs gpus` and `dibs run` only where there is a driver.", *skipped],
        data={"times": times, "cpu_seconds": medians, "ratios": ratios},
    )


def _why_not(argv: Sequence[str], environment: Mapping[str, str]) -> str:
    """Why a command cannot be measured. Running it twice also compiles what it imports."""
    for _ in range(2):
        done = subprocess.run(argv, env=environment, capture_output=True, text=True, check=False)
        if done.returncode:
            last = (done.stderr.strip().splitlines() or [""])[-1]
            return f"it ends with {done.returncode}: {last}"
    return ""


def cpu_seconds(argv: Sequence[str], environment: Mapping[str, str], folder: Path | None = None) -> float:
    """User and system time of a command and of what it waited for. Raises ToolFailed where it fails."""
    quiet = subprocess.DEVNULL
    process = subprocess.Popen(argv, env=environment, cwd=folder, stdin=quiet, stdout=quiet, stderr=quiet)
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise ToolFailed(f"`{' '.join(argv)[:100]}` ended with {process.returncode}")
    return used.ru_utime + used.ru_stime


def _target(name: str, most: float, ratio: float | None) -> Target:
    return Target(
        text=f"`{name}` at most {most:g} times a bare interpreter",
        measured=f"{ratio:.1f} x" if ratio else "?",
        is_met=ratio <= most if ratio else None,
    )


def _card(index: int) -> dict[str, object]:
    return {
        "index": index,
        "uuid": f"GPU-bench-{index}",
        "name": "NVIDIA H200",
        "memory_total": 150754820096,
        "memory_used": 0,
        "load": 0,
    }
