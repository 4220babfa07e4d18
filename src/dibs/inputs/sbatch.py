"""A script with `#SBATCH` lines: one job that runs the file as it is, with the options that Slurm would read.

Slurm's options keep Slurm's meaning: `--time` is in minutes, 0 is no limit, the last of two options wins. A script
that requests no GPU gets the number from the command line. Options that need a queue (an array, a dependency, a
start time, ...) are read only for a queue, and those that need Slurm (a partition, an account, ...) only for a job
that runs there; for these the command line takes precedence, as in Slurm.
"""

import os
import re
import shlex
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import datetime
from typing import BinaryIO

from dibs.dataclass import dataclass
from dibs.errors import BadInput
from dibs.inputs.checks import check_request
from dibs.inputs.entries import open_input
from dibs.inputs.slurm import Tasks, parse_array, parse_dependency, parse_gpus, parse_gres
from dibs.inputs.wishes import apply_wishes, parse_begin
from dibs.model.jobs import After, Command, Dependency, JobId, Request
from dibs.model.places import LOCAL, SLURM, SLURM_OPTIONS, parse_option
from dibs.model.units import parse_count, parse_size

_LONGEST_LINE = 65_536  # bytes
_SPELLED_OUT = {"-J": "--job-name", "-t": "--time", "-D": "--chdir", "-G": "--gpus", "-a": "--array"}
_SPELLED_OUT_FOR_A_QUEUE = {"-c": "--cpus-per-task", "-d": "--dependency", "-o": "--output", "-b": "--begin"}
_OF_SLURM = {
    **{f"--{name}": name for name in SLURM_OPTIONS},
    "-p": "partition",
    "-A": "account",
    "-q": "qos",
    "-C": "constraint",
    "-x": "exclude",
    "-w": "nodelist",
    "-L": "licenses",
}
_KINDS = {"--after": After.OK, "--after-any": After.ANY, "--after-fail": After.FAIL}
_WITHIN = re.compile(r"(?<=\S)#")
_UNLIMITED = ("0", "infinite", "unlimited")


@dataclass(frozen=True, slots=True)
class Script:
    """A script as a job, and warnings about options that dibs ignores."""

    request: Request
    warnings: tuple[str, ...]
    tasks: Tasks | None = None  # where it is an array; for a queue only


def is_script(first_bytes: bytes) -> bool:
    """Whether a file is one job, because its first line names an interpreter."""
    return first_bytes.startswith(b"#!")


def read_script(
    path: str,
    defaults: Request,
    *,
    environment_size: int = 0,
    queued_at: datetime | None = None,
    default_place: Callable[[], str] = lambda: LOCAL,
) -> Script:
    """The job that runs this script. For a queue, `queued_at` is now; in the foreground it is None.

    `default_place` returns where jobs run by default, and is called only where that makes a difference.
    """
    with open_input(path) as file:
        first = file.readline(_LONGEST_LINE).decode("utf-8", "surrogateescape")
        header = list(_header(file, path))
    request = replace(defaults, command=Command.exact([*_interpreter(first), os.path.abspath(path)]))
    unused: list[str] = []
    is_for_slurm = (
        queued_at is not None
        and any(option in _OF_SLURM for _, option, _ in header)
        and (defaults.on or default_place()) == SLURM
    )
    slurm_options: dict[str, str] = {}
    tasks = None
    for number, option, value in header:
        try:
            if queued_at is not None:
                option = _SPELLED_OUT_FOR_A_QUEUE.get(option, option)
            if queued_at is not None and option == "--array":
                tasks = parse_array(value)
            elif is_for_slurm and option in _OF_SLURM:
                slurm_options[_OF_SLURM[option]] = parse_option(_OF_SLURM[option], value)
            elif queued_at is not None and option in _FOR_A_QUEUE:
                request = _for_a_queue(request, option, value, queued_at)
            else:
                request = _with_option(request, option, value, unused, is_queue=queued_at is not None)
        except BadInput as error:
            raise BadInput(f"{path} line {number}: {error.message}", remedy=error.remedy) from error
    if is_for_slurm:
        request = replace(
            request, on=SLURM, on_options=tuple({**slurm_options, **dict(request.on_options)}.items())
        )
    check_request(request, environment_size)
    names = ", ".join(dict.fromkeys(unused))
    return Script(request, (f"{path}: dibs ignores {names}",) if unused else (), tasks)


def _interpreter(first_line: str) -> list[str]:
    """The words of the `#!` line, split as the kernel does: a program and at most one argument."""
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
            # A comment begins a word. Within one `#` is a letter, as in pyxis' `registry#image`.
            words = [one.replace("\0", "#") for one in shlex.split(_WITHIN.sub("\0", options), comments=True)]
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


_FOR_A_QUEUE = ("--cpus-per-task", "--mem", "--begin", "--dependency", "--output")


def _for_a_queue(request: Request, option: str, value: str, now: datetime) -> Request:
    match option:
        case "--cpus-per-task":
            return replace(request, wishes=replace(request.wishes, cpus=parse_count(value, "CPUs", least=1)))
        case "--mem":
            # Slurm's numbers are megabytes, and 0 is all memory.
            size = None if value == "0" else parse_size(f"{value}M" if value.isdigit() else value)
            return replace(request, wishes=replace(request.wishes, mem=size))
        case "--begin":
            return replace(request, begin=parse_begin(value, now))
        case "--dependency":
            named = parse_dependency(value)
            after = [Dependency(_job(job), _KINDS[kind]) for kind, jobs in named.items() for job in jobs]
            return replace(request, after=(*request.after, *after))
        case _:  # --output
            return replace(request, output=os.path.join(request.workdir, value))


def _job(text: str) -> JobId:
    if not text.isdigit():
        raise BadInput(f"cannot use {text!r} in a script", remedy="name a job by its number, or use --after")
    return JobId(int(text))


def _with_option(request: Request, option: str, value: str, unused: list[str], *, is_queue: bool) -> Request:
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
            found = [parse_gpus(item) for item in value.split(",")]
            kind = next((kind for _, kind in reversed(found) if kind), "")
            return _with_gpus(request, sum(number for number, _ in found), kind, unused, is_queue)
        case "--gres":
            total, kind, others = parse_gres(value)
            unused += [f"--gres={item}" for item in others]
            return request if total is None else _with_gpus(request, total, kind, unused, is_queue)
        case "--container-image":
            return apply_wishes(request, {"image": _image(value)})
        case "--container-mounts":
            return apply_wishes(request, {"mounts": [_mount(one) for one in value.split(",")]})
        case "--container-workdir":
            return apply_wishes(request, {"workdir": value})
        case "--array":
            raise BadInput(
                "dibs runs a script once, not as an array", remedy="give the values with -p, or as lines"
            )
        case _:
            unused.append(option)
            return request


def _image(value: str) -> str:
    """Pyxis writes `registry#name`, and `docker://` before it; a file is a path."""
    return value.removeprefix("docker://").replace("#", "/", 1)


def _mount(value: str) -> str:
    """`SRC:DST:FLAGS` of pyxis, where flags are joined with `+`: only `ro` has a meaning here."""
    source, _, rest = value.partition(":")
    target, _, flags = rest.partition(":")
    return f"{source}:{target or source}{':ro' * ('ro' in flags.split('+'))}"


def _with_gpus(request: Request, number: int, kind: str, unused: list[str], is_queue: bool) -> Request:
    request = apply_wishes(request, {"num_gpus": number})
    if kind and is_queue:
        return replace(request, wishes=replace(request.wishes, gpu_type=kind))
    if kind:
        unused.append(f"the GPU type {kind}")
    return request
