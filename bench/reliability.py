"""`make faults`, second part: the same crash of the scheduler for dibs and its peers, and docs/reliability.md.

The page has two tables: what the long crash tests injected and saw (lines of JSON that they wrote), and one crash
test that every tool can be given: forty short jobs on two slots, and `kill -9` of the process that schedules them.
"""

import argparse
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from datetime import date
from pathlib import Path
from typing import Any

import machine
import peers
from dibs_daemon import Daemon
from queue_peers import GFLOW_VERSION, configure_gflow, gflow_environment, package_version, running_gflowd

HERE = Path(__file__).parent
RESULTS = HERE / "reliability.json"
PAGE = HERE.parent / "docs" / "reliability.md"
JOBS, SLOTS, KILLS, SEED = 40, 2, 3, 5
SECONDS = 0.5  # of one job
QUIET = 30.0  # seconds without a line in the ledger after which nothing more is expected


@dataclass(frozen=True)
class CrashResult:
    """What the ledger says after the kills, for one tool."""

    tool: str
    version: str
    restart: str  # how it was started again
    never: int  # jobs that it had accepted and never started
    again: int  # jobs that were started more than once
    most_at_once: int  # on two slots


class Ledger:
    """A file to which every job appends its start and its end."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.touch()

    def command(self, number: int) -> str:
        return f"echo + {number} >> {self.path}; sleep {SECONDS}; echo - {number} >> {self.path}"

    def result(self, tool: str, version: str, restart: str) -> CrashResult:
        starts: Counter[str] = Counter()
        running = most = 0
        for line in self.path.read_text().splitlines():
            sign, number = line.split()
            running += 1 if sign == "+" else -1
            most = max(most, running)
            starts[number] += sign == "+"
        return CrashResult(
            tool=tool,
            version=version,
            restart=restart,
            never=JOBS - len(starts),
            again=sum(count > 1 for count in starts.values()),
            most_at_once=most,
        )

    def wait_until_quiet(self) -> None:
        size, since = -1, time.monotonic()
        while time.monotonic() - since < QUIET:
            if (now := self.path.stat().st_size) != size:
                size, since = now, time.monotonic()
            time.sleep(0.1)


def crash(ledger: Ledger, kill: Callable[[], None], restart: Callable[[], None]) -> None:
    """Kill the scheduler at random moments, start it again each time, and wait for what it still does."""
    chance = random.Random(SEED)
    for _ in range(KILLS):
        time.sleep(chance.uniform(0.5, 2.0))
        kill()
        restart()
    ledger.wait_until_quiet()


def with_dibs(folder: Path) -> CrashResult:
    ledger = Ledger(folder / "ledger")
    daemon = Daemon(folder)
    daemon.environment["DIBS_POOL"] = ",".join(map(str, range(SLOTS)))
    lines = folder / "jobs.txt"
    lines.write_text("".join(f"{ledger.command(number)}\n" for number in range(JOBS)))
    daemon.start()
    try:
        daemon.dibs("add", "-q", "-f", str(lines))
        crash(ledger, lambda: _kill(daemon.pid), daemon.start)
        daemon.wait_for(JOBS, limit_seconds=120)
    finally:
        daemon.stop()
    return ledger.result("dibs", f"{peers.dibs().version} {machine.commit()}".strip(), "`dibs daemon start`")


def with_task_spooler(folder: Path) -> CrashResult | None:
    command = peers.installed(say, "tsp", "task-spooler")
    if command is None:
        return None
    ledger = Ledger(folder / "ledger")
    environment = peers.clean_environment(folder) | {"TS_SLOTS": str(SLOTS)}

    def call(*words: str) -> None:
        subprocess.run([command, *words], env=environment, cwd=folder, capture_output=True, check=False)

    try:
        for number in range(JOBS):
            call("-n", "bash", "-c", ledger.command(number))
        crash(ledger, lambda: [_kill(pid) for pid in _servers("tsp", environment["TS_SOCKET"])], call)
    finally:
        call("-K")
    return ledger.result("task-spooler", package_version("task-spooler"), "`tsp`")


def with_simple_gpu_scheduler(folder: Path) -> CrashResult | None:
    home = peers.fetched(say, peers.SEED, peers.SEED_VERSION)
    if home is None:
        return None
    ledger = Ledger(folder / "ledger")
    lines = folder / "jobs.txt"
    lines.write_text("".join(f"{ledger.command(number)}\n" for number in range(JOBS)))
    started: list[subprocess.Popen[bytes]] = []

    def start() -> None:
        with open(lines, "rb") as stdin:
            words = [str(home / "bin" / peers.SEED), "--gpus", *map(str, range(SLOTS))]
            environment = peers.clean_environment(folder)
            quiet = subprocess.DEVNULL
            started.append(
                subprocess.Popen(words, stdin=stdin, stdout=quiet, stderr=quiet, env=environment, cwd=folder)
            )

    def kill() -> None:
        started[-1].kill()
        started[-1].wait()

    start()
    crash(ledger, kill, start)
    if started[-1].poll() is None:
        started[-1].wait(120)
    return ledger.result(peers.SEED, peers.SEED_VERSION, "its list once more, from the beginning")


def with_nq(folder: Path) -> CrashResult | None:
    command = peers.installed(say, "nq", "nq")
    if command is None:
        return None
    ledger = Ledger(folder / "ledger")
    environment = peers.clean_environment(folder)
    for slot in range(SLOTS):
        (folder / f"q{slot}").mkdir()
    for number in range(JOBS):
        subprocess.run(
            [command, "-q", "bash", "-c", ledger.command(number)],
            env=environment | {"NQDIR": str(folder / f"q{number % SLOTS}")},
            cwd=folder,
            check=True,
        )

    def kill() -> None:
        for slot in range(SLOTS):
            for pid in _servers("nq", str(folder / f"q{slot}")):
                _kill(pid)

    crash(ledger, kill, lambda: None)
    return ledger.result("nq", package_version("nq"), "nothing can be: its processes are the queue")


def with_gflow(folder: Path) -> CrashResult | None:
    home = peers.fetched(say, "runqd", GFLOW_VERSION)
    if home is None or not peers.installed(say, "tmux", "tmux"):
        return None
    ledger = Ledger(folder / "ledger")
    programs = home / "bin"
    environment = gflow_environment(programs, folder)
    port = configure_gflow(programs, folder, "tmux")
    # Every task of an array runs the same command; the number of the task is in a variable.
    script = folder / "job.sh"
    script.write_text(ledger.command(0).replace(" 0 ", " $GFLOW_ARRAY_TASK_ID "))
    with running_gflowd(programs, port, folder, environment) as daemon:
        words = ["--array", f"1-{JOBS}", "--max-concurrent", str(SLOTS), "--auto-close", "bash", str(script)]
        subprocess.run(
            [str(programs / "gbatch"), *words], env=environment, cwd=folder, capture_output=True, check=True
        )
        crash(ledger, daemon.kill, daemon.start)
    return ledger.result("gflow", GFLOW_VERSION, "`gflowd`")


TOOLS = (with_dibs, with_task_spooler, with_simple_gpu_scheduler, with_nq, with_gflow)


def _kill(pid: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def _servers(name: str, value: str) -> list[int]:
    """The processes of this program that have this value somewhere in their environment."""
    found = []
    for entry in os.listdir("/proc"):
        if entry.isdecimal():
            with suppress(OSError):
                is_named = Path(f"/proc/{entry}/comm").read_text().strip() == name
                if is_named and value.encode() in Path(f"/proc/{entry}/environ").read_bytes():
                    found.append(int(entry))
    return found


# -- the page ------------------------------------------------------------------------------------------


def page(stored: dict[str, Any]) -> str:
    """docs/reliability.md."""
    text = (HERE / "reliability.md").read_text(encoding="utf-8")
    return text.format(
        date=stored["date"],
        dibs=stored["dibs"],
        machine=", ".join(stored["machine"].values()),
        faults=table(
            ["fault", "how it was injected", "times", "jobs", "what happened"],
            [
                [row["fault"], _with_seeds(row), f"{row['times']:,}", f"{row['jobs']:,}", row["result"]]
                for row in together(stored["faults"])
            ],
        ),
        peers=table(
            ["tool", "started again by", "never ran", "ran twice", "most at once"],
            [
                [
                    f"{row['tool']} {row['version']}",
                    row["restart"],
                    *(str(row[key]) for key in ("never", "again", "most_at_once")),
                ]
                for row in stored["peers"]
            ],
        ),
        jobs=JOBS,
        slots=SLOTS,
        kills=KILLS,
    )


def together(lines: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """One row for each kind of fault: tests with several parameters have written several lines."""
    rows: dict[tuple[str, str], dict[str, Any]] = {}
    for line in lines:
        row = rows.setdefault((line["fault"], line["how"]), {**line, "times": 0, "jobs": 0, "seeds": []})
        row["times"] += line["times"]
        row["jobs"] += line["jobs"]
        if line["seed"] is not None:
            row["seeds"].append(line["seed"])
    return list(rows.values())


def _with_seeds(row: dict[str, Any]) -> str:
    if not row["seeds"]:
        return str(row["how"])
    seeds = ", ".join(map(str, row["seeds"]))
    return f"{row['how']} (seed{'' if len(row['seeds']) == 1 else 's'} {seeds})"


def table(columns: list[str], rows: list[list[str]]) -> str:
    lines = [columns, ["---"] * len(columns), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def say(text: str) -> None:
    print(f"reliability: {text}", file=sys.stderr, flush=True)


@contextmanager
def _scratch() -> Iterator[peers.Scratch]:
    root = Path(tempfile.mkdtemp(prefix="dibs-reliability-", dir="/var/tmp"))
    try:
        yield peers.Scratch(root)
    finally:
        shutil.rmtree(root, ignore_errors=True)


def measure(figures: Path) -> dict[str, Any]:
    faults = [json.loads(line) for line in figures.read_text(encoding="utf-8").splitlines()]
    results = []
    with _scratch() as scratch:
        facts = machine.facts(scratch.root)
        for run in TOOLS:
            try:
                result = run(scratch.folder())
            except (peers.ToolFailed, subprocess.SubprocessError) as error:
                if run is with_dibs:
                    raise SystemExit(f"reliability: {error}") from error
                say(f"left out: {error}")
                continue
            if result is not None:
                say(
                    f"{result.tool}: {result.never} never ran, {result.again} twice, {result.most_at_once} at once"
                )
                results.append(asdict(result))
    dibs = f"{peers.dibs().version} {machine.commit()}".strip()
    return {"date": f"{date.today():%F}", "dibs": dibs, "machine": facts, "faults": faults, "peers": results}


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="bench/reliability.py", description="The crash of a scheduler, side by side."
    )
    parser.add_argument(
        "--figures", type=Path, metavar="FILE", help="what the crash tests wrote; measure and store"
    )
    parser.add_argument("--results", type=Path, default=RESULTS, metavar="FILE", help="bench/reliability.json")
    parser.add_argument("--page", type=Path, default=PAGE, metavar="FILE", help="docs/reliability.md")
    wishes = parser.parse_args()
    if wishes.figures:
        content = json.dumps(measure(wishes.figures), indent=2, ensure_ascii=False)
        wishes.results.write_text(content + "\n", encoding="utf-8")
    stored = json.loads(wishes.results.read_text(encoding="utf-8"))
    wishes.page.write_text(page(stored), encoding="utf-8")
    say(f"wrote {wishes.page}")


if __name__ == "__main__":
    main()
