"""Wishes in front of a line: `[num_gpus=2 vram=18G name='my run'] python train.py`."""

import re
import shlex

from dibs.errors import BadInput
from dibs.inputs.wishes import ONLY_IN_MAPPINGS

# Bash's own test has a blank there, `[ -f x ]`, so it stays a command.
_BEGINS = re.compile(r"\[[A-Za-z_][A-Za-z0-9_-]*=")
_WHOLE = re.compile(r"""\[((?:[^]'"\\]|\\.|'[^']*'|"(?:[^"\\]|\\.)*")*)\]""", re.DOTALL)


def has_prefix(text: str) -> bool:
    """Whether the line begins with wishes, well written or not."""
    return _BEGINS.match(text) is not None


def split_prefix(text: str) -> tuple[dict[str, str], str]:
    """The wishes in front of a line, and the line without them."""
    if not has_prefix(text):
        return {}, text
    whole = _WHOLE.match(text)
    if not whole:
        raise BadInput("the wishes in front have no ] at their end", remedy="write them like [num_gpus=2] command")
    wishes: dict[str, str] = {}
    for part in shlex.split(whole[1]):
        word, equals, value = part.partition("=")
        if not equals:
            raise BadInput(f"cannot read {part!r} as a wish", remedy="write it like num_gpus=2; quote blanks")
        if word in wishes:
            raise BadInput(f"the wish {word} is given twice", remedy="keep one of them")
        if word in ONLY_IN_MAPPINGS:
            raise BadInput(f"{word} cannot stand in [...]", remedy="write the job as a JSON line")
        wishes[word] = value
    return wishes, text[whole.end() :].lstrip(" \t")
