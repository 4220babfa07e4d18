"""`dibs.report(loss=0.3, step=5)`: reports metrics of a job, one line for each call."""

import os
import re
from collections.abc import Mapping
from contextlib import suppress
from typing import SupportsFloat, SupportsIndex

from dibs.errors import BadInput

Number = SupportsFloat | SupportsIndex
_NAME = re.compile(r"[A-Za-z_][\w./@-]{0,99}")
_LONGEST = 4096  # bytes of a line, which one write appends as a whole


def report(values: Mapping[str, Number] | None = None, /, *, step: int | None = None, **more: Number) -> None:
    """Report metrics of this job: `dibs.report(loss=0.3, step=5)`. Outside of a job it only checks them.

    Names that are not keywords are given in a mapping: `dibs.report({"val/loss": 0.3})`.
    """
    if values is not None and not isinstance(values, Mapping):
        raise BadInput(f"cannot report {values!r:.60}: it has no name", remedy="dibs.report(loss=0.3, step=5)")
    told = {name: _number(name, value) for name, value in {**(values or {}), **more}.items()}
    if not told:
        raise BadInput("there is nothing to report", remedy="dibs.report(loss=0.3, step=5)")
    if step is not None:
        told["step"] = _step(step)
    line = " ".join(f"{name}={value!r}" for name, value in told.items()).encode() + b"\n"
    if len(line) > _LONGEST:
        raise BadInput(f"cannot report {len(told)} values at once", remedy="report them in several calls")
    path = os.environ.get("DIBS_METRICS")
    if not path:
        return
    # One appending write: lines of several processes of a job are not mixed.
    fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        os.write(fd, line)
    finally:
        os.close(fd)


def _number(name: str, value: Number) -> float | int:
    if not isinstance(name, str) or not _NAME.fullmatch(name) or name == "step":
        raise BadInput(f"cannot report {name!r:.60}: it is not a name", remedy="names look like loss or val/loss")
    if isinstance(value, bool | str | bytes):
        raise BadInput(f"cannot report {name}={value!r:.60}: it is not a number", remedy="report numbers")
    try:
        number = float(value)
    except OverflowError as error:
        raise BadInput(f"cannot report {name}: it is not below 1e308", remedy="report smaller ones") from error
    except (TypeError, ValueError) as error:
        raise BadInput(
            f"cannot report {name}={value!r:.60}: it is not a number", remedy="of a tensor, report loss.item()"
        ) from error
    return value if isinstance(value, int) else number


def _step(step: int) -> int:
    with suppress(TypeError, ValueError, OverflowError):
        if not isinstance(step, bool) and int(step) == step:
            return int(step)
    raise BadInput(f"cannot report {step!r:.60} as a step", remedy="it is a whole number")
