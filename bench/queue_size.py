"""What a long history costs: listing, starting and adding with a million ended jobs in the store."""

import os
import statistics
import time
from collections.abc import Callable, Mapping

from dibs_daemon import Daemon
from fill import fill
from peers import Say, Scratch
from report import Report, Table, Target, number

MOST = 1.5
SMALL, SMALLEST = 1_000, 100
LISTINGS = (
    "dibs ls",
    "dibs ls --state failed",
    "dibs ls --state succeeded --sort ended",
    "dibs ls --project other",
    "dibs ls --name other",
)


def measure(scratch: Scratch, *, jobs: int, times: int, say: Say) -> Report:
    """`jobs` is the large store."""
    daemons: dict[int, Daemon] = {}
    sizes: dict[int, int] = {}
    filled = 0.0
    for size in (SMALLEST, SMALL, jobs):
        daemons[size] = Daemon(scratch.folder())
        say(f"a store with {size:,} ended jobs")
        begin = time.perf_counter()
        fill(daemons[size], size)
        filled = time.perf_counter() - begin
        sizes[size] = os.path.getsize(daemons[size].store)
    say(f"that took {filled:.0f} s")
    try:
        found = _measure(daemons, jobs, times, say)
    finally:
        for daemon in daemons.values():
            daemon.stop()
    ratios = {name: seconds[jobs] / seconds[few] for name, (few, seconds) in found.items()}
    return Report(
        title="A long history",
        how=f"The same commands with few and with {jobs:,} ended jobs in the store ({sizes[jobs] / 1e6:,.0f} MB),"
        f" wall time, in turn, median of {times}. A start is `dibs daemon start` until it answers, median of"
        f" {max(3, times // 4)}.",
        tables=[
            Table(
                title="",
                columns=["command", "few", "ms with few", f"ms with {jobs:,}", "ratio"],
                rows=[
                    [
                        f"`{name}`",
                        f"{few:,}",
                        number(1e3 * seconds[few]),
                        number(1e3 * seconds[jobs]),
                        f"{ratios[name]:.2f}",
                    ]
                    for name, (few, seconds) in found.items()
                ],
            )
        ],
        targets=[
            Target(
                text=f"`{name}` at most {MOST:g} times what it costs with {found[name][0]:,}",
                measured=f"{ratio:.2f} x",
                is_met=ratio <= MOST,
            )
            for name, ratio in ratios.items()
        ],
        notes=[
            "1,000 jobs were run, and copied in the store by SQL. The copies have no attempt folders and are not"
            " in the journal: none of these commands looks there for ended jobs.",
        ],
        data={"jobs": jobs, "seconds": {name: seconds for name, (_, seconds) in found.items()}, "ratios": ratios},
    )


def _measure(
    daemons: Mapping[int, Daemon], jobs: int, times: int, say: Say
) -> dict[str, tuple[int, dict[int, float]]]:
    """For each command: what "few" is for it, and the median seconds by size."""
    for daemon in daemons.values():  # caches, and what Python compiles once
        daemon.start()
        daemon.stop()
    found = {"dibs daemon start": (SMALL, _medians(daemons, (SMALL, jobs), max(3, times // 4), _start_again))}
    daemons[SMALLEST].start()
    for command, few in (*((one, SMALL) for one in LISTINGS), ("dibs add -- true", SMALLEST)):
        say(command)
        found[command] = (few, _medians(daemons, (few, jobs), times, _running(command)))
    return found


def _running(command: str) -> Callable[[Daemon], float]:
    words = command.split()[1:]
    return lambda daemon: daemon.dibs(*words)


def _start_again(daemon: Daemon) -> float:
    daemon.stop()
    return daemon.start()


def _medians(
    daemons: Mapping[int, Daemon], sizes: tuple[int, int], times: int, act: Callable[[Daemon], float]
) -> dict[int, float]:
    seen: dict[int, list[float]] = {size: [] for size in sizes}
    for _ in range(times):
        for size in sizes:
            seen[size].append(act(daemons[size]))
    return {size: statistics.median(values) for size, values in seen.items()}
