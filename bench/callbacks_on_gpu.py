"""The callbacks in real trainings on a real card: `python bench/callbacks_on_gpu.py`.

It needs dibs, torch, pytorch-lightning, transformers with accelerate, and Keras; those that are missing are
left out, and said. Every training (bench/gpu/train_*.py) is three jobs: one runs through; one gets its checkpoint
signal in its middle by `dibs kill --signal`; one gets it from its time limit. `_checked` says what must be true.
Without an NVIDIA GPU they run on the processor. The results go to --out.
"""

import argparse
import importlib.metadata
import json
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

from gpu.world import World, seconds_until

_HERE = Path(__file__).parent
RESULTS = _HERE / "gpu" / "callbacks.json"
LIBRARIES = {
    "lightning": ("pytorch-lightning", "torch"),
    "transformers": ("transformers", "accelerate", "torch"),
    "keras": ("keras", "torch"),
}
_EXACT = ("lightning", "transformers")  # Keras begins the interrupted epoch again
_PATIENCE = 400.0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--steps", type=int, default=3000, help="steps of each training (default 3000)")
    parser.add_argument("--limit", type=int, default=60, help="seconds of the one with a time limit (default 60)")
    parser.add_argument(
        "--only", action="append", choices=list(LIBRARIES), help="only this library; may be repeated"
    )
    parser.add_argument("--out", type=Path, default=RESULTS, help="where the results go")
    arguments = parser.parse_args()
    found: dict[str, Any] = {"card": _card(), "python": sys.version.split()[0], "steps": arguments.steps}
    with tempfile.TemporaryDirectory(prefix="dibs-callbacks-") as folder:
        world = World(Path(folder) / "world")
        try:
            for library in arguments.only or LIBRARIES:
                found[library] = _measure(world, library, arguments.steps, arguments.limit)
                print(json.dumps({library: found[library]}, indent=1), flush=True)
        finally:
            world.stop()
    arguments.out.write_text(json.dumps(found, indent=1) + "\n")
    wrong = [
        f"{library}: {what}"
        for library in LIBRARIES
        for what, holds in found.get(library, {}).get("checked", {}).items()
        if not holds
    ]
    print("\n".join([f"WRONG: {one}" for one in wrong] or ["all is as it should be"]))
    return 1 if wrong else 0


def _measure(world: World, library: str, steps: int, limit: int) -> dict[str, Any]:
    try:
        versions = {package: importlib.metadata.version(package) for package in LIBRARIES[library]}
    except importlib.metadata.PackageNotFoundError as error:
        return {"left_out": str(error)}
    words = ["--", sys.executable, f"{_HERE}/gpu/train_{library}.py", "--steps", str(steps)]
    card = ["--vram", "5G"] if _card() else ["-n", "0"]  # several at once
    folder = ["-C", str(world.folder), *card]
    whole = world.add("-t", "1h", *folder, *words)
    killed = world.add("-t", "1h", "--checkpoint-signal", "USR1@60", *folder, *words)
    limited = world.add("-t", f"{limit}s", "--checkpoint-signal", f"USR1@{limit // 2}", *folder, *words)
    live: dict[str, Any] = {}

    def is_in_the_middle() -> bool:
        info = world.info(killed)
        if info["state"] not in ("queued", "running"):
            raise SystemExit(f"{library}: job {killed} is {info['state']}:\n{_end(info)}")
        live.update({name: info[name] for name in ("progress", "ends_at", "last_metrics")})
        return (info["progress"] or 0) >= 0.4

    seconds_until(is_in_the_middle, f"{library}: job {killed} in its middle", _PATIENCE)
    metrics_live = _series(world, killed, "--attempt", "1")
    world.dibs("kill", "--signal", "USR1", killed)
    world.dibs("wait", "-q", whole, killed, limited, may_fail=True)
    jobs = {"whole": world.info(whole), "killed": world.info(killed), "limited": world.info(limited)}
    for info in jobs.values():
        if info["state"] != "succeeded":
            raise SystemExit(f"{library}: job {info['id']} is {info['state']}, {info['message']}:\n{_end(info)}")
    told = {name: _told(world, info) for name, info in jobs.items()}
    return {
        "versions": versions,
        "while_it_ran": live | {"points": metrics_live},
        "jobs": told,
        "checked": _checked(library, steps, live, metrics_live, told),
    }


def _told(world: World, info: dict[str, Any]) -> dict[str, Any]:
    attempts = info["attempts_list"]
    return {
        "result": json.loads(Path(attempts[-1]["folder"], "stdout").read_text().splitlines()[-1]),
        "attempts": [
            {
                "seconds": one["seconds"],
                "exit_code": one["exit_code"],
                "gpus": one["gpus"],
                "usage": one["usage"],
                "said": [
                    line for line in Path(one["folder"], "stderr").read_text().splitlines() if "dibs:" in line
                ],
                "points": _series(world, info["id"], "--attempt", str(one["number"])),
            }
            for one in attempts
        ],
    }


def _series(world: World, job: Any, *words: str) -> dict[str, Any]:
    """Of each series: its first and last step, and its last value."""
    found = json.loads(world.dibs("metrics", "--json", str(job), *words))
    return {
        one["name"]: {"first": one["steps"][0], "last": one["last_step"], "value": one["last"]}
        for one in found["series"]
        if one["steps"]
    }


def _checked(
    library: str, steps: int, live: Mapping[str, Any], metrics: Mapping[str, Any], told: Mapping[str, Any]
) -> dict[str, bool]:
    name = "loss"
    whole, killed, limited = told["whole"]["result"], told["killed"], told["limited"]
    whole["points_last"] = told["whole"]["attempts"][0]["points"][name]["last"]
    checked = {
        "metrics arrive while it runs": name in metrics and name in (live["last_metrics"] or {}),
        "progress arrives while it runs": bool(live["progress"]) and bool(live["ends_at"]),
        "the signal ends the attempt with 0 after it has saved": all(
            one["exit_code"] == 0 and any("is saved" in line for line in one["said"])
            for one in killed["attempts"][:-1] + limited["attempts"][:-1]
            # The signal may also come between its last step and its end: then it is queued again, and ends again.
            if one["points"][name]["last"] < whole["points_last"]
        ),
        "`dibs kill --signal` leads to two attempts": len(killed["attempts"]) == 2,
        "the time limit leads to several attempts": len(limited["attempts"]) > 1,
        "all ran on the card": not _card()
        or all(one["result"]["device"].startswith("cuda") for one in told.values()),
    }
    for one, job in (("killed", killed), ("limited", limited)):
        attempts = [attempt["points"][name] for attempt in job["attempts"] if name in attempt["points"]]
        pairs = list(pairwise(attempts))
        checked[f"{one}: each attempt goes on where the last was"] = bool(pairs) and all(
            after["first"] > before["first"]
            and after["first"] <= before["last"] + (11 if library in _EXACT else 1)
            for before, after in pairs
            if before["last"] < whole["points_last"]
        )
        if library in _EXACT:
            checked[f"{one}: the same steps, weights and loss as without a signal"] = all(
                job["result"][key] == whole[key] for key in ("step", "weights", "loss")
            )
            checked[f"{one}: it ends at its last step"] = job["result"]["step"] == steps
        else:
            checked[f"{one}: it ends as well as without a signal"] = (
                job["result"]["step"] >= whole["step"] and job["result"]["loss"] <= 2 * whole["loss"]
            )
    return checked


def _end(info: Mapping[str, Any]) -> str:
    """The end of what a job wrote."""
    path = Path(info["attempts_list"][-1]["folder"], "stderr") if info["attempts_list"] else None
    return path.read_text()[-4000:] if path and path.exists() else ""


def _card() -> str:
    try:
        words = ["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"]
        return subprocess.run(words, capture_output=True, text=True, check=True).stdout.splitlines()[0]
    except (OSError, subprocess.CalledProcessError, IndexError):
        return ""


if __name__ == "__main__":
    sys.exit(main())
