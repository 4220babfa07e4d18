"""What it costs to add jobs: one call, with what it is spent on, and many lines at once."""

import statistics
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from dibs_daemon import Daemon, interpreter, running
from peers import Say, Scratch
from report import Report, Table, Target, number
from startup import BARE, cpu_seconds

MOST_OF_BARE = 5.1
MOST_BULK_SECONDS = 5.0
ADD = "dibs add -- true"
ADD_IN_REPOSITORY = "dibs add -- true  # in a git repository"
BULK_ROUNDS = 3
# `-X importtime` also names what was looked for and is not there. dibs too leaves without tidying up.
_IMPORT = """
import os, sys
for name in sys.argv[1].split(","):
    try:
        __import__(name)
    except ImportError:
        pass
os._exit(0)
"""

CLICK = "click, and what it imports"
OURS = "dibs's own modules"
STANDARD = "what dibs needs of the standard library"


def measure(scratch: Scratch, *, times: int, lines: int, say: Say) -> Report:
    with running(scratch.folder()) as daemon:
        say(f"`{ADD}`, {times} times")
        parts = _parts(daemon)
        medians = _one_call(daemon, parts, times)
    ratios = {name: median / medians[BARE] for name, median in medians.items()}
    with running(scratch.folder()) as daemon:
        bulk = _bulk(daemon, lines, say)
    spent = _spent(medians, parts)
    return Report(
        title="Adding jobs",
        how=f"One call while the daemon runs: CPU time (user + system) of the client and of what it starts, median"
        f" of {times}, in turn with a bare interpreter, all compiled before. Then {lines:,} different lines by"
        f" `dibs add -f` into a paused queue, wall time, {BULK_ROUNDS} times in a row.",
        tables=[
            Table(
                title="One call",
                columns=["command", "CPU ms", "x bare"],
                rows=[
                    [f"`{name}`", number(1e3 * medians[name]), f"{ratios[name]:.1f}"]
                    for name in medians
                    if name not in parts
                ],
            ),
            Table(
                title=f"What `{ADD}` is spent on",
                columns=["part", "modules", "ms", "x bare"],
                rows=[
                    [name, str(modules or ""), number(1e3 * seconds), f"{seconds / medians[BARE]:.1f}"]
                    for name, modules, seconds in spent
                ],
            ),
            Table(
                title=f"{lines:,} lines at once",
                columns=["round", "seconds", "lines/s"],
                rows=[
                    [str(turn), number(seconds), number(lines / seconds)] for turn, seconds in enumerate(bulk, 1)
                ],
            ),
        ],
        targets=[
            Target(
                text=f"`{ADD}` at most {MOST_OF_BARE:g} times a bare interpreter",
                measured=f"{ratios[ADD]:.1f} x",
                is_met=ratios[ADD] <= MOST_OF_BARE,
            ),
            Target(
                text=f"{lines:,} lines in under {MOST_BULK_SECONDS:g} s",
                measured=f"{number(statistics.median(bulk))} s",
                is_met=statistics.median(bulk) < MOST_BULK_SECONDS,
            ),
        ],
        notes=[
            "The modules are those that `-X importtime` names; each part is the CPU time of importing it after the"
            " parts above it, and the last row is what remains of the whole.",
            "In a git repository the commit and the difference to it are recorded: git's own time is in that row.",
        ],
        data={
            "times": times,
            "cpu_seconds": medians,
            "ratios": ratios,
            "spent_seconds": {name: seconds for name, _, seconds in spent},
            "bulk_lines": lines,
            "bulk_seconds": bulk,
        },
    )


def _one_call(daemon: Daemon, parts: Mapping[str, Sequence[str]], times: int) -> dict[str, float]:
    """Median CPU seconds of each command, and of importing each part and those before it."""
    repository = _repository(daemon)
    add = [daemon.command, "add", "--", "true"]
    wanted = {
        BARE: ([interpreter(), "-c", "pass"], daemon.folder),
        ADD: (add, daemon.folder),
    }
    modules: list[str] = []
    for name, more in parts.items():
        modules += more
        wanted[name] = (_importing(modules), daemon.folder)
    if repository:
        wanted[ADD_IN_REPOSITORY] = (add, repository)
    seen: dict[str, list[float]] = {name: [] for name in wanted}
    for turn in range(times + 2):
        for name, (argv, folder) in wanted.items():
            used = cpu_seconds(argv, daemon.environment, folder)
            if turn >= 2:  # caches, and what Python compiles once
                seen[name].append(used)
    return {name: statistics.median(values) for name, values in seen.items()}


def _repository(daemon: Daemon) -> Path | None:
    """A small repository with one commit and a change."""
    folder = daemon.folder / "repository"
    folder.mkdir()
    (folder / "train.py").write_text("print(1)\n")
    author = ["-c", "user.name=bench", "-c", "user.email=bench@localhost"]
    try:
        for words in (["init", "-q"], ["add", "."], [*author, "commit", "-q", "-m", "first"]):
            subprocess.run(["git", *words], cwd=folder, env=daemon.environment, capture_output=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return None
    (folder / "train.py").write_text("print(2)\n")
    return folder


def _spent(medians: Mapping[str, float], parts: Mapping[str, Sequence[str]]) -> list[tuple[str, int, float]]:
    """The parts of one call: name, modules, seconds. Each is the difference to the one before."""
    found = [("the interpreter's own start", 0, medians[BARE])]
    so_far = medians[BARE]
    for name, modules in parts.items():
        found.append((name, len(modules), medians[name] - so_far))
        so_far = medians[name]
    return [*found, ("reading options, asking the daemon, printing, ending", 0, medians[ADD] - so_far)]


def _parts(daemon: Daemon) -> dict[str, list[str]]:
    """What one call imports beyond a bare interpreter, in the order in which the parts are measured."""
    bare = {name for name, _ in _imported(daemon, ["-c", "pass"])}
    parts: dict[str, list[str]] = {CLICK: [], STANDARD: [], OURS: []}
    for name, importers in _imported(daemon, [daemon.command, "add", "--", "true"]):
        if name not in bare:
            parts[_part(name, importers)].append(name)
    return parts


def _part(name: str, importers: Sequence[str]) -> str:
    if any(one.partition(".")[0] == "click" for one in (name, *importers)):
        return CLICK
    return OURS if name.partition(".")[0] == "dibs" else STANDARD


def _importing(modules: Sequence[str]) -> list[str]:
    """A command that imports these and does nothing else."""
    return [
        interpreter(),
        "-c",
        _IMPORT,
        ",".join(modules),
    ]


def _imported(daemon: Daemon, words: list[str]) -> list[tuple[str, tuple[str, ...]]]:
    done = subprocess.run(
        [interpreter(), "-X", "importtime", *words],
        env=daemon.environment,
        cwd=daemon.folder,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=True,
    )
    return imported(done.stderr)


def imported(text: str) -> list[tuple[str, tuple[str, ...]]]:
    """Every module of what `-X importtime` prints, with those on whose behalf it was imported.

    An importer is printed after what it imports, and stands further left.
    """
    found: list[tuple[str, tuple[str, ...]]] = []
    above: list[str] = []
    for line in reversed(text.splitlines()):
        own, bar, rest = line.removeprefix("import time:").partition("|")
        if not bar or not own.strip().isdigit():
            continue
        shown = rest.partition("|")[2][1:]
        name = shown.lstrip()
        depth = (len(shown) - len(name)) // 2
        above = above[:depth]
        found.append((name, tuple(above)))
        above.append(name)
    return found[::-1]


def _bulk(daemon: Daemon, lines: int, say: Say) -> list[float]:
    took = []
    file = daemon.folder / "lines.txt"
    file.write_text("".join(f"python train.py --lr 0.1 --seed {seed}\n" for seed in range(lines)))
    daemon.dibs("pause")
    for turn in range(1, BULK_ROUNDS + 1):
        took.append(daemon.dibs("add", "-q", "-f", str(file)))
        say(f"{lines:,} lines, round {turn} of {BULK_ROUNDS}: {number(took[-1])} s")
    return took
