"""Names of Python modules that a job wants to find imported: `torch,transformers`."""

import re

from dibs.errors import BadInput

MOST_MODULES = 32
_NAME = re.compile(r"[^\W\d]\w*(?:\.[^\W\d]\w*)*")
_LONGEST = 200  # characters of one


def parse_modules(text: str) -> tuple[str, ...]:
    """The modules of `--warm`, each once; raises BadInput for what is no list of names."""
    return check_modules([part.strip() for part in text.split(",")])


def check_modules(names: list[str]) -> tuple[str, ...]:
    """Names that can be imported, each once, in the order in which they were given."""
    for name in names:
        if not _NAME.fullmatch(name) or len(name) > _LONGEST:
            raise BadInput(f"cannot read {name[:60]!r} as a module", remedy="name modules like torch,transformers")
    found = tuple(dict.fromkeys(names))
    if len(found) > MOST_MODULES:
        raise BadInput(f"{len(found)} modules are too many", remedy=f"name at most {MOST_MODULES}")
    return found
