"""How a host answers: a line of JSON behind a mark, because login shells may say something too."""

from __future__ import annotations

import json
import sys
from typing import Any

MARK = "==dibs=="


def say(answer: dict[str, Any]) -> None:
    sys.stdout.write(f"\n{MARK}{json.dumps(answer)}\n")
    sys.stdout.flush()
