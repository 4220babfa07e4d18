"""What dibs does on a real card: `python bench/on_gpu.py`, where there are an NVIDIA GPU and torch.

It needs dibs, nvidia-ml-py, torch and pytest in one environment. `--write-docs` writes
docs/on-a-real-gpu.md from the results of an earlier run, which need not have been on this machine.

Packing and suspensions can be measured in parts, each within its own time, as where a card is lent for minutes:
`--part packing --part crashes:60 --found FILE`, with seconds behind the name. FILE is written after each finding.
`--take FILE` puts the findings of several such files into the results.
"""

import argparse
import json
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from gpu import packing, suspend
from report import markdown, report_from

_HERE = Path(__file__).parent
RESULTS = _HERE / "gpu" / "results.json"
PAGE = _HERE.parent / "docs" / "on-a-real-gpu.md"
_PARTS = {**packing.PARTS, **suspend.PARTS}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--out", type=Path, default=RESULTS, help="where the results go")
    parser.add_argument("--write-docs", action="store_true", help="write the page from --out, and measure nothing")
    parser.add_argument(
        "--part", action="append", type=_part, metavar="NAME[:SECONDS]", help=f"of {', '.join(_PARTS)}"
    )
    parser.add_argument("--found", type=Path, default=Path("found.json"), help="where the findings of parts go")
    parser.add_argument("--take", type=Path, action="append", help="put these findings into --out")
    arguments = parser.parse_args()
    if arguments.part:
        found = _parts(arguments.part, arguments.found)
        return 1 if found["errors"] else 0
    if arguments.take:
        arguments.out.write_text(json.dumps(_with_parts(arguments.out, arguments.take), indent=1) + "\n")
    elif not arguments.write_docs:
        arguments.out.write_text(json.dumps(_measure(arguments.found), indent=1) + "\n")
    stored = json.loads(arguments.out.read_text())
    if arguments.write_docs:
        PAGE.write_text(page(stored))
    else:
        print(page(stored))
    return 1 if any(target["is_met"] is False for bench in stored["benches"] for target in bench["targets"]) else 0


def _measure(path: Path) -> dict[str, object]:
    import gpu.checkpoint
    import gpu.truth
    from gpu.card import Card

    card = Card()
    begin = datetime.now(UTC)
    with tempfile.TemporaryDirectory(prefix="dibs-on-gpu-") as folder:
        reports = [
            gpu.truth.measure(card, Path(folder)),
            gpu.checkpoint.measure(Path(folder)),
        ]
    found = _parts([_part(name) for name in _PARTS], path)
    reports += [packing.report(found), suspend.report(found)]
    return {
        "date": begin.strftime("%Y-%m-%d"),
        "card": card.name,
        "driver": card.driver,
        "python": sys.version.split()[0],
        "benches": [asdict(report) for report in reports],
    }


# -- parts -------------------------------------------------------------------------------------------------


class _TimeIsUp(BaseException):
    """A part has taken its time: nothing but what runs the parts may catch it."""


def _part(text: str) -> tuple[str, int]:
    """The name of a part and the seconds that it may take."""
    name, _, seconds = text.partition(":")
    if name not in _PARTS:
        raise ValueError(name)  # which argparse tells
    return name, int(seconds or _PARTS[name][1])


def _parts(parts: Sequence[tuple[str, int]], path: Path) -> dict[str, Any]:
    """Run these parts, one after the other; what each finds is in the file at once. One that fails ends alone."""
    found: dict[str, Any] = {"date": f"{datetime.now(UTC):%F}", "errors": {}, "seconds": {}}

    def ring(*_: object) -> None:
        raise _TimeIsUp

    signal.signal(signal.SIGALRM, ring)
    for name, within in parts:
        measure, _ = _PARTS[name]
        begun = time.monotonic()
        with tempfile.TemporaryDirectory(prefix="dibs-on-gpu-", ignore_cleanup_errors=True) as folder:
            signal.alarm(within)
            try:
                for part in measure(Path(folder) / name):
                    found[name] = part
                    path.write_text(json.dumps(found, indent=1) + "\n")
            except _TimeIsUp:
                found["errors"][name] = f"its {within} seconds were up"
            except (Exception, SystemExit):
                found["errors"][name] = traceback.format_exc()
            finally:
                signal.alarm(0)
        found["seconds"][name] = round(time.monotonic() - begun, 1)
        path.write_text(json.dumps(found, indent=1) + "\n")
        print(name, json.dumps(found.get(name)), found["errors"].get(name, ""), flush=True)
    return found


def _with_parts(out: Path, taken: Sequence[Path]) -> dict[str, Any]:
    """The results, with what these parts have found in the place of what was there about the same."""
    stored: dict[str, Any] = json.loads(out.read_text())
    found: dict[str, Any] = {}
    for path in taken:
        found |= json.loads(path.read_text())
    reports = [one.report(found) for one in (packing, suspend) if one.PARTS.keys() & found.keys()]
    titles = {report.title for report in reports}
    others = [bench for bench in stored["benches"] if bench["title"] not in titles]
    return {**stored, "benches": [*others, *map(asdict, reports)]}


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
