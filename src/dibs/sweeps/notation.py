"""How a parameter is typed: values, or a range, and when it is wanted.

lr 1e-4..1e-1:log        layers 1..8        x 0..1:0.1        width 16..1024:log:int
norm batch layer none    momentum 0.5..0.99 if optimizer=sgd
"""

import re
from collections.abc import Sequence

from dibs.errors import BadInput
from dibs.sweeps.names import NAME
from dibs.sweeps.space import Choice, Parameter, Range, Scale

_NUMBER = r"[+-]?(?:\d+(?:\.\d+)?|\.\d+)(?:[eE][+-]?\d+)?"
_RANGE = re.compile(rf"({_NUMBER})\.\.({_NUMBER})((?::[^:]*)*)", re.ASCII)
_NEARLY_A_RANGE = re.compile(rf"{_NUMBER}\.\.(?!/)", re.ASCII)  # `0..1:lgo`, but not `..` of a path
_WHOLE = re.compile(r"[+-]?\d+", re.ASCII)
_NONE = ("none", "null")
_EXAMPLES = "1e-4..1e-1:log, 1..8, 0..1:0.1 (a step), 16..1024:log:int"


def parse_parameter(name: str, words: Sequence[str]) -> Parameter:
    """A parameter from the words after its name; BadInput where they cannot be meant."""
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


def value_of(word: str) -> str | None:
    """A value as it was typed; `none` and `null` drop the flag, and are text only in quotes of their own."""
    if word in _NONE:
        return None
    if word[:1] in ("'", '"') and word[1:-1] in _NONE and word[-1] == word[0]:
        return word[1:-1]
    return word


def condition_of(text: str) -> str:
    """What follows `if`: a condition, or as short as `optimizer=sgd`, `optimizer=sgd,adam` and `a=1 and b!=2`."""
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
