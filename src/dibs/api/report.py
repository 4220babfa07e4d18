"""`dibs.report(loss=0.3, step=5)`: reports metrics of a job, one line for each call.

It never raises and never ends a training: what is no number is left out, with one warning on stderr.
"""

import os
import re
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress

_UNFIT = re.compile(r"[^\w./@-]+")
_LONGEST_NAME = 100
_LONGEST = 4096  # bytes of a line, which one write appends as a whole
_warned: set[str] = set()


def report(values: Mapping[str, object] | None = None, /, *, step: object = None, **more: object) -> None:
    """Report metrics of this job: `dibs.report(loss=0.3, step=5)`. Outside of a job it does nothing.

    Names that are not keywords are given in a mapping, and mappings may be nested: `{"val": {"loss": 0.3}}` is
    `val/loss`. A `step` in the mapping counts as the step.
    """
    told = _told(values, more)
    if step is None:
        step = told.pop("step", None)
    found = {name: number for name, value in told.items() if (number := _number(name, value)) is not None}
    if not found:
        _warn("nothing", "there is no number to report")
        return
    _write(found, _step(step))


def _told(values: object, more: Mapping[str, object]) -> dict[str, object]:
    """What was given, under names that a line can have."""
    if values is not None and not isinstance(values, Mapping):
        _warn("unnamed", f"cannot report {_shown(values)}: it has no name, as in dibs.report(loss=0.3)")
        values = None
    found = {}
    for name, value in (*_flat(values or {}), *more.items()):
        fit = _UNFIT.sub("_", name).strip("_")[:_LONGEST_NAME]
        if fit != name or not fit:
            _warn(
                f"name {fit}",
                f"{_shown(name)} is reported as {fit or 'nothing'}: names look like loss or val/loss",
            )
        if fit:
            found[fit] = value
    return found


def _flat(values: Mapping[object, object], above: str = "") -> Iterator[tuple[str, object]]:
    for name, value in values.items():
        if isinstance(value, Mapping) and above.count("/") < 10:
            yield from _flat(value, f"{above}{name}/")
        else:
            yield f"{above}{name}", value


def _number(name: str, value: object) -> float | int | None:
    """The number; None, with a warning, for what is none."""
    if isinstance(value, int):  # a truth is 0 or 1
        value = int(value)
        if value.bit_length() < 1024:
            return value
    # A tensor may raise whatever its library likes.
    with suppress(Exception):
        if not isinstance(value, str | bytes):
            one = value.item() if hasattr(value, "item") else value  # an array with one element
            return float(one)  # type: ignore[arg-type]
    _warn(f"value {name}", f"{name}={_shown(value)} is left out: it is not one number")
    return None


def _step(step: object) -> int | None:
    if step is None:
        return None
    with suppress(Exception):
        whole = int(step)  # type: ignore[call-overload]
        if whole == step and whole >= 0 and not isinstance(step, str):
            return int(whole)
    _warn("step", f"the step {_shown(step)} is left out: it is not a whole number")
    return None


def _write(values: Mapping[str, float | int], step: int | None) -> None:
    """Append a line; more values than one line holds are several lines."""
    path = os.environ.get("DIBS_METRICS")
    if not path:
        return
    end = f"{'' if step is None else f' step={step}'} _timestamp={time.time():.3f}\n".encode()
    lines = [b""]
    for name, value in values.items():
        word = f"{name}={value!r}".encode()
        if lines[-1] and len(lines[-1]) + len(word) + len(end) >= _LONGEST:
            lines.append(b"")
        lines[-1] += b" " + word if lines[-1] else word
    try:
        fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            for line in lines:
                # One appending write: lines of several processes of a job are not mixed.
                os.write(fd, line + end)
        finally:
            os.close(fd)
    except OSError as error:
        _warn("file", f"metrics are not kept: {error.strerror}")


def _warn(kind: str, text: str) -> None:
    """Say it once. Not by `warnings`, which a program may have turned into errors."""
    if kind not in _warned:
        _warned.add(kind)
        with suppress(Exception):
            sys.stderr.write(f"dibs.report: {text}\n")


def _shown(value: object) -> str:
    try:
        return f"{value!r:.60}"
    except Exception:
        return f"a {type(value).__name__}"
