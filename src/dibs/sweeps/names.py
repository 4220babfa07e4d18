"""What a parameter may be called, and what no value may hold."""

import re
from collections.abc import Iterable, Sequence

from dibs.errors import BadInput

# A name may have a hyphen, as options do, and dots, as in Hydra: `--batch-size {batch-size}`, `lr={model.lr}`.
NAME = r"[^\W\d][\w-]*(?:\.[\w-]+)*"
_MOST = 1000
_LONGEST = 200


def check_names(names: Sequence[str]) -> None:
    """Raise BadInput for names that cannot be meant, and for none at all."""
    check_count(len(names))
    seen = set()
    for name in names:
        check_name(name)
        if name in seen:
            raise BadInput(f"the parameter {name} is given twice", remedy="give all its values at once")
        seen.add(name)


def check_count(count: int) -> None:
    """Raise BadInput for no parameters, and for so many that nobody can mean them."""
    if not count:
        raise BadInput("there is no parameter", remedy="write -p NAME VALUE VALUE")
    if count > _MOST:
        raise BadInput(f"a sweep has at most {_MOST} parameters", remedy="split it")


def check_name(name: str) -> None:
    if len(name) > _LONGEST or not re.fullmatch(NAME, name):
        raise BadInput(
            f"cannot use {name[:_LONGEST]!r} as a parameter's name", remedy="letters, digits, _, - and ."
        )


def check_values(name: str, values: Iterable[str | None]) -> None:
    """Raise BadInput where a parameter has no values, or one that no process can be given."""
    is_empty = True
    for value in values:
        is_empty = False
        if value and "\0" in value:
            raise BadInput(f"a value of {name} contains a NUL byte", remedy="no program can be given one")
    if is_empty:
        raise BadInput(f"the parameter {name} has no values", remedy=f"write -p {name} 1 2 3")
