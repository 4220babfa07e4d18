"""Whether the real driver keeps what the fake one of the tests promises: one contract for both."""

import os
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

from report import Report, Table, Target

_ROOT = Path(__file__).resolve().parent.parent.parent
_CONTRACT = "tests/contracts/test_cuda_checkpoint.py"


def measure(scratch: Path) -> Report:
    results = scratch / "contract.xml"
    # Without the conftest: it is for tests that need far more than a card.
    words = [
        sys.executable,
        "-m",
        "pytest",
        "--noconftest",
        "-q",
        "-p",
        "no:cacheprovider",
        f"--junitxml={results}",
    ]
    subprocess.run([*words, _CONTRACT], cwd=_ROOT, env={**os.environ, "DRIVER": "real"}, check=False)
    cases = list(ElementTree.parse(results).getroot().iter("testcase"))
    failed = [
        case.get("name", "")
        for case in cases
        if case.find("failure") is not None or case.find("error") is not None
    ]
    return Report(
        title="Taking a program off the card",
        how=f"`{_CONTRACT}`, which CI runs with a fake driver, with this machine's own and real CUDA programs.",
        tables=[
            Table(
                title="What the driver promises",
                columns=["", "s", "is kept"],
                rows=[_row(case, failed) for case in cases],
            )
        ],
        targets=[
            Target(
                text="the real driver passes the contract of the fake one",
                measured=f"{len(cases) - len(failed)} of {len(cases)}",
                is_met=bool(cases) and not failed,
            )
        ],
        data={"failed": failed},
    )


def _row(case: ElementTree.Element, failed: list[str]) -> list[str]:
    name = case.get("name", "")
    sentence = name.removeprefix("test_").replace("_", " ")
    return [sentence, case.get("time", "?"), "no" if name in failed else "yes"]
