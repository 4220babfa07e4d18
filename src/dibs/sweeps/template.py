"""Commands with `{lr}` in them, and what becomes of them at one point of a grid.

Only `{name}` for a parameter that was given is replaced. `{{`, `}}`, `{}`, JSON, `${VAR}`, `{a,b}` and
`{1..3}` stay as they are, and so does `\\{lr}`. In a line for a shell every value is quoted for the place
where it stands, so that the command receives it unchanged: `--tag {tag}`, `--tag="{tag}"` and
`--tag='{tag}'` are alike.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

from dibs.errors import BadInput
from dibs.sweeps.names import NAME
from dibs.sweeps.quoting import QuotedPlace, QuoteTracker, quote

_PLACEHOLDER = re.compile(rf"\{{({NAME})\}}")


class LineTemplate:
    """A line for a shell with placeholders."""

    def __init__(
        self, text: str, names: Sequence[str], *, allow_unused: bool = False, halve_braces: bool = False
    ) -> None:
        """Raise BadInput for a placeholder that no parameter fills, and for a parameter that fills none.

        `allow_unused` and `halve_braces` (`{{` becomes `{`) are for those who promised them to old users.
        """
        self._pieces = _merged(pieces_of(text, names, QuoteTracker(text), halve_braces))
        if not allow_unused:
            _check_all_used(names, self._pieces)

    def check_value(self, name: str, value: str) -> None:
        """Raise BadInput for a value that cannot be written where it belongs."""
        for piece in self._pieces:
            if isinstance(piece, Hole) and piece.name == name:
                quote(value, piece.place)

    def expand(self, point: Mapping[str, str]) -> str:
        return "".join(
            piece if isinstance(piece, str) else quote(point[piece.name], piece.place) for piece in self._pieces
        )


class WordsTemplate:
    """The words of a command that no shell touches: values go in as they are."""

    def __init__(self, words: Sequence[str], names: Sequence[str], *, allow_unused: bool = False) -> None:
        self._words = [_merged(pieces_of(word, names, None)) for word in words]
        if not allow_unused:
            _check_all_used(names, [piece for word in self._words for piece in word])

    def expand(self, point: Mapping[str, str]) -> list[str]:
        return [
            "".join(piece if isinstance(piece, str) else point[piece.name] for piece in word)
            for word in self._words
        ]


@dataclass(frozen=True, slots=True)
class Hole:
    """Where a value goes."""

    name: str
    place: QuotedPlace


Piece = str | Hole


def pieces_of(
    text: str, names: Sequence[str], tracker: QuoteTracker | None, halve_braces: bool = False
) -> Iterator[Piece]:
    """The text letter by letter, with its placeholders; the tracker stands before the piece at hand."""
    at = 0
    while at < len(text):
        begin = at
        if text.startswith("{{", at) or (halve_braces and text.startswith("}}", at)):
            at += 2
            yield text[begin : at - 1 if halve_braces else at]
        elif name := _placeholder(text, at, names, tracker):
            at += len(name) + 2
            yield Hole(name, tracker.place if tracker else QuotedPlace.WORD)
            continue
        else:
            at += 1
            yield text[begin]
        for passed in range(begin, at):
            if tracker:
                tracker.step(passed)


def _placeholder(text: str, at: int, names: Sequence[str], tracker: QuoteTracker | None) -> str | None:
    """The name of the parameter whose placeholder begins here."""
    found = _PLACEHOLDER.match(text, at)
    before = text[max(0, at - 1) : at]
    if not found or before == "$" or (tracker and tracker.is_escaped):
        return None
    name = found[1]
    if name in names:
        return name
    if "-" in name or "." in name or before == "@":  # git writes @{upstream}
        return None
    raise BadInput(
        f"the command has {{{name}}}, and there is no parameter {name}",
        remedy=f"the parameters are {', '.join(names)}; write {{ {name} }} with blanks if it is none",
    )


def _check_all_used(names: Sequence[str], pieces: Sequence[Piece]) -> None:
    used = {piece.name for piece in pieces if isinstance(piece, Hole)}
    for name in names:
        if name not in used:
            raise BadInput(
                f"the parameter {name} is not in the command, which would be the same for each value",
                remedy=f"write {{{name}}} where its value belongs",
            )


def _merged(pieces: Iterator[Piece]) -> list[Piece]:
    """The same pieces with neighbouring text in one, because a grid expands them a million times."""
    merged: list[Piece] = []
    for is_text, group in groupby(pieces, key=lambda piece: isinstance(piece, str)):
        together = list(group)
        merged += ["".join(map(str, together))] if is_text else together
    return merged
