"""A script with `#SBATCH` lines: one job that runs the file as it is, with the wishes Slurm would read.

Slurm's words keep Slurm's meaning: `--time` is in minutes, 0 is no limit, the last of two options wins. A
script that asks for no GPU keeps the number from the command line, because dibs is asked for GPUs.
"""

import os
import shlex
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import BinaryIO

from dibs.errors import BadInput
from dibs.inputs.checks import check_request
from dibs.inputs.files import open_input
from dibs.inputs.wishes import apply_wishes
from dibs.model.jobs import Command, Request
from dibs.model.units import parse_count

_LONGEST_LINE = 65_536  # bytes
_SPELLED_OUT = {"-J": "--job-name", "-t": "--time", "-D": "--chdir", "-G": "--gpus", "-a": "--array"}
_UNLIMITED = ("0", "infinite", "unlimited")


@dataclass(frozen=True, slots=True)
class Script:
    """A script as a job, and what dibs does not take from it."""

    request: Request
    warnings: tuple[str, ...]


def is_script(first_bytes: bytes) -> bool:
    """Whether a file is run whole, as one job, because its first line names an interpreter."""
    return first_bytes.startswith(b"#!")


def read_script(path: str, defaults: Request, *, environment_size: int = 0) -> Script:
    """The job that runs this script."""
    with open_input(path) as file:
        first = file.readline(_LONGEST_LINE).decode("utf-8", "surrogateescape")
        header = list(_header(file, path))
    request = replace(defaults, command=Command.exact([*_interpreter(first), os.path.abspath(path)]))
    unused: list[str] = []
    for number, option, value in header:
        try:
            request = _with_option(request, option, value, unused)
        except BadInput as error:
            raise BadInput(f"{path} line {number}: {error.message}", remedy=error.remedy) from error
    check_request(request, environment_size)
    names = ", ".join(dict.fromkeys(unused))
    return Script(request, (f"{path}: dibs makes no use of {names}",) if unused else ())


def _interpreter(first_line: str) -> list[str]:
    """The words of the `#!` line, cut as the kernel cuts them: a program and at most one argument."""
    words = first_line.removeprefix("#!").strip().split(None, 1) if first_line.startswith("#!") else []
    return words or ["bash"]


def _header(stream: BinaryIO, path: str) -> Iterator[tuple[int, str, str]]:
    """Line number, option and value for all `#SBATCH` lines before the first command, as Slurm reads them."""
    number = 1
    while line := stream.readline(_LONGEST_LINE):
        number += 1
        text = line.decode("utf-8", "surrogateescape").strip()
        if text and not text.startswith("#"):
            return
        marker, _, options = text.partition(" ")
        if marker != "#SBATCH":
            continue
        try:
            words = shlex.split(options, comments=True)
        except ValueError as error:
            raise BadInput(f"{path} line {number}: a quote is not closed", remedy="close it") from error
        for option, value in _options(words):
            yield number, option, value


def _options(words: list[str]) -> Iterator[tuple[str, str]]:
    rest = words[::-1]
    while rest:
        word = rest.pop()
        if word.startswith("--"):
            option, has_value, value = word.partition("=")
        else:
            option, value = word[:2], word[2:]
            has_value = value
        if not has_value and rest and not rest[-1].startswith("-"):
            value = rest.pop()
        yield _SPELLED_OUT.get(option, option), value


def _with_option(request: Request, option: str, value: str, unused: list[str]) -> Request:
    match option:
        case "--job-name":
            return apply_wishes(request, {"name": value})
        case "--chdir":
            return apply_wishes(request, {"workdir": value})
        case "--time" if value.lower() in _UNLIMITED:
            return replace(request, time_limit=None)
        case "--time":
            return apply_wishes(request, {"time": value})
        case "--gpus" | "--gpus-per-node":
            return _with_gpus(request, value.split(","), unused)
        case "--gres":
            items = [item.removeprefix("gres/").removeprefix("gres:") for item in value.split(",")]
            gpus = [item for item in items if item.split(":")[0] == "gpu"]
            unused += [f"--gres={item}" for item in items if item not in gpus]
            counts = [item.removeprefix("gpu").removeprefix(":") or "1" for item in gpus]
            return _with_gpus(request, counts, unused) if gpus else request
        case "--array":
            raise BadInput(
                "dibs runs a script once, not as an array", remedy="give the values with -p, or as lines"
            )
        case _:
            unused.append(option)
            return request


def _with_gpus(request: Request, counts: list[str], unused: list[str]) -> Request:
    """Add up `2`, `a100:2` and `a100` (one of them)."""
    total = 0
    for item in counts:
        kind, _, number = item.rpartition(":")
        if not kind and number[:1].isalpha():
            kind, number = number, "1"
        if kind:
            unused.append(f"the GPU type {kind}")
        total += parse_count(number, "a number of GPUs")
    return apply_wishes(request, {"num_gpus": total})
