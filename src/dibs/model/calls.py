"""Commands that call a Python function: how they are told from others."""

from collections.abc import Sequence

_PROGRAM = "/dibs/api/work.py"


def folder_of_call(words: Sequence[str]) -> str:
    """Where the function lies that these words call, `PYTHON .../work.py --NAME FOLDER`; empty for a command."""
    return words[-1] if len(words) >= 4 and words[-3].endswith(_PROGRAM) else ""


def call_moved(words: Sequence[str], source: str, folder: str) -> list[str]:
    """The same call where the package is in `source` and the function in `folder`."""
    return [*words[:-3], f"{source}{_PROGRAM}", words[-2], folder]
