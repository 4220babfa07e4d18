"""Where in a shell line a value lands, and how it is written there so that it arrives as it is."""

import re
import shlex
from enum import Enum

from dibs.errors import BadInput


class QuotedPlace(Enum):
    """What surrounds a placeholder."""

    WORD = "outside of quotes"
    DOUBLE = "inside double quotes"
    SINGLE = "inside single quotes"
    DOLLAR_SINGLE = "inside $'...'"
    UNSURE = "inside backquotes, ${...}, ((...)), a comment or after <<"


def quote(value: str, place: QuotedPlace) -> str:
    """The value as it must be written there.

    Where no way of writing is always right, only values that need no quotes are taken.
    """
    match place:
        case QuotedPlace.WORD:
            return shlex.quote(value)
        case QuotedPlace.SINGLE:
            return value.replace("'", "'\\''")
        case QuotedPlace.DOUBLE:
            return _with_backslashes(value, '\\"$`')
        case QuotedPlace.DOLLAR_SINGLE:
            return _with_backslashes(value, "\\'")
        case QuotedPlace.UNSURE:
            if shlex.quote(value) != value:
                raise BadInput(
                    f"cannot put {value!r} {place.value} of the command safely",
                    remedy="use the placeholder outside of it, for instance in $(...)",
                )
            return value


def _with_backslashes(value: str, special: str) -> str:
    return "".join("\\" + letter if letter in special else letter for letter in value)


class QuoteTracker:
    """Walks along a shell line and knows at each letter what surrounds it.

    It knows the quotes, `$(...)`, `${...}`, `((...))`, backquotes, comments and that a here-document has begun.
    Where it cannot know, the place is UNSURE, never a wrong one.
    """

    def __init__(self, text: str) -> None:
        self._text = text
        # What closes the things that are open, innermost last. A comment is closed by a newline.
        self._closers: list[str] = []
        self._skip = 0
        # The `)` after a pattern of `case` closes nothing, and looks as if it did.
        self._is_lost = _CASE.search(text) is not None

    @property
    def place(self) -> QuotedPlace:
        if self._is_lost or any(closer in _OPAQUE for closer in self._closers):
            return QuotedPlace.UNSURE
        return _PLACES.get(self._innermost, QuotedPlace.WORD)

    @property
    def is_escaped(self) -> bool:
        """Whether the letter at hand has lost its own meaning, as the second one of `\\{` and `${`."""
        return self._skip > 0

    def step(self, at: int) -> None:
        """Go past the letter at this place. The letters of a placeholder are never stepped on."""
        letter, innermost = self._text[at], self._innermost
        if self._skip:
            self._skip -= 1
        elif letter == innermost[-1:]:
            self._closers.pop()
        elif innermost in ("'", "\n"):
            pass
        elif letter == "\\":
            self._skip = 1
        elif innermost == "$'":
            pass
        elif letter == "`" and "`" in self._closers:
            del self._closers[self._closers.index("`") :]
        elif closer := self._closer_of(at):
            self._closers.append(closer)

    @property
    def _innermost(self) -> str:
        return self._closers[-1] if self._closers else ""

    def _closer_of(self, at: int) -> str:
        """What closes the thing that opens here; empty where nothing does."""
        letter, before = self._text[at], self._text[max(0, at - 1) : at]
        pair = self._text[at : at + 2]
        in_words = self._innermost in ("", ")", "`")
        if letter == "(" and self._innermost == _ARITHMETIC:
            return _ARITHMETIC
        if pair == "((" and in_words:
            return _ARITHMETIC
        if pair in ("$(", "${") or (pair == "$'" and in_words):
            self._skip = 1
            if self._text.startswith("$((", at):
                return _ARITHMETIC
            return {"(": ")", "{": "}", "'": "$'"}[pair[1]]
        if letter == "`" or (letter == "{" and self._innermost == "}"):
            return "`" if letter == "`" else "}"
        if not in_words:
            return ""
        if pair == "<<" and before != "<" and self._text[at : at + 3] != "<<<":
            self._is_lost = True
        if letter == "#" and before in _BEFORE_A_COMMENT:
            return "\n"
        return {"(": ")", "'": "'", '"': '"'}.get(letter, "")


_CASE = re.compile(r"\bcase\s.*\sin\b", re.DOTALL)
# In arithmetic single quotes protect nothing: `$(( '$(rm x)' ))` removes x. One for each of its parentheses.
_ARITHMETIC = "arithmetic )"
_OPAQUE = ("`", "}", "\n", _ARITHMETIC)
_PLACES = {"'": QuotedPlace.SINGLE, '"': QuotedPlace.DOUBLE, "$'": QuotedPlace.DOLLAR_SINGLE}
_BEFORE_A_COMMENT = ("", *" \t\n;&|()")
