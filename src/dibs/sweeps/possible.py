"""Whether conditions can hold at all: by trying all values of a few, and otherwise by the ends of their ranges.

A condition is refused only if it is certain that no point fulfils it.
"""

import ast
import math
import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import product

from dibs.dataclass import dataclass
from dibs.errors import BadInput
from dibs.sweeps.conditions import Condition, is_true, known_value, value_of_text
from dibs.sweeps.space import Choice, Curve, Parameter

_MOST_TRIED = 2000  # combinations of values
_ALL = (-math.inf, math.inf)
_FALSE, _TRUE, _EITHER = (0.0, 0.0), (1.0, 1.0), (0.0, 1.0)


def check_possible(parameters: Sequence[Parameter], where: Sequence[str]) -> None:
    """Raise BadInput for a parameter that could never have a value, and for conditions that no point fulfils."""
    names = [parameter.name for parameter in parameters]
    for parameter in parameters:
        if parameter.when:
            condition = Condition(parameter.when, names)
            if (why := _why_never([condition], parameters)) is not None:
                raise BadInput(
                    f"{parameter.name} would never have a value: no point fulfils {_shown([condition])}{why}",
                    remedy=f"correct the condition of {parameter.name}, or leave it out",
                )
    conditions = [Condition(text, names) for text in where]
    for some in [*([one] for one in conditions), conditions]:
        if some and (why := _why_never(some, parameters)) is not None:
            raise BadInput(f"no point fulfils {_shown(some)}{why}", remedy="loosen it, or give other values")


def _shown(conditions: Sequence[Condition]) -> str:
    return " and ".join(one.text[:200] for one in conditions)


def _why_never(conditions: Sequence[Condition], parameters: Sequence[Parameter]) -> str | None:
    """The end of a sentence why no point fulfils all of them, perhaps an empty one; None: some point may."""
    used = [one for one in parameters if any(one.name in condition.uses for condition in conditions)]
    look = _Look({one.name: _domain(one) for one in used})
    is_possible = all(look.can_be_true(one) for one in conditions)
    if is_possible:
        counts = [one.count for one in used]
        if None not in counts and math.prod((count or 0) + 1 for count in counts) <= _MOST_TRIED:
            is_possible = any(all(one.holds(point) for one in conditions) for point in _combinations(used))
    if is_possible:
        return None
    return f": {look.problems[0]}" if look.problems else ""


def _combinations(parameters: Sequence[Parameter]) -> Iterator[Mapping[str, str | None]]:
    """All of them, also those that are none because the parameter does not apply."""
    values = [
        [*(one.value_at(place) for place in range(one.count or 0)), *([None] if one.when else [])]
        for one in parameters
    ]
    for chosen in product(*values):
        yield dict(zip((one.name for one in parameters), chosen, strict=True))


@dataclass(frozen=True, slots=True)
class _Some:
    """What a part of a condition may come to: numbers between two ends, some texts, or nothing that is known."""

    numbers: tuple[float, float] | None = None
    texts: tuple[str, ...] = ()
    is_unknown: bool = False

    @property
    def can_be_true(self) -> bool:
        return self.numbers not in (None, _FALSE) or any(map(is_true, self.texts))

    @property
    def can_be_false(self) -> bool:
        has_zero = self.numbers is not None and self.numbers[0] <= 0 <= self.numbers[1]
        return self.is_unknown or has_zero or not all(map(is_true, self.texts))


_ANYTHING = _Some(_ALL, (), True)


def _truth(can_be_true: bool, can_be_false: bool) -> _Some:
    return _Some(_EITHER if can_be_true and can_be_false else _TRUE if can_be_true else _FALSE)


def _domain(parameter: Parameter) -> _Some:
    is_unknown = bool(parameter.when)
    if isinstance(parameter, Curve):
        ends = {"beta": (0.0, 1.0), "log_normal": (0.0, math.inf)}.get(parameter.kind, _ALL)
        return _Some(ends, (), is_unknown)
    if not isinstance(parameter, Choice):
        return _Some((parameter.low, parameter.high), (), is_unknown)
    values = [value_of_text(value) for value in parameter.values]
    numbers = [float(value) for value in values if isinstance(value, int | float)]
    return _Some(
        (min(numbers), max(numbers)) if numbers else None,
        tuple(value for value in values if isinstance(value, str)),
        is_unknown or None in values,
    )


class _Look:
    """Computes with what parameters may be."""

    def __init__(self, domains: dict[str, _Some]) -> None:
        self._domains = domains
        self.problems: list[str] = []  # what can never be computed, as a clause
        self._condition: Condition

    def can_be_true(self, condition: Condition) -> bool:
        """Whether it may hold together with those that were looked at before."""
        self._condition = condition
        links = list(_links(condition.tree))
        for _ in range(2):
            for link in links:
                self._narrow(link)
        return self._of(condition.tree).can_be_true

    def _narrow(self, link: ast.Compare) -> None:
        """Where this comparison holds, a parameter in it lies within what the other side may be."""
        for one, operation, other in (
            (link.left, type(link.ops[0]), link.comparators[0]),
            (link.comparators[0], _TURNED.get(type(link.ops[0])), link.left),
        ):
            name = self._condition.parameter(one)
            if name is None or operation not in _BOUNDS or _has_truth(other):
                continue
            mine, bound = self._domains[name], self._of(other)
            if mine.numbers is None or bound.numbers is None or bound.texts:
                continue
            has_low, has_high = _BOUNDS[operation]
            low = max(mine.numbers[0], bound.numbers[0]) if has_low else mine.numbers[0]
            high = min(mine.numbers[1], bound.numbers[1]) if has_high else mine.numbers[1]
            if low <= high:  # otherwise the comparison itself tells that it cannot hold
                self._domains[name] = replace(mine, numbers=(low, high))

    def _of(self, node: ast.expr) -> _Some:
        if (name := self._condition.parameter(node)) is not None:
            return self._domains[name]
        match node:
            case ast.Constant() | ast.Name():
                value = known_value(node)
                if isinstance(value, str):
                    return _Some(None, (value,))
                if value is None:
                    return _Some(is_unknown=True)
                try:
                    return _Some((float(value), float(value)))
                except OverflowError:
                    return _ANYTHING
            case ast.BoolOp(op=op, values=values):
                parts = [self._of(value) for value in values]
                true, false = [part.can_be_true for part in parts], [part.can_be_false for part in parts]
                if isinstance(op, ast.And):
                    return _truth(all(true), any(false))
                return _truth(any(true), all(false))
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                part = self._of(operand)
                return _truth(part.can_be_false, part.can_be_true)
            case ast.UnaryOp(op=sign, operand=operand):
                part = self._number(operand)
                factor = -1.0 if isinstance(sign, ast.USub) else 1.0
                return self._reckoned(operator.mul, _Some((factor, factor)), part)
            case ast.BinOp(left=left, op=op, right=right):
                return self._arithmetic(type(op), self._number(left), self._number(right), right)
            case ast.Call(func=ast.Name(id=function), args=args):
                return self._call(function, args)
            case ast.Compare(left=left, ops=ops, comparators=comparators):
                links = [self._link(*link) for link in zip([left, *comparators], ops, comparators, strict=False)]
                return _truth(all(one.can_be_true for one in links), any(one.can_be_false for one in links))
        return _ANYTHING

    def _number(self, node: ast.expr) -> _Some:
        """The same, with a note where it is text and no number."""
        found = self._of(node)
        if found.texts and found.numbers is None:
            self.problems.append(f"{self._words(node)} is text, as {found.texts[0]!r}, and no number")
        return found

    def _arithmetic(self, op: type[ast.operator], one: _Some, other: _Some, divisor: ast.expr) -> _Some:
        unknown = replace(_ANYTHING, is_unknown=True)
        if one.numbers is None or other.numbers is None:
            return _Some(is_unknown=True)
        if op in _PLAIN:
            return self._reckoned(_PLAIN[op], one, other)
        low, high = other.numbers
        if op is ast.Pow:
            return self._reckoned(math.pow, one, other) if one.numbers[0] > 0 else unknown
        if low == high == 0:
            self.problems.append(f"{self._words(divisor)} is 0, and nothing can be divided by it")
            return _Some(is_unknown=True)
        if low <= 0 <= high:
            return unknown
        if op is ast.Mod:
            return _Some((min(0.0, low), max(0.0, high)), (), one.is_unknown or other.is_unknown)
        found = self._reckoned(operator.truediv, one, other)
        if op is ast.FloorDiv and found.numbers is not None:
            ends = tuple(math.floor(end) if math.isfinite(end) else end for end in found.numbers)
            return replace(found, numbers=(float(ends[0]), float(ends[1])))
        return found

    def _reckoned(self, act: Callable[[float, float], float], one: _Some, other: _Some) -> _Some:
        """For what is monotonic in both: the ends come from the ends."""
        is_unknown = one.is_unknown or other.is_unknown or bool(one.texts or other.texts)
        if one.numbers is None or other.numbers is None:
            return _Some(is_unknown=True)
        corners = []
        for first, second in product(one.numbers, other.numbers):
            try:
                corners.append(act(first, second))
            except (ArithmeticError, ValueError):
                return _ANYTHING
        if any(map(math.isnan, corners)):
            return _ANYTHING
        # A little wider: the ends are rounded.
        slack = 1e-9 * max(map(abs, corners))
        if not math.isfinite(slack):
            return _Some((min(corners), max(corners)), (), True)
        is_exact = all(corner.is_integer() for corner in map(float, corners))
        slack = 0.0 if is_exact else slack
        return _Some((min(corners) - slack, max(corners) + slack), (), is_unknown)

    def _call(self, function: str, args: Sequence[ast.expr]) -> _Some:
        if function == "len":
            return _Some((0.0, math.inf), (), True)
        parts = [self._number(arg) for arg in args]
        ends = [part.numbers for part in parts if part.numbers is not None]
        if len(ends) < len(parts) or not ends:
            return _Some(is_unknown=True)
        is_unknown = any(part.is_unknown or part.texts for part in parts)
        lows, highs = zip(*ends, strict=True)
        if function in ("min", "max"):
            choose = min if function == "min" else max
            return _Some((choose(lows), choose(highs)), (), is_unknown)
        if function == "abs":
            least = 0.0 if lows[0] <= 0 <= highs[0] else min(abs(lows[0]), abs(highs[0]))
            return _Some((least, max(abs(lows[0]), abs(highs[0]))), (), is_unknown)
        return _Some((lows[0] - 1, highs[0] + 1), (), is_unknown) if len(parts) == 1 else _ANYTHING

    def _link(self, left: ast.expr, op: ast.cmpop, right: ast.expr) -> _Some:
        one = self._of(left)
        if isinstance(op, ast.In | ast.NotIn) and isinstance(right, ast.Tuple | ast.List | ast.Set):
            links = [self._link(left, ast.Eq(), each) for each in right.elts]
            true, false = any(link.can_be_true for link in links), all(link.can_be_false for link in links)
            return _truth(true, false) if isinstance(op, ast.In) else _truth(false or one.is_unknown, true)
        if self._is_none(right):
            is_known = one.numbers is not None or bool(one.texts)
            is_negated = isinstance(op, ast.NotEq | ast.IsNot)
            return _truth(is_known, one.is_unknown) if is_negated else _truth(one.is_unknown, is_known)
        return self._compared(left, type(op), right, one, self._of(right))

    def _is_none(self, node: ast.expr) -> bool:
        is_constant = isinstance(node, ast.Constant | ast.Name) and self._condition.parameter(node) is None
        return is_constant and known_value(node) is None  # type: ignore[arg-type]

    def _compared(self, left: ast.expr, op: type[ast.cmpop], right: ast.expr, one: _Some, other: _Some) -> _Some:
        if op is ast.NotEq or _has_truth(left) or _has_truth(right):
            return _truth(True, True)
        outcomes: set[bool] = {False} if one.is_unknown or other.is_unknown else set()
        if one.numbers and other.numbers:
            outcomes |= _compared_ends(op, one.numbers, other.numbers)
        outcomes |= {bool(_ORDERS[op](mine, its)) for mine, its in product(one.texts, other.texts)}
        if (one.texts and other.numbers) or (one.numbers and other.texts):
            outcomes.add(False)
            if not (one.numbers and other.numbers) and not (one.texts and other.texts):
                text, number = (left, right) if one.texts else (right, left)
                self._note_mixed(text, number, (one.texts or other.texts)[0])
        return _truth(True in outcomes, False in outcomes or not outcomes)

    def _note_mixed(self, text: ast.expr, number: ast.expr, example: str) -> None:
        self.problems.append(
            f"{self._words(text)} is text, as {example!r}, and is compared with {self._words(number)}, a number"
        )

    def _words(self, node: ast.expr) -> str:
        return self._condition.parameter(node) or self._condition.words(node)


def _has_truth(node: ast.expr) -> bool:
    """Whether true or false may be in it: what is compared with that counts as true or false, too."""
    return any(
        isinstance(part, ast.Compare | ast.BoolOp | ast.Not)
        or (isinstance(part, ast.Constant | ast.Name) and isinstance(known_value(part), bool))
        for part in ast.walk(node)
    )


def _compared_ends(op: type[ast.cmpop], one: tuple[float, float], other: tuple[float, float]) -> set[bool]:
    """What a comparison of numbers between these ends may come to."""
    if op is ast.Eq:
        overlaps = one[0] <= other[1] and other[0] <= one[1]
        is_sure = one == other and one[0] == one[1]
        return {True} if is_sure else {True, False} if overlaps else {False}
    compare = _ORDERS[op]
    return {bool(compare(mine, its)) for mine, its in product(one, other)}


def _links(tree: ast.expr) -> Iterator[ast.Compare]:
    """The comparisons that all hold where the whole does."""
    if isinstance(tree, ast.BoolOp) and isinstance(tree.op, ast.And):
        for value in tree.values:
            yield from _links(value)
    elif isinstance(tree, ast.Compare):
        for left, op, right in zip([tree.left, *tree.comparators], tree.ops, tree.comparators, strict=False):
            yield ast.Compare(left, [op], [right])


_PLAIN: dict[type[ast.operator], Callable[[float, float], float]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
}
_ORDERS: dict[type[ast.cmpop], Callable[..., bool]] = {
    ast.Eq: operator.eq,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}
_TURNED: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Eq: ast.Eq,
    ast.Lt: ast.Gt,
    ast.LtE: ast.GtE,
    ast.Gt: ast.Lt,
    ast.GtE: ast.LtE,
}
# Whether the parameter on the left is bounded below by the right side, and above.
_BOUNDS: dict[type[ast.cmpop] | None, tuple[bool, bool]] = {
    ast.Eq: (True, True),
    ast.Lt: (False, True),
    ast.LtE: (False, True),
    ast.Gt: (True, False),
    ast.GtE: (True, False),
}
