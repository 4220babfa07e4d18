"""What a turn has to tell, once it is in the store: to the results' folders, and to whoever listens."""

from collections.abc import Callable, Sequence

from dibs.backends.local import LocalBackend
from dibs.engine.hand import Hand
from dibs.engine.launching import Launching
from dibs.engine.results import Results
from dibs.model.events import Ended, Event, Found, Refused, Skipped, Trouble
from dibs.model.jobs import Attempt


class Telling:
    """Tells the news of a turn, in the order in which they happened, and then cleans up after what has ended."""

    def __init__(
        self,
        *,
        hand: Hand,
        launching: Launching,
        backend: LocalBackend,
        results: Results,
        announce: Callable[[Sequence[Event]], None],
        close_series: Callable[[Attempt], bool],
    ) -> None:
        self._hand = hand
        self._launching = launching
        self._backend = backend
        self._results = results
        self._announce = announce
        self._close_series = close_series

    def tell(self) -> None:
        events, self._hand.events = self._hand.events, []
        for event in events:
            if isinstance(event, Ended):
                self._launching.detach(event.job.id)
        if self._results.writes_more:
            events += [trouble for event in events for trouble in self._show_result(event)]
        if events:
            self._announce(events)
        for event in events:
            # What was measured stays in the folder, which then is no silent one.
            if not isinstance(event, Ended) or event.attempt.backend:
                continue
            if not self._close_series(event.attempt) and event.outcome.cause is None:
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
        """Let the folder of a silent success be used again, unless somebody is led there by name."""
        if not self._results.shows_attempts(event.job) and self._backend.retire(event.attempt):
            self._results.forget(event.job)
