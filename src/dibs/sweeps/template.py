"""Commands with `{lr}` in them, and what they become at one point of a grid.

Only `{name}` of a given parameter is replaced. `{{`, `}}`, `{}`, JSON, `${VAR}`, `{a,b}` and `{1..3}` stay as they
are, and so does `\\{lr}`. In a line for a shell every value is quoted for the place where it stands, so that the
command receives it unchanged: `--tag {tag}`, `--tag="{tag}"` and `--tag='{tag}'` are alike.

A parameter that is `none` is left out with its flag: `--momentum {momentum}`, `--momentum={momentum}`,
`momentum={momentum}`, `-m{m}` and a word that is `{m}` alone. In the middle of a longer word, as in
`runs/{lr}-{momentum}`, nothing can be left out: `none` is written there.
"""

import re
import shlex
from collections.abc import Collection, Iterator, Mapping, Sequence
from enum import Enum
from itertools import groupby

from dibs.dataclass import dataclass
from dibs.errors import BadInput
from dibs.sweeps.params import NAME


class QuotedPlace(Enum):
    """What surrounds a placeholder."""

    WORD = "outside of quotes"
    DOUBLE = "inside double quotes"
    SINGLE = "inside single quotes"
    DOLLAR_SINGLE = "inside $'...'"
    UNSURE = "inside backquotes, ${...}, ((...)), a comment or after <<"


def quote(value: str, place: QuotedPlace) -> str:
    """The value as it must be written at this place.

    Inside an UNSURE place no quoting is always right, so only values that need no quotes are accepted.
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
    """Steps through a shell line letter by letter and tells what surrounds each.

    It understands quotes, `$(...)`, `${...}`, `((...))`, backquotes, comments and the start of a here-document.
    Any other construct makes the place UNSURE, never wrong.
    """

    def __init__(self, text: str) -> None:
        self._text = text
        # The closers of the constructs that are open, innermost last. A newline closes a comment.
        self._closers: list[str] = []
        self._skip = 0
        # The `)` after a pattern of `case` closes nothing.
        self._is_lost = _CASE.search(text) is not None

    @property
    def place(self) -> QuotedPlace:
        if self._is_lost or any(closer in _OPAQUE for closer in self._closers):
            return QuotedPlace.UNSURE
        return _PLACES.get(self._innermost, QuotedPlace.WORD)

    @property
    def is_escaped(self) -> bool:
        """Whether the current letter has no meaning of its own, as the second one of `\\{` and `${`."""
        return self._skip > 0

    def step(self, at: int) -> None:
        """Go past the letter at this place. The letters of a placeholder are skipped, not stepped over."""
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
        """The closer of the construct that opens here; empty where none does."""
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
# In arithmetic, single quotes protect nothing: `$(( '$(rm x)' ))` removes x. One entry for each parenthesis.
_ARITHMETIC = "arithmetic )"
_OPAQUE = ("`", "}", "\n", _ARITHMETIC)
_PLACES = {"'": QuotedPlace.SINGLE, '"': QuotedPlace.DOUBLE, "$'": QuotedPlace.DOLLAR_SINGLE}
_BEFORE_A_COMMENT = ("", *" \t\n;&|()")


_PLACEHOLDER = re.compile(rf"\{{({NAME})\}}")


class LineTemplate:
    """A line for a shell with placeholders."""

    def __init__(
        self,
        text: str,
        names: Sequence[str],
        *,
        allow_unused: bool = False,
        halve_braces: bool = False,
        is_raw: bool = False,
    ) -> None:
        """Raise BadInput for a placeholder that no parameter fills, and for a parameter that fills none.

        `allow_unused`, `halve_braces` (`{{` becomes `{`) and `is_raw` (values are not quoted) are for
        simple_hypersearch, whose users rely on them.
        """
        self._quote = _unquoted if is_raw else quote
        self._pieces = _merged(pieces_of(text, names, QuoteTracker(text), halve_braces))
        if not allow_unused:
            _check_all_used(names, self._pieces)

    def check_value(self, name: str, value: str) -> None:
        """Raise BadInput for a value that cannot be quoted safely at its place."""
        for piece in self._pieces:
            if isinstance(piece, Placeholder) and piece.name == name:
                self._quote(value, piece.place)

    def expand(self, point: Mapping[str, str]) -> str:
        return "".join(
            piece if isinstance(piece, str) else self._quote(point[piece.name], piece.place)
            for piece in self._pieces
        )


def _unquoted(value: str, place: QuotedPlace) -> str:
    return value


class WordsTemplate:
    """The words of a command that runs without a shell: values are inserted unquoted."""

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
class Placeholder:
    """The place of a value in a template."""

    name: str
    place: QuotedPlace


Piece = str | Placeholder


def pieces_of(
    text: str, names: Sequence[str], tracker: QuoteTracker | None, halve_braces: bool = False
) -> Iterator[Piece]:
    """The text letter by letter, with its placeholders; the tracker is positioned before the current piece."""
    at = 0
    while at < len(text):
        begin = at
        if text.startswith("{{", at) or (halve_braces and text.startswith("}}", at)):
            at += 2
            yield text[begin : at - 1 if halve_braces else at]
        elif name := _placeholder(text, at, names, tracker):
            at += len(name) + 2
            yield Placeholder(name, tracker.place if tracker else QuotedPlace.WORD)
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
    if not name.isidentifier() or before == "@":  # git writes @{upstream}
        return None
    raise BadInput(
        f"the command has {{{name}}}, and there is no parameter {name}",
        remedy=f"the parameters are {', '.join(names)}; write {{ {name} }} with blanks if it is not a parameter",
    )


def _check_all_used(names: Sequence[str], pieces: Sequence[Piece]) -> None:
    used = {piece.name for piece in pieces if isinstance(piece, Placeholder)}
    for name in names:
        if name not in used:
            raise BadInput(
                f"the parameter {name} is not in the command, which would be the same for each value",
                remedy=f"write {{{name}}} where its value belongs",
            )


def _merged(pieces: Iterator[Piece]) -> list[Piece]:
    """The pieces with adjacent text joined, because a grid expands them up to a million times."""
    merged: list[Piece] = []
    for is_text, group in groupby(pieces, key=lambda piece: isinstance(piece, str)):
        together = list(group)
        merged += ["".join(map(str, together))] if is_text else together
    return merged


def line_without(line: str, names: Sequence[str], gone: Collection[str], own_flags: Collection[str] = ()) -> str:
    """The shell line without the parameters in `gone`; the other placeholders stay in it.

    `own_flags` are parameters whose values are flags, as `--amp`: the flag before such a placeholder stays.
    """
    return _together(_dropped(_split(line, names, QuoteTracker(line)), gone, own_flags))


def words_without(
    words: Sequence[str], names: Sequence[str], gone: Collection[str], own_flags: Collection[str] = ()
) -> list[str]:
    """The same for the words of a command that runs without a shell."""
    kept: list[str] = []
    was_flag = False
    for word in words:
        parts = list(pieces_of(word, names, None))
        holes = [part.name for part in parts if isinstance(part, Placeholder)]
        found = _SHAPE.fullmatch(word)
        if found and len(holes) == 1 and holes[0] in gone and not (found["open"] or found["close"]):
            if was_flag and not found["key"] and holes[0] not in own_flags:
                kept.pop()
            was_flag = False
            continue
        kept.append(_together(_dropped(_split(word, names, None), gone, own_flags)))
        was_flag = not holes and _FLAG.fullmatch(word) is not None
    return kept


@dataclass(slots=True)
class _Word:
    """A word of the line and the text between it and the word before."""

    before: str
    pieces: list[Piece]
    is_quoted: bool = False  # a part of a quoted text, as in `ssh host "train --lr {lr}"`

    @property
    def text(self) -> str:
        return "".join(piece if isinstance(piece, str) else f"{{{piece.name}}}" for piece in self.pieces)

    @property
    def holes(self) -> list[Placeholder]:
        return [piece for piece in self.pieces if isinstance(piece, Placeholder)]

    @property
    def follows_directly(self) -> bool:
        """Whether only blanks, and no `;` or `|`, separate it from the word before."""
        return bool(self.before) and not self.before.replace("\\\n", "").strip(" \t")


def _split(text: str, names: Sequence[str], tracker: QuoteTracker | None) -> list[_Word]:
    """The words, also those in quoted text; the last one may be empty and carry only the text before it."""
    words = [_Word("", [])]
    for piece in pieces_of(text, names, tracker):
        word = words[-1]
        if isinstance(piece, str) and _is_between(piece, tracker):
            if word.pieces:
                words.append(word := _Word("", []))
            word.before += piece
            continue
        word.pieces.append(piece)
        if isinstance(piece, Placeholder):
            word.is_quoted = tracker is None or piece.place != QuotedPlace.WORD
    return _without_line_ends(words)


def _without_line_ends(words: list[_Word]) -> list[_Word]:
    """Move a `\\` at the end of a line into the text between two words."""
    joined: list[_Word] = []
    waiting = ""
    for word in words:
        word.before = waiting + word.before
        waiting = ""
        if word.text == "\\":
            waiting = word.before + word.text
        else:
            joined.append(word)
    return [*joined, _Word(waiting, [])] if waiting else joined


def _is_between(letter: str, tracker: QuoteTracker | None) -> bool:
    if tracker is None or tracker.place != QuotedPlace.WORD:
        return letter.isspace()
    if tracker.is_escaped:
        return letter in "\n("  # a continued line's end, and the second letter of `$(`
    return letter in _BETWEEN


def _dropped(words: list[_Word], gone: Collection[str], own_flags: Collection[str]) -> list[_Word]:
    kept: list[_Word] = []
    for word in words:
        lost = [hole for hole in word.holes if hole.name in gone]
        if not lost:
            kept.append(word)
            continue
        if any(hole.place is QuotedPlace.UNSURE for hole in lost):
            raise BadInput(
                f"cannot leave {{{lost[0].name}}} out of the command {QuotedPlace.UNSURE.value}",
                remedy="use the placeholder outside of it, for instance in $(...)",
            )
        found = _SHAPE.fullmatch(word.text) if len(word.holes) == 1 else None
        flag = _flag_before(word, kept) if lost[0].name not in own_flags else None
        if not found or not (found["key"] or flag or _is_whole(word, found)):
            word.pieces = ["none" if piece in lost else piece for piece in word.pieces]
            kept.append(word)
            continue
        opened = found["open"]
        if flag and not found["key"]:
            kept.pop()
            word.before = flag.before
            opened = flag.text[:1].strip("-") + opened
        # A quote whose partner is in another word stays; a pair is removed.
        word.pieces = [] if opened == found["close"] else [opened + found["close"]]
        if word.follows_directly and not (opened and word.pieces):
            word.before = ""
        kept.append(word)
    return kept


def _flag_before(word: _Word, kept: list[_Word]) -> _Word | None:
    if kept and word.follows_directly and not kept[-1].holes and _FLAG.fullmatch(kept[-1].text):
        return kept[-1]
    return None


def _is_whole(word: _Word, found: re.Match[str]) -> bool:
    """Whether it is a whole shell word: not part of a quoted text and not the file after `>`."""
    has_own_quotes = found["inner"] or (found["open"] and found["open"] == found["close"])
    return (not word.is_quoted or bool(has_own_quotes)) and word.before.strip()[-1:] not in (">", "<")


def _together(words: list[_Word]) -> str:
    return "".join(word.before + word.text for word in words)


_BETWEEN = " \t\n;&|()<>"
_FLAG = re.compile(r"""["']?-{1,2}[^\W\d][\w.-]*""")
# A word that is only the value of one parameter, with its key if any: `--lr={lr}`, `lr="{lr}"`, `-l{l}`.
_SHAPE = re.compile(
    r"""(?P<open>["']?)(?P<key>[-+~]{0,2}[\w./@-]+=|-[A-Za-z])?(?P<inner>["']?)\{[^{}]+\}(?P=inner)(?P<close>["']?)"""
)
