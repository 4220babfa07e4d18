"""The daemon's memory: a reserve for shortages, returning what a burst needed, and a smaller FastAPI."""

import asyncio
import ctypes
import gc
import logging
import mmap
from collections.abc import Callable

from pydantic import BaseModel

from dibs.store.store import Store

log = logging.getLogger(__name__)

_CHECK_EVERY = 2.0  # seconds
_QUIET = 8  # turns and requests in that time that still count as quiet: long jobs cause a turn every second
_ENOUGH = 100  # turns and requests after which there may be something to return
_RESERVE = 16 * 1024**2  # bytes; mapped and never written to, so they take no memory
_PAUSE = 5.0  # seconds until the reserve may be taken again

_libc = ctypes.CDLL(None)
trim = _libc.malloc_trim
_malloc, _free = _libc.malloc, _libc.free
_malloc.argtypes, _malloc.restype = [ctypes.c_size_t], ctypes.c_void_p
_free.argtypes, _free.restype = [ctypes.c_void_p], None


class MemoryReserve:
    """Address space that is released when an allocation fails, so that the daemon can still answer and settle."""

    def __init__(self) -> None:
        self._kept: mmap.mmap | None = None
        self._is_released = False

    def take(self) -> None:
        """Take the reserve once twice as much is available; with less, every other request would release it."""
        if _is_available(2 * _RESERVE):
            self._kept = _map(_RESERVE)
            self._is_released = False
        else:
            gc.collect()
            asyncio.get_running_loop().call_later(_PAUSE, self.take)

    def release(self) -> None:
        """Release the reserve because an allocation failed; it is taken again later."""
        if self._is_released:
            return
        self._is_released = True
        if self._kept is not None:
            self._kept.close()
            self._kept = None
        asyncio.get_running_loop().call_later(_PAUSE, self.take)
        log.error("the daemon is short of memory; large requests are refused until there is more")

    def has_room(self, size: int) -> bool:
        """Whether so many bytes can be allocated. The reserve is released if they cannot."""
        if _is_available(size):
            return True
        gc.collect()
        self.release()
        return _is_available(size) or _is_free_in_heap(size)


reserve = MemoryReserve()


async def return_memory_when_quiet(store: Store, activity: Callable[[], int]) -> None:
    """Return unused memory to the system after each burst; never ends.

    `activity` counts turns and requests. Returning memory takes some milliseconds of the event loop.
    """
    seen = returned_at = activity()
    while True:
        await asyncio.sleep(_CHECK_EVERY)
        now = activity()
        if now - seen <= _QUIET and now - returned_at >= _ENOUGH:
            _return_memory(store)
            returned_at = now
        seen = now


def load_fastapi() -> None:
    """Import FastAPI without building its OpenAPI models, which take a megabyte.

    Call it before any module that imports FastAPI. The models are built when /openapi.json is requested.
    """
    BaseModel.model_config["defer_build"] = True
    try:
        import fastapi.openapi.models  # noqa: F401
    finally:
        del BaseModel.model_config["defer_build"]


def _return_memory(store: Store) -> None:
    """Free reference cycles, the store's page cache and the free lists of malloc."""
    gc.collect()
    store.shrink()
    trim(0)


def _is_available(size: int) -> bool:
    try:
        _map(size).close()
    except (OSError, MemoryError):
        return False
    return True


def _is_free_in_heap(size: int) -> bool:
    """Whether the heap has a free block of this size."""
    block = _malloc(size)
    _free(block)
    return block is not None


def _map(size: int) -> mmap.mmap:
    return mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
