"""How the engine tells what happened: events to its owner, changes to its parts, once they are recorded."""

from collections.abc import Callable, Iterable, Sequence
from typing import Generic, TypeVar

from dibs.backends.local import LocalBackend, ref_of
from dibs.engine.launch.results import Results
from dibs.engine.watch.metering import Meters
from dibs.model.events import Ended, Event, Found, Refused, Skipped, Trouble
from dibs.model.jobs import JobId

_T = TypeVar("_T")


class Topic(Generic[_T]):
    """What one part of the engine publishes for others."""

    def __init__(self) -> None:
        self._subscribers: list[Callable[[_T], None]] = []

    def subscribe(self, subscriber: Callable[[_T], None]) -> None:
        self._subscribers.append(subscriber)

    def unsubscribe(self, subscriber: Callable[[_T], None]) -> None:
        self._subscribers.remove(subscriber)

    def publish(self, news: _T) -> None:
        for tell in self._subscribers:
            tell(news)


class Announcer:
    """Collects events, announces them at the end of a turn, and cleans up after attempts that ended.

    `detach` forgets the descriptors that were attached to a job.
    """

    def __init__(
        self,
        announce: Callable[[Sequence[Event]], None],
        *,
        backend: LocalBackend,
        results: Results,
        meters: Meters,
        detach: Callable[[JobId], None],
    ) -> None:
        self._announce = announce
        self._backend = backend
        self._results = results
        self._meters = meters
        self._detach = detach
        self._events: list[Event] = []

    def add(self, events: Iterable[Event]) -> None:
        """Announce these at the end of the turn."""
        self._events += events

    def take_ends_as_found(self) -> None:
        """What ended so far ended before this engine was there."""
        self._events = [
            Found(event.job, event.attempt, event.outcome) if isinstance(event, Ended) else event
            for event in self._events
        ]

    def announce(self) -> None:
        """Announce what was added, in order."""
        events, self._events = self._events, []
        for event in events:
            if isinstance(event, Ended):
                self._detach(event.job.id)
        if self._results.writes_more:
            events += [trouble for event in events for trouble in self._show_result(event)]
        if events:
            self._announce(events)
        for event in events:
            if not isinstance(event, Ended) or event.attempt.backend:
                continue
            # A folder that holds measurements is not used again.
            if not self._meters.close(event.attempt) and event.outcome.cause is None:
                self._retire(event)

    def _show_result(self, event: Event) -> list[Event]:
        if not isinstance(event, (Ended, Found, Refused, Skipped)):
            return []
        try:
            if isinstance(event, (Ended, Found)):
                usage = event.usage if isinstance(event, Ended) else None
                self._results.end(event.job, event.attempt, event.outcome, usage)
            elif isinstance(event, Refused):
                self._results.refuse(event.job, event.outcome)
            else:
                self._results.confirm(event.job)
        except OSError as error:
            return [Trouble(f"cannot write the result folder of job {event.job.label}: {error}")]
        return []

    def _retire(self, event: Ended) -> None:
        """Let the folder of a success without output be used again, unless result folders link to it."""
        if not self._results.shows_attempts(event.job) and self._backend.recycle(ref_of(event.attempt)):
            self._results.forget(event.job)
