"""What a job that runs reports now: its last numbers, how far it is, and when it will be over.

Only the ends of a file are read.
"""

import math
import os
from collections.abc import Iterable, Mapping
from dataclasses import field

from dibs.dataclass import dataclass
from dibs.metrics.attempt import LineFile
from dibs.metrics.lines import PROGRESS, STEP, STEPS, WRITTEN_AT, line_text, read_number
from dibs.metrics.series import MOST_SERIES, numbers_in, printable_name, read_step
from dibs.supervise.folder import open_own_file

_HEAD = 4 * 1024  # bytes, for the first report and the number of steps
_TAIL = 16 * 1024
_LONGEST = 10 * 366 * 86_400.0  # seconds; an end that is further away is not told


@dataclass(frozen=True, slots=True)
class JobProgress:
    """A part of the work, from 0 to 1, when it was done, and when it will be all."""

    part: float
    at: float  # seconds since the epoch
    ends_at: float | None  # estimated


@dataclass(frozen=True, slots=True)
class JobReport:
    """What an attempt that runs has reported."""

    progress: JobProgress | None = None
    numbers: Mapping[str, float | None] = field(default_factory=dict)  # the last; None: it is not finite


@dataclass(frozen=True, slots=True)
class _Told:
    part: float
    at: float


def read_report(files: Iterable[LineFile], began: float) -> JobReport:
    """What an attempt has reported lately. What two files tell is that of the first. Blocks on the disk."""
    progress: JobProgress | None = None
    numbers: dict[str, float | None] = {}
    for file in files:
        try:
            handle = open_own_file(file.path)
        except OSError:
            continue
        try:
            size, written = os.fstat(handle).st_size, os.fstat(handle).st_mtime
            head = os.pread(handle, min(size, _HEAD), 0)
            tail = os.pread(handle, _TAIL, max(0, size - _TAIL)) if size else b""
        except OSError:
            continue
        finally:
            os.close(handle)
        last_lines = _whole_lines(file, tail, begin=size - len(tail), size=size)
        progress = progress or _progress(file, head, last_lines, size, began, max(began, written))
        numbers = _last_numbers(last_lines) | numbers
    return JobReport(progress, dict(list(numbers.items())[:MOST_SERIES]))


def _last_numbers(lines: Iterable[tuple[float, Mapping[str, object]]]) -> dict[str, float | None]:
    found = {name: number for _, told in lines for name, number in numbers_in(told)}
    return {printable_name(name): number if math.isfinite(number) else None for name, number in found.items()}


def _progress(
    file: LineFile,
    head: bytes,
    last_lines: list[tuple[float, Mapping[str, object]]],
    size: int,
    began: float,
    written: float,
) -> JobProgress | None:
    first_lines = _whole_lines(file, head, begin=0, size=size)
    steps = next((found for _, told in first_lines if (found := read_step(told.get(STEPS))) is not None), None)

    def found_in(lines: Iterable[tuple[float, Mapping[str, object]]]) -> _Told | None:
        for place, told in lines:
            if (part := _part(told, steps)) is not None:
                return _Told(part, _at(told, began + (written - began) * place))
        return None

    last = found_in(reversed(last_lines))
    if last is None:
        return None
    first = found_in(first_lines) or last
    return JobProgress(last.part, last.at, _ends_at(first, last, began))


def _ends_at(first: _Told, last: _Told, began: float) -> float | None:
    """At the speed since the first report: a job that resumed did not do that part in this attempt."""
    if last.part >= 1:
        return last.at
    done, seconds = last.part - first.part, last.at - first.at
    if done <= 0 or seconds <= 0:
        done, seconds = last.part, last.at - began
    if done <= 0 or seconds <= 0:
        return None
    left = (1 - last.part) * seconds / done
    return last.at + left if left <= _LONGEST else None


def _part(told: Mapping[str, object], steps: float | None) -> float | None:
    given = told.get(PROGRESS)
    is_percent = isinstance(given, str) and given.endswith("%")
    part = read_number(given.removesuffix("%")) if isinstance(given, str) else read_number(given)
    if part is not None:
        part = part / 100 if is_percent else part
    else:
        own, step = read_step(told.get(STEPS)), read_step(told.get(STEP))
        most = own if own is not None else steps
        part = step / most if step is not None and most is not None and most > 0 else None
    return part if part is not None and 0 <= part <= 1 else None


def _at(told: Mapping[str, object], otherwise: float) -> float:
    at = read_number(told.get(WRITTEN_AT)) if WRITTEN_AT in told else None
    return at if at is not None and math.isfinite(at) else otherwise


def _whole_lines(
    file: LineFile, data: bytes, *, begin: int, size: int
) -> list[tuple[float, Mapping[str, object]]]:
    """What the complete lines in a piece of a file say, with their places in the file, from 0 to 1."""
    lines, found, at = file.split(data), [], begin
    for number, line in enumerate(lines):
        at += len(line) + 1
        is_whole = number < len(lines) - 1 and (number > 0 or begin == 0)
        if is_whole and line.strip() and (told := file.read(line_text(line))):
            found.append((at / size, told))
    return found
