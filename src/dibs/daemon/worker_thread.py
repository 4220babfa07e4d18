"""Work that may take long, beside the loop."""

import asyncio
import contextlib
import os
import threading
from collections.abc import Callable
from typing import TypeVar

_T = TypeVar("_T")
_LONG_FOR_AN_ANSWER = 5.0  # seconds


async def aside(work: Callable[[], _T], seconds: float, name: str) -> _T:
    """What the work gives, or TimeoutError after these seconds.

    The thread is one of its own: one that hangs in a dead file system or a sick driver is left behind, and
    nobody waits for it at the end.
    """
    loop = asyncio.get_running_loop()
    answer: asyncio.Future[_T] = loop.create_future()

    def tell(result: _T | None, error: Exception | None) -> None:
        if answer.done():
            return
        if error is None:
            answer.set_result(result)  # type: ignore[arg-type]
        else:
            answer.set_exception(error)

    def run() -> None:
        result, problem = None, None
        try:
            result = work()
        except Exception as error:  # raised where somebody waits for the result
            problem = error
        if not loop.is_closed():
            loop.call_soon_threadsafe(tell, result, problem)

    try:
        threading.Thread(target=run, name=f"dibs-{name}", daemon=True).start()
    except RuntimeError as error:
        raise MemoryError from error  # a thread's stack is the largest thing that anybody asks for
    return await asyncio.wait_for(answer, seconds)


async def answers(folder: str) -> bool:
    """Whether the file system of a folder says anything at all: that it is not there is an answer, too.

    For whoever would otherwise wait long for one that is dead.
    """

    def ask() -> None:
        with contextlib.suppress(OSError):
            os.statvfs(folder)  # not `stat`, which the kernel may answer from memory

    try:
        await aside(ask, _LONG_FOR_AN_ANSWER, "disk-asker")
    except TimeoutError:
        return False
    return True
