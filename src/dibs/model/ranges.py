"""Ranges of numbers, written like `1-5,8`."""

import re
from collections.abc import Iterable

_PART = r"([0-9]{1,15})(?:-([0-9]{1,15}))?(?::([0-9]{1,15}))?"


def parse_ranges(text: str, *, may_step: bool = False) -> list[range]:
    """The ranges in a text like `1-5,8`, and with `may_step` like `1-9:2`; ValueError if it is something else.

    A range is not expanded, so that 0-999999999 does not fill the memory. One like 5-3 is empty.
    """
    found = []
    for part in text.split(","):
        match = re.fullmatch(_PART, part.strip())
        if not match or (match[3] and not (may_step and match[2])):
            raise ValueError(part)
        found.append(range(int(match[1]), int(match[2] or match[1]) + 1, int(match[3] or 1)))
    return found


def show_ranges(numbers: Iterable[int]) -> str:
    """`1-5,8` for these numbers, each once and in order."""
    pairs = spans(sorted(set(numbers)))
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in pairs)


def spans(numbers: Iterable[int]) -> list[tuple[int, int]]:
    """The first and the last of each run of consecutive numbers. The numbers must be in order."""
    found: list[tuple[int, int]] = []
    for number in numbers:
        if found and number == found[-1][1] + 1:
            found[-1] = (found[-1][0], number)
        else:
            found.append((number, number))
    return found
