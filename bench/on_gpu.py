"""What dibs does on a real card: `python bench/on_gpu.py`, where there are an NVIDIA GPU and torch.

It needs dibs, nvidia-ml-py, torch, pytest and simple_gpu_scheduler in one environment. `--write-docs` writes
docs/on-a-real-gpu.md from the results of an earlier run, which need not have been on this machine.
"""

import argparse
import json
import sys
import tempfile
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path

from report import markdown, report_from

_HERE = Path(__file__).parent
RESULTS = _HERE / "gpu" / "results.json"
PAGE = _HERE.parent / "docs" / "on-a-real-gpu.md"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--runs", type=int, default=8, help="training runs to pack (default 8)")
    parser.add_argument("--out", type=Path, default=RESULTS, help="where the results go")
    parser.add_argument("--write-docs", action="store_true", help="write the page from --out, and measure nothing")
    arguments = parser.parse_args()
    if not arguments.write_docs:
        arguments.out.write_text(json.dumps(_measure(arguments.runs), indent=1) + "\n")
    stored = json.loads(arguments.out.read_text())
    if arguments.write_docs:
        PAGE.write_text(page(stored))
    else:
        print(page(stored))
    return 0 if all(target["is_met"] for bench in stored["benches"] for target in bench["targets"]) else 1


def _measure(runs: int) -> dict[str, object]:
    import gpu.checkpoint
    import gpu.packing
    import gpu.suspend
    import gpu.truth
    from gpu.card import Card

    card = Card()
    begin = datetime.now(UTC)
    with tempfile.TemporaryDirectory(prefix="dibs-on-gpu-") as folder:
        reports = [
            gpu.truth.measure(card, Path(folder)),
            gpu.packing.measure(card, Path(folder), runs=runs),
            gpu.checkpoint.measure(Path(folder)),
            gpu.suspend.measure(Path(folder)),
        ]
    return {
        "date": begin.strftime("%Y-%m-%d"),
        "card": card.name,
        "driver": card.driver,
        "python": sys.version.split()[0],
        "benches": [asdict(report) for report in reports],
    }


def page(stored: dict[str, object]) -> str:
    """The page out of the results."""
    benches = stored["benches"]
    assert isinstance(benches, list)
    parts = [
        "# On a real GPU",
        "",
        "<!-- Written by `bench/on_gpu.py --write-docs` from bench/gpu/results.json: do not edit. -->",
        "",
        f"Measured {stored['date']} on an {stored['card']} with driver {stored['driver']} by",
        "`python bench/on_gpu.py`, which runs wherever there are an NVIDIA GPU and torch.",
    ]
    for bench in benches:
        parts += ["", markdown(report_from(bench)).rstrip("\n")]
    return "\n".join(parts) + "\n"


if __name__ == "__main__":
    sys.exit(main())
