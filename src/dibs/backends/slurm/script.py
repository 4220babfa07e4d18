"""The batch script: a few lines that become our shim."""

import shlex
from collections.abc import Mapping
from typing import Any

from dibs.supervise.carried import NO_SOURCE, pack


def script(python: str, source: str, folder: str) -> bytes:
    """For one attempt. `source` is where the package dibs lies."""
    return f"#!/bin/sh\n{_become(python, source, 'alone', shlex.quote(folder))}\n".encode(
        "utf-8", "surrogateescape"
    )


def array_script(python: str, source: str, folders: Mapping[int, str]) -> bytes:
    """For the elements of an array, whose folders are found by Slurm's task number.

    The folders stand in the script itself: Slurm keeps it as long as it is needed, and nobody has to clean up.
    """
    lines = ["#!/bin/sh", 'case "$SLURM_ARRAY_TASK_ID" in']
    lines += [f"{task}) folder={shlex.quote(folder)};;" for task, folder in sorted(folders.items())]
    lines += ["esac", _become(python, source, "alone", '"$folder"')]
    return ("\n".join(lines) + "\n").encode("utf-8", "surrogateescape")


def carrying_script(python: str, source: str, document: Mapping[str, Any]) -> bytes:
    """For attempts that bring along everything that they need but the package itself.

    It stands behind the last line that a shell reads, and the shim reads it from the script's own file.
    """
    there = shlex.quote(f"{source}/dibs/supervise/carried.py")
    lines = ["#!/bin/sh", f"test -e {there} || exit {NO_SOURCE}", _become(python, source, "carried", '"$0"')]
    return "\n".join(lines).encode("utf-8", "surrogateescape") + pack(document)


def call(python: str, source: str, module: str) -> list[str]:
    """The words that run `main` of a module of ours with whatever words follow."""
    # Isolated and without site: nothing of the node's surroundings may reach the supervisor.
    start = f"import sys; sys.path.append(sys.argv[1]); from dibs.supervise.{module} import main"
    return [python, "-I", "-S", "-X", "utf8", "-c", f"{start}; sys.exit(main(*sys.argv[2:]))", source]


def _become(python: str, source: str, module: str, argument: str) -> str:
    return f"exec {shlex.join(call(python, source, module))} {argument}"
