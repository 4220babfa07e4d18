"""Blocking work in a thread of its own, with a deadline."""

import asyncio
import contextlib
import os
import threading
from collections.abc import Callable
from typing import TypeVar

_T = TypeVar("_T")
_ANSWER_WITHIN = 5.0  # seconds


async def run_in_thread(work: Callable[[], _T], seconds: float, name: str) -> _T:
    """The result of the work, or TimeoutError after so many seconds.

    The thread belongs to no pool: one that hangs in a dead file system or driver is abandoned, and the end of the
    process does not wait for it.
    """
    loop = asyncio.get_running_loop()
    answer: asyncio.Future[_T] = loop.create_future()

    def finish(result: _T | None, error: Exception | None) -> None:
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
        except Exception as error:  # raised again where the result is awaited
            problem = error
        if not loop.is_closed():
            loop.call_soon_threadsafe(finish, result, problem)

    try:
        threading.Thread(target=run, name=f"dibs-{name}", daemon=True).start()
    except RuntimeError as error:
        raise MemoryError from error  # there was no memory for the thread's stack
    return await asyncio.wait_for(answer, seconds)


async def is_answering(folder: str) -> bool:
    """Whether the file system of a folder answers at all; that the folder does not exist is an answer, too."""

    def ask() -> None:
        with contextlib.suppress(OSError):
            os.statvfs(folder)  # not `stat`, which the kernel may answer from its cache

    try:
        await run_in_thread(ask, _ANSWER_WITHIN, "disk-check")
    except TimeoutError:
        return False
    return True
