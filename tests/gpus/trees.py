"""Files of the kernel, written down as one JSON object and laid out again for a test."""

import json
import os
from pathlib import Path

READINGS = Path(__file__).parent.parent / "data" / "readings"


def lay_out(name, folder):
    """The files of tests/data/readings/NAME.json under this folder, as a root for probes."""
    files = json.loads((READINGS / f"{name}.json").read_text())
    files.pop("source", None)  # where a recording is from
    for path, content in files.items():
        file = Path(folder) / path
        file.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(content, dict):
            os.symlink(content["link"], file)
        else:
            file.write_text(content)
    return str(folder)
