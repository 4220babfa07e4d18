"""Suspending and resuming jobs of a queue.

Each call is one change: durable when it returns, and where it raises nothing has changed.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace

from dibs.engine.engine import Engine
from dibs.engine.queue.changed import Changed, why_not
from dibs.engine.turn.state import OpenAttempt, next_suspension, with_suspension
from dibs.model.jobs import Job, JobId, State
from dibs.model.records import SuspensionChanged
from dibs.model.suspensions import too_much_to_move

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
                elif why_not := self._why_not(job, one, change.next.open.values()):
                    changed.unchanged.append((job.id, why_not))
                    continue
                else:
                    assert one is not None, "what can be suspended runs here"
                    held = self._engine.meters.held_by(one.attempt.key)
                    begins = next_suspension(one, why, held, change.now, resumes=False)
                    change.next.open[one.attempt.key] = with_suspension(one, begins)
                    change.record(SuspensionChanged(one.attempt, begins))
                    moved.append(change.next.open[one.attempt.key])
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

    def _why_not(self, job: Job, one: OpenAttempt | None, open_attempts: Iterable[OpenAttempt]) -> str:
        """Why a job cannot be suspended, as far as that is known before it is tried; empty where it may be.

        `open_attempts` are all that are open, with the suspensions that began just now.
        """
        if one is None:
            if job.state is State.RUNNING:
                where = job.request.on.capitalize()
                return f"it runs on {where}, and only jobs of this machine are suspended; `scontrol` is for that"
            if job.state.is_over:
                return "it is over"
            is_held = job.state is State.HELD or job.is_held_there
            return "it has not started, and " + ("is held" if is_held else "`dibs hold` keeps it from starting")
        if job.id in self._engine.state.stopping:
            return "it is ending"
        if job.request.image:
            return "it runs in a container, and the driver cannot suspend its processes from outside"
        held = sum(self._engine.meters.held_by(one.attempt.key).values())
        return too_much_to_move(held, self._engine.memory_to_fill(open_attempts))
