"""What it costs to start dibs: CPU time beside a bare interpreter, and the time until one command has run."""

import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from peers import Say, Scratch, ToolFailed, clean_environment, dibs_command
from report import Report, Table, Target, number

BARE = "python -c pass"
SUBMIT = "python -c 'import dibs; dibs.submit'"
MOST = {"dibs --help": 5.0, "dibs gpus": 6.0, "python -c 'import dibs'": 1.5, SUBMIT: 8.0}
RUN = "dibs run -- true"
RUN_WITHOUT_DRIVER = "dibs run --gpus 0 -- true  # without a driver"
MOST_OF_A_RUN = 0.15  # seconds until it has ended


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
    runs = _runs(command, environment, times)
    return Report(
        title="Start",
        how=f"CPU time (user + system, by wait4) of one command, median of {times}, in turn, all compiled before."
        " `dibs gpus` sees eight cards out of a file: without the driver's own time. Then the wall time of `dibs"
        " run` with a command that does nothing, from its start to its end.",
        tables=[
            Table(
                title="",
                columns=["command", "CPU ms", "x bare"],
                rows=[[f"`{name}`", number(1e3 * medians[name]), f"{ratios[name]:.1f}"] for name in wanted],
            ),
            Table(
                title="One command from start to end",
                columns=["command", "wall ms"],
                rows=[[f"`{name}`", number(1e3 * seconds)] for name, seconds in runs.items()],
            ),
        ],
        targets=[
            *(_target(name, most, ratios.get(name)) for name, most in MOST.items()),
            Target(
                text=f"`{RUN}` ends within {1e3 * MOST_OF_A_RUN:g} ms, with and without a driver",
                measured=f"{number(1e3 * max(runs.values()))} ms",
                is_met=max(runs.values()) <= MOST_OF_A_RUN,
            ),
        ],
        notes=["`import pynvml` is paid by `dibs gpus` and `dibs run` only where there is a driver.", *skipped],
        data={"times": times, "cpu_seconds": medians, "ratios": ratios, "run_seconds": runs},
    )


def _runs(command: str, environment: Mapping[str, str], times: int) -> dict[str, float]:
    """Median wall seconds of a run of one command, with the cards of the environment and without a driver."""
    wanted = {
        RUN: ([command, "run", "--", "true"], environment),
        RUN_WITHOUT_DRIVER: ([command, "run", "--gpus", "0", "--", "true"], {**environment, "DIBS_PROBE": "none"}),
    }
    seen: dict[str, list[float]] = {name: [] for name in wanted}
    for turn in range(times + 2):
        for name, (argv, variables) in wanted.items():
            began = time.perf_counter()
            cpu_seconds(argv, variables)
            if turn >= 2:  # what Python compiles once
                seen[name].append(time.perf_counter() - began)
    return {name: statistics.median(values) for name, values in seen.items()}


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
