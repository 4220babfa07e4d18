"""Writes openapi.json, from which the types of the page are made (`npm run types`). No daemon needs to run."""

import json
from pathlib import Path
from unittest.mock import MagicMock

from dibs.daemon.app import description

TARGET = Path(__file__).parent / "openapi.json"


def text() -> str:
    """The description of the API. The version is left out: it would change the file with every commit."""
    # The routes are described, not called: what stands behind them is not asked for anything.
    found = description(MagicMock())
    found["info"]["version"] = "1"
    return json.dumps(found, indent=1, sort_keys=True) + "\n"


if __name__ == "__main__":
    TARGET.write_text(text())
