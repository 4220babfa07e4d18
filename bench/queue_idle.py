"""What a daemon costs that has nothing to do, and one whose queue is long."""

import os
import time
from pathlib import Path

from dibs_daemon import Daemon, running
from memory import below, private, resident
from peers import Say, Scratch, ToolFailed
from report import Report, Table, Target, number

MOST_PERCENT = 0.3
MOST_MB = 80.0
DESCRIPTORS = 256
RAN_BEFORE = 200
_MB = 1e6
_TICKS = os.sysconf("SC_CLK_TCK")


def measure(scratch: Scratch, *, seconds: float, queued: int, say: Say) -> Report:
    with running(scratch.folder()) as daemon:
        _run_some(daemon, RAN_BEFORE)
        say(f"idle for {seconds:g} s")
        percent = _percent(daemon, seconds)
        idle = _sizes(daemon)
    with running(scratch.folder(), descriptors=DESCRIPTORS) as daemon:
        say(f"{queued:,} queued under `ulimit -n {DESCRIPTORS}`")
        lines = daemon.folder / "lines.txt"
        lines.write_text("".join(f"python train.py --seed {seed}\n" for seed in range(queued)))
        daemon.dibs("pause", "-P", "later")
        daemon.dibs("add", "-q", "-P", "later", "-f", str(lines))
        before = time.perf_counter()
        _run_some(daemon, RAN_BEFORE)
        ran_in = time.perf_counter() - before
        percent_queued = _percent(daemon, seconds)
        full = _sizes(daemon)
        counts = daemon.status()["counts"]
        open_files = len(os.listdir(f"/proc/{daemon.pid}/fd"))
    works = counts.get("queued") == queued and counts.get("succeeded") == RAN_BEFORE
    return Report(
        title="An idle daemon",
        how=f"CPU time of the daemon and of all processes under it over {seconds:g} s (/proc/PID/stat), and"
        f" memory, after {RAN_BEFORE} jobs. Then the same with {queued:,} jobs queued in a paused project"
        f" under `ulimit -n {DESCRIPTORS}`, while {RAN_BEFORE} jobs of another project run past them.",
        tables=[
            Table(
                title="",
                columns=["", "% of a core", "daemon MB", "its supervisors, private MB"],
                rows=[
                    ["nothing queued", f"{percent:.2f}", number(idle[0] / _MB), number(idle[1] / _MB)],
                    [
                        f"{queued:,} queued",
                        f"{percent_queued:.2f}",
                        number(full[0] / _MB),
                        number(full[1] / _MB),
                    ],
                ],
            )
        ],
        targets=[
            Target(
                text=f"under {MOST_PERCENT:g} % of a core",
                measured=f"{percent:.2f} %",
                is_met=percent < MOST_PERCENT,
            ),
            Target(
                text=f"under {MOST_MB:g} MB",
                measured=f"{number(idle[0] / _MB)} MB",
                is_met=idle[0] < MOST_MB * _MB,
            ),
            Target(
                text=f"{queued:,} queued under `ulimit -n {DESCRIPTORS}`, and others still run",
                measured=f"{open_files} descriptors",
                is_met=works,
            ),
            Target(
                text=f"with these queued, also under {MOST_MB:g} MB",
                measured=f"{number(full[0] / _MB)} MB",
                is_met=full[0] < MOST_MB * _MB,
            ),
        ],
        notes=[f"{RAN_BEFORE} jobs of `true` past {queued:,} queued ones took {number(ran_in)} s."],
        data={
            "seconds": seconds,
            "queued": queued,
            "percent": {"idle": percent, "queued": percent_queued},
            "rss_bytes": {"idle": idle, "queued": full},
            "descriptors": open_files,
        },
    )


def _run_some(daemon: Daemon, jobs: int) -> None:
    lines = daemon.folder / "some.txt"
    lines.write_text("true\n" * jobs)
    daemon.dibs("add", "-q", "-f", str(lines))
    daemon.wait_for(jobs, limit_seconds=120)
    daemon.client.close()


def _percent(daemon: Daemon, seconds: float) -> float:
    """Of one core, after two seconds in which the last jobs are put away."""
    time.sleep(2)
    before, begin = _ticks(daemon), time.monotonic()
    time.sleep(seconds)
    return 100 * (_ticks(daemon) - before) / _TICKS / (time.monotonic() - begin)


def _ticks(daemon: Daemon) -> int:
    """Of the daemon, of its children that have ended, and of everything that lives under it."""
    total = 0
    for pid in (daemon.pid, *(pid for pid, _ in below(daemon.pid))):
        try:
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        except OSError as error:
            if pid == daemon.pid:
                raise ToolFailed("dibs's daemon is gone") from error
            continue
        total += sum(map(int, fields[11:15]))
    return total


def _sizes(daemon: Daemon) -> tuple[int, int]:
    """Resident bytes of the daemon, and private ones of everything under it."""
    return resident(daemon.pid), sum(private(pid) for pid, _ in below(daemon.pid))
