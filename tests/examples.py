"""How much of something random a test looks at: enough for `make test`, all of it for `make faults`."""

import os

IS_LONG = bool(os.environ.get("DIBS_EXPLORE"))


def examples(number: int) -> int:
    """So many examples of a property in the long run, and a third of them otherwise."""
    return number if IS_LONG else max(25, number // 3)
