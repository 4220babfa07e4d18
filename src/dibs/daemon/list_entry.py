"""Lists that arrive in several requests: complete ones become jobs, and those that were given up are dropped."""

import asyncio
import logging
import time
from collections.abc import Callable

from dibs.dataclass import dataclass
from dibs.engine.queue.queue import Queue
from dibs.errors import StoreUnusable

log = logging.getLogger(__name__)

_AFTER_TROUBLE = 2.0  # seconds until a full disk is tried again
_GIVEN_UP_AFTER = 600.0  # seconds without another part


@dataclass(frozen=True, kw_only=True, slots=True)
class ListEntry:
    """Works on the event loop, a part at a time: other requests are served meanwhile."""

    queue: Queue
    wake: Callable[[], None]  # called when there are new jobs

    async def enter_all(self) -> None:
        """Return when no acknowledged list is left that is not in the queue."""
        while True:
            try:
                if not self.queue.enter_part():
                    return
            except StoreUnusable as error:
                log.info("cannot go on with a list of jobs: %s", error.message)
                await asyncio.sleep(_AFTER_TROUBLE)
            self.wake()
            await asyncio.sleep(0)

    async def drop_regularly(self) -> None:
        """Drop lists whose client has gone before all parts were sent."""
        while True:
            try:
                if dropped := self.queue.drop_unfinished(time.time() - _GIVEN_UP_AFTER):
                    log.info("dropped the first parts of lists whose rest did not come: %d", dropped)
            except StoreUnusable as error:
                log.info("cannot drop unfinished lists of jobs: %s", error.message)
            await asyncio.sleep(_GIVEN_UP_AFTER)
