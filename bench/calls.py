"""What a call of a function as a job costs, fresh and warm: `python bench/calls.py --calls 200`.

A function that does nothing is called in jobs: with an interpreter for each, forked from a warm process, and with
20 calls in each job. The processor's time of all processes that take part says more than the time on the clock, as
the machine may be busy with other things. Each is measured three times, and the median counts.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from dibs.supervise.command import read_stat

LEAST = 5.0  # times less work with a warm process
_WAYS: dict[str, tuple[dict[str, Any], int]] = {
    "fresh": ({}, 1),
    "warm": ({"warm": "cloudpickle"}, 1),
    "20 calls a job": ({}, 20),
    "warm, 20 calls a job": ({"warm": "cloudpickle"}, 20),
}


def nothing(number: int) -> int:
    return number


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--calls", type=int, default=200, help="how many (default 200)")
    parser.add_argument("--out", type=Path, help="where the results go, as JSON")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="dibs-calls-", ignore_cleanup_errors=True) as folder:
        os.environ.update(DIBS_STATE=f"{folder}/state", DIBS_LEASES=f"{folder}/leases", DIBS_PROBE="none")
        try:
            rounds = [{way: _measure(*how, arguments.calls) for way, how in _WAYS.items()} for _ in range(3)]
        finally:
            subprocess.run([sys.executable, "-m", "dibs", "daemon", "stop", "--jobs"], capture_output=True)
    found = {way: _median([one[way] for one in rounds]) for way in _WAYS}
    for way, one in found.items():
        print(f"{way}: {one['cpu_ms']:.1f} ms of the processor for each call, {one['seconds']:.2f} s for all")
    ratio = found["fresh"]["cpu_ms"] / found["warm"]["cpu_ms"]
    print(f"warm is {ratio:.1f} times less work than fresh")
    if arguments.out:
        arguments.out.write_text(json.dumps(found | {"calls": arguments.calls}, indent=1) + "\n")
    return 0 if ratio >= LEAST else 1


def _median(rounds: list[dict[str, float]]) -> dict[str, float]:
    return {name: statistics.median(one[name] for one in rounds) for name in rounds[0]}


def _measure(wishes: dict[str, Any], chunk: int, calls: int) -> dict[str, float]:
    import dibs  # with the variables of this bench

    with dibs.Executor(num_gpus=0, **wishes) as executor:
        list(executor.map(nothing, range(4)))  # the daemon and the warm process have started
        before, began = _worked(), time.monotonic()
        assert list(executor.map(nothing, range(calls), chunksize=chunk)) == list(range(calls))
        seconds, after = time.monotonic() - began, _worked()
    return {"cpu_ms": round(1000 * (after - before) / calls, 2), "seconds": round(seconds, 2)}


def _worked() -> float:
    """The processor's seconds that this program, its daemon and all below it have used, with the ended ones."""
    found = {int(name): read_stat(int(name)) for name in os.listdir("/proc") if name.isdigit()}
    ours = {pid for pid in found if _is_daemon(pid)}
    while more := {pid for pid, one in found.items() if one is not None and one.parent in ours} - ours:
        ours |= more
    ticks = sum(one.used + one.reaped for pid, one in found.items() if one is not None and pid in ours)
    return time.process_time() + ticks / os.sysconf("SC_CLK_TCK")


def _is_daemon(pid: int) -> bool:
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        variables = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return False
    return words[-3:-1] == [b"daemon", b"run"] and f"DIBS_STATE={os.environ['DIBS_STATE']}".encode() in variables


if __name__ == "__main__":
    sys.exit(main())
