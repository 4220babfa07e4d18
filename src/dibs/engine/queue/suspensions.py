"""Suspending and resuming jobs of a queue.

Each call is one change: durable when it returns, and where it raises nothing has changed.
"""

from collections.abc import Sequence
from dataclasses import replace

from dibs.engine.engine import Engine
from dibs.engine.queue.changed import Changed, why_not
from dibs.engine.turn.state import OpenAttempt, with_suspension
from dibs.model.jobs import JobId
from dibs.model.records import SuspensionChanged

_BY_YOU = "by you"


class SuspensionActions:
    """The verbs of suspensions."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._tables = engine.store.queue

    def suspend(self, jobs: Sequence[JobId], why: str = _BY_YOU) -> Changed:
        """Have running jobs stand still, and their cards free, until `resume`. The outcome is recorded later."""
        changed = Changed()
        found = self._tables.find_all(jobs)
        moved: list[OpenAttempt] = []
        with self._engine.change() as change:
            for job in found:
                one = change.next.open.get((job.id, job.attempts))
                if one is not None and one.suspension is not None and not one.suspension.is_over:
                    if not one.suspension.resumes:
                        changed.unchanged.append((job.id, f"it is {one.suspension.phase} already"))
                        continue
                    stays = replace(one.suspension, resumes=False, why=why)
                    change.next.open[one.attempt.key] = with_suspension(one, stays)
                    change.record(SuspensionChanged(one.attempt, stays))
                elif why_not := self._engine.why_not_suspend(job, one, change.next.open.values()):
                    changed.unchanged.append((job.id, why_not))
                    continue
                else:
                    assert one is not None, "what can be suspended runs here"
                    begun = with_suspension(one, self._engine.new_suspension(one, why, resumes=False))
                    assert begun.suspension is not None
                    change.next.open[one.attempt.key] = begun
                    change.record(SuspensionChanged(one.attempt, begun.suspension))
                    moved.append(begun)
                changed.jobs.append(job.id)
        self._engine.move(moved)
        return changed

    def resume(self, jobs: Sequence[JobId]) -> Changed:
        """Let suspended jobs go on as soon as their cards have room."""
        changed = Changed()
        found = self._tables.find_all(jobs)
        with self._engine.change() as change:
            for job in found:
                one = change.next.open.get((job.id, job.attempts))
                if one is None or one.suspension is None or one.suspension.is_over:
                    changed.unchanged.append((job.id, why_not(job, "it is not suspended")))
                    continue
                if not one.suspension.resumes:
                    goes_on = replace(one.suspension, resumes=True)
                    change.next.open[one.attempt.key] = with_suspension(one, goes_on)
                    change.record(SuspensionChanged(one.attempt, goes_on))
                changed.jobs.append(job.id)
        return changed
