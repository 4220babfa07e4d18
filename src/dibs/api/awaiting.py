"""`await job`: without a thread for each, and without one that outlives whoever gave up waiting."""

import asyncio
from concurrent.futures import Future
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from dibs.api.watch import News, the_watch
from dibs.errors import DibsError, NoDaemon

if TYPE_CHECKING:
    from dibs.api.job import Job


async def result_of(job: "Job") -> Any:
    """What `job.result()` gives, once it is over."""
    over: Future[None] = Future()
    watch = the_watch()

    def hear(kind: str, news: News) -> None:
        if kind == "started" or not over.set_running_or_notify_cancel():
            return
        if isinstance(news, DibsError):
            over.set_exception(news)
        else:
            over.set_result(None)

    def begin() -> None:
        with watch.listening():
            watch.add(job.id, hear)
        with suppress(NoDaemon):  # the watch looks by itself when the daemon is back
            watch.look([job.id])  # it may have been over for long

    try:
        await asyncio.to_thread(begin)
        await asyncio.wrap_future(over)
    finally:
        watch.remove(job.id, hear)
    return await asyncio.to_thread(job.result)
