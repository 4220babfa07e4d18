"""Conditions over a point, as `bs * width < 8192 and optimizer != 'sgd'`; parsed, never run as Python.

The text is parsed once into small functions; only the operators and functions listed here are allowed. Text that
is a number is treated as one. What cannot be computed (a parameter that is none, a division by zero, text times
two) is unknown, and a comparison with an unknown value is false; `x is None` tests for it.
"""

import ast
import math
import operator
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from dibs.errors import BadInput
from dibs.sweeps.space import Parameter, Point

_LONGEST = 2000  # letters
_DEEPEST = 100
_MOST_PARTS = 500

_Value = float | int | str | bool | None
_Part = Callable[[Mapping[str, str | None]], _Value]


class Condition:
    """A parsed condition."""

    def __init__(self, text: str, names: Collection[str]) -> None:
        """Raise BadInput where it is not a condition, or names an unknown parameter."""
        self.text = text
        parser = _Parser(text, names)
        self._part = parser.parse()
        self.uses = frozenset(parser.uses)  # the parameters it names
        self.tree = parser.tree
        self._parser = parser

    def holds(self, point: Mapping[str, str | None]) -> bool:
        """Whether the point fulfils it. Never raises: a condition that cannot be computed does not hold."""
        return is_true(self._part(point))

    def parameter(self, node: ast.expr) -> str | None:
        """The name of the parameter that this part of its tree is."""
        return self._parser.parameter(node.id) if isinstance(node, ast.Name) else None

    def words(self, node: ast.expr) -> str:
        """A part of its tree as it is written."""
        return self._parser.words(node)


class Constraints:
    """Which parameters are active at a point, and whether it fulfils the `where` conditions of its sweep."""

    def __init__(self, parameters: Sequence[Parameter], where: Sequence[str]) -> None:
        """Raise BadInput for an invalid condition, and where one of a parameter names a later parameter."""
        self._conditions: dict[str, Condition] = {}
        names = [parameter.name for parameter in parameters]
        for place, parameter in enumerate(parameters):
            if not parameter.when:
                continue
            condition = Condition(parameter.when, names)
            if early := sorted(condition.uses.difference(names[:place])):
                raise BadInput(
                    f"{parameter.name} depends on {early[0]}, which does not come before it",
                    remedy=f"give {early[0]} first; a parameter cannot depend on itself, nor two on each other",
                )
            self._conditions[parameter.name] = condition
        self._where = [Condition(text, names) for text in where]

    def is_active(self, parameter: Parameter, point: Point) -> bool:
        """Whether it has a value at this point, which has the values of the parameters before it."""
        condition = self._conditions.get(parameter.name)
        return condition is None or condition.holds(point)

    def allow(self, point: Point) -> bool:
        return all(condition.holds(point) for condition in self._where)


class _Parser:
    def __init__(self, text: str, names: Collection[str]) -> None:
        self._text = text
        self._names = names
        self._aliases: dict[str, str] = {}  # identifiers for names that Python cannot parse, as `batch-size`
        self._parts = 0
        self.uses: set[str] = set()
        self.tree: ast.expr

    def parse(self) -> _Part:
        if len(self._text) > _LONGEST:
            raise self._refused(f"it has more than {_LONGEST} letters")
        if not self._text.strip():
            raise self._refused("it is empty")
        try:
            tree = ast.parse(_TOKEN.sub(self._token, self._text.strip()), mode="eval")
        except (SyntaxError, ValueError, MemoryError, RecursionError):
            raise self._refused("it is not a condition") from None
        self.tree = tree.body
        return self._part(tree.body, 0)

    def parameter(self, given: str) -> str | None:
        name = self._aliases.get(given, given)
        return name if name in self._names else None

    def words(self, node: ast.expr) -> str:
        text = ast.unparse(node)
        for alias, name in self._aliases.items():
            text = text.replace(alias, name)
        return text

    def _token(self, found: re.Match[str]) -> str:
        """A quoted text as a Python literal, and a parameter's name as a Python identifier."""
        token = found[0]
        if token[0] in "'\"":
            return repr(token[1:-1])
        # `a-b` is one parameter where there is one of that name, and otherwise `a` minus `b`; `a/b` likewise.
        name = token
        while name not in self._names and (cut := max(map(name.rfind, "-./"))) > 0:
            name = name[:cut]
        if name not in self._names or name in _WORDS or name in _FUNCTIONS:
            return token
        alias = f"_{len(self._aliases)}_"
        self._aliases[alias] = name
        return alias + _TOKEN.sub(self._token, token[len(name) :])

    def _part(self, node: ast.expr, depth: int) -> _Part:
        self._parts += 1
        if depth > _DEEPEST or self._parts > _MOST_PARTS:
            raise self._refused("it is too long or nested too deeply")
        below = depth + 1
        match node:
            case ast.Constant(value=bool() | int() | float() | str() | None as value):
                known = _number(value) if isinstance(value, str) else _finite(value)
                return lambda point: known
            case ast.Name(id=name):
                return self._name(name)
            case ast.BoolOp(op=op, values=values):
                parts = [self._part(value, below) for value in values]
                together = all if isinstance(op, ast.And) else any
                return lambda point: together(is_true(part(point)) for part in parts)
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                part = self._part(operand, below)
                return lambda point: not is_true(part(point))
            case ast.UnaryOp(op=ast.USub() | ast.UAdd() as sign, operand=operand):
                part = self._part(operand, below)
                factor = -1 if isinstance(sign, ast.USub) else 1
                return lambda point: _reckoned(operator.mul, factor, part(point))
            case ast.BinOp(left=left, op=op, right=right) if type(op) in _ARITHMETIC:
                act, first, second = _ARITHMETIC[type(op)], self._part(left, below), self._part(right, below)
                return lambda point: _reckoned(act, first(point), second(point))
            case ast.Call(func=ast.Name(id=name), args=args, keywords=[]) if name in _FUNCTIONS:
                function, most = _FUNCTIONS[name]
                if not 1 <= len(args) <= most:
                    raise self._refused(f"{name} cannot have {len(args)} arguments")
                parts = [self._part(each, below) for each in args]
                return lambda point: function(*[part(point) for part in parts])
            case ast.Compare(left=left, ops=ops, comparators=comparators):
                return self._comparison(left, ops, comparators, below)
        raise self._refused("it may only have comparisons, numbers, texts and parameters")

    def _name(self, given: str) -> _Part:
        if name := self.parameter(given):
            self.uses.add(name)
            return lambda point: _number(point.get(name))
        if given.lower() in _CONSTANTS:
            value = _CONSTANTS[given.lower()]
            return lambda point: value
        raise self._refused(
            f"there is no parameter {given}",
            remedy=f"the parameters are {_some(self._names)}; text stands in quotes: '{given}'",
        )

    def _comparison(self, left: ast.expr, ops: list[ast.cmpop], comparators: list[ast.expr], depth: int) -> _Part:
        links = []
        for op, right in zip(ops, comparators, strict=True):
            links.append(self._link(left, op, right, depth))
            left = right
        if len(links) == 1:
            return links[0]
        return lambda point: all(link(point) for link in links)

    def _link(self, left: ast.expr, op: ast.cmpop, right: ast.expr, depth: int) -> _Part:
        first = self._part(left, depth)
        is_negated = isinstance(op, ast.NotEq | ast.NotIn | ast.IsNot)
        if isinstance(op, ast.In | ast.NotIn):
            if not isinstance(right, ast.Tuple | ast.List | ast.Set):
                raise self._refused("what follows `in` is not a list", remedy="write: x in (1, 2, 3)")
            asks_none = any(_is_none(each) for each in right.elts)
            others = [self._part(each, depth) for each in right.elts if not _is_none(each)]
            return lambda point: _is_among(first(point), [part(point) for part in others], asks_none, is_negated)
        if _is_none(right) and isinstance(op, ast.Eq | ast.NotEq | ast.Is | ast.IsNot):
            return lambda point: (first(point) is None) != is_negated
        if type(op) not in _ORDERS:
            raise self._refused("`is` is only for `is None`", remedy="write == or !=")
        compare, second = _ORDERS[type(op)], self._part(right, depth)
        return lambda point: _compared(compare, first(point), second(point))

    def _refused(self, why: str, remedy: str = "") -> BadInput:
        return BadInput(
            f"cannot use the condition {self._text[:200]!r}: {why}",
            remedy=remedy or "write it as: bs * width < 8192 and optimizer == 'sgd'",
        )


_TOKEN = re.compile(r"""'[^']*'|"[^"]*"|(?<![\w.])[^\W\d][\w./-]*""")
_WORDS = ("and", "or", "not", "in", "is")
_CONSTANTS: dict[str, _Value] = {"none": None, "null": None, "true": True, "false": False}
_FALSE_TEXTS = ("", "false", "no", "off")


def _power(base: float, exponent: float) -> float:
    return math.pow(base, exponent)  # of floats: a power of integers may fill the memory


_ARITHMETIC: dict[type[ast.operator], Callable[..., float]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: _power,
}
_ORDERS: dict[type[ast.cmpop], Callable[[Any, Any], bool]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}


def _number(text: str | None) -> _Value:
    """Text that is a number as that number; other text as it is."""
    if text is None or not _NUMBER.fullmatch(text):
        return text
    return int(text) if _WHOLE.fullmatch(text) else _finite(float(text))


_NUMBER = re.compile(r"\s*[+-]?(\d{1,300}(\.\d*)?|\.\d+)([eE][+-]?\d{1,4})?\s*", re.ASCII)
_WHOLE = re.compile(r"\s*[+-]?\d+\s*", re.ASCII)


def _finite(value: _Value) -> _Value:
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _reckoned(act: Callable[..., float], *values: _Value) -> _Value:
    if any(value is None or isinstance(value, str) for value in values):
        return None
    try:
        return _finite(act(*values))
    except (ArithmeticError, ValueError):
        return None


def _length(value: _Value) -> _Value:
    return None if value is None else len(str(value))


def _rounded(number: float, digits: float = 0) -> float:
    return round(float(number), int(digits))  # of floats: an integer may be rounded to a billion zeros


# Each with its maximum number of arguments.
_FUNCTIONS: dict[str, tuple[Callable[..., _Value], int]] = {
    "min": (lambda *values: _reckoned(lambda *numbers: min(numbers), *values), _MOST_PARTS),
    "max": (lambda *values: _reckoned(lambda *numbers: max(numbers), *values), _MOST_PARTS),
    "abs": (lambda value: _reckoned(abs, value), 1),
    "round": (lambda *values: _reckoned(_rounded, *values), 2),
    "len": (_length, 1),
}


def _compared(compare: Callable[[Any, Any], bool], first: _Value, second: _Value) -> bool:
    if first is None or second is None:
        return False
    if isinstance(first, bool) or isinstance(second, bool):
        first, second = is_true(first), is_true(second)
    if isinstance(first, str) != isinstance(second, str):
        return compare is operator.ne  # text is unequal to every number, and has no order with one
    return compare(first, second)


def _is_among(value: _Value, others: Sequence[_Value], asks_none: bool, is_negated: bool) -> bool:
    if value is None:
        return asks_none and not is_negated
    return any(_compared(operator.eq, value, other) for other in others) != is_negated


def value_of_text(text: str | None) -> _Value:
    """What a condition takes a parameter's value for: a number where the text is one."""
    return _number(text)


def known_value(node: ast.Constant | ast.Name) -> _Value:
    """The value of a constant."""
    if isinstance(node, ast.Name):
        return _CONSTANTS.get(node.id.lower())
    value = node.value
    if isinstance(value, str):
        return _number(value)
    return _finite(value) if isinstance(value, bool | int | float) else None


def is_true(value: _Value) -> bool:
    if isinstance(value, str):
        return value.strip().lower() not in _FALSE_TEXTS
    return bool(value)


def _is_none(node: ast.expr) -> bool:
    return (isinstance(node, ast.Constant) and node.value is None) or (
        isinstance(node, ast.Name) and node.id in ("none", "null")
    )


def _some(names: Collection[str]) -> str:
    shown = list(names)[:20]
    return ", ".join(shown) + (f" and {len(names) - len(shown)} more" if len(names) > len(shown) else "")
