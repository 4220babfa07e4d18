"""The jobs of a file given with -f, or of standard input, by the reader for its format."""

import os
import shlex
import stat
from collections.abc import Iterator
from dataclasses import replace
from typing import BinaryIO

from dibs.dataclass import dataclass
from dibs.errors import BadInput
from dibs.inputs.entries import Entry, open_input, refuse
from dibs.inputs.generator import load_generator
from dibs.inputs.lines import parse_lines, parse_lines_quickly, text_lines
from dibs.inputs.sbatch import IN_FOREGROUND, ScriptReading, is_script, read_script
from dibs.model.jobs import ArrayTask, JobId, Request
from dibs.model.places import LOCAL


@dataclass(frozen=True, slots=True)
class Source:
    """Jobs for `dibs run`. `entries` is read as jobs are needed; `warnings` are known at once."""

    name: str
    entries: Iterator[Entry]
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class QueueSource:
    """Jobs for a queue; an entry that is text is a command without fields of its own."""

    entries: Iterator[Entry | str]
    warnings: tuple[str, ...] = ()


def read_file(
    path: str,
    defaults: Request,
    shell: str = "bash",
    *,
    environment_size: int = 0,
    script_reading: ScriptReading = IN_FOREGROUND,
) -> Source:
    """Open a job file now and read it later.

    `.py` is a file with a `yielder()`, `#!` makes a script that is one job, everything else is lines. A file that
    cannot be read raises BadInput here, before any job has started.
    """
    if path.endswith(".py"):
        entries = load_generator(path, defaults, shell, environment_size=environment_size)
        return Source(path, _here(entries, path))
    lines = _lines_unless_script(path)
    if lines is None:
        script = read_script(path, defaults, script_reading, environment_size=environment_size)
        return Source(path, iter([script.request]), script.warnings)
    entries = parse_lines(lines, defaults, shell, name=path, environment_size=environment_size)
    return Source(path, _here(entries, path))


def read_file_for_queue(
    path: str,
    defaults: Request,
    shell: str,
    *,
    environment_size: int,
    script_reading: ScriptReading,
) -> QueueSource:
    """The same for a queue: plain lines quickly, and scripts with options that only a queue has."""
    if path.endswith(".py"):
        return QueueSource(load_generator(path, defaults, shell, environment_size=environment_size))
    lines = _lines_unless_script(path)
    if lines is not None:
        entries = parse_lines_quickly(lines, defaults, shell, name=path, environment_size=environment_size)
        return QueueSource(entries)
    script = read_script(path, defaults, script_reading, environment_size=environment_size)
    if script.tasks is None:
        return QueueSource(iter([script.request]), script.warnings)
    numbers = script.tasks.numbers
    whole = tuple(
        (f"SLURM_ARRAY_TASK_{name}", str(value))
        for name, value in (("COUNT", len(numbers)), ("MIN", numbers[0]), ("MAX", numbers[-1]))
    )
    tasks = [
        replace(
            script.request,
            array=ArrayTask(JobId(0), task, script.tasks.most),
            # A script that was written for Slurm reads these variables.
            env=(*script.request.env, *whole, ("SLURM_ARRAY_TASK_ID", str(task))),
        )
        for task in numbers
    ]
    return QueueSource(iter(tasks), script.warnings)


def read_stream(
    stream: BinaryIO,
    defaults: Request,
    shell: str = "bash",
    *,
    name: str = "stdin",
    environment_size: int = 0,
) -> Source:
    """The job list of an open stream, such as standard input. It stays open."""
    entries = parse_lines(text_lines(stream), defaults, shell, name=name, environment_size=environment_size)
    return Source(name, _here(entries, name))


def read_stream_for_queue(
    stream: BinaryIO, defaults: Request, shell: str, *, environment_size: int
) -> QueueSource:
    """The job list of an open stream, for a queue."""
    lines = text_lines(stream)
    return QueueSource(parse_lines_quickly(lines, defaults, shell, environment_size=environment_size))


def _here(entries: Iterator[Entry], name: str) -> Iterator[Entry]:
    """The same, with an error for jobs of other systems: `dibs run` cannot supervise those."""
    for entry in entries:
        if not isinstance(entry, Request) or not (entry.on or entry.on_options):
            yield entry
        elif entry.on == LOCAL and not entry.on_options:
            yield replace(entry, on="")
        else:
            error = BadInput("it is to run on Slurm, and `dibs run` runs here", remedy="add it: dibs add -f FILE")
            yield refuse(entry.command.shown, error, name)


def _lines_unless_script(path: str) -> Iterator[str] | None:
    if _is_fifo(path):
        # Opening a FIFO blocks until it has a writer: open it when the first line is read.
        return _lines_of_fifo(path)
    stream = open_input(path)
    start = _first_bytes(stream)
    if _is_binary(start):
        stream.close()
        raise BadInput(
            f"cannot read the job file {path!r}: it is not a text file",
            remedy=f"a list holds a command a line; a program is run with: dibs run -- {shlex.quote(path)}",
        )
    if is_script(start):
        stream.close()
        return None
    return _lines_of(stream)


def _is_fifo(path: str) -> bool:
    try:
        return stat.S_ISFIFO(os.stat(path).st_mode) and os.access(path, os.R_OK)
    except (OSError, ValueError):
        return False


def _first_bytes(stream: BinaryIO) -> bytes:
    """The first bytes of a regular file, which are read again later; empty for a device, which might block."""
    if not stat.S_ISREG(os.fstat(stream.fileno()).st_mode):
        return b""
    start = stream.read(4)
    stream.seek(0)
    return start


def _is_binary(start: bytes) -> bool:
    """Whether it is not text: a program, an archive, a pickle."""
    return any((byte < 0x20 and byte not in b"\t\n\v\f\r") or byte == 0x7F for byte in start)


def _lines_of(stream: BinaryIO) -> Iterator[str]:
    with stream:
        yield from text_lines(stream)


def _lines_of_fifo(path: str) -> Iterator[str]:
    yield from _lines_of(open_input(path))
