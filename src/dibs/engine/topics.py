"""What the engine's parts tell each other once it is recorded. A part subscribes when it is built."""

from collections.abc import Callable
from typing import Generic, TypeVar

_T = TypeVar("_T")


class Topic(Generic[_T]):
    """Calls its subscribers, in the order in which they came."""

    def __init__(self) -> None:
        self._subscribers: list[Callable[[_T], None]] = []

    def subscribe(self, subscriber: Callable[[_T], None]) -> None:
        self._subscribers.append(subscriber)

    def publish(self, news: _T) -> None:
        for tell in self._subscribers:
            tell(news)
