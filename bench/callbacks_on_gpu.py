"""The callbacks in real trainings on a real card: `python bench/callbacks_on_gpu.py [--only keras]`.

It needs dibs, torch, pytorch-lightning, transformers with accelerate, and Keras; those that are missing are
left out, and said. Every training (bench/gpu/train_*.py) is three jobs: one runs through; one gets its checkpoint
signal in its middle by `dibs kill --signal`; one gets it before its time limit. `_checked` says what must be true.
They start warm, because imports take longer than the trainings; the time limit is longer than the start of the
first one. A library has --deadline seconds; one that fails is told with the story of its jobs, and the others go
on. Without an NVIDIA GPU they run on the processor. The results go to --out.
"""

import argparse
import importlib.metadata
import json
import math
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

import machine
from gpu.world import World

_HERE = Path(__file__).parent
RESULTS = _HERE / "gpu" / "callbacks.json"
LIBRARIES = {
    "lightning": ("pytorch-lightning", "torch"),
    "transformers": ("transformers", "accelerate", "torch"),
    "keras": ("keras", "torch"),
}
_WARM = {
    "lightning": "torch,pytorch_lightning",
    "transformers": "torch,transformers.trainer",
    "keras": "torch,keras",
}
_EXACT = ("lightning", "transformers")  # Keras begins the interrupted epoch again
_TO_SAVE = 15  # seconds, also to end in
_BEGINS = re.compile(r"the training begins after ([\d.]+) s")
_OVER = ("succeeded", "failed", "cancelled", "timed_out", "lost")


class _Failure(Exception):
    """What went wrong with the jobs of a library."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--steps", type=int, default=600, help="steps of each training (default 600)")
    parser.add_argument(
        "--signal-after", type=int, default=5, help="seconds of training before a time limit's signal (default 5)"
    )
    parser.add_argument("--deadline", type=float, default=55, help="seconds for each library (default 55)")
    parser.add_argument(
        "--only", action="append", choices=list(LIBRARIES), help="only this library; may be repeated"
    )
    parser.add_argument("--out", type=Path, default=RESULTS, help="where the results go")
    arguments = parser.parse_args()
    os.environ["KERAS_BACKEND"] = "torch"
    found: dict[str, Any] = {"card": machine.card(), "python": sys.version.split()[0], "steps": arguments.steps}
    wrong = []
    for library in arguments.only or LIBRARIES:
        began = time.monotonic()
        measured = _measure(library, arguments.steps, arguments.signal_after, began + arguments.deadline)
        found[library] = {"seconds": round(time.monotonic() - began, 1), **measured}
        print(json.dumps({library: found[library]}, indent=1), flush=True)
        arguments.out.write_text(json.dumps(found, indent=1) + "\n")  # of those so far
        if failure := measured.get("failed"):
            wrong.append(f"{library}: {failure}")
        wrong += [f"{library}: {what}" for what, holds in measured.get("checked", {}).items() if not holds]
    print("\n".join([f"WRONG: {one}" for one in wrong] or ["all is as it should be"]))
    return 1 if wrong else 0


def _measure(library: str, steps: int, signal_after: int, ends_at: float) -> dict[str, Any]:
    try:
        versions = {package: importlib.metadata.version(package) for package in LIBRARIES[library]}
    except importlib.metadata.PackageNotFoundError as error:
        return {"left_out": str(error)}
    jobs: dict[str, str] = {}
    with tempfile.TemporaryDirectory(prefix="dibs-callbacks-", ignore_cleanup_errors=True) as folder:
        world = World(Path(folder) / "world")
        try:
            return {"versions": versions, **_run(world, jobs, library, steps, signal_after, ends_at)}
        except (_Failure, SystemExit, subprocess.TimeoutExpired, KeyError, IndexError, ValueError) as error:
            print(f"{library}: {error!r}\n{_story(world, jobs)}", flush=True)
            return {"versions": versions, "failed": str(error) or repr(error)}
        finally:
            world.stop()


def _run(
    world: World, jobs: dict[str, str], library: str, steps: int, signal_after: int, ends_at: float
) -> dict[str, Any]:
    words = ["--", sys.executable, f"{_HERE}/gpu/train_{library}.py", "--steps", str(steps)]
    # Several at once.
    options = [
        "-C",
        str(world.folder),
        "--warm",
        _WARM[library],
        *(["--vram", "5G"] if machine.card() else ["-n", "0"]),
    ]
    signal = "--checkpoint-signal"
    jobs["whole"] = world.add("-t", "1h", *options, *words)
    jobs["killed"] = world.add("-t", "1h", signal, "USR1@60", *options, *words)
    live: dict[str, Any] = {}
    metrics_live: dict[str, Any] = {}
    infos: dict[str, dict[str, Any]] = {}
    while True:
        infos = {name: world.info(job) for name, job in jobs.items()}
        if "limited" not in jobs and (begun := _BEGINS.search(_written(infos["whole"]))):
            seconds = math.ceil(float(begun[1])) + signal_after + _TO_SAVE
            jobs["limited"] = world.add("-t", f"{seconds}s", signal, f"USR1@{_TO_SAVE}", *options, *words)
        for name, info in infos.items():
            if info["state"] in _OVER and info["state"] != "succeeded":
                raise _Failure(f"job {info['id']} ({name}) is {info['state']}, {_why(info)}")
        killed = infos["killed"]
        if not live and (killed["progress"] or 0) >= 0.4:
            live.update({name: killed[name] for name in ("progress", "ends_at", "last_metrics")})
            metrics_live = _series(world, killed["id"], "--attempt", "1")
            world.dibs("kill", "--signal", "USR1", jobs["killed"])
        if len(infos) == 3 and all(info["state"] == "succeeded" for info in infos.values()):
            break
        if time.monotonic() > ends_at:
            left = ", ".join(f"{one} {info['state']}" for one, info in infos.items())
            raise _Failure(f"not over at its deadline: {left}")
        time.sleep(0.2)
    if not live:
        raise _Failure("the killed job was over before it was seen in its middle: give more --steps")
    told = {name: _told(world, info) for name, info in infos.items()}
    return {
        "while_it_ran": live | {"points": metrics_live},
        "jobs": told,
        "checked": _checked(library, steps, live, metrics_live, told),
    }


def _written(info: Mapping[str, Any]) -> str:
    path = Path(info["attempts_list"][0]["folder"], "stderr") if info["attempts_list"] else None
    return path.read_text(errors="replace") if path and path.exists() else ""


def _why(info: Mapping[str, Any]) -> str:
    how = f"signal {info['signal']}" if info["signal"] else f"exit code {info['exit_code']}"
    return ", ".join(part for part in (f"cause {info['cause']}", how, info["message"]) if part)


def _story(world: World, jobs: Mapping[str, str]) -> str:
    """What is known about the jobs: `dibs info`, and the end of what each attempt wrote."""
    parts = []
    for name, job in jobs.items():
        parts.append(f"--- {name}: {world.dibs('info', job, may_fail=True)}")
        try:
            attempts = world.info(job)["attempts_list"]
        except (SystemExit, subprocess.TimeoutExpired) as error:
            parts.append(str(error))
            continue
        for one in attempts:
            for stream in ("stdout", "stderr"):
                path = Path(one["folder"], stream)
                text = path.read_text(errors="replace")[-3000:] if path.exists() else ""
                parts.append(f"--- {name}, attempt {one['number']}, the end of its {stream}:\n{text}")
    return "\n".join(parts)


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
        "all ran on the card": not machine.card()
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


if __name__ == "__main__":
    sys.exit(main())
