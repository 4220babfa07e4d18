"""A small picture in letters: how high a series was over time."""

from collections.abc import Sequence

_EIGHTHS = " ▁▂▃▄▅▆▇█"


def bars(values: Sequence[float], top: float, height: int) -> list[str]:
    """Lines of blocks, the highest first, in which `top` fills all of them. What is not nothing can be seen."""
    levels = [_level(value, top, 8 * height) for value in values]
    return [
        "".join(_EIGHTHS[min(8, max(0, level - 8 * row))] for level in levels).rstrip()
        for row in reversed(range(height))
    ]


def _level(value: float, top: float, eighths: int) -> int:
    if value <= 0 or top <= 0:
        return 0
    return min(eighths, max(1, round(value / top * eighths)))
