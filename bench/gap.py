"""How long a GPU idles between one job's end and the next one's start."""

import random
import statistics
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from peers import Say, Scratch, Tool, ToolFailed, run_list, shell_loop
from report import Report, Table, Target, number

MOST_MEDIAN_MS = 5.0
MOST_P99_MS = 20.0


@dataclass(frozen=True)
class Case:
    """A number of slots, and jobs for them.

    The more slots, the longer the jobs, and of uneven length: the gap is asked for, not the wait for a core.
    """

    gpus: tuple[str, ...]
    jobs: int
    seconds: tuple[float, float]  # how long a job sleeps: from, to

    @property
    def name(self) -> str:
        return "1 slot" if len(self.gpus) == 1 else f"{len(self.gpus)} slots"


def cases(quick: bool) -> list[Case]:
    return [
        Case(("0",), 40 if quick else 200, (0.02, 0.02)),
        Case(tuple("01234567"), 120 if quick else 400, (0.05, 0.15)),
    ]


def measure(tools: Sequence[Tool], scratch: Scratch, *, rounds: int, quick: bool, say: Say) -> Report:
    """dibs is the first of the tools."""
    entrants = [*tools, shell_loop()]
    tables: list[Table] = []
    targets: list[Target] = []
    failures: dict[str, str] = {}
    data: dict[str, Any] = {"rounds": rounds}
    for case in cases(quick):
        gaps: dict[str, list[list[float]]] = {tool.name: [] for tool in entrants}
        for turn in range(1, rounds + 1):
            for tool in entrants:
                if tool.name in failures:
                    continue
                try:
                    seen = _one_round(tool, case, scratch, seed=turn)
                except ToolFailed as error:
                    if tool is tools[0]:
                        raise
                    failures[tool.name] = str(error)
                    say(str(error))
                    continue
                gaps[tool.name].append(seen)
                say(f"{case.name}, round {turn} of {rounds}: {tool.name} {_ms(statistics.median(seen))} ms")
        found = {
            tool.name: _summary(gaps[tool.name])
            for tool in entrants
            if gaps[tool.name] and tool.name not in failures
        }
        tables.append(_table(case, entrants, found))
        targets += _targets(case, found.get(tools[0].name))
        data[case.name] = found
    return Report(
        title="The gap between two jobs",
        how="From one job's last act to the next one's first act on the same GPU. A job is a bash that writes the"
        " time, sleeps and writes the time again, so that bash's own start and end are in every number. The limit"
        " is the same job after job in a bare shell loop; the last column is what a tool adds to that.",
        tables=tables,
        targets=targets,
        notes=[
            f"{rounds} rounds; the median is that of the rounds' medians, p99 is over the gaps of all rounds.",
            "Slots are GPUs for dibs and simple_gpu_scheduler, job slots for xargs and GNU parallel. task-spooler"
            " does not tell: there each start follows the earliest end that no other start followed. It runs the"
            " first jobs while it is still being given the rest.",
            "simple_gpu_scheduler starts `/bin/sh`, which becomes the job's bash.",
            *(f"Left out: {why}" for why in failures.values()),
        ],
        data=data,
    )


def gaps_of(lines: Iterable[str], slots: int) -> list[float]:
    """The seconds from each end to the next start, out of lines `s SLOT TIME` and `e SLOT TIME`."""
    starts: dict[str, list[float]] = defaultdict(list)
    ends: dict[str, list[float]] = defaultdict(list)
    for line in lines:
        act, slot, at = line.rstrip("\n").split(" ")
        (starts if act == "s" else ends)[slot].append(float(at))
    gaps: list[float] = []
    for slot in starts:
        # Without names for slots all are one that takes so many jobs at a time.
        together = slots if slot == "" else 1
        gaps += [a - b for a, b in zip(sorted(starts[slot])[together:], sorted(ends[slot]), strict=False)]
    return gaps


def _one_round(tool: Tool, case: Case, scratch: Scratch, seed: int) -> list[float]:
    folder = scratch.folder()
    times = folder / "times"
    jobs = folder / "jobs.txt"
    jobs.write_text("".join(f"{line}\n" for line in _lines(tool, case, times, seed)))
    run_list(tool, jobs, case.gpus, folder, 60 + case.jobs)
    with open(times) as file:
        lines = file.readlines()
    if len(lines) != 2 * case.jobs:
        raise ToolFailed(f"{tool.name} ran {len(lines) / 2:g} of {case.jobs} jobs")
    gaps = gaps_of(lines, len(case.gpus))
    if min(gaps) < 0:
        raise ToolFailed(f"{tool.name} had two jobs at once on one slot")
    return gaps


def _lines(tool: Tool, case: Case, times: Path, seed: int) -> Iterable[str]:
    """Every tool gets the same lengths in the same round. A short line appended at once is never torn."""
    lengths = random.Random(seed)
    for _ in range(case.jobs):
        sleep = f"sleep {lengths.uniform(*case.seconds):.3f}"
        start, end = (f'echo "{act} {tool.slot} $EPOCHREALTIME" >>{times}' for act in "se")
        yield tool.wrap(f"{start}; {sleep}; {end}")


def _summary(rounds: Sequence[Sequence[float]]) -> dict[str, float]:
    every = sorted(gap for one in rounds for gap in one)
    return {
        "median_ms": 1e3 * statistics.median(statistics.median(one) for one in rounds),
        "p99_ms": 1e3 * every[min(len(every) - 1, int(0.99 * len(every)))],
        "max_ms": 1e3 * every[-1],
        "gaps": len(every),
    }


def _table(case: Case, tools: Sequence[Tool], found: dict[str, dict[str, float]]) -> Table:
    limit = found.get(tools[-1].name)
    rows = []
    for tool in tools:
        if not (one := found.get(tool.name)):
            continue
        above = f"{one['median_ms'] - limit['median_ms']:+.2f}" if limit and one is not limit else ""
        label = f"{tool.name} {tool.version}".strip()
        rows.append([label, number(one["median_ms"]), number(one["p99_ms"]), number(one["max_ms"]), above])
    return Table(
        title=f"{case.name}, {case.jobs} jobs a round",
        columns=["tool", "median ms", "p99 ms", "longest ms", "above the limit"],
        rows=rows,
    )


def _targets(case: Case, ours: dict[str, float] | None) -> list[Target]:
    return [
        Target(
            text=f"{what} with {case.name} at most {most:g} ms",
            measured=f"{number(ours[key])} ms" if ours else "?",
            is_met=ours[key] <= most if ours else None,
        )
        for what, key, most in (("median", "median_ms", MOST_MEDIAN_MS), ("p99", "p99_ms", MOST_P99_MS))
    ]


def _ms(seconds: float) -> str:
    return number(1e3 * seconds)
