"""`-p NAME VALUE VALUE ...` taken out of a command line before click sees it, which has no such option."""

import re
from collections.abc import Sequence

from dibs.errors import BadInput

Parameters = list[tuple[str, tuple[str, ...]]]


def split_params(argv: Sequence[str], flags: Sequence[str] = ("-p", "--param")) -> tuple[Parameters, list[str]]:
    """The parameters, and the command line without them.

    Values go on until the next word that begins with `-` and is not a number nor a range, so `-p lr -0.1 1e-3`
    has two.
    From `--` on, nothing is touched: it belongs to the command.
    """
    parameters: Parameters = []
    rest: list[str] = []
    words = list(argv)
    place = 0
    while place < len(words) and words[place] != "--":
        word = words[place]
        place += 1
        if word not in flags:
            rest.append(word)
            continue
        begin = place
        while place < len(words) and not _ends_values(words[place]):
            place += 1
        if begin == place:
            raise BadInput(f"{word} needs a name and values", remedy=f"write {word} lr 0.1 0.01")
        name, *values = words[begin:place]
        parameters.append((name, tuple(values)))
    return parameters, rest + words[place:]


def _ends_values(word: str) -> bool:
    if not word.startswith("-") or _NEGATIVE_RANGE.match(word):
        return False
    try:
        float(word)
    except ValueError:
        return True
    return False


_NEGATIVE_RANGE = re.compile(r"-[\d.]+(?:[eE][+-]?\d+)?\.\.")
