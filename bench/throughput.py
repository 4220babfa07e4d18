"""How many jobs of `true` a second, on four slots."""

import os
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from machine import fdatasync_seconds
from peers import SEED, Say, Scratch, Tool, ToolFailed, dibs, run_list
from report import Report, Table, Target, number

SLOTS = ["0"] * 4
CARDS = ["0", "1", "2", "3"]
FLOOR = 0.9
IN_BASH = f"{SEED}, in bash"
IN_SH = "dibs --shell sh"
ON_CARDS = "dibs, on four cards"
# Us, them, the least ratio that keeps the promise.
PROMISES = [
    ("dibs", SEED, FLOOR, f"at least {FLOOR} of {SEED} (its lines in `sh`, ours in bash)"),
    (ON_CARDS, SEED, FLOOR, f"at least {FLOOR} of {SEED}, on four cards"),
    ("dibs", IN_BASH, 1.0, f"ahead of {SEED}, both in bash"),
    ("dibs", "GNU parallel", 1.0, "ahead of GNU parallel"),
    ("dibs", "task-spooler", 1.0, "ahead of task-spooler"),
    ("dibs", "xargs", FLOOR, f"at least {FLOOR} of xargs"),
    (ON_CARDS, "xargs", FLOOR, f"at least {FLOOR} of xargs, on four cards"),
]


@dataclass(frozen=True)
class Entrant:
    """A tool, and the line it runs again and again."""

    tool: Tool
    line: str = "true"
    slots: Sequence[str] = tuple(SLOTS)

    def jobs(self, count: int, folder: Path) -> Path:
        file = folder / "jobs.txt"
        file.write_text(f"{self.line}\n" * count)
        return file


def measure(tools: Sequence[Tool], scratch: Scratch, *, jobs: int, rounds: int, say: Say) -> Report:
    """dibs is the first of the tools."""
    sync_before = fdatasync_seconds(scratch.root)
    entrants = _entrants(tools)
    rates: dict[str, list[float]] = {}
    failures: dict[str, str] = {}
    for turn in range(rounds + 1):
        count = jobs if turn else 20  # round 0 is not counted: caches, and what Python compiles once
        for entrant in (
            entrants if turn % 2 else reversed(entrants)
        ):  # so that none always comes after the same one
            name = entrant.tool.name
            if name in failures:
                continue
            folder = scratch.folder()
            os.sync()  # what the one before wrote is not this one's burden
            try:
                seconds = run_list(
                    entrant.tool, entrant.jobs(count, folder), list(entrant.slots), folder, 60 + count / 20
                )
            except ToolFailed as error:
                if entrant is entrants[0]:
                    raise
                failures[name] = str(error)
                rates.pop(name, None)
                say(str(error))
                continue
            if turn:
                rates.setdefault(name, []).append(count / seconds)
                say(f"round {turn} of {rounds}: {name} {number(count / seconds)} jobs/s")
    sync_after = fdatasync_seconds(scratch.root)
    return Report(
        title="Throughput",
        how=f"{jobs:,} jobs of `true` on 4 slots, {rounds} rounds, from the start of the tool to its end. dibs has"
        " every exit code on disk, every job's output in files of its own, and supervisors that outlive it.",
        tables=[
            Table(
                title="",
                columns=["tool", "jobs/s", "lowest-highest", "dibs / it", "it / xargs"],
                rows=[_row(entrant.tool, rates) for entrant in entrants if entrant.tool.name in rates],
            )
        ],
        targets=[_target(*promise, rates) for promise in PROMISES],
        notes=[
            f"One fdatasync on this disk: {sync_before * 1e3:.2f} ms before, {sync_after * 1e3:.2f} ms after.",
            "A ratio is the median over the rounds of both rates in the same round."
            " Every other round goes backwards.",
            f"xargs is `xargs -P4 -I{{}} bash -c {{}}`. {SEED} gives lines to `/bin/sh`; where that is dash, a job"
            " of `true` costs it half as much, so that both shells are measured for both.",
            "task-spooler runs with `-n`, its cheapest way; submitting is part of its time.",
            *(f"Left out: {why}" for why in failures.values()),
        ],
        data={
            "jobs": jobs,
            "rounds": rounds,
            "jobs_per_second": rates,
            "fdatasync_seconds": [sync_before, sync_after],
        },
    )


def _entrants(tools: Sequence[Tool]) -> list[Entrant]:
    entrants = [Entrant(tool) for tool in tools]
    if seed := next((tool for tool in tools if tool.name == SEED), None):
        entrants += [Entrant(dibs(shell="sh")), Entrant(replace(seed, name=IN_BASH), seed.wrap("true"))]
    entrants.insert(1, Entrant(replace(dibs(), name=ON_CARDS), slots=CARDS))
    return entrants


def _ratio(us: str, them: str, rates: dict[str, list[float]]) -> float | None:
    if us not in rates or them not in rates:
        return None
    return statistics.median(a / b for a, b in zip(rates[us], rates[them], strict=True))


def _row(tool: Tool, rates: dict[str, list[float]]) -> list[str]:
    own = rates[tool.name]
    ratios = _ratio("dibs", tool.name, rates), _ratio(tool.name, "xargs", rates)
    return [
        tool.name if "," in tool.name else f"{tool.name} {tool.version}".strip(),
        number(statistics.median(own)),
        f"{number(min(own))}-{number(max(own))}",
        *("?" if ratio is None else number(ratio) for ratio in ratios),
    ]


def _target(us: str, them: str, least: float, text: str, rates: dict[str, list[float]]) -> Target:
    ratio = _ratio(us, them, rates)
    if ratio is None:
        return Target(text=text, measured="?", is_met=None)
    return Target(text=text, measured=f"{number(ratio)} x", is_met=ratio >= least)
