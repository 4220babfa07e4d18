"""How many jobs of `true` a second go through a queue that outlives the call that filled it."""

import statistics
from collections.abc import Sequence

from machine import fdatasync_seconds
from peers import Say, Scratch, Tool, ToolFailed
from queue_peers import Queue, queues
from report import Report, Table, Target, number

LEAST_JOBS = 12


def measure(tools: Sequence[Tool], scratch: Scratch, *, jobs: int, rounds: int, say: Say) -> Report:
    sync_before = fdatasync_seconds(scratch.root)
    entrants = queues(tools, say)
    rates: dict[str, list[float]] = {}
    failures: dict[str, str] = {}
    for turn in range(1, rounds + 1):
        for queue in entrants:
            if queue.name in failures or (queue.is_slow and turn > 1):
                continue
            count = count_of(queue, jobs)
            try:
                seconds = queue.run(scratch.folder(), count)
            except ToolFailed as error:
                if queue is entrants[0]:
                    raise
                failures[queue.name] = str(error)
                rates.pop(queue.name, None)
                say(str(error))
                continue
            rates.setdefault(queue.name, []).append(count / seconds)
            say(f"round {turn} of {rounds}: {queue.name} {number(count / seconds)} jobs/s")
    sync_after = fdatasync_seconds(scratch.root)
    ran = [queue for queue in entrants if queue.name in rates]
    return Report(
        title="Throughput of the queue",
        how=f"{jobs:,} jobs of `true` on 4 slots, from before they are added until the last has ended; rounds:"
        f" {rounds}. Daemons are up before; each round has a fresh folder. dibs is given them by `dibs add -f` and"
        " asked by `/v1/status`; it has every job, every exit code and every event on disk, every job's output in"
        " files of its own, and supervisors that outlive it.",
        tables=[
            Table(
                title="",
                columns=["queue", "keeps its queue on disk", "jobs", "jobs/s", "lowest-highest", "dibs / it"],
                rows=[_row(queue, jobs, rates) for queue in ran],
            )
        ],
        targets=[_target(queue, rates) for queue in entrants[1:] if queue.is_on_disk],
        notes=[
            f"One fdatasync on this disk: {sync_before * 1e3:.2f} ms before, {sync_after * 1e3:.2f} ms after.",
            "Slow queues get fewer jobs, and gflow one round: what is compared is jobs per second.",
            "gflow runs its jobs in tmux by default, which tells their ends at once; its plain processes it asks"
            " every 10 s. So the row for four at a time is tmux, and the row `all at once` is its processes"
            " without any limit, which is the most it can do and more than 4 slots would let it.",
            "HyperQueue runs through its Python package, which brings no `hq` and cannot turn its journal on. nq"
            " has one process for each waiting job, which a reboot takes away; four queues, one for each slot.",
            "pueue is not here: no registry that can be reached offers it.",
            *(f"Left out: {why}" for why in failures.values()),
        ],
        data={
            "jobs": {queue.name: count_of(queue, jobs) for queue in ran},
            "rounds": rounds,
            "jobs_per_second": rates,
        },
    )


def count_of(queue: Queue, jobs: int) -> int:
    return max(LEAST_JOBS, round(jobs * queue.part))


def _ratio(them: str, rates: dict[str, list[float]]) -> float:
    """Of the rounds in which both ran."""
    return statistics.median(a / b for a, b in zip(rates["dibs"], rates[them], strict=False))


def _row(queue: Queue, jobs: int, rates: dict[str, list[float]]) -> list[str]:
    own = rates[queue.name]
    return [
        f"{queue.name} {queue.version}".strip(),
        queue.keeps,
        f"{count_of(queue, jobs):,}",
        number(statistics.median(own)),
        f"{number(min(own))}-{number(max(own))}",
        number(_ratio(queue.name, rates)),
    ]


def _target(queue: Queue, rates: dict[str, list[float]]) -> Target:
    text = f"ahead of {queue.name}, which keeps its queue on disk"
    if queue.name not in rates:
        return Target(text=text, measured="?", is_met=None)
    ratio = _ratio(queue.name, rates)
    return Target(text=text, measured=f"{number(ratio)} x", is_met=ratio > 1)
