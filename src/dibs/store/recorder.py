"""One way to record: a value becomes the row, the journal's line and the event, so that none can be forgotten.

Everything here happens inside a turn of the store. What follows from a record by itself (jobs that waited for an
end, jobs of a held group) is recorded with it, and told to the caller in `Consequences`.
"""

import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from dibs.model import records
from dibs.model.jobs import Cause, JobId, Outcome, State
from dibs.model.records import Consequences, Record
from dibs.model.sweeps import SweepState
from dibs.store import journal_lines
from dibs.store.store import Store

if TYPE_CHECKING:
    from dibs.store.journal import Journal  # a run's list has none

POSITION = "journal"  # the setting in which a store remembers how much of its journal it was told


class Recorder:
    """Writes records. Without a journal it keeps rows only: a run's list has no readers that reconnect."""

    def __init__(self, store: Store, journal: "Journal | None" = None) -> None:
        self._store = store
        self._journal = journal
        self._lines: list[journal_lines.Line] = []  # of this turn
        self._must_sync = False
        self._size_before = 0 if journal is None else journal.size
        self._followed = Consequences()
        self._now = 0.0
        self._write: dict[type, Callable[[Any], None]] = {
            records.JobsAdded: self._jobs_added,
            records.PartStaged: self._part_staged,
            records.ListCompleted: self._list_completed,
            records.PartEntered: self._part_entered,
            records.ListDropped: self._list_dropped,
            records.AttemptOpened: self._attempt_opened,
            records.AttemptRunning: self._attempt_running,
            records.AttemptEnded: self._attempt_ended,
            records.AttemptForgotten: self._attempt_forgotten,
            records.ClaimsLowered: lambda record: store.change_claims(record.attempt),
            records.SuspensionChanged: self._suspension_changed,
            records.LessonLearned: self._lesson_learned,
            records.JobsHeld: self._jobs_held,
            records.GroupHeld: self._group_held,
            records.JobReleased: self._job_released,
            records.HoldThere: self._hold_there,
            records.JobRetried: self._job_retried,
            records.JobsStopping: self._jobs_stopping,
            records.JobCancelled: self._job_cancelled,
            records.JobEdited: self._job_edited,
            records.JobsRemoved: self._jobs_removed,
            records.MarkSet: self._mark_set,
            records.MarkCleared: self._mark_cleared,
            records.SettingChanged: self._setting_changed,
            records.CardTested: self._card_tested,
            records.GpusAstray: self._gpus_astray,
            records.AttemptExcused: self._attempt_excused,
        }

    def record(self, record: Record, now: float) -> Consequences:
        """Write one record; return what followed from it."""
        self._now = now
        followed = self._followed = Consequences()
        self._write[type(record)](record)
        return followed

    def note(self, line: journal_lines.Line, *, sync: bool = False) -> None:
        """A journal line of a sweep or of code, which have rows of their own."""
        if self._journal is None:
            return
        self._must_sync |= sync
        if line["k"] == "set" and self._lines and _is_alike(self._lines[-1], line):
            self._lines[-1]["jobs"] += line["jobs"]  # ten thousand jobs that are retried need one line
        else:
            self._lines.append(line)

    def tell(self, at: float, kind: str, job: JobId | None = None, body: Mapping[str, Any] | None = None) -> None:
        """An event for the readers of a queue."""
        if self._journal is not None:
            self._store.events.write(at, kind, job, body)

    def finish(self) -> None:
        """All of the turn is known: write the journal's lines, right before the store commits."""
        lines, self._lines = self._lines, []
        must_sync, self._must_sync = self._must_sync, False
        if self._journal is not None:
            for line in lines:
                if line["k"] == "set":
                    line["jobs"] = journal_lines.ranges(journal_lines.numbers(line["jobs"]))
            self._size_before = self._journal.size
            if lines:
                self._journal.append(lines)
                if must_sync:
                    self._journal.sync()
                remember_position(self._store, self._journal)

    def roll_back(self) -> None:
        """The store refused the turn: the journal does not have it either."""
        self._lines.clear()
        self._must_sync = False
        if self._journal is not None:
            with suppress(OSError):  # the disk fails: the lines are cut before the next one is written
                self._journal.take_back(self._size_before)

    def committed(self) -> None:
        """The store has it. Nothing that was written before is taken back any more."""
        if self._journal is not None:
            self._size_before = self._journal.size

    def queue_mark(self) -> str:
        """What tells this queue's jobs from those of other queues in another system; made once."""
        if known := self._store.queue.setting("mark"):
            return known
        mark = f"q{os.urandom(4).hex()}"
        with self._store.turn():
            self._store.queue.set("mark", mark)
            self.note(journal_lines.setting("mark", mark), sync=True)
            self.finish()
        self.committed()
        return mark

    # -- jobs ------------------------------------------------------------------------------------------

    def _jobs_added(self, record: records.JobsAdded) -> None:
        jobs = record.jobs
        self._store.queue.add(jobs, record.requests, self._now)
        # Acknowledged is durable: the journal is synced.
        self.note(journal_lines.added(jobs, record.requests, key=record.key, now=self._now), sync=True)
        self.tell(self._now, "job.queued", jobs[0].id, {"first": jobs[0].id, "last": jobs[-1].id})

    def _part_staged(self, record: records.PartStaged) -> None:
        part, lists = record.part, self._store.lists
        if not part.list.arrived:
            lists.begin(part.list, self._now)
        lists.put(part, self._now)
        self.note(journal_lines.staged(part, now=self._now))

    def _list_completed(self, record: records.ListCompleted) -> None:
        whole = record.list
        self._store.lists.complete(whole, self._now)
        self._store.queue.remember_call(whole.key, whole.first, whole.last, self._now)
        # Acknowledged is durable: the lines of the parts, which are before this one, are synced with it.
        self.note(journal_lines.completed(whole, now=self._now), sync=True)

    def _part_entered(self, record: records.PartEntered) -> None:
        """The journal does not tell it: there a list becomes jobs with the line that completes it."""
        jobs = record.jobs
        self._store.queue.add(jobs, record.part.requests, record.part.list.at)
        self._store.lists.remove_part(record.part)
        self.tell(self._now, "job.queued", jobs[0].id, {"first": jobs[0].id, "last": jobs[-1].id})
        # What they wait for may have ended since their requests were checked.
        needed = sorted({one.job for job in jobs if job.blockers for one in job.request.after})
        states = self._store.listing.states(needed)
        for number in needed:
            if number not in states:
                self._let_follow_cleaned(number)
            elif states[number].is_over:
                self._let_follow(number, states[number])

    def _list_dropped(self, record: records.ListDropped) -> None:
        whole = record.list
        self._store.lists.remove(whole.first, whole.first)
        self.note(journal_lines.cleaned(range(whole.first, whole.last + 1)))

    def _jobs_held(self, record: records.JobsHeld) -> None:
        self._store.queue.hold(record.jobs, record.why)
        self._changed(record.jobs, State.HELD, record.why)

    def _group_held(self, record: records.GroupHeld) -> None:
        if jobs := self._store.queue.waiting_of(record.group):
            self._jobs_held(records.JobsHeld(jobs, record.why))
            self._hold_sweeps(jobs, record.why)
            self._followed.held += jobs

    def _hold_sweeps(self, jobs: Sequence[JobId], why: str) -> None:
        """Hold the sweeps of jobs that were held because others of their group fail: no trial is begun."""
        sweeps = self._store.sweeps
        for number in sorted({trial.sweep for trial in sweeps.of_jobs(jobs)}):
            sweep = sweeps.sweep(number)
            if sweep.state is SweepState.RUNNING:
                what, _, _ = why.partition(";")
                goes_on = f"`dibs sweep release {number}` goes on"
                held = replace(sweep, state=SweepState.HELD, why=f"{what}; {goes_on}")
                sweeps.change(held)
                self.note(journal_lines.sweep_changed(held), sync=True)
                self.tell(self._now, "sweep.changed", None, journal_lines.sweep_told(held))

    def _job_released(self, record: records.JobReleased) -> None:
        self._store.queue.release(record.job)
        self._changed([record.job], State.QUEUED)

    def _hold_there(self, record: records.HoldThere) -> None:
        self._store.queue.hold_there(record.job, record.why)
        self.note(journal_lines.changed([record.job], State.SUBMITTED, now=self._now, why=record.why))
        self.tell(self._now, "job.edited", record.job)

    def _job_retried(self, record: records.JobRetried) -> None:
        again = self._store.queue_again(record.job)
        self._store.queue.block_again(record.job, again.request)
        self._changed([record.job], State.QUEUED, "tried again", is_fresh=True)
        self._followed.retried.append(record.job)

    def _changed(self, jobs: Sequence[JobId], state: State, why: str = "", *, is_fresh: bool = False) -> None:
        self.note(journal_lines.changed(jobs, state, now=self._now, why=why, is_fresh=is_fresh))
        for job in jobs:
            self.tell(self._now, f"job.{state}", job, {"why": why} if why else {})

    def _jobs_stopping(self, record: records.JobsStopping) -> None:
        for job in record.jobs:
            self._store.queue.stop(job)
            self.tell(self._now, "job.stopping", job)
        self.note(journal_lines.stopped(sorted(record.jobs)))

    def _job_cancelled(self, record: records.JobCancelled) -> None:
        self._end_unstarted(record.job, record.outcome, record.by)
        self._let_follow(record.job, record.outcome.state)

    def _job_edited(self, record: records.JobEdited) -> None:
        self._store.queue.change(record.job)
        self.note(journal_lines.edited(record.job))
        self.tell(self._now, "job.edited", record.job.id)

    def _jobs_removed(self, record: records.JobsRemoved) -> None:
        self._store.queue.remove(record.jobs)
        self.note(journal_lines.cleaned(sorted(record.jobs)))
        self.tell(self._now, "jobs.removed", None, {"jobs": len(record.jobs)})

    # -- attempts --------------------------------------------------------------------------------------

    def _attempt_opened(self, record: records.AttemptOpened) -> None:
        attempt = record.attempt
        self._store.open_attempt(attempt)
        self.note(journal_lines.started(attempt))
        if attempt.backend:
            body: dict[str, Any] = {"attempt": attempt.number, "backend": attempt.backend}
            self.tell(attempt.opened_at, "job.submitted", attempt.job, body)
        else:
            body = {"attempt": attempt.number, "gpus": [claim.index for claim in attempt.claims]}
            self.tell(attempt.opened_at, "job.started", attempt.job, body)
        self._followed.touched.append(attempt.job)

    def _attempt_running(self, record: records.AttemptRunning) -> None:
        attempt = record.attempt
        self._store.run_attempt(attempt)
        self.note(journal_lines.running(attempt))
        if record.is_new:
            body = {"attempt": attempt.number, "gpus": [], "backend": attempt.backend, "node": attempt.node}
            self.tell(attempt.opened_at, "job.started", attempt.job, body)
            self._followed.touched.append(attempt.job)

    def _attempt_ended(self, record: records.AttemptEnded) -> None:
        attempt, outcome = record.attempt, record.outcome
        state = outcome.state if record.retry_at is None else State.QUEUED
        self._store.end_attempt(attempt, outcome, record.ended_at, record.retry_at, record.usage)
        self.note(journal_lines.ended(attempt, outcome, state, record.retry_at, record.ended_at))
        body = {"attempt": attempt.number, **_told(outcome, state), "retry_at": record.retry_at}
        self.tell(self._now, "job.ended", attempt.job, body)
        self._followed.touched.append(attempt.job)
        if outcome.tried_alone:  # it wants the card to itself from now on
            self._store.queue.change(record.job)
            self.note(journal_lines.edited(record.job))
        if record.retry_at is None:
            self._let_follow(attempt.job, state)

    def _suspension_changed(self, record: records.SuspensionChanged) -> None:
        attempt, one = record.attempt, record.suspension
        self._store.suspensions.put(attempt.key, one)
        self.note(journal_lines.suspension(attempt, one))
        if kind := one.event:
            body = {"attempt": attempt.number, "why": one.why, "resumes": one.resumes, "why_not": one.why_not}
            moved = {"rung": one.rung, "held_bytes": one.held_bytes, "frees_cards": one.frees_cards}
            self.tell(self._now, f"job.{kind}", attempt.job, body | moved)
        self._followed.touched.append(attempt.job)

    def _attempt_forgotten(self, record: records.AttemptForgotten) -> None:
        self._store.forget_attempt(record.attempt, record.retry_at)
        self.note(journal_lines.never_ran(record.attempt, record.retry_at))

    def _attempt_excused(self, record: records.AttemptExcused) -> None:
        """The journal does not tell it: a store that is made again has what each attempt said when it ended."""
        added = self._store.queue.say_more(record.job, record.number, record.sentence, record.remedy)
        if added:
            self.tell(self._now, "job.excused", record.job, {"attempt": record.number, "message": added})

    def _gpus_astray(self, record: records.GpusAstray) -> None:
        body = {"attempt": record.attempt.number, "gpus": list(record.gpus), "message": record.sentence}
        self.tell(self._now, "job.astray", record.attempt.job, body)

    def _lesson_learned(self, record: records.LessonLearned) -> None:
        self._store.lessons.put(record.shape, record.model, record.lesson, self._now)

    # -- cards and settings ----------------------------------------------------------------------------

    def _mark_set(self, record: records.MarkSet) -> None:
        mark = record.mark
        self._store.queue.mark(mark)
        self.note(journal_lines.marked(mark.subject, mark.kind, mark.why, mark.since))
        self._tell_mark(mark.subject, mark.kind, mark.why, mark.since)

    def _mark_cleared(self, record: records.MarkCleared) -> None:
        if record.was_set:
            self._store.queue.unmark(record.subject)
            self.note(journal_lines.unmarked(record.subject))
        self._tell_mark(record.subject, "cleared", "", self._now)

    def _tell_mark(self, subject: str, kind: str, why: str, now: float) -> None:
        what, _, name = subject.partition(" ")
        self.tell(now, f"{what}.{kind}", None, {"name": name, "why": why})

    def _setting_changed(self, record: records.SettingChanged) -> None:
        self._store.queue.set(record.name, record.value)
        self.note(journal_lines.setting(record.name, record.value))
        self.tell(self._now, f"{record.name}.set", None, {"value": record.value})

    def _card_tested(self, record: records.CardTested) -> None:
        body = {"name": record.key, "passed": record.has_passed, "why": record.why}
        self.tell(self._now, "gpu.tested", None, body)

    # -- what follows ----------------------------------------------------------------------------------

    def _let_follow(self, ended: JobId, state: State) -> None:
        """Release the jobs that waited for this end, and cancel those that waited for another.

        A chain may be a hundred thousand jobs long: no recursion.
        """
        if self._journal is None:
            return  # the jobs of a run's list do not wait for each other
        tables = self._store.queue
        todo = [(ended, state)]
        while todo:
            number, state = todo.pop()
            for follower, kind in tables.followers(number):
                if kind.is_met_by(state):
                    job = tables.unblock(follower, number)
                    if not job.blockers and job.state is State.QUEUED:
                        self._followed.released.append(job)
                else:
                    outcome = Outcome(cause=Cause.DEPENDENCY, message=f"job {number} {_ENDED[state]}")
                    self._end_unstarted(follower, outcome, number)
                    self._followed.cancelled.append((tables.job(follower), outcome))
                    todo.append((follower, outcome.state))

    def _let_follow_cleaned(self, gone: JobId) -> None:
        """A job that was cleaned away had ended, and no job waits for it."""
        for follower, _ in self._store.queue.followers(gone):
            job = self._store.queue.unblock(follower, gone)
            if not job.blockers and job.state is State.QUEUED:
                self._followed.released.append(job)

    def _end_unstarted(self, job: JobId, outcome: Outcome, by: JobId | None) -> None:
        self._store.queue.end_without_attempt(job, outcome, self._now, by)
        self.note(journal_lines.changed([job], outcome.state, now=self._now, outcome=outcome, by=by))
        self.tell(self._now, "job.ended", job, _told(outcome, outcome.state))
        self._followed.touched.append(job)


def remember_position(store: Store, journal: "Journal") -> None:
    """In the turn whose lines were just appended, and in one right after a compaction."""
    store.queue.set(POSITION, str(journal.position))


_ENDED = {
    State.SUCCEEDED: "succeeded",
    State.FAILED: "failed",
    State.CANCELLED: "was cancelled",
    State.TIMED_OUT: "ran out of time",
    State.LOST: "was lost",
}


def _is_alike(line: journal_lines.Line, other: journal_lines.Line) -> bool:
    """Whether two lines differ in their jobs alone."""
    return {**line, "jobs": ()} == {**other, "jobs": ()}


def _told(outcome: Outcome, state: State) -> dict[str, Any]:
    return {
        "state": state,
        "exit_code": outcome.exit_code,
        "signal": outcome.signal,
        "cause": outcome.cause,
        "message": outcome.message,
        "seconds": outcome.seconds,
    }
