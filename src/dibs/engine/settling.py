"""What became of an attempt: found out from its folder, its lock and its leases, and recorded."""

from collections.abc import Callable
from dataclasses import replace

from dibs.backends.local import LocalBackend
from dibs.engine.cards import Cards
from dibs.engine.hand import Hand, Key, Observer, Open
from dibs.engine.keeper import Keeper
from dibs.engine.packing import Packing
from dibs.engine.results import Results
from dibs.model.events import Ended, Started, Trouble
from dibs.model.jobs import Attempt, Cause, Outcome, State
from dibs.model.usage import Usage
from dibs.policy.lessons import TRIED_ALONE, alone, is_tried_alone
from dibs.policy.retry import retry_after
from dibs.policy.settle import LOST, Verdict, outcome_of, settle
from dibs.store.store import Store

LOOK_AT_STARTING = 0.01  # seconds until a shim that is just starting can be watched
_LOOK_AT_KEPT = 0.5  # seconds between two looks at a lost attempt that still holds its GPU
_LOOK_AT_UNJUDGED = 2.0  # seconds; whoever judges comes back sooner
_AFTER_TROUBLE = 2.0  # seconds until a folder that could not be read is looked at again
_MOST_FALSE_STARTS = 5  # of one job, while others start well
_MOST_WITHOUT_OTHERS = 20  # while nothing starts: then it is the machine, and may pass within minutes
_LONGEST_PAUSE = 30.0  # seconds


class Settling:
    """Ends, adopts or queues again. Everything here happens inside a turn of the store."""

    def __init__(
        self,
        *,
        hand: Hand,
        store: Store,
        backend: LocalBackend,
        keeper: Keeper,
        cards: Cards,
        results: Results,
        boot_id: str,
        may_retry: Callable[[], bool],
        usage_of: Callable[[Key], Usage | None],
        packing: Packing,
    ) -> None:
        self.observer: Observer
        self._hand = hand
        self._store = store
        self._backend = backend
        self._keeper = keeper
        self._cards = cards
        self._results = results
        self._boot_id = boot_id
        self._may_retry = may_retry
        self._usage_of = usage_of
        self._packing = packing
        # Somebody's second look at an end; None: not yet.
        self.judge: Callable[[Attempt, Outcome, float], Outcome | None] = lambda attempt, outcome, now: outcome
        self._unjudged: dict[Key, Outcome] = {}

    def settle(self, key: Key, now: float) -> None:
        """Find out what became of an attempt, and record it."""
        one = self._hand.open.get(key)
        if one is None:
            return
        attempt = one.attempt
        if key in self._unjudged:
            self._judge(one, self._unjudged[key], now)
            return
        try:
            facts = self._backend.observe(attempt)
        except OSError as error:
            self._hand.events.append(Trouble(f"cannot look at job {one.job.label}: {error}"))
            self._hand.look_again_at(key, now + _AFTER_TROUBLE)
            return
        record = facts.exit_record
        verdict = settle(
            is_locked=facts.is_locked,
            has_record=record is not None,
            has_started=facts.has_started,
            lease_is_held=not (facts.is_told or facts.is_locked) and self._keeper.is_held_by(attempt),
            same_boot=attempt.boot_id == self._boot_id,
        )
        if verdict is Verdict.RUNNING:
            self._adopt(one, now)
        elif verdict is Verdict.KEPT:
            self._keep(one, now)
        elif verdict is Verdict.NEVER_RAN:
            self.queue_again(one, now)
        else:
            self._judge(one, LOST if record is None else outcome_of(record), now)

    def _adopt(self, one: Open, now: float) -> None:
        """It runs under a shim that another engine started, or that has not yet said so: watch it."""
        key = one.attempt.key
        if not self._backend.adopt(one.attempt, lambda: self._hand.let_go(key)):
            self._hand.look_again_at(key, now + LOOK_AT_STARTING)
            return
        self._hand.unclear.discard(key)
        if not one.is_ours:
            stdout, stderr = self._results.streams(one.job, one.attempt.folder)
            self._hand.events.append(Started(one.job, one.attempt, stdout, stderr, adopted=True))

    def _keep(self, one: Open, now: float) -> None:
        key = one.attempt.key
        if key not in self._hand.unclear:
            sentence = f"the supervisor of job {one.job.label} is gone; its GPU is kept until its processes end"
            self._hand.events.append(Trouble(sentence))
        self._hand.look_again_at(key, now + _LOOK_AT_KEPT)

    def _judge(self, one: Open, outcome: Outcome, now: float) -> None:
        """Record the end, once it is known whose fault it was."""
        key = one.attempt.key
        judged = self.judge(one.attempt, outcome, now)
        if judged is None:
            self._unjudged[key] = outcome
            self._hand.look_again_at(key, now + _LOOK_AT_UNJUDGED)
        else:
            self._unjudged.pop(key, None)
            self.end(one, judged, now)

    def end(self, one: Open, outcome: Outcome, now: float) -> None:
        """Record how an attempt ended, and whether there is another."""
        job, attempt = one.job, one.attempt
        pause = None
        usage = self._usage_of(attempt.key)
        if usage is None and not one.is_ours and not attempt.backend:
            from dibs.engine.series import left_behind  # what only those who come back need

            usage = left_behind(attempt.folder)  # it ended while nobody looked
        if job.id in self._hand.stopping:
            self._hand.stopping.discard(job.id)
            outcome = _as_asked(outcome, self._hand.why_stopped.pop(job.id, ""))
        elif self._may_retry() and is_tried_alone(job.request.wishes, attempt.claims, outcome):
            outcome = _not_alone(outcome)
            pause = 0.0
        elif self._may_retry():
            pause = retry_after(job, outcome)
            # What saved its work goes on from there at once, and what lost its machine on another one.
            if outcome.checkpointed or (pause is not None and attempt.backend and outcome.cause is Cause.LOST):
                pause = 0.0
        retry_at = None if pause is None else now + pause
        if self._hand.false_starts.pop(job.id, None) is None:
            self._hand.last_good_start = now
        if not attempt.backend:
            self._packing.learn(one, usage, outcome, now)
        self._store.end_attempt(attempt, outcome, now, retry_at, usage)
        self._hand.failures += retry_at is None and outcome.cause is not None
        self._close(one)
        if retry_at is not None:
            tries = job.tries - (outcome.checkpointed or outcome.tried_alone)
            again = replace(job, state=State.QUEUED, tries=tries, not_before=retry_at)
            if outcome.tried_alone:
                job = again = replace(again, request=alone(job.request))
                self._store.queue.change(again)
            self._hand.waiting.add(again)
        self._hand.events.append(Ended(job, attempt, outcome, retry_at, usage))
        self.observer.ended(job, attempt, outcome, retry_at, now)

    def queue_again(self, one: Open, now: float) -> None:
        """It never ran. Again, but not for ever: what alone cannot be started while others can is a failure."""
        job, attempt = one.job, one.attempt
        if job.id in self._hand.stopping:
            self.end(one, Outcome(cause=Cause.STOPPED, message="cancelled before it started"), now)
            return
        count, since = self._hand.false_starts.get(job.id, (0, now))
        count += 1
        self._hand.false_starts[job.id] = (count, since)
        others_start = self._hand.last_good_start > since
        if count >= (_MOST_FALSE_STARTS if others_start else _MOST_WITHOUT_OTHERS):
            message = "its supervisor could not be started: too many processes, or a full disk?"
            if attempt.backend:
                message = f"{attempt.backend} took it {count} times and forgot it each time before it started"
            self.end(one, Outcome(exit_code=127, cause=Cause.START_ERROR, message=message), now)
            return
        retry_at = None if count == 1 else now + min(_LONGEST_PAUSE, 0.1 * 2**count)
        self._store.forget_attempt(attempt, retry_at)
        self._close(one)
        self._hand.waiting.add(
            replace(job, state=State.QUEUED, attempts=attempt.number - 1, tries=job.tries - 1, not_before=retry_at)
        )
        self.observer.never_ran(job, attempt, retry_at)

    def _close(self, one: Open) -> None:
        if one.attempt.backend:
            del self._hand.away[one.attempt.key]
            return
        del self._hand.open[one.attempt.key]
        self._hand.unclear.discard(one.attempt.key)
        self._cards.release(one.attempt)
        self._keeper.release(one.attempt)


def _as_asked(outcome: Outcome, why: str) -> Outcome:
    """The end of a job whose end was asked for: what only went to save its work has been stopped."""
    if outcome.checkpointed:
        outcome = replace(outcome, cause=Cause.STOPPED, checkpointed=False)
    return replace(outcome, message=why) if why and outcome.cause is Cause.STOPPED else outcome


def _not_alone(outcome: Outcome) -> Outcome:
    """The end of a job that ran out of memory beside others."""
    message = f"{outcome.message}; {TRIED_ALONE}" if outcome.message else TRIED_ALONE
    return replace(outcome, tried_alone=True, message=message)
