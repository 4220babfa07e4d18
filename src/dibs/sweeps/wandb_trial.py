"""What `wandb.agent` would give a trial's program: its parameters for `wandb.config`, and its run's variables.

Without a network and without an account: the run is offline unless the sweep sets WANDB_MODE.
"""

import hashlib
import json
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

from dibs.errors import BadInput
from dibs.sweeps.space import Choice, Parameter, Point, Range

_FLUSH_EVERY = "1"  # seconds between two writes to the run's file; W&B's own default is 15
_NUMBER = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?", re.ASCII)
_WORDS = {"None": None, "null": None, "True": True, "true": True, "False": False, "false": False}

# A part of `wandb.config`: where it is (its names, outermost first), and either a constant `value` or the name of
# a `parameter`, with `values` for texts that do not stand for themselves.
ConfigPart = Mapping[str, Any]


def read_config(given: Any) -> tuple[ConfigPart, ...]:
    """The parts of a config that JSON describes; BadInput where it is none."""
    for part in given if isinstance(given, list | tuple) else [None]:
        is_right = (
            isinstance(part, Mapping)
            and part.keys() <= {"path", "value", "parameter", "values"}
            and isinstance(part.get("path"), list | tuple)
            and bool(part["path"])
            and all(isinstance(name, str) for name in part["path"])
            and isinstance(part.get("parameter", ""), str)
            and isinstance(part.get("values", {}), Mapping)
        )
        if not is_right:
            raise BadInput(
                "cannot read the sweep: the config for W&B is not a list of parts",
                remedy='a part is {"path": ["lr"], "parameter": "lr"} or {"path": ["epochs"], "value": 40}',
                field="config",
            )
    return tuple(given)


def wandb_variables(sweep: int, number: int, key: str, given: Mapping[str, str]) -> dict[str, str]:
    """The variables of a trial, without that of its parameters.

    `key` is the sweep's, which no other sweep has; `given` are the variables that the sweep sets itself.
    """
    mode = given.get("WANDB_MODE", "offline")
    # Another number for the same trial elsewhere: runs of two machines may be synced to one project.
    run = hashlib.blake2b(f"{key} {number}".encode(), digest_size=4).hexdigest()
    return {
        "WANDB_MODE": mode,
        "WANDB_RUN_ID": f"dibs-{sweep}-{number}-{run}",
        "WANDB__TRANSACTION_LOG_FLUSH_INTERVAL": _FLUSH_EVERY,
        # A server does not know our sweeps.
        **({"WANDB_SWEEP_ID": f"dibs-{sweep}"} if mode == "offline" else {}),
    }


def parameter_file(point: Point, config: Sequence[ConfigPart], parameters: Sequence[Parameter]) -> str:
    """What W&B reads `wandb.config` of a trial from: JSON, whose numbers YAML 1.1 reads as numbers, too."""
    found = _config(point, config, parameters)
    return "".join(f"{_yaml(name)}: {{value: {_yaml(value)}}}\n" for name, value in found.items()) or "\n"


def _config(point: Point, config: Sequence[ConfigPart], parameters: Sequence[Parameter]) -> dict[str, Any]:
    kinds = {parameter.name: parameter for parameter in parameters}
    found: dict[str, Any] = {}
    for part in config or [{"path": [name], "parameter": name} for name in kinds]:
        if "value" in part:
            value = part["value"]
        else:
            text = point.get(part["parameter"])
            values = part.get("values", {})
            value = values[text or ""] if (text or "") in values else typed(text)
            kind = kinds.get(part["parameter"])
            is_whole = isinstance(kind, Choice) or (isinstance(kind, Range) and kind.is_integer)
            if kind is not None and isinstance(value, int) and not is_whole:
                value = float(value)
        branch = found
        for name in part["path"][:-1]:
            branch = branch.setdefault(name, {})
        branch[part["path"][-1]] = value
    return found


def typed(text: str | None) -> Any:
    """A value of a parameter as Python has it: a number, a truth, None, a list, or the text itself."""
    if text is None or text in _WORDS:
        return _WORDS[text or "None"]
    if _NUMBER.fullmatch(text):
        number = float(text)
        return int(text) if re.fullmatch(r"[+-]?\d{1,300}", text) else number if math.isfinite(number) else text
    if text.startswith(("[", "{")):
        try:
            return json.loads(text)
        except (ValueError, RecursionError):
            return text
    return text


def _yaml(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{_yaml(str(name))}: {_yaml(each)}" for name, each in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_yaml, value)) + "]"
    if isinstance(value, float):
        digits, e, exponent = repr(value).partition("e")
        return f"{digits}.0e{exponent}" if e and "." not in digits else repr(value)  # 1e-05 is a text in YAML 1.1
    return json.dumps(value, ensure_ascii=not (isinstance(value, str) and value.isprintable()))
