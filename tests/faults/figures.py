"""What a crash test injected and how often: lines of JSON from which `make faults` makes docs/reliability.md."""

import json
import os


def record_figures(fault: str, how: str, *, times: int, jobs: int, result: str, seed: int | None = None) -> None:
    """Call it last in a test: a line is written only for what was seen to hold."""
    if path := os.environ.get("DIBS_FAULT_FIGURES"):
        line = {"fault": fault, "how": how, "times": times, "jobs": jobs, "result": result, "seed": seed}
        with open(path, "a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")
