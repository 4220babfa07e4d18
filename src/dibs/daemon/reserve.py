"""Memory put by for the hour in which there is no other."""

import asyncio
import ctypes
import gc
import mmap

from dibs.daemon.daemon_log import log

_SIZE = 16 * 1024**2  # bytes; asked for and never touched, so that they cost nothing
_PAUSE = 5.0  # seconds until it may be taken again

_malloc, _free = ctypes.CDLL(None).malloc, ctypes.CDLL(None).free
_malloc.argtypes, _malloc.restype = [ctypes.c_size_t], ctypes.c_void_p
_free.argtypes, _free.restype = [ctypes.c_void_p], None


class Reserve:
    """Given up when the daemon may have no more, so that it can still answer and settle; taken again later."""

    def __init__(self) -> None:
        self._kept: mmap.mmap | None = None
        self._is_given_up = False

    def take(self) -> None:
        """Put it by once there is twice as much, or else every other request would find it gone."""
        if _can_be_had(2 * _SIZE):
            self._kept = _ask_for(_SIZE)
            self._is_given_up = False
        else:
            gc.collect()
            asyncio.get_running_loop().call_later(_PAUSE, self.take)

    def give_up(self) -> None:
        """Something could not be had: let the others have this."""
        if self._is_given_up:
            return
        self._is_given_up = True
        if self._kept is not None:
            self._kept.close()
            self._kept = None
        asyncio.get_running_loop().call_later(_PAUSE, self.take)
        log.error("the daemon is short of memory; what needs much of it is refused until there is more")

    def has_room(self, size: int) -> bool:
        """Whether somebody else can have so many bytes. What is here is given up for them."""
        if _can_be_had(size):
            return True
        gc.collect()
        self.give_up()
        return _can_be_had(size) or _was_let_go(size)


def _can_be_had(size: int) -> bool:
    try:
        _ask_for(size).close()
    except (OSError, MemoryError):
        return False
    return True


def _was_let_go(size: int) -> bool:
    """Whether there is as much in one piece among what we have had and need no more."""
    block = _malloc(size)
    _free(block)
    return block is not None


def _ask_for(size: int) -> mmap.mmap:
    return mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)


reserve = Reserve()
