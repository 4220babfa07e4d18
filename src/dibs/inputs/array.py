"""The tasks of an array, as Slurm writes them: `1-16%4`, `1,3,5-9:2`."""

import re
from dataclasses import dataclass

from dibs.errors import BadInput

MOST_TASKS = 5_000  # an array is stored in one piece
_LARGEST = 10**9
_PART = r"([0-9]{1,10})(?:-([0-9]{1,10})(?::([0-9]{1,10}))?)?"


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
    for part in ranges.split(","):
        match = re.fullmatch(_PART, part.strip())
        if not match:
            raise _wrong(text)
        first = int(match[1])
        last = int(match[2]) if match[2] else first
        step = int(match[3]) if match[3] else 1
        if last < first or step < 1 or last > _LARGEST:
            raise _wrong(text)
        # Counted before it is written out: 0-999999999 must not fill the memory.
        if (last - first) // step + 1 + len(numbers) > MOST_TASKS:
            raise BadInput(
                f"the array {text[:60]!r} has more than {MOST_TASKS} tasks",
                remedy="split it, or give the commands as lines",
            )
        numbers.update(range(first, last + 1, step))
    return Tasks(tuple(sorted(numbers)), int(most) if percent else None)


def _wrong(text: str) -> BadInput:
    return BadInput(f"cannot read {text[:60]!r} as an array", remedy="write it like 1-16, 1-16%4 or 1,3,5-9:2")
