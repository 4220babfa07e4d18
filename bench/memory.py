"""What a long list costs in memory and in time per job, and what supervision costs per running job."""

import os
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import IO

from peers import Say, Scratch, ToolFailed, clean_environment, dibs_command
from report import Report, Table, Target, number

MOST_MB = 150.0
FLAT = 0.2  # 10 % and 100 % of the list may differ by this part
MOST_PRIVATE_MB = 6.0
PARTS = 10
RUNNING = 8
_MB = 1e6


def measure(scratch: Scratch, *, lines: int, say: Say) -> Report:
    say(f"{lines:,} lines on stdin")
    samples, marks = _long_list(scratch, lines)
    say(f"{RUNNING} jobs running")
    private = _private_bytes(scratch)

    at = {part: _nearest(samples, marks[part]) for part in (1, PARTS // 2, PARTS)}
    most, supervisors = max(rss for _, rss, _ in samples), max(shim for _, _, shim in samples)
    growth = at[PARTS] / at[1]
    spans = [b - a for a, b in pairwise(marks)]
    slowdown = spans[-1] / spans[0]
    per_job = sum(private.values()) / RUNNING
    step = lines // PARTS
    percent = 100 // PARTS
    return Report(
        title="Memory",
        how=f"{lines:,} lines of `true` through a pipe into `dibs run` on 4 slots: its resident memory when so"
        f" much of the list was done, and the time for each {step:,} jobs. Then {RUNNING} jobs of `sleep` at once,"
        " under supervisors that have seen other jobs before: the private memory (Private_Clean + Private_Dirty)"
        " of the supervisors and of the zygote that forks them.",
        tables=[
            Table(
                title="A long list",
                columns=["of the list", "resident MB", f"seconds per {step:,} jobs"],
                rows=[
                    [
                        f"{part * percent} %",
                        number(_nearest(samples, marks[part]) / _MB),
                        number(spans[part - 1]),
                    ]
                    for part in range(1, PARTS + 1)
                ],
            ),
            Table(
                title=f"{RUNNING} jobs running",
                columns=["process", "private MB"],
                rows=[
                    *([name, number(size / _MB)] for name, size in private.items()),
                    ["per running job", number(per_job / _MB)],
                ],
            ),
        ],
        targets=[
            Target(text=f"under {MOST_MB:g} MB", measured=f"{number(most / _MB)} MB", is_met=most < MOST_MB * _MB),
            Target(
                text=f"flat: 100 % within {FLAT:.0%} of 10 %",
                measured=f"{growth - 1:+.0%}",
                is_met=abs(growth - 1) <= FLAT,
            ),
            Target(
                text=f"the last {step:,} jobs cost what the first did (within {FLAT:.0%})",
                measured=f"{slowdown:.2f} x",
                is_met=slowdown <= 1 + FLAT,
            ),
            Target(
                text=f"under {MOST_PRIVATE_MB:g} MB private per running job",
                measured=f"{number(per_job / _MB)} MB",
                is_met=per_job < MOST_PRIVATE_MB * _MB,
            ),
        ],
        notes=[
            f"The largest supervisor of the long list had {number(supervisors / _MB)} MB, shared pages included."
        ],
        data={
            "lines": lines,
            "rss_bytes": {f"{part * percent}%": size for part, size in at.items()},
            "max_rss_bytes": most,
            "max_supervisor_rss_bytes": supervisors,
            "seconds_per_part": spans,
            "private_bytes": private,
            "private_bytes_per_job": per_job,
        },
    )


def _long_list(scratch: Scratch, lines: int) -> tuple[list[tuple[float, int, int]], list[float]]:
    """Samples (time, bytes of `dibs run`, bytes of its largest supervisor), and when each tenth was reached.

    The first line and every tenth's last one write the time instead of `true`: jobs start in order.
    """
    folder = scratch.folder()
    marks = folder / "marks"
    step = lines // PARTS
    mark = f"echo $EPOCHREALTIME >>{marks}\n".encode()

    def feed(pipe: IO[bytes]) -> None:
        try:
            with pipe:
                pipe.write(mark + b"true\n" * (step - 2) + mark)
                for _ in range(PARTS - 1):
                    pipe.write(b"true\n" * (step - 1) + mark)
        except BrokenPipeError:
            pass  # dibs ended early, and its exit code tells

    samples: list[tuple[float, int, int]] = []
    with _dibs(folder, "0,0,0,0", "-") as process:
        assert process.stdin
        threading.Thread(target=feed, args=(process.stdin,), daemon=True).start()
        while process.poll() is None:
            now = time.time()
            if rss := resident(process.pid):
                below = [resident(pid) for pid, _ in _supervisors(process.pid)]
                samples.append((now, rss, max(below, default=0)))
            time.sleep(0.1)
    reached = [float(line) for line in marks.read_text().split()]
    if len(reached) != PARTS + 1 or not samples:
        raise ToolFailed(f"dibs reached {len(reached)} of {PARTS + 1} marks in a list of {lines:,} lines")
    return samples, sorted(reached)


def _private_bytes(scratch: Scratch) -> dict[str, int]:
    """The private memory of the zygote and its shims, by name, while 8 jobs sleep."""
    folder = scratch.folder()
    jobs = folder / "jobs.txt"
    jobs.write_text("true\n" * 25 * RUNNING + "exec sleep 4\n" * RUNNING)
    with _dibs(folder, ",".join(map(str, range(RUNNING))), "-f", str(jobs)) as process:
        deadline = time.monotonic() + 60
        while (sleeping := _sleeping(process.pid)) < RUNNING:
            if process.poll() is not None or time.monotonic() > deadline:
                raise ToolFailed(f"dibs had {sleeping} of {RUNNING} jobs running at once")
            time.sleep(0.02)
        time.sleep(1)
        zygotes = set(_children(process.pid))
        found = {"zygote": 0, f"{RUNNING} supervisors": 0}
        for pid, _ in _supervisors(process.pid):
            found["zygote" if pid in zygotes else f"{RUNNING} supervisors"] += private(pid)
    return found


@contextmanager
def _dibs(folder: Path, gpus: str, *inputs: str) -> Iterator[subprocess.Popen[bytes]]:
    """`dibs run` of a list, waited for at the end. Raises ToolFailed where a job failed."""
    errors = folder / "errors"
    with open(errors, "wb") as stderr:
        process = subprocess.Popen(
            [dibs_command(), "run", "-q", "--gpus", gpus, *inputs],
            stdin=subprocess.PIPE if "-" in inputs else subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=stderr,
            env=clean_environment(folder),
            cwd=folder,
        )
        try:
            yield process
        except BaseException:
            process.terminate()
            raise
        finally:
            status = process.wait()
    if status:
        raise ToolFailed(f"dibs ended with {status}: {errors.read_text(errors='replace').strip()[-300:]}")


def _nearest(samples: list[tuple[float, int, int]], at: float) -> int:
    return min(samples, key=lambda sample: abs(sample[0] - at))[1]


def _supervisors(pid: int) -> list[tuple[int, str]]:
    """The processes below dibs that are dibs's own: Python with the zygote's command line."""
    return [(child, line) for child, line in below(pid) if "zygote" in line]


def _sleeping(pid: int) -> int:
    return sum(line.startswith("sleep ") for _, line in below(pid))


def below(pid: int) -> list[tuple[int, str]]:
    """Every process under one, with its command line."""
    found: list[tuple[int, str]] = []
    for child in _children(pid):
        found += [(child, _read(f"/proc/{child}/cmdline").replace("\0", " ")), *below(child)]
    return found


def _children(pid: int) -> list[int]:
    try:
        tasks = os.listdir(f"/proc/{pid}/task")
    except OSError:
        return []
    return [int(child) for task in tasks for child in _read(f"/proc/{pid}/task/{task}/children").split()]


def resident(pid: int) -> int:
    return _kilobytes(_read(f"/proc/{pid}/status"), "VmRSS:")


def private(pid: int) -> int:
    rollup = _read(f"/proc/{pid}/smaps_rollup")
    return _kilobytes(rollup, "Private_Clean:") + _kilobytes(rollup, "Private_Dirty:")


def _kilobytes(text: str, name: str) -> int:
    """The bytes behind a name, 0 where the process is gone."""
    return next((int(line.split()[1]) * 1024 for line in text.splitlines() if line.startswith(name)), 0)


def _read(path: str) -> str:
    try:
        with open(path, errors="replace") as file:
            return file.read()
    except OSError:
        return ""
