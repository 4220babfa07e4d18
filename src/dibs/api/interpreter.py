"""The interpreter that a function's job runs in: ours, or another one of the same version."""

import os
import sys
from collections.abc import Sequence
from functools import cache

from dibs.errors import BadInput

_PATIENCE = 30.0  # seconds; the first start of an interpreter on a network disk takes its time
_ASKED = "import sys; print(*sys.version_info[:2]); import cloudpickle"


def import_path(python: str) -> Sequence[str]:
    """Where its modules are looked for first; of another interpreter's own places ours are none."""
    places = [os.path.abspath(place) if place else os.getcwd() for place in sys.path]
    if not python:
        return places
    ours = tuple(f"{prefix.rstrip('/')}/" for prefix in {sys.prefix, sys.base_prefix})
    return [place for place in places if not place.startswith(ours)]


@cache
def check_interpreter(python: str) -> None:
    """Refuse an interpreter that could not read our functions."""
    import subprocess

    try:
        asked = subprocess.run(
            [python, "-c", _ASKED], capture_output=True, text=True, timeout=_PATIENCE, stdin=subprocess.DEVNULL
        )
    except (OSError, subprocess.TimeoutExpired, ValueError) as error:
        raise BadInput(
            f"cannot use {python!r} as python: {error}", remedy="name an interpreter by its path"
        ) from error
    ours = f"{sys.version_info[0]} {sys.version_info[1]}"
    theirs = asked.stdout.strip()
    if theirs != ours:
        shown = theirs.replace(" ", ".") or "nothing that answers"
        raise BadInput(
            f"cannot send functions to {python}: it is Python {shown}, and this is {ours.replace(' ', '.')}",
            remedy="a pickled function can be read by the same version only; submit a command instead",
        )
    if asked.returncode:
        raise BadInput(
            f"cannot send functions to {python}: it cannot import cloudpickle",
            remedy=f"{python} -m pip install cloudpickle",
        )
