"""A regular expression that finds metrics in a line of a log, and cannot run for hours."""

import re
import warnings
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from dibs.errors import BadInput

_LONGEST_PATTERN = 500
_MOST_WIDE = 4
_SHOWN = 100  # letters, in a sentence
# How many letters of a line are looked at: the work may grow with the square of them, and faster with each `.*`.
_LONGEST_LINE = {0: 4_000, 1: 4_000, 2: 800}
_LONGEST_LINE_IF_WIDER = 300


class LogPattern:
    """The expression, with groups that are named after the metrics; one group needs no name."""

    def __init__(self, text: str, names: Sequence[str]) -> None:
        """Raise BadInput where it cannot be compiled, could take for ever, or does not find the metrics."""
        self.text = text
        if len(text) > _LONGEST_PATTERN:
            raise self._refused(f"it has more than {_LONGEST_PATTERN} letters", "a shorter one will do")
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # about what may change one day
                self._compiled = re.compile(text)
                tree = re._parser.parse(text)  # type: ignore[attr-defined]  # the one way to see repetitions
        except (re.error, RecursionError, OverflowError) as error:
            raise self._refused(str(error), _EXAMPLE) from None
        wide = self._count_wide(tree, is_inside=False)
        if wide > _MOST_WIDE:
            raise self._refused(f"it has more than {_MOST_WIDE} of `.*`, which can take hours", _EXAMPLE)
        self._longest = _LONGEST_LINE.get(wide, _LONGEST_LINE_IF_WIDER)
        self._groups = self._groups_of(names)

    def read(self, line: str) -> Mapping[str, str]:
        """The names and texts found in a line; empty where it does not match."""
        found = self._compiled.search(line, 0, self._longest)
        if not found:
            return {}
        return {name: found[group] for name, group in self._groups.items() if found[group] is not None}

    def _groups_of(self, names: Sequence[str]) -> dict[str, int]:
        groups = dict(self._compiled.groupindex)
        missing = [name for name in names if name not in groups]
        unnamed = [group for group in range(1, self._compiled.groups + 1) if group not in groups.values()]
        if not missing:
            return groups
        if len(missing) > 1 or len(unnamed) != 1:
            raise self._refused(f"no group of it is called {missing[0]}", _EXAMPLE)
        return groups | {missing[0]: unnamed[0]}

    def _count_wide(self, tree: Iterable[Any], *, is_inside: bool) -> int:
        """How many repetitions match everything. One inside of another is refused: it can take for ever."""
        wide = 0
        for kind, inner in tree:
            is_repeat = str(kind) in _REPEATS and inner[1] > _FEW
            if is_inside and (is_repeat or str(kind) in ("BRANCH", "GROUPREF")):
                raise self._refused("it repeats something that repeats or varies, which can take hours", _EXAMPLE)
            wide += is_repeat and "ANY" in repr(inner[2])
            for below in _below(inner):
                wide += self._count_wide(below, is_inside=is_inside or is_repeat)
        return wide

    def _refused(self, why: str, remedy: str) -> BadInput:
        return BadInput(f"cannot use the expression {shown_pattern(self.text)}: {why}", remedy=remedy)


def shown_pattern(text: str) -> str:
    """An expression as it was typed, for a sentence: `repr` would write each of its backslashes twice."""
    return "'" + repr(text[:_SHOWN])[1:-1].replace("\\\\", "\\") + "'"


_EXAMPLE = r"write it as: val_loss=(\S+), or for several: loss=(?P<loss>\S+) acc=(?P<acc>\S+)"
_REPEATS = ("MAX_REPEAT", "MIN_REPEAT", "POSSESSIVE_REPEAT")
_FEW = 10  # `(?: *\d+){1,3}` repeats too, but comes to an end


def _below(inner: Any) -> Iterable[Any]:
    """The parts of a part, whatever kind it is."""
    if isinstance(inner, re._parser.SubPattern):  # type: ignore[attr-defined]
        yield inner
    elif isinstance(inner, list | tuple):
        for part in inner:
            yield from _below(part)
