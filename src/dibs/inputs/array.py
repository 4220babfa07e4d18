"""The tasks of an array, as Slurm writes them: `1-16%4`, `1,3,5-9:2`."""

import re
from dataclasses import dataclass

from dibs.errors import BadInput
from dibs.model.ranges import parse_ranges

MOST_TASKS = 5_000  # an array is stored in one piece
_LARGEST = 10**9


@dataclass(frozen=True, slots=True)
class Tasks:
    """The numbers of an array's tasks, and how many of them may run at once."""

    numbers: tuple[int, ...]
    most: int | None = None


def parse_array(text: str) -> Tasks:
    """The tasks that a text names, each once, in the order of their numbers."""
    ranges, percent, most = text.strip().partition("%")
    if percent and (not re.fullmatch(r"[0-9]{1,6}", most) or int(most) < 1):
        raise _wrong(text)
    numbers: set[int] = set()
    try:
        parts = parse_ranges(ranges, may_step=True)
    except ValueError:
        raise _wrong(text) from None
    for part in parts:
        if not part or part.stop > _LARGEST + 1:
            raise _wrong(text)
        if len(part) + len(numbers) > MOST_TASKS:
            raise BadInput(
                f"the array {text[:60]!r} has more than {MOST_TASKS} tasks",
                remedy="split it, or give the commands as lines",
            )
        numbers.update(part)
    return Tasks(tuple(sorted(numbers)), int(most) if percent else None)


def _wrong(text: str) -> BadInput:
    return BadInput(f"cannot read {text[:60]!r} as an array", remedy="write it like 1-16, 1-16%4 or 1,3,5-9:2")
