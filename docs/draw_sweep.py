"""Draws docs/pictures/sweep.svg: where the trials of examples/sweep_branin.yaml looked, and what they found."""

import math
from collections.abc import Iterator, Sequence
from typing import Any

# The landscape of examples/sweep_branin.py and the places where it is lowest.
X, Y = (-5.0, 10.0), (0.0, 15.0)
LOWEST, LOWEST_AT = 0.397887, ((-math.pi, 12.275), (math.pi, 2.275), (9.42478, 2.475))
_LEVELS = (1, 3, 8, 16, 30, 50, 80, 120, 170, 230)
_CELLS = 60  # of the landscape, a side

_SIDE, _LEFT, _TOP, _GAP = 340, 52, 44, 86  # pixels
_WIDTH, _HEIGHT = 2 * _SIDE + _LEFT + _GAP + 24, _SIDE + _TOP + 66
_EARLY, _LATE = (158, 202, 225), (8, 48, 107)

_STYLE = """\
text { font: 13px system-ui, "DejaVu Sans", sans-serif; fill: #333 }
.title { font-weight: 600; font-size: 14px }
.quiet { fill: #666; font-size: 12px }
.contour { fill: none; stroke: #c9c4b8; stroke-width: 1 }
.frame { fill: #fdfcf9; stroke: #bbb }
.goal { stroke: #c0392b; stroke-width: 1.4; fill: none }
.best { fill: none; stroke: #e67e22; stroke-width: 2.2 }
.path { fill: none; stroke: #e67e22; stroke-width: 2 }"""


def draw(trials: Sequence[dict[str, Any]]) -> str:
    """The picture of the trials of `dibs sweep results --json`: the plane they searched, and their losses."""
    parts = [
        f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" xmlns="http://www.w3.org/2000/svg">',
        f"<style>\n{_STYLE}\n</style>",
        f'<rect width="{_WIDTH}" height="{_HEIGHT}" fill="#fff"/>',
        *_plane(trials),
        *_history(trials),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def branin(x: float, y: float) -> float:
    bent = y - 5.1 * x**2 / (4 * math.pi**2) + 5 * x / math.pi - 6
    return bent**2 + 10 * (1 - 1 / (8 * math.pi)) * math.cos(x) + 10


# -- where they looked -------------------------------------------------------------------------------------


def _plane(trials: Sequence[dict[str, Any]]) -> Iterator[str]:
    yield _text(_LEFT, 28, f"Where {len(trials)} trials looked", "title")
    yield f'<rect class="frame" x="{_LEFT}" y="{_TOP}" width="{_SIDE}" height="{_SIDE}"/>'
    for level in _LEVELS:
        yield f'<path class="contour" d="{"".join(_contour(level))}"/>'
    for place, trial in enumerate(trials):
        at_x, at_y = _place(float(trial["point"]["x"]), float(trial["point"]["y"]))
        yield _dot(at_x, at_y, trial, place, len(trials))
    for x, y in LOWEST_AT:
        at_x, at_y = _place(x, y)
        yield f'<path class="goal" d="M{at_x - 7:.1f} {at_y:.1f}h14M{at_x:.1f} {at_y - 7:.1f}v14"/>'
    at_x, at_y = _place(float(_best(trials)["point"]["x"]), float(_best(trials)["point"]["y"]))
    yield f'<circle class="best" cx="{at_x:.1f}" cy="{at_y:.1f}" r="9"/>'
    for value in (-5, 0, 5, 10):
        yield _text(_place(value, 0)[0], _TOP + _SIDE + 18, value, "quiet", "middle")
    for value in (0, 5, 10, 15):
        yield _text(_LEFT - 8, _place(0, value)[1] + 4, value, "quiet", "end")
    yield _text(_LEFT + _SIDE / 2, _TOP + _SIDE + 36, "x", "", "middle")
    yield _text(_LEFT - 36, _TOP + _SIDE / 2, "y")
    yield from _legend(_LEFT, _HEIGHT - 12)


def _legend(x: float, y: float) -> Iterator[str]:
    yield f'<circle cx="{x + 5}" cy="{y - 4}" r="4.5" fill="rgb{_EARLY}"/>'
    yield f'<circle cx="{x + 18}" cy="{y - 4}" r="4.5" fill="rgb{_LATE}"/>'
    yield _text(x + 28, y, "early, late", "quiet")
    yield f'<circle cx="{x + 110}" cy="{y - 4}" r="3.5" fill="#fff" stroke="rgb{_LATE}"/>'
    yield _text(x + 120, y, "pruned", "quiet")
    yield f'<path class="goal" d="M{x + 174} {y - 4}h12M{x + 180} {y - 10}v12"/>'
    yield _text(x + 192, y, "the three lowest places", "quiet")


def _text(x: float, y: float, words: object, kind: str = "", anchor: str = "start") -> str:
    return f'<text class="{kind}" x="{x:.0f}" y="{y:.0f}" text-anchor="{anchor}">{words}</text>'


def _place(x: float, y: float) -> tuple[float, float]:
    return _LEFT + (x - X[0]) / (X[1] - X[0]) * _SIDE, _TOP + (Y[1] - y) / (Y[1] - Y[0]) * _SIDE


def _dot(at_x: float, at_y: float, trial: dict[str, Any], place: int, count: int) -> str:
    share = place / max(1, count - 1)
    shade = tuple(round(a + (b - a) * share) for a, b in zip(_EARLY, _LATE, strict=True))
    if trial["state"] == "pruned":
        return f'<circle cx="{at_x:.1f}" cy="{at_y:.1f}" r="3.2" fill="#fff" stroke="rgb{shade}"/>'
    return f'<circle cx="{at_x:.1f}" cy="{at_y:.1f}" r="4.5" fill="rgb{shade}"/>'


def _contour(level: float) -> Iterator[str]:
    """The line along which the landscape has this height, cell by cell: it crosses two of the four sides."""
    step_x, step_y = (X[1] - X[0]) / _CELLS, (Y[1] - Y[0]) / _CELLS
    for row in range(_CELLS):
        for column in range(_CELLS):
            x, y = X[0] + column * step_x, Y[0] + row * step_y
            corners = [(x, y), (x + step_x, y), (x + step_x, y + step_y), (x, y + step_y)]
            heights = [branin(*corner) - level for corner in corners]
            crossings = [
                _place(*_between(corners[one], corners[one - 3], heights[one], heights[one - 3]))
                for one in range(4)
                if (heights[one] < 0) != (heights[one - 3] < 0)
            ]
            for begin, end in zip(crossings[::2], crossings[1::2], strict=False):
                yield f"M{begin[0]:.1f} {begin[1]:.1f}L{end[0]:.1f} {end[1]:.1f}"


def _between(
    a: tuple[float, float], b: tuple[float, float], height_a: float, height_b: float
) -> tuple[float, float]:
    share = height_a / (height_a - height_b)
    return a[0] + (b[0] - a[0]) * share, a[1] + (b[1] - a[1]) * share


# -- what they found ---------------------------------------------------------------------------------------

_LOW, _HIGH = 0.2, 300.0  # of the axis of losses, which is logarithmic


def _history(trials: Sequence[dict[str, Any]]) -> Iterator[str]:
    left, count = _LEFT + _SIDE + _GAP, len(trials)
    yield _text(left, 28, "What they found", "title")
    yield f'<rect class="frame" x="{left}" y="{_TOP}" width="{_SIDE}" height="{_SIDE}"/>'
    for value in (1, 10, 100):
        yield f'<path class="contour" d="M{left} {_height(value):.1f}h{_SIDE}"/>'
        yield _text(left - 8, _height(value) + 4, value, "quiet", "end")
    yield f'<path class="goal" stroke-dasharray="5 4" d="M{left} {_height(LOWEST):.1f}h{_SIDE}"/>'
    yield _text(left + 8, _height(LOWEST) + 16, "as low as it can be: 0.398", "quiet")
    across = [left + 8 + place / max(1, count - 1) * (_SIDE - 16) for place in range(count)]
    yield f'<path class="path" d="{_so_far(trials, across)}"/>'
    for place, (trial, at) in enumerate(zip(trials, across, strict=True)):
        if trial["values"]:
            yield _dot(at, _height(trial["values"][0]), trial, place, count)
    yield _text(left + _SIDE / 2, _TOP + _SIDE + 36, "trial", "", "middle")
    yield _text(left, _TOP + _SIDE + 18, trials[0]["number"], "quiet")
    yield _text(left + _SIDE, _TOP + _SIDE + 18, trials[-1]["number"], "quiet", "end")
    yield _text(left - 44, _TOP + _SIDE * 3 / 4, "loss")
    best = _best(trials)
    yield f'<path class="path" d="M{left} {_HEIGHT - 16}h24"/>'
    yield _text(left + 32, _HEIGHT - 12, f"best so far, {best['values'][0]:.3f} in the end", "quiet")


def _height(value: float) -> float:
    share = math.log(min(max(value, _LOW), _HIGH) / _LOW) / math.log(_HIGH / _LOW)
    return _TOP + (1 - share) * _SIDE


def _so_far(trials: Sequence[dict[str, Any]], across: Sequence[float]) -> str:
    """A staircase that only goes down. What was pruned tells no result."""
    best, path = math.inf, ""
    for trial, at in zip(trials, across, strict=True):
        if trial["state"] not in ("complete", "reused"):
            continue
        best = min(best, trial["values"][0])
        path += f"H{at:.1f}V{_height(best):.1f}" if path else f"M{at:.1f} {_height(best):.1f}"
    return path


def _best(trials: Sequence[dict[str, Any]]) -> dict[str, Any]:
    return min(
        (trial for trial in trials if trial["state"] in ("complete", "reused")), key=lambda one: one["values"][0]
    )
