"""The engine: take an event, decide, record, act, announce.

`dibs run` and the seed tools' faces run it in their own process; the daemon will run the same. It never waits:
whoever owns the loop calls `turn` when something happened, and `wake_at` tells when to call it without a cause.
"""

import os
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from dibs.backends.local import Attached, LocalBackend
from dibs.engine.cards import Cards
from dibs.engine.keeper import Keeper
from dibs.engine.place import Place
from dibs.engine.results import Results
from dibs.engine.waiting import WaitingLine
from dibs.errors import DibsError, StoreUnusable
from dibs.leases.leases import Leases
from dibs.model.claims import Claim
from dibs.model.events import Ended, Event, Found, Queued, Refused, Skipped, Started, Trouble, Waits
from dibs.model.jobs import Attempt, Cause, Job, JobId, Outcome, Request, State
from dibs.model.reasons import Reason
from dibs.policy.retry import retry_after
from dibs.policy.schedule import booking, impossible, is_allowed, schedule
from dibs.policy.settle import LOST, Verdict, outcome_of, settle
from dibs.policy.snapshot import Plan, Snapshot
from dibs.store.store import Store

_LOOK_AT_OTHERS = 0.1  # seconds between two looks at cards that other programs hold
_LOOK_AT_KEPT = 0.5  # seconds between two looks at a lost attempt that still holds its GPU
_LOOK_AT_STARTING = 0.01  # seconds until a shim that is just starting can be watched
_AFTER_TROUBLE = 2.0  # seconds until a full disk or a failed start is tried again
_MOST_FALSE_STARTS = 5

_Key = tuple[JobId, int]  # an attempt's


@dataclass(frozen=True, slots=True)
class _Open:
    """An attempt that has not ended, as far as we know."""

    job: Job
    attempt: Attempt
    is_ours: bool = False  # begun by this engine, so nobody needs to be told that it runs


class Engine:
    """Jobs in, events out."""

    def __init__(
        self,
        *,
        store: Store,
        backend: LocalBackend,
        leases: Leases,
        cards: Cards,
        results: Results,
        place: Place,
        announce: Callable[[Sequence[Event]], None],
        ask_for_turn: Callable[[], None],
        clock: Callable[[], float] = time.time,
        reach: Callable[[str], None] = lambda point: None,
        most_without_gpu: int = os.cpu_count() or 1,
    ) -> None:
        self.store = store
        self.cards = cards
        self.is_draining = False
        self.most_failures = sys.maxsize  # after so many nothing more is started
        self._backend = backend
        self._keeper = Keeper(leases)
        self._results = results
        self._place = place
        self._announce = announce
        self._ask_for_turn = ask_for_turn
        self._clock = clock
        self._reach = reach  # named points of the launch protocol, where tests let the engine die
        self._most_without_gpu = most_without_gpu
        self._waiting = WaitingLine(store.waiting)
        self._open: dict[_Key, _Open] = {}
        self._done: list[_Key] = []  # let go by their shims, to be settled in the next turn
        self._words: dict[_Key, str] = {}  # said to attempts, but not heard yet
        self._unclear: set[_Key] = set()  # to be looked at again: kept GPUs, shims that are just starting
        self._attached: dict[JobId, Attached] = {}
        self._false_starts: dict[JobId, int] = {}
        self._events: list[Event] = []
        self._timers: dict[str, float] = {}
        self._failures = 0
        self._last_reason: tuple[JobId, Reason] | None = None

    # -- what others ask of it -------------------------------------------------------------------------

    @property
    def running(self) -> int:
        return len(self._open)

    @property
    def waiting(self) -> int:
        return self._waiting.count

    @property
    def is_idle(self) -> bool:
        """Nothing runs, and nothing will without a new job."""
        return not self._open and not self._done and (self.is_draining or not self._waiting.count)

    @property
    def is_stuck(self) -> bool:
        """Whatever ran has ended, but the store cannot take it down now. Its records stand in the folders."""
        return "trouble" in self._timers and bool(self._open) and self._open.keys() <= set(self._done)

    @property
    def wake_at(self) -> float | None:
        """When `turn` should be called though nothing happened, in seconds since the epoch."""
        moments = [*self._timers.values()]
        if self._waiting.next_due is not None and not self.is_draining:
            # While a trouble lasts nothing starts: to be woken for it would be to spin.
            moments.append(max(self._waiting.next_due, self._timers.get("trouble", 0.0)))
        return min(moments, default=None)

    def warm_up(self) -> None:
        """Get ready to start jobs, so that the first one does not wait for it."""
        self._backend.warm_up()

    def capture(self, environment: dict[str, str]) -> str:
        """Keep an environment for the jobs submitted under the returned key."""
        with self.store.turn():
            key = self.store.keep_environment(environment)
        self._place.keep_environment(key, environment)
        return key

    def submit(self, requests: Iterable[Request | tuple[Request, str]], environment: str) -> list[Job]:
        """Accept jobs, durably, in one go. A request with a sentence is one that can never run."""
        now = self._clock()
        jobs: list[Job] = []
        added: list[Job] = []
        events: list[Event] = []
        with self.store.turn():
            for item in requests:
                request, problem = item if isinstance(item, tuple) else (item, "")
                job, is_new = self.store.submit(request, environment, now)
                jobs.append(job)
                problem = problem or self._why_never(request)
                if job.state is State.SUCCEEDED:
                    events.append(Skipped(job))
                elif is_new or job.state.is_over or job.state is State.HELD:
                    if problem:
                        events.append(self._refuse(job, problem, now))
                        continue
                    added.append(job if is_new else self.store.queue_again(job.id, request, environment))
                    events.append(Queued(added[-1]))
        for job in added:
            self._waiting.add(job)
        self._tell_of(events)
        return jobs

    def attach(self, job: JobId, attached: Attached) -> None:
        """Connect a job's command to the descriptors of the person who waits for it."""
        self._attached[job] = attached

    def resume(self) -> None:
        """Come back to a store that another engine left, and settle its attempts.

        What waited is set aside until a list names it again: what was struck from the list stays out.
        """
        now = self._clock()
        with self.store.turn():
            for job, attempt in self.store.open_attempts():
                self._open[attempt.key] = _Open(job, attempt)
                self.cards.book(attempt, job.label)
                self._settle(attempt.key, now)
            self.store.hold_leftovers()
        # What ended while nobody looked is neither news nor a failure of this run: its list will name it.
        self._failures = 0
        self._events = [
            Found(event.job, event.attempt, event.outcome) if isinstance(event, Ended) else event
            for event in self._events
        ]
        self._load_waiting()
        self._ask_for_turn()

    def queue_leftovers(self) -> None:
        """Queue again whatever has not succeeded, unless no free moment of today's pool could satisfy it."""
        events: list[Event] = []
        with self.store.turn():
            events += [  # they have not succeeded either, and nothing about them has changed
                Refused(row.job, row.outcome)
                for row in self.store.rows((State.FAILED,), -1)
                if row.outcome is not None and row.outcome.cause is Cause.REFUSED
            ]
            for leftover in self.store.leftovers():
                job = self.store.queue_again(leftover)
                if problem := self._why_never(job.request):
                    events.append(self._refuse(job, problem, self._clock()))
        self._load_waiting()
        self._tell_of(events)

    def drain(self) -> None:
        """Start nothing more; what runs goes on."""
        self.is_draining = True
        self._keeper.stop_waiting()
        self._timers.pop("others", None)
        self._ask_for_turn()

    def tell_all(self, word: str) -> None:
        """Send `stop`, `kill` or `signal N` to everything that runs."""
        self._words = dict.fromkeys(self._open, word)
        self._tell(self._clock())

    def close(self) -> None:
        """Leave. What runs goes on with its shim."""
        self._keeper.close()
        self._backend.close()

    # -- the loop --------------------------------------------------------------------------------------

    def turn(self) -> None:
        """Settle what ended, start what can start. One transaction, then the acts, then the news."""
        now = self._clock()
        self._ring(now)
        done, self._done = self._done, []
        failures = self._failures
        before = dict(self._open), self._events.copy(), self._false_starts.copy()
        try:
            with self.store.turn():
                for key in done:
                    self._settle(key, now)
                begun = self._begin(now) if self._may_begin else []
                self._keeper.let_go_of_spares()
        except StoreUnusable as error:
            self._failures = failures
            self._go_back_to(*before, done, now, error)
        else:
            if begun:
                self._reach("after-intent")
            for one in begun:
                self._launch(one, now)
        events, self._events = self._events, []
        events += [trouble for event in events for trouble in self._show_result(event)]
        if events:
            self._announce(events)
        for event in events:
            if isinstance(event, Ended) and event.outcome.cause is None:
                self._backend.retire(event.attempt)

    @property
    def _may_begin(self) -> bool:
        return not self.is_draining and self._failures < self.most_failures and "trouble" not in self._timers

    def _tell(self, now: float) -> None:
        """Say what must be said to attempts, and again to those whose shim is not there yet to hear it."""
        self._words = {
            key: word
            for key, word in self._words.items()
            if key in self._open and not self._backend.tell(self._open[key].attempt, word)
        }
        if self._words:
            self._timers["words"] = now + _LOOK_AT_STARTING
            self._ask_for_turn()

    def _ring(self, now: float) -> None:
        """Do what was put off until now."""
        for name in [name for name, at in self._timers.items() if at <= now]:
            del self._timers[name]
            if name == "others":
                self.cards.look_again()
            elif name == "unclear":
                self._done += self._unclear
            elif name == "words":
                self._tell(now)

    def _begin(self, now: float) -> list[_Open]:
        """Decide, take the leases, record the intents. Others may be faster: then decide again without them."""
        begun: list[_Open] = []
        if not self._waiting.count:
            return begun
        while True:
            snapshot = Snapshot(
                cards=self.cards.views(),
                groups=self.cards.pool.groups,
                waiting=self._waiting.first(self.cards.most_at_once, now),
                room_without_gpu=self._most_without_gpu - self._running_without_gpu(),
            )
            plan = schedule(snapshot)
            beaten = False
            for placement in plan.placements:
                one = self._take(placement.job, placement.claims, now)
                if one is None:
                    beaten = True
                    break
                begun.append(one)
            if not beaten and (not self._waiting.count or _each_kind_waits(snapshot, plan)):
                break
        stuck = next((job for job in snapshot.waiting if job.id in plan.reasons), None)
        if stuck is None:
            self._keeper.stop_waiting()
        else:
            self._wait_with(stuck, plan.reasons[stuck.id], now)
        return begun

    def _take(self, job: Job, claims: tuple[Claim, ...], now: float) -> _Open | None:
        """Lease the cards and record the intent; None when somebody else was faster."""
        number = job.attempts + 1
        attempt = Attempt(
            job=job.id,
            number=number,
            claims=claims,
            boot_id=self._place.boot_id,
            opened_at=now,
            folder=self._place.attempt_folder(job.id, number),
        )
        if busy := self._keeper.take(job, attempt):
            self.cards.taken_by_others(claims, busy)
            return None
        self._reach("after-lease")
        self.store.open_attempt(attempt)
        self._waiting.remove(job)
        running = replace(job, state=State.RUNNING, attempts=number, tries=job.tries + 1)
        one = _Open(running, attempt, is_ours=True)
        self._open[attempt.key] = one
        self.cards.book(attempt, job.label)
        return one

    def _launch(self, one: _Open, now: float) -> None:
        """Act on a recorded intent."""
        job, attempt = one.job, one.attempt
        attached = self._attached.get(job.id)
        try:
            self._results.begin(job, attempt)
            stdout, stderr = self._results.streams(job, attempt.folder)
            self._backend.submit(
                attempt,
                self._place.spec(job, attempt, stdout, stderr),
                self._keeper.descriptors(attempt),
                lambda: self._let_go(attempt.key),
                attached,
            )
            self._reach("after-launch")
        except OSError as error:
            # Nothing was started: the next turn finds a folder without a start and queues the job again.
            self._trouble(f"cannot start job {job.label}: {error}", now)
            self._let_go(attempt.key)
        else:
            self._events.append(Started(job, attempt, stdout, stderr))

    def _let_go(self, key: _Key) -> None:
        """A shim has let an attempt go."""
        self._done.append(key)
        self._ask_for_turn()

    # -- what became of an attempt ---------------------------------------------------------------------

    def _settle(self, key: _Key, now: float) -> None:
        """Find out what became of an attempt, and record it."""
        one = self._open.get(key)
        if one is None:
            return
        attempt = one.attempt
        try:
            facts = self._backend.observe(attempt)
        except OSError as error:
            self._events.append(Trouble(f"cannot look at job {one.job.label}: {error}"))
            self._look_again_at(key, now + _AFTER_TROUBLE)
            return
        record = facts.exit_record
        verdict = settle(
            is_locked=facts.is_locked,
            has_record=record is not None,
            has_started=facts.has_started,
            lease_is_held=not (facts.is_told or facts.is_locked) and self._keeper.is_held_by(attempt),
            same_boot=attempt.boot_id == self._place.boot_id,
        )
        if verdict is Verdict.RUNNING:
            self._adopt(one, now)
        elif verdict is Verdict.KEPT:
            if key not in self._unclear:
                sentence = (
                    f"the supervisor of job {one.job.label} is gone; its GPU is kept until its processes end"
                )
                self._events.append(Trouble(sentence))
            self._look_again_at(key, now + _LOOK_AT_KEPT)
        elif verdict is Verdict.NEVER_RAN:
            self._queue_again(one, now)
        else:
            self._end(one, LOST if record is None else outcome_of(record), now)

    def _adopt(self, one: _Open, now: float) -> None:
        """It runs under a shim that another engine started, or that has not yet said so: watch it."""
        key = one.attempt.key
        if not self._backend.adopt(one.attempt, lambda: self._let_go(key)):
            self._look_again_at(key, now + _LOOK_AT_STARTING)
            return
        self._unclear.discard(key)
        if not one.is_ours:
            stdout, stderr = self._results.streams(one.job, one.attempt.folder)
            self._events.append(Started(one.job, one.attempt, stdout, stderr, adopted=True))

    def _end(self, one: _Open, outcome: Outcome, now: float) -> None:
        job, attempt = one.job, one.attempt
        pause = None if self.is_draining else retry_after(job, outcome)
        retry_at = None if pause is None else now + pause
        self._false_starts.pop(job.id, None)
        self._attached.pop(job.id, None)
        self.store.end_attempt(attempt, outcome, now, retry_at)
        self._failures += retry_at is None and outcome.cause is not None
        self._close_attempt(one)
        if retry_at is not None:
            self._waiting.add(replace(job, state=State.QUEUED, not_before=retry_at))
        self._events.append(Ended(job, attempt, outcome, retry_at))

    def _queue_again(self, one: _Open, now: float) -> None:
        """It never ran. Again, but not for ever: what cannot be started five times in a row is a failure."""
        job, attempt = one.job, one.attempt
        count = self._false_starts[job.id] = self._false_starts.get(job.id, 0) + 1
        if count >= _MOST_FALSE_STARTS:
            message = "its supervisor could not be started: too many processes, or a full disk?"
            self._end(one, Outcome(exit_code=127, cause=Cause.START_ERROR, message=message), now)
            return
        retry_at = None if count == 1 else now + 0.1 * 2**count
        self.store.forget_attempt(attempt, retry_at)
        self._close_attempt(one)
        self._waiting.add(
            replace(job, state=State.QUEUED, attempts=attempt.number - 1, tries=job.tries - 1, not_before=retry_at)
        )

    def _close_attempt(self, one: _Open) -> None:
        del self._open[one.attempt.key]
        self._unclear.discard(one.attempt.key)
        self.cards.release(one.attempt)
        self._keeper.release(one.attempt)

    def _look_again_at(self, key: _Key, when: float) -> None:
        self._unclear.add(key)
        self._timers["unclear"] = min(when, self._timers.get("unclear", when))

    def _show_result(self, event: Event) -> list[Event]:
        if not isinstance(event, Ended | Found | Refused | Skipped):
            return []
        try:
            if isinstance(event, Ended | Found):
                self._results.end(event.job, event.attempt, event.outcome)
            elif isinstance(event, Refused):
                self._results.refuse(event.job, event.outcome)
            else:
                self._results.confirm(event.job)
        except OSError as error:
            return [Trouble(f"cannot write the result folder of job {event.job.label}: {error}")]
        return []

    # -- what is in the way ----------------------------------------------------------------------------

    def _wait_with(self, job: Job, reason: Reason, now: float) -> None:
        """Say why the head of the queue waits, and stand in line for cards that others hold."""
        if (job.id, reason) != self._last_reason:
            self._last_reason = (job.id, reason)
            self._events.append(Waits(job, reason))
        wishes = job.request.wishes
        cards = [self.cards.pool.card(key) for key in self.cards.awaited]
        claims = [
            Claim(gpu=card.gpu.key, index=card.gpu.index, share=booking(card, wishes), vram=wishes.vram or 0)
            for card in cards
            if card is not None and is_allowed(card.gpu, wishes)
        ]
        self._keeper.wait_for(claims, job, now)
        if claims:
            self._timers["others"] = now + _LOOK_AT_OTHERS

    def _why_never(self, request: Request) -> str:
        """Why a job could never run here; empty where it could, and where the pool may yet grow."""
        return "" if self.cards.may_grow else impossible(request.wishes, self.cards.pool)

    def _refuse(self, job: Job, problem: str, now: float) -> Refused:
        outcome = Outcome(cause=Cause.REFUSED, message=problem)
        self.store.refuse(job.id, outcome, now)
        return Refused(job, outcome)

    def _tell_of(self, events: list[Event]) -> None:
        """What was accepted or refused is in the store now: announce it in the next turn."""
        self._failures += sum(isinstance(event, Refused) for event in events)
        self._events += events
        self._ask_for_turn()

    def _running_without_gpu(self) -> int:
        return sum(not one.attempt.claims for one in self._open.values())

    def _trouble(self, sentence: str, now: float) -> None:
        self._timers["trouble"] = now + _AFTER_TROUBLE
        self._events.append(Trouble(sentence))

    def _go_back_to(
        self,
        before: dict[_Key, _Open],
        events: list[Event],
        false_starts: dict[JobId, int],
        done: Sequence[_Key],
        now: float,
        error: DibsError,
    ) -> None:
        """The store would not have it. Nothing was started, nobody was told; the disk's truth is ours again."""
        for one in self._open.values():
            self.cards.release(one.attempt)
        self._keeper.keep_only(before.keys())
        self._open = before
        for one in before.values():
            self.cards.book(one.attempt, one.job.label)
        self._done += done
        self._unclear.difference_update(done)
        self._events, self._false_starts = events, false_starts
        self._load_waiting()
        self._trouble(error.message, now)

    def _load_waiting(self) -> None:
        now = self._clock()
        self._waiting = WaitingLine(self.store.waiting)
        self._waiting.restore(
            self.store.waiting_classes(),
            self.store.delayed(now),
            self.store.counts().get(State.QUEUED, 0),
            now,
        )


def _each_kind_waits(snapshot: Snapshot, plan: Plan) -> bool:
    """Whether of each kind of wishes a job was left over. Where none was, more of that kind may fit."""
    waiting = {job.request.wishes for job in snapshot.waiting if job.id in plan.reasons}
    return all(job.request.wishes in waiting for job in snapshot.waiting)
