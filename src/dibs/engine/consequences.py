"""What follows from a start or an end in a queue, in the same turn: the journal, events, followers, stop rules."""

import secrets
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

from dibs.engine.engine import Engine
from dibs.model.events import Refused
from dibs.model.jobs import Attempt, AttemptKey, Cause, Job, JobId, Outcome, State
from dibs.policy.breakers import Breakers, Limits, Over, Verdicts, after, fresh_for
from dibs.store import job_lines
from dibs.store.catch_up import record
from dibs.store.journal import Journal
from dibs.store.queue import Mark

_LONGEST_REST = 300.0  # seconds; whoever runs elsewhere may do so for days


class Consequences:
    """The queue's observer. What it keeps in memory comes back when a turn fails."""

    def __init__(self, engine: Engine, log: Journal, limits: Limits) -> None:
        self._engine = engine
        self._store = engine.store
        self._journal = log
        self._limits = limits
        self._breakers = Breakers()
        self._rests: dict[str, str] = {}  # cards under suspicion, until others have ended elsewhere
        self._lines: list[job_lines.Line] = []  # of this turn
        self._must_sync = False
        self.when_marked: Callable[[], None] = lambda: None
        # Inside the turn that records it, which may still fail: whoever hears it looks at the store later.
        self.when_touched: Callable[[JobId], None] = lambda job: None  # it has started, or ended
        self.when_retried: Callable[[Sequence[JobId]], None] = lambda jobs: None
        # Because others of their group had failed. Who hears it records what follows in the same turn.
        self.when_broken: Callable[[Sequence[JobId], str, float], None] = lambda jobs, why, now: None
        self.load_marks()

    # -- what the engine tells -------------------------------------------------------------------------

    def started(self, job: Job, attempt: Attempt) -> None:
        self._lines.append(job_lines.started(attempt))
        if attempt.backend:
            body: dict[str, Any] = {"attempt": attempt.number, "backend": attempt.backend}
            self._store.events.write(attempt.opened_at, "job.submitted", job.id, body)
        else:
            body = {"attempt": attempt.number, "gpus": [claim.index for claim in attempt.claims]}
            self._store.events.write(attempt.opened_at, "job.started", job.id, body)
        self.when_touched(job.id)

    def runs(self, job: Job, attempt: Attempt, *, is_new: bool) -> None:
        self._lines.append(job_lines.running(attempt))
        if is_new:
            body = {"attempt": attempt.number, "gpus": [], "backend": attempt.backend, "node": attempt.node}
            self._store.events.write(attempt.opened_at, "job.started", job.id, body)
            self.when_touched(job.id)

    def ended(self, job: Job, attempt: Attempt, outcome: Outcome, retry_at: float | None, now: float) -> None:
        state = outcome.state if retry_at is None else State.QUEUED
        self._lines.append(job_lines.ended(attempt, outcome, state, retry_at, now))
        body = {"attempt": attempt.number, **_told(outcome, state), "retry_at": retry_at}
        self._store.events.write(now, "job.ended", job.id, body)
        self.when_touched(job.id)
        if outcome.tried_alone:
            self._lines.append(job_lines.edited(job))  # it wants the card to itself from now on
        if retry_at is None:
            self.let_follow(job.id, state, now)
        if not outcome.tried_alone:  # its neighbours were in the way: that says nothing about the card
            self._apply_stop_rules(job, attempt, outcome, now, is_last=retry_at is None)

    def never_ran(self, job: Job, attempt: Attempt, retry_at: float | None) -> None:
        self._lines.append(job_lines.never_ran(attempt, retry_at))

    def astray(self, job: Job, attempt: Attempt, gpus: Sequence[str], sentence: str, now: float) -> None:
        body = {"attempt": attempt.number, "gpus": list(gpus), "message": sentence}
        self._store.events.write(now, "job.astray", job.id, body)

    def before_commit(self) -> None:
        if self._rests and "rest" not in self._engine.hand.timers:
            self._end_rests()
        lines, self._lines = self._lines, []
        must_sync, self._must_sync = self._must_sync, False
        record(self._store, self._journal, lines, sync=must_sync)

    def keep(self) -> Any:
        return self._breakers, dict(self._rests), self._journal.size

    def go_back(self, kept: Any) -> None:
        self._breakers, self._rests, size = kept
        self._lines.clear()
        self._must_sync = False
        with suppress(OSError):  # a sick disk: it is cut before the next line is written
            self._journal.take_back(size)

    def reload(self) -> None:
        self.load_marks()

    # -- what the queue tells --------------------------------------------------------------------------

    def note(self, line: job_lines.Line, *, sync: bool = False) -> None:
        """One more line of this turn, of somebody who records beside the jobs."""
        self._lines.append(line)
        self._must_sync |= sync

    def added(self, jobs: Sequence[Job], requests: Sequence[str], key: str, now: float) -> None:
        """Acknowledged is durable: what was added is synced. `requests` are the jobs' own, as text."""
        self.note(job_lines.added(jobs, requests, key=key, now=now), sync=True)
        body = {"first": jobs[0].id, "last": jobs[-1].id}
        self._store.events.write(now, "job.queued", jobs[0].id, body)

    def changed(
        self, jobs: Sequence[JobId], state: State, now: float, why: str = "", *, is_fresh: bool = False
    ) -> None:
        """Held, released or queued again."""
        self._lines.append(job_lines.changed(jobs, state, now=now, why=why, is_fresh=is_fresh))
        if is_fresh:
            self.when_retried(jobs)
        for job in jobs:
            self._store.events.write(now, f"job.{state}", job, {"why": why} if why else {})

    def stopped(self, jobs: Sequence[JobId], now: float) -> None:
        """Their end was asked for: remembered, so that no crash and no retry undoes it."""
        for job in jobs:
            self._store.queue.stop(job)
            self._store.events.write(now, "job.stopping", job)
        self._engine.hand.stopping.update(jobs)
        self._lines.append(job_lines.stopped(sorted(jobs)))

    def edited(self, job: Job, now: float) -> None:
        self._lines.append(job_lines.edited(job))
        self._store.events.write(now, "job.edited", job.id)

    def cleaned(self, jobs: Sequence[JobId], now: float) -> None:
        self._lines.append(job_lines.cleaned(jobs))
        self._store.events.write(now, "jobs.removed", None, {"jobs": len(jobs)})

    def ended_before_start(self, job: JobId, outcome: Outcome, now: float) -> None:
        """Cancelled while it waited, and so is whoever wanted its success."""
        self._end_unstarted(job, outcome, now)
        self.let_follow(job, outcome.state, now)

    def mark(self, mark: Mark) -> None:
        self._store.queue.mark(mark)
        self._lines.append(job_lines.marked(mark.subject, mark.kind, mark.why, mark.since))
        self._tell_mark(mark.subject, mark.kind, mark.why, mark.since)
        self.load_marks()

    def unmark(self, subject: str, now: float) -> bool:
        kind, _, name = subject.partition(" ")
        is_resting = kind == "gpu" and self._rests.pop(name, None) is not None
        if self._store.queue.unmark(subject):
            self._lines.append(job_lines.unmarked(subject))
        elif not is_resting:
            return False
        if kind == "gpu":  # whoever gives a card back wants it to be tried again
            self._breakers = fresh_for(self._breakers, name)
        self._tell_mark(subject, "cleared", "", now)
        self.load_marks()
        return True

    def tested(self, key: str, has_passed: bool, why: str, now: float) -> None:
        """A quarantined card was tested."""
        self._store.events.write(now, "gpu.tested", None, {"name": key, "passed": has_passed, "why": why})

    def set(self, name: str, value: str, now: float) -> None:
        self._store.queue.set(name, value)
        self._lines.append(job_lines.setting(name, value))
        self._store.events.write(now, f"{name}.set", None, {"value": value})

    def mark_of_queue(self) -> str:
        """What tells this queue's jobs from those of others in another system; made once."""
        if known := self._store.queue.setting("mark"):
            return known
        mark = f"q{secrets.token_hex(4)}"
        with self._store.turn():
            self._store.queue.set("mark", mark)
            self.note(job_lines.setting("mark", mark), sync=True)
            self.before_commit()
        return mark

    def load_marks(self) -> None:
        """Let the engine know what is paused, drained and quarantined."""
        paused: dict[str, str] = {}
        cards = {key: f"rests ({why})" for key, why in self._rests.items()}
        for mark in self._store.listing.marks():
            kind, _, name = mark.subject.partition(" ")
            if kind == "gpu":
                cards[name] = f"is {mark.kind}{f' ({mark.why})' if mark.why else ''}"
            else:
                paused[name] = mark.why
        self._engine.paused, self._engine.cards.marks = paused, cards
        self.when_marked()

    # -- followers -------------------------------------------------------------------------------------

    def let_follow(self, ended: JobId, state: State, now: float) -> None:
        """Let those start who waited for this end, and cancel those who waited for another.

        A chain may be a hundred thousand jobs long: no recursion.
        """
        todo = [(ended, state)]
        while todo:
            number, state = todo.pop()
            for follower, kind in self._store.queue.followers(number):
                if kind.is_met_by(state):
                    job = self._store.queue.unblock(follower, number)
                    if not job.blockers and job.state is State.QUEUED:
                        self._engine.hand.waiting.add(job)
                else:
                    outcome = Outcome(cause=Cause.DEPENDENCY, message=f"job {number} {_ENDED[state]}")
                    self._end_unstarted(follower, outcome, now, number)
                    self._engine.hand.events.append(Refused(self._store.queue.job(follower), outcome))
                    todo.append((follower, outcome.state))

    def _end_unstarted(self, job: JobId, outcome: Outcome, now: float, by: JobId | None = None) -> None:
        self._store.queue.end_without_attempt(job, outcome, now, by)
        self._lines.append(job_lines.changed([job], outcome.state, now=now, outcome=outcome, by=by))
        self._store.events.write(now, "job.ended", job, _told(outcome, outcome.state))
        self.when_touched(job)

    # -- stop rules ------------------------------------------------------------------------------------

    def _apply_stop_rules(
        self, job: Job, attempt: Attempt, outcome: Outcome, now: float, *, is_last: bool
    ) -> None:
        group = self._group(job)
        gpus = tuple(claim.gpu for claim in attempt.claims)
        over = Over(attempt=attempt.key, group=group, gpus=gpus, outcome=outcome, is_last=is_last)
        is_suspicious = self._breakers.streaks or outcome.cause is not None
        running = self._running() if is_suspicious else ()
        self._breakers, verdicts = after(self._breakers, over, self._limits, running)
        if verdicts.hold and (jobs := self._store.queue.waiting_of(group)):
            self._store.queue.hold(jobs, verdicts.hold)
            self.changed(jobs, State.HELD, now, verdicts.hold)
            self.when_broken(jobs, verdicts.hold, now)
            self._engine.load_waiting()
        if verdicts.rest or verdicts.trust or verdicts.quarantine:
            rested = {*verdicts.trust, *verdicts.quarantine}
            self._rests = {key: why for key, why in {**self._rests, **verdicts.rest}.items() if key not in rested}
            self.load_marks()
        if verdicts.rest:
            self._engine.hand.timers["rest"] = now + _LONGEST_REST
        for key, why in verdicts.quarantine.items():
            self.mark(Mark(f"gpu {key}", "quarantined", why, now))
        self._excuse(verdicts, now)

    def _excuse(self, verdicts: Verdicts, now: float) -> None:
        """Let the jobs whose failures took a card out say whose fault it was.

        The journal does not tell it: a store that is made again has what each attempt said when it ended.
        """
        said: dict[AttemptKey, list[str]] = {}
        for gpu, failures in verdicts.failures.items():
            name = self._engine.cards.pool.number(gpu)
            sentence = f"GPU {name} was quarantined after this: {verdicts.quarantine[gpu]}"
            for attempt in failures:
                said.setdefault(attempt, []).append(sentence)
        for (job, number), sentences in said.items():
            remedy = f"`dibs retry {job}` runs it again"
            if added := self._store.queue.say_more(job, number, "; ".join(sentences), remedy):
                self._store.events.write(now, "job.excused", job, {"attempt": number, "message": added})

    def _end_rests(self) -> None:
        """Nobody has told whose fault it was: try these cards again."""
        for key in self._rests:
            self._breakers = fresh_for(self._breakers, key)
        self._rests = {}
        self.load_marks()
        self._engine.hand.ask_for_turn()

    def _running(self) -> list[tuple[str, str]]:
        """The cards that jobs run on now, each with its job's group."""
        return [
            (claim.gpu, self._group(one.job))
            for one in self._engine.hand.open.values()
            for claim in one.attempt.claims
        ]

    def _group(self, job: Job) -> str:
        """Whose failures are counted together: a project's, else those of one call of `add`."""
        if job.request.project:
            return f"project {job.request.project}"
        batch = self._store.queue.batch_of(job.id)
        return "" if batch is None else f"batch {batch}"

    def _tell_mark(self, subject: str, kind: str, why: str, now: float) -> None:
        what, _, name = subject.partition(" ")
        self._store.events.write(now, f"{what}.{kind}", None, {"name": name, "why": why})


_ENDED = {
    State.SUCCEEDED: "succeeded",
    State.FAILED: "failed",
    State.CANCELLED: "was cancelled",
    State.TIMED_OUT: "ran out of time",
    State.LOST: "was lost",
}


def _told(outcome: Outcome, state: State) -> dict[str, Any]:
    return {
        "state": state,
        "exit_code": outcome.exit_code,
        "signal": outcome.signal,
        "cause": outcome.cause,
        "message": outcome.message,
        "seconds": outcome.seconds,
    }
