"""Short Python jobs one after another, fresh and warm: `python bench/warm.py --modules torch --jobs 8`.

Each job imports the modules, works for a moment and prints what it found. The same list runs twice through `dibs
run` on one GPU: as it is, and with `--warm`. Both must print the same. The warm process's own start counts.
"""

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import machine

LEAST = 3.0  # times as fast, where the modules are torch

_TORCH = """
import sys, torch
device = "cuda" if torch.cuda.is_available() else "cpu"
torch.manual_seed(int(sys.argv[1]))
model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 1)).to(device)
data = torch.randn(256, 64, device=device)
wanted = data.sum(dim=1, keepdim=True)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for step in range(20):
    optimizer.zero_grad()
    loss = torch.nn.functional.mse_loss(model(data), wanted)
    loss.backward()
    optimizer.step()
print(device, sys.argv, f"{loss.item():.4f}")
"""
_ANY = """
import importlib, random, sys
for name in sys.argv[2].split(","):
    importlib.import_module(name)
random.seed(int(sys.argv[1]))
print(sys.argv, sum(random.random() for _ in range(100_000)))
"""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--modules", default="torch", help="what the jobs import (default torch)")
    parser.add_argument("--jobs", type=int, default=8, help="how many run, one after another (default 8)")
    parser.add_argument("--script", type=Path, help="a job of your own; it gets its number and the modules")
    parser.add_argument("--out", type=Path, help="where the results go, as JSON")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="dibs-warm-") as folder:
        found = measure(Path(folder), arguments.modules, arguments.jobs, arguments.script)
    if arguments.out:
        arguments.out.write_text(json.dumps(found, indent=1) + "\n")
    print(sentence(found))
    for name, run in found["runs"].items():
        print(f"  {name}: {', '.join(f'{seconds:.1f}' for seconds in run['each_seconds'])} s")
    if not found["same_results"]:
        print(f"the results differ: {found['runs']}", file=sys.stderr)
    is_fast = found["ratio"] >= LEAST or arguments.modules != "torch"
    return 0 if found["same_results"] and is_fast else 1


def measure(folder: Path, modules: str, jobs: int, script: Path | None) -> dict[str, Any]:
    """Run the list fresh and warm; what each took, and whether they printed the same."""
    text = script.read_text() if script else _TORCH if "torch" in modules.split(",") else _ANY
    (folder / "job.py").write_text(text)
    (folder / "jobs.txt").write_text("".join(f"{sys.executable} job.py {n} {modules}\n" for n in range(jobs)))
    environment = _environment(folder)
    # Read from the disk once, so that neither of the two pays for it.
    subprocess.run([sys.executable, "job.py", "0", modules], cwd=folder, env=environment, check=True)
    runs = {
        "fresh": _run(folder, environment, "fresh", jobs),
        "warm": _run(folder, environment, "warm", jobs, "--warm", modules),
    }
    ratio = runs["fresh"]["seconds"] / runs["warm"]["seconds"]
    return {
        "modules": modules,
        "jobs": jobs,
        "ratio": round(ratio, 2),
        "same_results": runs["fresh"]["printed"] == runs["warm"]["printed"],
        "python": platform.python_version(),
        "card": machine.card(),
        "cpus": os.cpu_count(),
        "runs": runs,
    }


def sentence(found: Mapping[str, Any]) -> str:
    """The line for the docs."""
    runs = found["runs"]
    where = f"Python {found['python']}, {found['card'] or 'no GPU'}, {found['cpus']} CPUs"
    return (
        f"{found['jobs']} runs of `import {found['modules']}` one after another: {runs['fresh']['seconds']:.1f} s"
        f" fresh, {runs['warm']['seconds']:.1f} s warm, {found['ratio']:.1f} times as fast ({where});"
        f" the results {'are the same' if found['same_results'] else 'DIFFER'}."
    )


def _run(folder: Path, environment: Mapping[str, str], name: str, jobs: int, *options: str) -> dict[str, Any]:
    words = ["run", "--gpus", "0", "--output-dir", name, *options, "-f", "jobs.txt"]
    began = time.monotonic()
    ended = subprocess.run(
        [sys.executable, "-m", "dibs", *words], cwd=folder, env=environment, capture_output=True, text=True
    )
    seconds = time.monotonic() - began
    if ended.returncode != 0:
        raise SystemExit(f"dibs {' '.join(words)} ended with {ended.returncode}:\n{ended.stderr[-4000:]}")
    folders = [folder / name / f"job_{number}" for number in range(1, jobs + 1)]
    return {
        "seconds": round(seconds, 2),
        "each_seconds": [_seconds(one) for one in folders],
        "printed": [(one / "stdout").read_text() for one in folders],
        "said": sorted({line for one in folders for line in _lines(one / "stderr")}),
    }


def _seconds(folder: Path) -> float:
    """How long a job ran, as its result folder tells."""
    for line in (folder / "info").read_text().splitlines():
        key, _, value = line.partition(":")
        if key == "seconds":
            return round(float(value), 2)
    return 0.0


def _lines(path: Path) -> list[str]:
    return path.read_text(errors="replace").splitlines()[:20] if path.exists() else []


def _environment(folder: Path) -> dict[str, str]:
    """Ours, with folders that are found from anywhere, and a dibs that knows nothing of the user's."""
    found = dict(os.environ)
    paths = [path for path in found.get("PYTHONPATH", "").split(":") if path]
    here = Path(__file__).resolve().parent.parent / "src"
    found["PYTHONPATH"] = ":".join(map(os.path.abspath, [*paths, str(here)]))
    return found | {"DIBS_PROBE": "none", "DIBS_STATE": f"{folder}/state", "DIBS_LEASES": f"{folder}/leases"}


if __name__ == "__main__":
    sys.exit(main())
