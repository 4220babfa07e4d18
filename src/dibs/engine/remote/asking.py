"""What people want to know of other systems, asked beside the loop."""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any, Protocol

from dibs.backends.protocol import Node, Wanted
from dibs.engine.remote.contact import Elsewhere, wanted_by
from dibs.errors import BackendSilent
from dibs.model.jobs import Request

_NODES_COUNT = 5.0  # seconds for which a look at the nodes is good
_PATIENCE = 20.0  # seconds; longer than a command over there is given, shorter than a client waits for us
_AGAIN = "try again in a moment"


class Aside(Protocol):
    """A thread beside the loop (engine/worker_thread.py)."""

    def __call__(self, work: Callable[[], Any], done: Callable[[Any], Any]) -> bool: ...
    def stop(self) -> None: ...


class Asides:
    """A thread for each of the other systems, once there is something to ask it."""

    def __init__(self, make: Callable[[], Aside]) -> None:
        self._make = make
        self._made: dict[str, Aside] = {}

    def of(self, name: str) -> Aside:
        if name not in self._made:
            self._made[name] = self._make()
        return self._made[name]

    def stop(self) -> None:
        for aside in self._made.values():
            aside.stop()


class Asking:
    """Asks on a thread, and waits for the answer without holding up the loop."""

    def __init__(self, places: Mapping[str, Elsewhere], asides: Asides, clock: Callable[[], float]) -> None:
        self._places = places
        self._asides = asides
        self._clock = clock
        self._nodes: dict[str, tuple[float, tuple[Node, ...]]] = {}
        self._looks: dict[str, asyncio.Future[Any]] = {}  # at the nodes, the last of each

    async def nodes(self, name: str, seconds: float) -> tuple[Node, ...]:
        """The machines of a backend; a look counts for some seconds, and who asks meanwhile shares it."""
        known = self._nodes.get(name)
        if known is not None and 0 <= self._clock() - known[0] < _NODES_COUNT:
            return known[1]
        look = self._looks.get(name)
        if look is None or look.done():
            look = self._looks[name] = self._ask(name, self._places[name].backend.nodes)
        found = tuple(await self._answer(name, look, seconds))
        self._nodes[name] = (self._clock(), found)
        return found

    async def check(self, requests: Iterable[Request], seconds: float = _PATIENCE) -> list[str]:
        """Raise for what a backend would never take; sentences for what it cannot be asked about now.

        One that this daemon does not know is for the queue to refuse.
        """
        loop = asyncio.get_running_loop()
        until = loop.time() + seconds
        seen: set[tuple[str, Wanted]] = set()
        for request in requests:
            if not request.on or (elsewhere := self._places.get(request.on)) is None:
                continue
            wanted = wanted_by(request)
            if (request.on, wanted) in seen:
                continue
            seen.add((request.on, wanted))
            answer = self._ask(request.on, partial(elsewhere.backend.check, wanted))
            try:
                await self._answer(request.on, answer, until - loop.time())
            except BackendSilent as error:
                return [f"{error.message}; it waits here until somebody answers"]
        return []

    def _ask(self, name: str, question: Callable[[], Any]) -> "asyncio.Future[Any]":
        """What somebody over there says, or the error that it is, once it comes."""
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

        def ask() -> Any:
            try:
                return question()
            except Exception as error:  # raised where somebody waits for the answer
                return error

        if not self._asides.of(name)(ask, answer.set_result):
            answer.set_result(BackendSilent("cannot ask: there can be no more threads now", remedy=_AGAIN))
        return answer

    async def _answer(self, name: str, answer: "asyncio.Future[Any]", seconds: float) -> Any:
        """What was said within these seconds; raises what is no answer. Whoever goes takes nobody else's."""
        try:
            found = await asyncio.wait_for(asyncio.shield(answer), seconds)
        except TimeoutError:
            raise BackendSilent(f"{self._places[name].title} has not answered yet", remedy=_AGAIN) from None
        if isinstance(found, Exception):
            raise found
        return found
