"""A command without the parameters that are none: `--momentum {momentum}` is left out, flag and all.

So are `--momentum={momentum}`, `momentum={momentum}`, `-m{m}` and a word that is `{m}` alone. In the middle of a
longer word, as in `runs/{lr}-{momentum}`, there is nothing to leave out: `none` is written there.
"""

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from dibs.errors import BadInput
from dibs.sweeps.quoting import QuotedPlace, QuoteTracker
from dibs.sweeps.template import Hole, Piece, pieces_of


def line_without(line: str, names: Sequence[str], gone: Collection[str], own_flags: Collection[str] = ()) -> str:
    """The line for a shell, with the placeholders of the other parameters still in it.

    `own_flags` are parameters whose values are flags, as `--amp`: a flag before such a one is not theirs.
    """
    return _together(_dropped(_split(line, names, QuoteTracker(line)), gone, own_flags))


def words_without(
    words: Sequence[str], names: Sequence[str], gone: Collection[str], own_flags: Collection[str] = ()
) -> list[str]:
    """The same for words that no shell touches."""
    kept: list[str] = []
    was_flag = False
    for word in words:
        parts = list(pieces_of(word, names, None))
        holes = [part.name for part in parts if isinstance(part, Hole)]
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
    """A word of the line and what stands before it."""

    before: str
    pieces: list[Piece]
    is_quoted: bool = False  # a part of a quoted text, as in `ssh host "train --lr {lr}"`

    @property
    def text(self) -> str:
        return "".join(piece if isinstance(piece, str) else f"{{{piece.name}}}" for piece in self.pieces)

    @property
    def holes(self) -> list[Hole]:
        return [piece for piece in self.pieces if isinstance(piece, Hole)]

    @property
    def follows_directly(self) -> bool:
        """Whether only blanks part it from the word before, and no `;` or `|`."""
        return bool(self.before) and not self.before.replace("\\\n", "").strip(" \t")


def _split(text: str, names: Sequence[str], tracker: QuoteTracker | None) -> list[_Word]:
    """The words, also those in quoted text; the last one has what stands at the end and may be empty."""
    words = [_Word("", [])]
    for piece in pieces_of(text, names, tracker):
        word = words[-1]
        if isinstance(piece, str) and _is_between(piece, tracker):
            if word.pieces:
                words.append(word := _Word("", []))
            word.before += piece
            continue
        word.pieces.append(piece)
        if isinstance(piece, Hole):
            word.is_quoted = tracker is None or piece.place != QuotedPlace.WORD
    return _without_line_ends(words)


def _without_line_ends(words: list[_Word]) -> list[_Word]:
    """A `\\` at the end of a line belongs to no word, but stands between two."""
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
        return letter in "\n("  # the end of a line that goes on, and the second letter of `$(`
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
        # Of quotes that were opened before, or are closed later, ours stays; a pair goes.
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
    """Whether it is a word to the shell, and no part of a quoted text nor the file of a `>`."""
    has_own_quotes = found["inner"] or (found["open"] and found["open"] == found["close"])
    return (not word.is_quoted or bool(has_own_quotes)) and word.before.strip()[-1:] not in (">", "<")


def _together(words: list[_Word]) -> str:
    return "".join(word.before + word.text for word in words)


_BETWEEN = " \t\n;&|()<>"
_FLAG = re.compile(r"""["']?-{1,2}[^\W\d][\w.-]*""")
# A word that is nothing but the value of one parameter, with what names it: `--lr={lr}`, `lr="{lr}"`, `-l{l}`.
_SHAPE = re.compile(
    r"""(?P<open>["']?)(?P<key>[-+~]{0,2}[\w./@-]+=|-[A-Za-z])?(?P<inner>["']?)\{[^{}]+\}(?P=inner)(?P<close>["']?)"""
)
