"""The same training runs one after another, and packed onto the card by what dibs learns about them."""

import json
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from gpu.card import Card, Seen
from gpu.world import World, numbers
from report import Report, Table, Target, number

_TRAINING = Path(__file__).with_name("training.py")
_LEAST = 4.0


def measure(card: Card, scratch: Path, *, runs: int) -> Report:
    """One by one as simple_gpu_scheduler does it, then by dibs twice: knowing nothing, and having learned."""
    lines = [f"{sys.executable} {_TRAINING} --lr {0.01 * (place + 1):g}" for place in range(runs)]
    subprocess.run(lines[0].split(), check=True, capture_output=True)  # what Python and the driver do once
    one_by_one = _one_by_one(card, lines)
    world = World(scratch / "packing")
    (world.folder / "commands.txt").write_text("\n".join(lines) + "\n")
    try:
        cold, first = _packed(card, world)
        warm, jobs = _packed(card, world)
    finally:
        world.stop()
    rows = [
        _row("simple_gpu_scheduler, one after another", one_by_one, one_by_one),
        _row("dibs `--vram auto`, the first time", cold, one_by_one),
        _row("dibs `--vram auto`, the next time", warm, one_by_one),
    ]
    learned = jobs[-1]["attempts_list"][-1]["usage"]["peak_vram_bytes"]
    return Report(
        title="Packing",
        how=(
            f"{runs} training runs (`bench/gpu/training.py`) on one card. dibs is told nothing about their "
            "memory: the first time the first run shows it, and the others join as soon as it is steady; the next "
            "time it is known."
        ),
        tables=[Table(title="", columns=["", "s", "times as fast", "load %", "Wh", "peak GB"], rows=rows)],
        targets=[
            Target(
                text=f"at least {_LEAST:g} times as fast as one after another, with everything learned by dibs",
                measured=f"{one_by_one.seconds / warm.seconds:.1f} x",
                is_met=one_by_one.seconds / warm.seconds >= _LEAST,
            )
        ],
        notes=[f"dibs saw one run use {learned / 1e9:.2f} GB at the most, and booked that with a margin."],
        data={
            "one_by_one": asdict(one_by_one),
            "cold": asdict(cold),
            "warm": asdict(warm),
            "first_time": [_told(job) for job in first],
            "next_time": [_told(job) for job in jobs],
        },
    )


def _one_by_one(card: Card, lines: Sequence[str]) -> Seen:
    with card.watch() as watch:
        subprocess.run(
            [sys.executable, "-c", "from simple_gpu_scheduler.scheduler import main; main()", "--gpus", "0"],
            input="\n".join(lines) + "\n",
            text=True,
            check=True,
            capture_output=True,
        )
    return watch.seen


def _packed(card: Card, world: World) -> tuple[Seen, list[dict[str, Any]]]:
    with card.watch() as watch:
        jobs = world.add("--vram", "auto", "-f", f"{world.folder}/commands.txt")
        world.dibs("wait", "-q", jobs)
    return watch.seen, [{**world.info(job), "said": json.loads(world.log(job))} for job in numbers(jobs)]


def _row(name: str, seen: Seen, beside: Seen) -> list[str]:
    return [
        name,
        f"{seen.seconds:.1f}",
        f"{beside.seconds / seen.seconds:.1f}",
        f"{seen.mean_load:.0f}",
        f"{seen.watt_hours:.2f}",
        number(seen.most_memory / 1e9),
    ]


def _told(job: dict[str, Any]) -> dict[str, Any]:
    attempt = job["attempts_list"][-1]
    return {name: attempt.get(name) for name in ("started_at", "ended_at", "claims", "usage")} | job["said"]
