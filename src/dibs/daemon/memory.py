"""What a burst needed goes back to the machine once it is quiet again."""

import asyncio
import ctypes
import gc
from collections.abc import Callable

from dibs.store.store import Store

_LOOK_EVERY = 2.0  # seconds
_QUIET = 8  # things that may happen meanwhile: jobs that run for days are looked at every second
_ENOUGH = 100  # things after which there may be something to give back

trim = ctypes.CDLL(None).malloc_trim


async def give_back_when_quiet(store: Store, happened: Callable[[], int]) -> None:
    """For ever. `happened` counts what was done; the work itself takes some milliseconds of the loop."""
    seen = given_back_at = happened()
    while True:
        await asyncio.sleep(_LOOK_EVERY)
        now = happened()
        if now - seen <= _QUIET and now - given_back_at >= _ENOUGH:
            give_back(store)
            given_back_at = now
        seen = now


def give_back(store: Store) -> None:
    """Let go of what is in cycles, of pages that were read, and of what malloc keeps for the next time."""
    gc.collect()
    store.shrink()
    trim(0)
