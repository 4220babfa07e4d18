"""The same training runs one after another, and packed onto the card by what dibs learns about them."""

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from gpu.card import Card, Seen
from gpu.world import World, numbers
from report import Report, Table, Target, number

TITLE = "Packing"
_TRAINING = Path(__file__).with_name("training.py")
_BATCHES = (128, 192, 256, 384)  # four sizes, and two runs of each
_RATES = (0.01, 0.02)
_GROWS = Path(__file__).with_name("grows.py")
_GROWING, _GROWS_TO = 3, 48  # jobs, GiB each: more than a card has
_FIRST, _NEXT = 6.0, 10.0  # times as fast
Found = dict[str, Any]


def packing(scratch: Path) -> Iterator[Found]:
    """By dibs twice, knowing nothing and having learned; then one of each size after another."""
    card = Card()
    lines = [
        f"{sys.executable} {_TRAINING} --batch {batch} --lr {rate:g}" for rate in _RATES for batch in _BATCHES
    ]
    subprocess.run(lines[0].split(), check=True, capture_output=True)  # what Python and the driver do once
    found: Found = {"runs": len(lines), "batches": _BATCHES}
    with World(scratch) as world:
        (world.folder / "commands.txt").write_text("\n".join(lines) + "\n")
        for name in ("first", "next"):
            seen, jobs = _packed(card, world)
            found[name] = asdict(seen) | {"jobs": [_told(job) for job in jobs]}
            yield found
    each = _one_by_one(card, lines[: len(_BATCHES)])
    # The others are of the same sizes.
    more = len(lines) / len(_BATCHES)
    found["one_by_one"] = asdict(each) | {"seconds": each.seconds * more, "watt_hours": each.watt_hours * more}
    yield found


def relief(scratch: Path) -> Iterator[Found]:
    """Jobs of unknown size that together need more than the card: the youngest steps aside, and none fails."""
    found: Found = {"gib_each": _GROWS_TO, "said": []}
    with World(scratch) as world:
        lines = "".join(f"{sys.executable} {_GROWS} {_GROWS_TO}\n" for _ in range(_GROWING))
        (world.folder / "commands.txt").write_text(lines)
        begun = time.perf_counter()
        jobs = numbers(world.add("--vram", "auto", "--warm", "torch", "-f", f"{world.folder}/commands.txt"))
        youngest = jobs[-1]
        while any(not world.info(job)["ended_at"] for job in jobs):
            said = world.dibs("why", str(youngest), may_fail=True).strip()
            if "suspended" in said and said not in found["said"]:
                found["said"].append(said)
                yield found
            time.sleep(0.5)
        found |= {
            "seconds": time.perf_counter() - begun,
            "jobs": [{"state": world.info(job)["state"], **_told(_whole(world, job))} for job in jobs],
        }
        yield found


# With the seconds that each may take.
PARTS: Mapping[str, tuple[Callable[[Path], Iterator[Found]], int]] = {
    "packing": (packing, 145),
    "relief": (relief, 140),
}


def report(parts: Mapping[str, Any]) -> Report:
    """Out of what was found; what was not, because the time was up, says so."""
    found = parts.get("packing", {})
    beside = found.get("one_by_one")
    names = {
        "one_by_one": "one after another, as by simple_gpu_scheduler",
        "first": "dibs `--vram auto --warm torch`, the first time",
        "next": "dibs `--vram auto --warm torch`, the next time",
    }
    rows = [_row(title, found[name], beside) for name, title in names.items() if name in found]
    notes = []
    if jobs := found.get("next", {}).get("jobs"):
        most = max(job["usage"]["peak_vram_bytes"] or 0 for job in jobs if job["usage"])
        notes.append(f"dibs saw one run use {most / 1e9:.2f} GB at the most, and booked that with a margin.")
    if jobs := found.get("first", {}).get("jobs"):
        aside = sum(bool(job["suspensions"]) for job in jobs)
        notes.append(f"The first time {aside or 'none'} of them had to step aside for want of memory.")
    relieved = parts.get("relief", {})
    sizes = len(found.get("batches", _BATCHES))
    return Report(
        title=TITLE,
        how=(
            f"{found.get('runs', 0)} training runs of {sizes} sizes (`bench/gpu/training.py`) on one card. dibs "
            "is told nothing about their memory: the first time the others join the first run as soon as it uses "
            "the card, since the driver can suspend one of them; the next time their need is known. One after "
            "another, one run of each size is measured, and counts twice."
        ),
        tables=[Table(title="", columns=["", "s", "times as fast", "load %", "Wh", "peak GB"], rows=rows)],
        targets=[
            _target(
                f"the first time at least {_FIRST:g} times as fast as one after another", _FIRST, "first", found
            ),
            _target(f"the next time at least {_NEXT:g} times as fast", _NEXT, "next", found),
            _relief_target(relieved),
        ],
        notes=notes,
        data={"packing": dict(found), "relief": dict(relieved)},
    )


def _target(text: str, least: float, name: str, found: Found) -> Target:
    if name not in found or "one_by_one" not in found:
        return Target(text=text, measured="not measured", is_met=None)
    times = found["one_by_one"]["seconds"] / found[name]["seconds"]
    return Target(text=text, measured=f"{times:.1f} x", is_met=times >= least)


def _relief_target(found: Mapping[str, Any]) -> Target:
    text = (
        f"{_GROWING} jobs that grow to {_GROWS_TO} GiB each, of unknown size, on one card: none runs out of memory"
    )
    if "jobs" not in found:
        return Target(text=text, measured="not measured", is_met=None)
    went_well = [
        job["state"] == "succeeded" and job["number"] == 1 and job.get("is_whole") for job in found["jobs"]
    ]
    moves = sum(len(job["suspensions"]) for job in found["jobs"])
    times = "1 suspension" if moves == 1 else f"{moves} suspensions"
    measured = f"{sum(map(bool, went_well))} of {_GROWING}, {times}, {found['seconds']:.0f} s"
    return Target(text=text, measured=measured, is_met=all(went_well))


def _one_by_one(card: Card, lines: Sequence[str]) -> Seen:
    """As simple_gpu_scheduler with one GPU: the next begins when one has ended."""
    with card.watch() as watch:
        for line in lines:
            subprocess.run(line, shell=True, check=True, capture_output=True)
    return watch.seen


def _packed(card: Card, world: World) -> tuple[Seen, list[dict[str, Any]]]:
    with card.watch() as watch:
        jobs = world.add("--vram", "auto", "--warm", "torch", "-f", f"{world.folder}/commands.txt")
        world.dibs("wait", "-q", jobs)
    return watch.seen, [_whole(world, job) for job in numbers(jobs)]


def _whole(world: World, job: int) -> dict[str, Any]:
    """Everything about a job, and what it has printed last."""
    lines = world.log(job).splitlines()
    return {**world.info(job), "said": json.loads(lines[-1]) if lines and lines[-1].startswith("{") else {}}


def _row(name: str, seen: Mapping[str, Any], beside: Mapping[str, Any] | None) -> list[str]:
    return [
        name,
        f"{seen['seconds']:.1f}",
        f"{beside['seconds'] / seen['seconds']:.1f}" if beside else "",
        f"{seen['mean_load']:.0f}",
        f"{seen['watt_hours']:.2f}",
        number(seen["most_memory"] / 1e9),
    ]


def _told(job: dict[str, Any]) -> dict[str, Any]:
    attempt = job["attempts_list"][-1]
    names = ("number", "cause", "started_at", "ended_at", "share", "vram_bytes", "usage", "suspensions")
    return {name: attempt.get(name) for name in names} | job["said"]
