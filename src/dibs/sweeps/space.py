"""The parameters of a sweep, the values each may take, and how a value is written."""

import math
from dataclasses import dataclass
from decimal import Decimal
from functools import cached_property
from typing import Literal, get_args

from dibs.errors import BadInput
from dibs.sweeps.names import check_name, check_values

# What goes into the command for each parameter. None: the parameter is none, or is not wanted here, and its
# flag is left out of the command.
Point = dict[str, str | None]
Scale = Literal["linear", "log"]

_LARGEST_WHOLE = 2**53  # beyond it a float skips numbers
_DIGITS = 6  # of a number that was drawn: more is noise in a command line
_MOST_DIGITS = 15


@dataclass(frozen=True, slots=True)
class Choice:
    """One of some values, as text; None is a value too, and drops the flag."""

    name: str
    values: tuple[str | None, ...]
    when: str = ""  # the condition under which it is wanted at all; empty: always

    def __post_init__(self) -> None:
        check_name(self.name)
        check_values(self.name, self.values)
        if len(set(self.values)) < len(self.values):
            twice = next(value for place, value in enumerate(self.values) if value in self.values[:place])
            raise BadInput(
                f"the parameter {self.name} has the value {'none' if twice is None else twice} twice",
                remedy="a sweep runs each point once; for repetitions add a parameter, as -p seed 1..3",
            )

    @property
    def count(self) -> int:
        return len(self.values)

    def value_at(self, place: int) -> str | None:
        return self.values[place]

    def value_of(self, share: float) -> str | None:
        """The value at a share of the way, from 0 up to but not including 1: equal shares for each."""
        return self.values[int(share * len(self.values))]


@dataclass(frozen=True)
class Range:
    """A number between two ends, both included."""

    name: str
    low: float
    high: float
    scale: Scale = "linear"
    is_integer: bool = False
    step: float | None = None  # counted from `low`, on a log scale too; None for whole numbers means 1
    when: str = ""

    def __post_init__(self) -> None:
        check_name(self.name)
        _check_ends(self)
        _check_steps(self)

    @cached_property
    def count(self) -> int | None:
        """How many values there are; None where they lie dense."""
        step = self._step
        if step is None:
            return 1 if self.low == self.high else None
        return int((_exact(self.high) - _exact(self.low)) / _exact(step)) + 1

    def value_at(self, place: int) -> str:
        """The place-th of a counted range. Exact: 0, 0.1, 0.2, 0.3 and no 0.30000000000000004."""
        return number_text(float(_exact(self.low) + place * _exact(self._step or 1.0)))

    def value_of(self, share: float) -> str:
        """The value at a share of the way, from 0 up to but not including 1, on the scale of the range."""
        if self.scale == "log" and self._step is not None:
            return self.text(_between(*self._log_ends(self._step), share, "log"))
        if self.count is not None:
            return self.value_at(min(int(share * self.count), self.count - 1))  # a large count is rounded up
        return self.text(_between(self.low, self.high, share, self.scale))

    def text(self, number: float) -> str:
        """How a number somewhere in the range is written: few digits, and never outside of the range."""
        if self.step is not None and self.count is not None:
            place = round((number - self.low) / self.step)
            return self.value_at(min(max(place, 0), self.count - 1))
        if self.is_integer:
            return number_text(self._within(round(number)))
        return number_text(self._within(float(f"{number:.{self._digits}g}")))

    @property
    def _step(self) -> float | None:
        return self.step if self.step is not None else 1.0 if self.is_integer else None

    def _log_ends(self, step: float) -> tuple[float, float]:
        """Half a step more at both ends, so that they come up as often as their neighbours."""
        half, last = step / 2, float(self.value_at((self.count or 1) - 1))
        # A first step longer than the way to 0 leaves no room below.
        return (self.low - half if self.low > half else self.low), last + half

    @cached_property
    def _digits(self) -> int:
        """Six, and more where a narrow range far from zero would else have only a few values."""
        width = self.high - self.low
        if self.scale == "log" or not width:
            return _DIGITS
        far = max(abs(self.low), abs(self.high)) / width
        return min(_DIGITS + max(0, math.floor(math.log10(far))), _MOST_DIGITS)

    def _within(self, number: float) -> float:
        return min(max(number, self.low), self.high)


Parameter = Choice | Range


def number_text(number: float) -> str:
    """A number as a person would write it: `64`, `0.001`, `3e-05`."""
    if number == int(number) and abs(number) < 1e16:
        return str(int(number))
    return repr(float(number))


def _between(low: float, high: float, share: float, scale: Scale) -> float:
    if scale == "log":
        return math.exp(_between(math.log(low), math.log(high), share, "linear"))
    return low * (1 - share) + high * share  # not low + width * share: the width may be beyond a float


def _exact(number: float) -> Decimal:
    """The number as it is written, not as it is stored: a tenth is a tenth."""
    return Decimal(repr(float(number)))


def _check_ends(range_: Range) -> None:
    name, low, high = range_.name, range_.low, range_.high
    if range_.scale not in get_args(Scale):
        raise BadInput(f"the scale of {name} cannot be {range_.scale!r}", remedy="it is linear or log")
    if not (math.isfinite(low) and math.isfinite(high)):
        raise BadInput(f"the range of {name} has an end that is no number", remedy="write -p x 0..1")
    if low > high:
        raise BadInput(
            f"the range of {name} begins at {number_text(low)} and ends before it, at {number_text(high)}",
            remedy="the smaller end comes first",
        )
    if range_.scale == "log" and low <= 0:
        raise BadInput(
            f"the range of {name} is logarithmic and begins at {number_text(low)}, which has no logarithm",
            remedy="begin above 0, as 1e-5..1:log",
        )
    if range_.is_integer and not (float(low).is_integer() and float(high).is_integer()):
        raise BadInput(f"{name} is a whole number, but an end of its range is not", remedy="write 1..8")
    if range_.is_integer and max(abs(low), abs(high)) > _LARGEST_WHOLE:
        raise BadInput(f"the whole numbers of {name} are too large", remedy="they go up to 2^53")


def _check_steps(range_: Range) -> None:
    name, step = range_.name, range_.step
    if step is None:
        return
    if not math.isfinite(step) or step <= 0:
        raise BadInput(f"the step of {name} is {step:g}", remedy="it is a number above 0, as in 0..1:0.1")
    if range_.is_integer and not float(step).is_integer():
        raise BadInput(f"{name} is a whole number, but its step is {step:g}", remedy="write 0..100:5")
    # One that is lost beside the ends would give the same number again and again.
    if (range_.high - range_.low) / step > _LARGEST_WHOLE or any(
        end and abs(end) / step > 10**_MOST_DIGITS for end in (range_.low, range_.high)
    ):
        raise BadInput(f"the step of {name} is too small for its range", remedy="a larger step, or none")
