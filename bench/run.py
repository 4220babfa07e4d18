"""`make bench`: dibs beside its peers.

Prints Markdown, writes bench/results.json, and docs/benchmarks.md where asked for.
Nothing here is a test: a busy machine makes any number bad. Run it when the machine is quiet.
"""

import argparse
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Callable
from dataclasses import asdict
from datetime import datetime
from pathlib import Path
from typing import Any

import gap
import machine
import memory
import page_table
import peers
import queue_add
import queue_idle
import queue_size
import queue_throughput
import report
import slurm
import startup
import throughput

HERE = Path(__file__).parent
RESULTS = HERE / "results.json"
PAGE = HERE.parent / "docs" / "benchmarks.md"
# The quiet ones first; last what leaves most files behind.
BENCHES = (
    *("startup", "queue-add", "queue-idle", "throughput", "queue-throughput", "gap", "memory", "slurm"),
    *("queue-size", "page"),
)
# What `--only` takes: a bench, or `queue` for all that begin with it.
NAMES = (*BENCHES, "queue")
BESIDE_PEERS = {"throughput", "queue-throughput", "gap"}


def main() -> None:
    wishes = _parse()
    if not wishes.no_run:
        failed = run(wishes)
        if failed:
            sys.exit(1)
    if wishes.write_docs:
        wishes.page.write_text(report.page(_stored(wishes.results or RESULTS)), encoding="utf-8")
        say(f"wrote {wishes.page}")


def run(wishes: argparse.Namespace) -> bool:
    """Run the benches that are wished for. True if dibs itself failed in one."""
    scratch = peers.Scratch(Path(tempfile.mkdtemp(prefix="dibs-bench-", dir=wishes.scratch)))
    results = wishes.results or (None if wishes.quick else RESULTS)
    failed = False
    try:
        dibs = peers.dibs()
        facts = machine.facts(scratch.root)
        measured = f"{dibs.version} {machine.commit()}".strip()
        for name, value in (facts | {"dibs": measured}).items():
            say(f"{name}: {value}")
        chosen = [name for name in BENCHES if not wishes.only or {name, name.partition("-")[0]} & set(wishes.only)]
        tools = [dibs, *(peers.peers(say) if BESIDE_PEERS & set(chosen) else [])]
        if "slurm" in chosen and not slurm.is_possible():
            say("slurm: left out, slurm-wlm and munge are not installed")
            chosen.remove("slurm")
        if "page" in chosen and not page_table.chromium():
            say("page: left out, chromium is not installed")
            chosen.remove("page")
        for name in chosen:
            os.sync()  # what one bench wrote is not the next one's burden
            load = machine.load()
            if load > 0.25 * (os.cpu_count() or 1):
                say(f"the load is {load:.2f}: what follows is noise")
            date = datetime.now().astimezone().isoformat(timespec="minutes")
            try:
                found = _bench(name, wishes, tools, scratch)()
            except peers.ToolFailed as error:
                say(f"{name}: {error}")
                failed = True
                continue
            print(report.markdown(found) + f"\n*Load before it {load:.2f}.*\n", flush=True)
            if results:
                stamp = {"date": date, "dibs": measured, "load": f"{load:.2f}"}
                _remember(results, facts, name, {**stamp, "report": asdict(found)})
    finally:
        if wishes.keep:
            say(f"everything is still in {scratch.root}")
        else:
            say(f"removing {scratch.root}; for some minutes after that new files are slow on ext4")
            shutil.rmtree(scratch.root, ignore_errors=True)
    return failed


def say(text: str) -> None:
    """Talk goes to stderr; stdout is the tables."""
    print(f"bench: {text}", file=sys.stderr, flush=True)


def _bench(
    name: str, wishes: argparse.Namespace, tools: list[peers.Tool], scratch: peers.Scratch
) -> Callable[[], report.Report]:
    quick: bool = wishes.quick
    rounds: int = wishes.rounds or (2 if quick else 5)
    jobs: int | None = wishes.jobs
    match name:
        case "throughput":
            number = jobs or (300 if quick else 10_000)
            return lambda: throughput.measure(tools, scratch, jobs=number, rounds=rounds, say=say)
        case "gap":
            return lambda: gap.measure(tools, scratch, rounds=rounds, quick=quick, say=say)
        case "memory":
            lines = 10 * jobs if jobs else (3_000 if quick else 100_000)
            return lambda: memory.measure(scratch, lines=lines, say=say)
        case "queue-throughput":
            number, turns = jobs or (500 if quick else 10_000), wishes.rounds or (1 if quick else 2)
            return lambda: queue_throughput.measure(tools, scratch, jobs=number, rounds=turns, say=say)
        case "queue-add":
            times, lines = (5, 5_000) if quick else (31, 100_000)
            return lambda: queue_add.measure(scratch, times=times, lines=lines, say=say)
        case "slurm":
            number, turns = jobs or (30 if quick else 200), wishes.rounds or (1 if quick else 3)
            return lambda: slurm.measure(scratch, jobs=number, rounds=turns, say=say)
        case "queue-size":
            size, times = (20_000, 5) if quick else (1_000_000, 21)
            return lambda: queue_size.measure(scratch, jobs=size, times=times, say=say)
        case "page":
            size, times = (20_000, 3) if quick else (120_000, 7)
            return lambda: page_table.measure(scratch, jobs=jobs or size, times=wishes.rounds or times, say=say)
        case "queue-idle":
            seconds, queued = (5.0, 5_000) if quick else (20.0, 100_000)
            return lambda: queue_idle.measure(scratch, seconds=seconds, queued=queued, say=say)
        case _:
            return lambda: startup.measure(scratch, times=5 if quick else 20, say=say)


def _remember(path: Path, facts: dict[str, str], name: str, bench: dict[str, Any]) -> None:
    """Put one bench into the file. What another machine measured goes out of it."""
    stored = _stored(path) if path.exists() else {}
    old = stored.get("benches", {}) if stored.get("machine") == facts else {}
    benches = {**old, name: bench}
    content = {"machine": facts, "benches": {key: benches[key] for key in BENCHES if key in benches}}
    path.write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def _stored(path: Path) -> dict[str, Any]:
    try:
        content: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise SystemExit(f"bench: cannot read {path}: {error}; `{report.COMMAND}` writes it") from error
    return content


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="bench/run.py", description="Measure dibs beside its peers.")
    add = parser.add_argument
    add(
        "--only",
        action="append",
        choices=NAMES,
        metavar="NAME",
        help=f"one of {', '.join(BENCHES)}, or queue for those with its name; again for more",
    )
    add("--rounds", type=int, metavar="N", help="rounds of each comparison (default 5; 2 of queue-throughput)")
    add(
        "--jobs",
        type=int,
        metavar="N",
        help="jobs of a throughput round (default 10000); memory takes ten times that",
    )
    add(
        "--quick", action="store_true", help="small sizes, to see that it works; not written to bench/results.json"
    )
    add("--scratch", default="/var/tmp", metavar="DIR", help="a folder on the local disk to measure on (/var/tmp)")
    add("--keep", action="store_true", help="leave the scratch folder, so that the next run meets no slow inodes")
    add("--results", type=Path, metavar="FILE", help="where the numbers go (bench/results.json)")
    add("--write-docs", action="store_true", help="write docs/benchmarks.md from the results")
    add("--page", type=Path, default=PAGE, metavar="FILE", help=argparse.SUPPRESS)
    add("--no-run", action="store_true", help="measure nothing: with --write-docs, the page from stored results")
    wishes = parser.parse_args()
    if wishes.quick and wishes.write_docs and not wishes.results:
        parser.error("--quick writes no results: --write-docs needs a full run or --results FILE")
    if wishes.no_run and not wishes.write_docs:
        parser.error("--no-run without --write-docs does nothing")
    if (wishes.rounds or 1) < 1 or (wishes.jobs or 30) < 30:
        parser.error("--rounds is at least 1, --jobs at least 30")
    return wishes


if __name__ == "__main__":
    main()
