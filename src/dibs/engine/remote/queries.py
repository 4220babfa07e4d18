"""Questions of users to other systems, asked in a thread beside the loop."""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any, TypeVar

from dibs.backends.protocol import Node, Resources
from dibs.engine.remote.state import RemoteSystem, wanted_by
from dibs.errors import BackendSilent
from dibs.model.jobs import Request
from dibs.worker_thread import WorkerThread, future_of

_NODES_COUNT = 5.0  # seconds for which a look at the nodes is good
_PATIENCE = 20.0  # seconds; longer than the deadline of a command over there, shorter than a client waits
_AGAIN = "try again in a moment"
_T = TypeVar("_T")


class SystemThreads:
    """One thread for each of the other systems, started with the first question."""

    def __init__(self, start: Callable[[str], WorkerThread]) -> None:
        self._start = start
        self._threads: dict[str, WorkerThread] = {}

    def submit(self, name: str, work: Callable[[], _T], done: Callable[[_T], Any]) -> bool:
        if name not in self._threads:
            self._threads[name] = self._start(name)
        return self._threads[name].submit(work, done)

    def stop(self) -> None:
        for thread in self._threads.values():
            thread.stop()


class RemoteQueries:
    """Asks in a thread, and waits for the answer without holding up the loop."""

    def __init__(
        self, systems: Mapping[str, RemoteSystem], threads: SystemThreads, clock: Callable[[], float]
    ) -> None:
        self._systems = systems
        self._threads = threads
        self._clock = clock
        self._nodes: dict[str, tuple[float, tuple[Node, ...]]] = {}
        self._looks: dict[str, asyncio.Future[Any]] = {}  # the last look at the nodes of each

    async def nodes(self, name: str, seconds: float) -> tuple[Node, ...]:
        """The machines of a system. A look counts for some seconds, and callers meanwhile share it."""
        known = self._nodes.get(name)
        if known is not None and 0 <= self._clock() - known[0] < _NODES_COUNT:
            return known[1]
        look = self._looks.get(name)
        if look is None or look.done():
            look = self._looks[name] = self._ask(name, self._systems[name].backend.nodes)
        found = tuple(await self._answer(name, look, seconds))
        self._nodes[name] = (self._clock(), found)
        return found

    async def check(self, requests: Iterable[Request], seconds: float = _PATIENCE) -> list[str]:
        """Raise for what a system would never accept; sentences for what it cannot be asked about now.

        A system that this daemon does not know is refused by the queue.
        """
        loop = asyncio.get_running_loop()
        until = loop.time() + seconds
        seen: set[tuple[str, Resources]] = set()
        for request in requests:
            if not request.on or (system := self._systems.get(request.on)) is None:
                continue
            wanted = wanted_by(request)
            if (request.on, wanted) in seen:
                continue
            seen.add((request.on, wanted))
            try:
                answer = self._ask(request.on, partial(system.backend.check, wanted))
                await self._answer(request.on, answer, until - loop.time())
            except BackendSilent as error:
                return [f"{error.message}; it waits here until there is an answer"]
        return []

    def _ask(self, name: str, question: Callable[[], _T]) -> "asyncio.Future[_T]":
        try:
            return future_of(question, partial(self._threads.submit, name))
        except MemoryError:
            raise BackendSilent("cannot ask: no thread can be started now", remedy=_AGAIN) from None

    async def _answer(self, name: str, answer: "asyncio.Future[_T]", seconds: float) -> _T:
        """The answer within these seconds. A caller that leaves does not cancel it for the others."""
        try:
            return await asyncio.wait_for(asyncio.shield(answer), seconds)
        except TimeoutError:
            raise BackendSilent(f"{self._systems[name].title} has not answered yet", remedy=_AGAIN) from None
