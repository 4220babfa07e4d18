"""Parameters on a command line: `-p NAME VALUE VALUE ...`, and which names and values are valid.

Click has no option with a variable number of values, so `split_params` removes them before click parses the rest.
"""

import re
from collections.abc import Iterable, Sequence

from dibs.errors import BadInput

Parameters = list[tuple[str, tuple[str, ...]]]


def split_params(argv: Sequence[str], flags: Sequence[str] = ("-p", "--param")) -> tuple[Parameters, list[str]]:
    """The parameters, and the command line without them.

    The values end before the next word that begins with `-` and is neither a number nor a range, so
    `-p lr -0.1 1e-3` has two. Words after `--` belong to the command and are left alone.
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


# A name may have a hyphen, as options do, and dots and slashes, as in Hydra: `--batch-size {batch-size}`,
# `lr={model.lr}`, `data/aug={data/aug}`.
NAME = r"[^\W\d][\w-]*(?:[./][\w-]+)*"
_MOST = 1000
_LONGEST = 200


def check_names(names: Sequence[str]) -> None:
    """Raise BadInput for an invalid or repeated name, and where there are no names."""
    check_count(len(names))
    seen = set()
    for name in names:
        check_name(name)
        if name in seen:
            raise BadInput(f"the parameter {name} is given twice", remedy="give all its values at once")
        seen.add(name)


def check_count(count: int) -> None:
    """Raise BadInput for no parameters, or too many."""
    if not count:
        raise BadInput("there is no parameter", remedy="write -p NAME VALUE VALUE")
    if count > _MOST:
        raise BadInput(f"a sweep has at most {_MOST} parameters", remedy="split it")


def check_name(name: str) -> None:
    if len(name) > _LONGEST or not re.fullmatch(NAME, name):
        raise BadInput(
            f"cannot use {name[:_LONGEST]!r} as a parameter's name", remedy="letters, digits, _, -, . and /"
        )


def check_values(name: str, values: Iterable[str | None]) -> None:
    """Raise BadInput where a parameter has no values, or a value with a NUL byte."""
    is_empty = True
    for value in values:
        is_empty = False
        if value and "\0" in value:
            raise BadInput(f"a value of {name} contains a NUL byte", remedy="no program can be given one")
    if is_empty:
        raise BadInput(f"the parameter {name} has no values", remedy=f"write -p {name} 1 2 3")
