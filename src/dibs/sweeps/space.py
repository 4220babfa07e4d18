"""The parameters of a sweep: the values each may take, how a value is written, and how a parameter is typed.

lr 1e-4..1e-1:log        layers 1..8        x 0..1:0.1        width 16..1024:log:int
norm batch layer none    momentum 0.5..0.99 if optimizer=sgd
"""

import math
import re
import shlex
from bisect import bisect
from collections.abc import Sequence
from dataclasses import replace
from decimal import Decimal
from functools import cached_property
from itertools import accumulate
from typing import Literal, get_args

from dibs.dataclass import dataclass
from dibs.errors import BadInput
from dibs.sweeps.curves import LEAST_SHARE, CurveKind, quantile, share_below
from dibs.sweeps.params import NAME, check_name, check_values

# The text that goes into the command for each parameter. None: the parameter is `none` or inactive at this point,
# and its flag is left out of the command.
Point = dict[str, str | None]
Scale = Literal["linear", "log"]

_LARGEST_WHOLE = 2**53  # beyond it a float skips numbers
_DIGITS = 6  # of a number that was drawn: more is noise in a command line
_MOST_DIGITS = 15


@dataclass(frozen=True, slots=True)
class Choice:
    """One of several values, as text; the value None drops the flag."""

    name: str
    values: tuple[str | None, ...]
    when: str = ""  # the condition under which the parameter is active; empty: always
    weights: tuple[float, ...] = ()  # how often each is drawn; they add up to 1; empty: all alike

    def __post_init__(self) -> None:
        check_name(self.name)
        check_values(self.name, self.values)
        _check_weights(self)
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

    @property
    def is_even(self) -> bool:
        """Whether all values are drawn alike."""
        return not self.weights

    def value_of(self, share: float) -> str | None:
        """The value for a share in [0, 1)."""
        if self.weights:
            place = bisect(list(accumulate(self.weights)), share)
            return self.values[min(place, len(self.values) - 1)]
        return self.values[int(share * len(self.values))]

    def share_of(self, value: str | None) -> float:
        """A share whose value this is: the middle of its part."""
        if value not in self.values:  # the parameter was edited
            return 2.0
        place = self.values.index(value)
        weights = self.weights or (1 / len(self.values),) * len(self.values)
        return min(sum(weights[:place]) + weights[place] / 2, 1.0)


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
    # Numbers are drawn between these and rounded to a step, so that the ends may come up less often than others.
    # None: all values on a linear scale are drawn alike.
    drawn: tuple[float, float] | None = None

    def __post_init__(self) -> None:
        check_name(self.name)
        _check_ends(self)
        _check_steps(self)
        _check_drawn(self)

    @property
    def is_even(self) -> bool:
        """Whether all values are drawn alike."""
        return self.scale == "linear" and self.drawn is None

    @cached_property
    def count(self) -> int | None:
        """The number of values; None for a continuous range."""
        step = self._step
        if step is None:
            return 1 if self.low == self.high else None
        return int((_exact(self.high) - _exact(self.low)) / _exact(step)) + 1

    def value_at(self, place: int) -> str:
        """The place-th value of a counted range. Exact: 0.3 and not 0.30000000000000004."""
        return number_text(float(_exact(self.low) + place * _exact(self._step or 1.0)))

    def value_of(self, share: float) -> str:
        """The value for a share in [0, 1) of the way through the range, on its scale."""
        if self.drawn is not None:
            return self.text(_between(*self.drawn, share, self.scale))
        if self.scale == "log" and self._step is not None:
            return self.text(_between(*self._log_ends(self._step), share, "log"))
        if self.count is not None:
            return self.value_at(min(int(share * self.count), self.count - 1))  # a large count is rounded up
        return self.text(_between(self.low, self.high, share, self.scale))

    def text(self, number: float) -> str:
        """How a number in the range is written: with few digits, on a step if there are any, inside the range."""
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
        """The ends, half a step wider, so that the end values are drawn as often as their neighbours."""
        half, last = step / 2, float(self.value_at((self.count or 1) - 1))
        # The lower end must stay above 0.
        return (self.low - half if self.low > half else self.low), last + half

    @cached_property
    def _digits(self) -> int:
        """Six, or more for a narrow range far from zero, which would otherwise have only a few values."""
        width = self.high - self.low
        if self.scale == "log" or not width:
            return _DIGITS
        far = max(abs(self.low), abs(self.high)) / width
        return min(_DIGITS + max(0, math.floor(math.log10(far))), _MOST_DIGITS)

    def _within(self, number: float) -> float:
        return min(max(number, self.low), self.high)


@dataclass(frozen=True, slots=True)
class Curve:
    """A number of a distribution that is not even."""

    name: str
    kind: CurveKind
    first: float  # mu, or a of a beta
    second: float  # sigma, or b
    step: float | None = None  # a multiple of it is taken
    when: str = ""

    def __post_init__(self) -> None:
        check_name(self.name)
        _check_curve(self)

    @property
    def count(self) -> None:
        return None

    @property
    def is_even(self) -> bool:
        return False

    def value_at(self, place: int) -> str:
        raise AssertionError("a curve is not counted")

    def value_of(self, share: float) -> str:
        """The value for a share in [0, 1)."""
        number = quantile(self.kind, self.first, self.second, share)
        if self.step is None:
            return number_text(float(f"{number:.{_DIGITS}g}"))
        return number_text(float(f"{round(number / self.step) * self.step:.12g}"))

    def share_of(self, value: str | None) -> float:
        """A share whose value this is."""
        try:
            share = share_below(self.kind, self.first, self.second, float(value or 0))
        except ValueError:  # the parameter was edited, and had other values
            return 0.5
        return min(max(share, LEAST_SHARE), 1 - LEAST_SHARE)


Parameter = Choice | Range | Curve


def number_text(number: float) -> str:
    """The shortest usual text of a number: `64`, `0.001`, `3e-05`."""
    if number == int(number) and abs(number) < 1e16:
        return str(int(number))
    return repr(float(number))


def _between(low: float, high: float, share: float, scale: Scale) -> float:
    if scale == "log":
        return math.exp(_between(math.log(low), math.log(high), share, "linear"))
    return low * (1 - share) + high * share  # not low + width * share: the width may overflow a float


def _exact(number: float) -> Decimal:
    """The number as it is written, not as it is stored: 0.1 is exactly a tenth."""
    return Decimal(repr(float(number)))


def _check_ends(range_: Range) -> None:
    name, low, high = range_.name, range_.low, range_.high
    if range_.scale not in get_args(Scale):
        raise BadInput(f"the scale of {name} cannot be {range_.scale!r}", remedy="it is linear or log")
    if not (math.isfinite(low) and math.isfinite(high)):
        raise BadInput(f"the range of {name} has an end that is not a number", remedy="write -p x 0..1")
    if low > high:
        raise BadInput(
            f"the range of {name} begins at {number_text(low)} and ends before it, at {number_text(high)}",
            remedy="the smaller end comes first",
        )
    if range_.scale == "log" and (low if range_.drawn is None else range_.drawn[0]) <= 0:
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
    if step > range_.high - range_.low and range_.low < range_.high:
        raise BadInput(
            f"the step of {name} is {step:g}, larger than its range: only {number_text(range_.low)} would be left",
            remedy="a smaller step, or none: on a log scale, too, it is added to the value before",
        )
    # One that is lost beside the ends would give the same number again and again.
    if (range_.high - range_.low) / step > _LARGEST_WHOLE or any(
        end and abs(end) / step > 10**_MOST_DIGITS for end in (range_.low, range_.high)
    ):
        raise BadInput(f"the step of {name} is too small for its range", remedy="a larger step, or none")


def _check_drawn(range_: Range) -> None:
    if range_.drawn is None:
        return
    low, high = range_.drawn
    if not (math.isfinite(low) and math.isfinite(high)) or low > high:
        raise BadInput(f"the ends of what is drawn of {range_.name} are not in order", remedy="as [0, 10]")


def _check_weights(choice: Choice) -> None:
    weights = choice.weights
    if not weights:
        return
    if len(weights) != len(choice.values):
        raise BadInput(
            f"{choice.name} has {len(choice.values)} values and {len(weights)} probabilities",
            remedy="give one for each value",
        )
    if not all(math.isfinite(one) and one >= 0 for one in weights) or abs(sum(weights) - 1) > 1e-6:
        raise BadInput(
            f"the probabilities of {choice.name} are not parts of 1", remedy="they are above 0 and add up to 1"
        )


def _check_curve(curve: Curve) -> None:
    name, kind, first, second, step = curve.name, curve.kind, curve.first, curve.second, curve.step
    if kind not in get_args(CurveKind):
        raise BadInput(
            f"the distribution of {name} cannot be {kind!r}", remedy=f"it is {' or '.join(get_args(CurveKind))}"
        )
    if not (math.isfinite(first) and math.isfinite(second)) or second <= 0 or (kind == "beta" and first <= 0):
        words = "a and b" if kind == "beta" else "sigma"
        raise BadInput(f"{words} of {name} must be above 0", remedy="as mu: 0, sigma: 1; of a beta a: 2, b: 5")
    if kind == "log_normal" and abs(first) + 6 * second > 700:
        raise BadInput(f"{name} would be too large to write", remedy="mu and sigma are those of its logarithm")
    if step is not None and (not math.isfinite(step) or step <= 0):
        raise BadInput(f"the step of {name} is {step:g}", remedy="it is a number above 0")


_NUMBER = r"[+-]?(?:\d+(?:\.\d+)?|\.\d+)(?:[eE][+-]?\d+)?"
_RANGE = re.compile(rf"({_NUMBER})\.\.({_NUMBER})((?::[^:]*)*)", re.ASCII)
_NEARLY_A_RANGE = re.compile(rf"{_NUMBER}\.\.(?!/)", re.ASCII)  # `0..1:lgo`, but not `..` of a path
_WHOLE = re.compile(r"[+-]?\d+", re.ASCII)
_NONE = ("none", "null")
_EXAMPLES = "1e-4..1e-1:log, 1..8, 0..1:0.1 (a step), 16..1024:log:int"


def parse_parameter(name: str, words: Sequence[str]) -> Parameter:
    """A parameter from the words after its name; BadInput where they are invalid."""
    words, when = _split_condition(name, list(words))
    if len(words) == 1 and (parameter := _range(name, words[0], when)):
        return parameter
    for word in words:
        if _RANGE.fullmatch(word):
            raise BadInput(
                f"the parameter {name} has the range {word} and other values too",
                remedy="a parameter is either a range or a list",
            )
    return Choice(name, tuple(value_of(word) for word in words), when)


def parse_words(name: str, text: str, when: str = "") -> Parameter:
    """A parameter from one text, as it is typed behind `-p NAME`: words, a range, and perhaps a condition."""
    try:
        words = shlex.split(text)
    except ValueError:
        raise BadInput(
            f"cannot read the values of {name}: a quotation mark is not closed", remedy="close it"
        ) from None
    parameter = parse_parameter(name, words)
    if when and parameter.when:
        raise BadInput(f"{name} has two conditions", remedy="join them with `and`")
    return replace(parameter, when=parameter.when or when)


def value_of(word: str) -> str | None:
    """A value as it was typed; `none` and `null` drop the flag unless quoted, as in `"'none'"`."""
    if word in _NONE:
        return None
    if word[:1] in ("'", '"') and word[1:-1] in _NONE and word[-1] == word[0]:
        return word[1:-1]
    return word


def condition_of(text: str) -> str:
    """The condition after `if`; short forms as `optimizer=sgd,adam` and `a!=1` are written out."""
    words = text.split()
    links, shorts = words[1::2], [_SHORT.fullmatch(word) for word in words[::2]]
    if not all(shorts) or not set(links) <= {"and", "or"} or len(links) >= len(shorts):
        return text.strip()
    words[::2] = [_written_out(short) for short in shorts if short]
    return " ".join(words)


_SHORT = re.compile(rf"""({NAME})(!?=)([^=<>!'"()\s]+)""")


def _written_out(short: re.Match[str]) -> str:
    values = [f"'{value}'" for value in short[3].split(",")]
    is_equal = short[2] == "="
    if len(values) > 1:
        return f"{short[1]} {'in' if is_equal else 'not in'} ({', '.join(values)})"
    return f"{short[1]} {'==' if is_equal else '!='} {values[0]}"


def _split_condition(name: str, words: list[str]) -> tuple[list[str], str]:
    if "if" not in words[1:]:
        return words, ""
    cut = words.index("if", 1)
    if cut == len(words) - 1:
        raise BadInput(f"nothing follows the `if` of {name}", remedy=f"write -p {name} 1 2 if other=3")
    return words[:cut], condition_of(" ".join(words[cut + 1 :]))


def _range(name: str, word: str, when: str) -> Range | None:
    found = _RANGE.fullmatch(word)
    if not found:
        if _NEARLY_A_RANGE.match(word):
            raise BadInput(f"cannot read the range {word[:100]!r} of {name}", remedy=f"write {_EXAMPLES}")
        return None
    low, high = found[1], found[2]
    scale: Scale = "linear"
    step: float | None = None
    is_integer: bool | None = None
    for option in found[3].split(":")[1:]:
        if option == "log":
            scale = "log"
        elif option in ("int", "float") and is_integer is None:
            is_integer = option == "int"
        elif re.fullmatch(_NUMBER, option) and step is None:
            step = float(option)
        else:
            raise BadInput(f"cannot read {option[:100]!r} in the range of {name}", remedy=f"write {_EXAMPLES}")
    if is_integer is None:
        is_integer = bool(_WHOLE.fullmatch(low) and _WHOLE.fullmatch(high)) and (step is None or step.is_integer())
    return Range(name, float(low), float(high), scale, is_integer, step, when)
