"""What looking at the cards costs: CPU time of one pass with the driver of this machine, and for eight cards.

    .venv/bin/python bench/readings.py            # the real driver
    .venv/bin/python bench/readings.py --replay   # without a card: our own part of it, over what an H200 said

Each pass counts as a second: energy is asked for in every tenth, and the cards are looked for in every
thirtieth, as in a daemon with work. The limit is a hundredth of a core for eight cards.
"""

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Any

from dibs.gpus.nvidia import NvidiaProbe
from dibs.gpus.probe import ProbeFailed

CARDS = 8
LIMIT = 0.01  # of a core


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--passes", type=int, default=300)
    parser.add_argument("--replay", action="store_true")
    options = parser.parse_args()
    try:
        found = measure(_nvml(options.replay), options.passes)
    except ProbeFailed as failure:
        print(failure.message, file=sys.stderr)
        return failure.exit_status
    print(json.dumps(found, indent=1))
    share = found["share_of_a_core_for_8_cards"]
    print(f"{share:.2%} of a core for {CARDS} cards with one pass a second", file=sys.stderr)
    return 0 if share < LIMIT else 1


def measure(nvml: Any, passes: int) -> dict[str, Any]:
    """Passes one after another. The CPU time is that of all threads of this process, in the driver too."""
    now = 0.0
    probe = NvidiaProbe(nvml, clock=lambda: now)
    first_began = time.perf_counter()
    reading = probe.read()
    first = time.perf_counter() - first_began
    walls, cpu_began = [], time.process_time()
    for _ in range(passes):
        now += 1.0
        began = time.perf_counter()
        reading = probe.read()
        walls.append(time.perf_counter() - began)
    cpu = (time.process_time() - cpu_began) / passes
    walls.sort()
    cards = len(reading.gpus)
    return {
        "driver": reading.driver,
        "cards": cards,
        "names": sorted({seen.gpu.name for seen in reading.gpus}),
        "processes": sum(len(seen.processes) for seen in reading.gpus),
        "passes": passes,
        "first_pass_ms": round(1000 * first, 3),
        "cpu_ms_per_pass": round(1000 * cpu, 3),
        "wall_ms_median": round(1000 * walls[len(walls) // 2], 3),
        "wall_ms_slowest": round(1000 * walls[-1], 3),
        # More than there would be: what a pass costs beside its cards is counted for each of them.
        "share_of_a_core_for_8_cards": round(cpu * CARDS / max(1, cards), 5),
    }


def _nvml(is_replay: bool) -> Any:
    if is_replay:
        sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))
        from gpus.replay_nvml import ReplayNvml

        return ReplayNvml()
    import pynvml

    return pynvml


if __name__ == "__main__":
    raise SystemExit(main())
