"""A run's list: lines that become jobs, skipped where they succeeded before, refused where they can never run."""

from collections.abc import Iterable

from dibs.engine.engine import Engine
from dibs.engine.turn.state import Change
from dibs.model.events import Queued, Refused, Skipped
from dibs.model.jobs import Cause, Job, Outcome, Request, State
from dibs.policy.shapes import with_shape
from dibs.store.store import environment_key


class RunList:
    """Feeds an engine from a list, whose k-th line with the same text is always the same job."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._store = engine.store
        self._captured: list[dict[str, str]] = []  # what is recorded with the next jobs

    def capture(self, environment: dict[str, str]) -> str:
        """Keep an environment for the jobs submitted under the returned key."""
        key = environment_key(environment)
        self._engine.place.keep_environment(key, environment)
        self._captured.append(environment)
        return key

    def submit(self, requests: Iterable[Request | tuple[Request, str]], environment: str) -> list[Job]:
        """Accept jobs, durably, in one go. A request with a sentence is one that can never run."""
        jobs: list[Job] = []
        with self._engine.change() as change:
            for captured in self._captured:
                self._store.keep_environment(captured)
            for item in requests:
                request, problem = item if isinstance(item, tuple) else (item, "")
                request = with_shape(request, self._engine.place.workdir)
                job, is_new = self._store.submit(request, environment, change.now)
                jobs.append(job)
                problem = problem or self._engine.why_never(request)
                if job.state is State.SUCCEEDED:
                    change.next.events.append(Skipped(job))
                elif is_new or job.state.is_over or job.state is State.HELD:
                    if problem:
                        self._refuse(job, problem, change)
                        continue
                    waiting = job if is_new else self._store.queue_again(job.id, request, environment)
                    change.wait(waiting)
                    change.next.events.append(Queued(waiting))
        self._captured.clear()
        return jobs

    def resume(self) -> None:
        """Come back to a run's store.

        What waited is set aside until a list names it again: what was struck from the list stays out.
        """
        self._engine.resume(as_found=True)  # its list will name what ended while no engine was there
        with self._store.turn():
            self._store.hold_leftovers()
        self._engine.reload_waiting()

    def queue_leftovers(self) -> None:
        """Queue again whatever has not succeeded, unless no free moment of today's pool could satisfy it."""
        with self._engine.change() as change:
            for row in self._store.rows((State.FAILED,), -1):
                # It has not succeeded either, and nothing about it has changed.
                if row.outcome is not None and row.outcome.cause is Cause.REFUSED:
                    self._tell_refused(row.job, row.outcome, change)
            for leftover in self._store.leftovers():
                job = self._store.queue_again(leftover)
                if problem := self._engine.why_never(job.request):
                    self._refuse(job, problem, change)
                else:
                    change.wait(job)

    def _refuse(self, job: Job, problem: str, change: Change) -> None:
        outcome = Outcome(cause=Cause.REFUSED, message=problem)
        self._store.refuse(job.id, outcome, change.now)
        self._tell_refused(job, outcome, change)

    def _tell_refused(self, job: Job, outcome: Outcome, change: Change) -> None:
        change.next.failures += 1
        change.next.events.append(Refused(job, outcome))
