"""A run's list: lines that become jobs, skipped where they succeeded before, refused where they can never run."""

from collections.abc import Iterable

from dibs.engine.engine import Engine
from dibs.model.events import Ended, Event, Found, Queued, Refused, Skipped
from dibs.model.jobs import Cause, Job, Outcome, Request, State
from dibs.policy.shapes import with_shape


class RunList:
    """Feeds an engine from a list, whose k-th line with the same text is always the same job."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._store = engine.store
        self._store.be_a_list()

    def capture(self, environment: dict[str, str]) -> str:
        """Keep an environment for the jobs submitted under the returned key."""
        with self._store.turn():
            key = self._store.keep_environment(environment)
        self._engine.place.keep_environment(key, environment)
        return key

    def submit(self, requests: Iterable[Request | tuple[Request, str]], environment: str) -> list[Job]:
        """Accept jobs, durably, in one go. A request with a sentence is one that can never run."""
        now = self._engine.clock()
        jobs: list[Job] = []
        added: list[Job] = []
        events: list[Event] = []
        with self._store.turn():
            for item in requests:
                request, problem = item if isinstance(item, tuple) else (item, "")
                request = with_shape(request, self._engine.place.workdir)
                job, is_new = self._store.submit(request, environment, now)
                jobs.append(job)
                problem = problem or self._engine.outlook.why_never(request)
                if job.state is State.SUCCEEDED:
                    events.append(Skipped(job))
                elif is_new or job.state.is_over or job.state is State.HELD:
                    if problem:
                        events.append(self._refuse(job, problem, now))
                        continue
                    added.append(job if is_new else self._store.queue_again(job.id, request, environment))
                    events.append(Queued(added[-1]))
        for job in added:
            self._engine.hand.waiting.add(job)
        self._tell_of(events)
        return jobs

    def resume(self) -> None:
        """Come back to a run's store.

        What waited is set aside until a list names it again: what was struck from the list stays out.
        """
        self._engine.come_back()
        with self._store.turn():
            self._store.hold_leftovers()
        # What ended while nobody looked is neither news nor a failure of this run: its list will name it.
        self._engine.hand.failures = 0
        self._engine.hand.events = [
            Found(event.job, event.attempt, event.outcome) if isinstance(event, Ended) else event
            for event in self._engine.hand.events
        ]
        self._engine.load_waiting()

    def queue_leftovers(self) -> None:
        """Queue again whatever has not succeeded, unless no free moment of today's pool could satisfy it."""
        events: list[Event] = []
        with self._store.turn():
            events += [  # they have not succeeded either, and nothing about them has changed
                Refused(row.job, row.outcome)
                for row in self._store.rows((State.FAILED,), -1)
                if row.outcome is not None and row.outcome.cause is Cause.REFUSED
            ]
            for leftover in self._store.leftovers():
                job = self._store.queue_again(leftover)
                if problem := self._engine.outlook.why_never(job.request):
                    events.append(self._refuse(job, problem, self._engine.clock()))
        self._engine.load_waiting()
        self._tell_of(events)

    def _refuse(self, job: Job, problem: str, now: float) -> Refused:
        outcome = Outcome(cause=Cause.REFUSED, message=problem)
        self._store.refuse(job.id, outcome, now)
        return Refused(job, outcome)

    def _tell_of(self, events: list[Event]) -> None:
        """What was accepted or refused is in the store now: announce it in the next turn."""
        self._engine.hand.failures += sum(isinstance(event, Refused) for event in events)
        self._engine.hand.events += events
        self._engine.hand.ask_for_turn()
