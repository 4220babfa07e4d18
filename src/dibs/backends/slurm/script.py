"""The batch script: a few lines that become our shim."""

import shlex
from collections.abc import Mapping

_START = (
    "import sys; sys.path.append(sys.argv[1]); from dibs.supervise.alone import main; sys.exit(main(sys.argv[2]))"
)


def script(python: str, source: str, folder: str) -> bytes:
    """For one attempt. `source` is where the package dibs lies."""
    return f"#!/bin/sh\n{_become(python, source, shlex.quote(folder))}\n".encode("utf-8", "surrogateescape")


def array_script(python: str, source: str, folders: Mapping[int, str]) -> bytes:
    """For the elements of an array, whose folders are found by Slurm's task number.

    The folders stand in the script itself: Slurm keeps it as long as it is needed, and nobody has to clean up.
    """
    lines = ["#!/bin/sh", 'case "$SLURM_ARRAY_TASK_ID" in']
    lines += [f"{task}) folder={shlex.quote(folder)};;" for task, folder in sorted(folders.items())]
    lines += ["esac", _become(python, source, '"$folder"')]
    return ("\n".join(lines) + "\n").encode("utf-8", "surrogateescape")


def ranges(tasks: list[int]) -> str:
    """`0-3,7` for `--array`."""
    found: list[list[int]] = []
    for task in sorted(tasks):
        if found and task == found[-1][1] + 1:
            found[-1][1] = task
        else:
            found.append([task, task])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in found)


def _become(python: str, source: str, folder: str) -> str:
    # Isolated and without site: nothing of the node's surroundings may reach the supervisor.
    words = [python, "-I", "-S", "-X", "utf8", "-c", _START, source]
    return f"exec {shlex.join(words)} {folder}"
