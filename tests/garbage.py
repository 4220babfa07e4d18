"""Garbage collection in the test process."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def no_garbage_collected() -> Iterator[None]:
    """Collect nothing meanwhile.

    A finalizer may warn of what was not closed; the warning has a traceback, for which Python 3.11 parses source.
    If pytest was just parsing source for its report, that fails with a SystemError, which ends the test process.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
