"""A job written as one JSON object on one line."""

import json
import re
from collections import Counter
from typing import NoReturn

from dibs.errors import BadInput

# `{ "a"; }` is a group of commands to a shell; a quoted key and a colon are nothing to it.
_MEANT_AS_JSON = re.compile(r'\{\s*"[^"]*"\s*:')


def parse_object(text: str) -> dict[str, object] | None:
    """The object on this line; None where the line is a command such as `{ a; b; }`."""
    if not text.startswith("{"):
        return None
    try:
        found: dict[str, object] = json.loads(text, object_pairs_hook=_without_twins, parse_constant=_no_constant)
    except json.JSONDecodeError as error:
        if not _MEANT_AS_JSON.match(text):
            return None
        raise BadInput(
            f"cannot read the line as JSON: {error.msg} at column {error.colno}",
            remedy='write it like {"command": "python train.py", "num_gpus": 2}',
        ) from error
    except RecursionError as error:
        raise BadInput("the JSON is nested too deeply", remedy="a job has no deeper parts than env") from error
    except ValueError as error:  # what is left: Python's limit on the digits of an integer
        raise BadInput("the JSON has a number that is too long", remedy="write it as text") from error
    return found


def _without_twins(pairs: list[tuple[str, object]]) -> dict[str, object]:
    found = dict(pairs)
    if len(found) < len(pairs):
        [(twin, _)] = Counter(key for key, _ in pairs).most_common(1)
        raise BadInput(f"the JSON has the key {twin[:100]!r} twice", remedy="keep one of them")
    return found


def _no_constant(text: str) -> NoReturn:
    raise BadInput(f"{text} is not JSON", remedy="write a number")
