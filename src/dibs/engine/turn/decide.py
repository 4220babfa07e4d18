"""A turn as a value: facts in, a decision out. Pure: no store, no lease, no process and no clock is touched here.

Ended attempts are settled first, then the circuit breakers are applied, then what can start is placed. The engine
takes the leases, commits the records, and only then replaces its state with `Turn.state` (engine.py).
"""

from collections.abc import Sequence
from dataclasses import replace

from dibs.dataclass import dataclass
from dibs.engine.turn import plan_cache
from dibs.engine.turn.facts import (
    EndFound,
    MoveFound,
    NeverRan,
    ReleaseFound,
    RemoteRunFound,
    TurnFacts,
    lessons_known,
    take_snapshot,
)
from dibs.engine.turn.state import (
    EngineState,
    Key,
    NextState,
    OpenAttempt,
    may_need_less,
    memory_to_fill,
    next_suspension,
    paused_by,
    with_suspension,
)
from dibs.model.events import Ended, Event, Moved, Started, Waits
from dibs.model.gpus import Claim
from dibs.model.jobs import Attempt, Cause, Job, JobId, Outcome, Reason, State, changed
from dibs.model.records import (
    AttemptEnded,
    AttemptExcused,
    AttemptForgotten,
    AttemptOpened,
    AttemptRunning,
    ClaimsLowered,
    GroupHeld,
    HoldThere,
    JobsHeld,
    LessonLearned,
    Mark,
    MarkSet,
    Record,
    SuspensionChanged,
)
from dibs.model.suspensions import Rung, Suspension, SuspensionPhase
from dibs.model.usage import Lesson, Lessons, Usage
from dibs.policy.fitting import (
    TRIED_ALONE,
    had_card_alone,
    is_allowed,
    learn,
    need,
    retries_alone,
    with_whole_card,
)
from dibs.policy.outcomes import EndedAttempt, StopDecision, judge_end, retry_after, without_gpu
from dibs.policy.schedule import kind_of, schedule
from dibs.policy.shapes import shape_of_job
from dibs.policy.snapshot import Plan, Snapshot

_LOOK_AT_OTHERS = 0.1  # seconds between two tries of cards that other programs hold
_LOOK_AT_FREE = 1.0  # seconds between two lists of other holders, where some cards are to be left free
_LONGEST_REST = 300.0  # seconds; a job that runs elsewhere may do so for days
_MOST_FALSE_STARTS = 5  # of one job, while others start well
_MOST_WITHOUT_OTHERS = 20  # while nothing starts: then it is the machine, and may pass within minutes
_LONGEST_PAUSE = 30.0  # seconds
_SAVED = "by you, by its checkpoint signal"


@dataclass(frozen=True, slots=True)
class QueueHead:
    """The first waiting job, and the claims that it waits for where other programs hold the cards.

    Without a job nothing waits for them.
    """

    job: Job | None = None
    claims: tuple[Claim, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """What a turn records, starts, announces; and the state afterwards."""

    state: EngineState
    records: Sequence[Record]
    begun: Sequence[OpenAttempt]  # to be launched here, or handed to another system
    left: Sequence[OpenAttempt]  # their claims became free
    lowered: Sequence[Key]  # they hold less than before; their leases are to show it
    moved: Sequence[OpenAttempt]  # to be suspended, or resumed
    left_cards: frozenset[str]  # to be read before anything else starts there
    events: Sequence[Event]
    line: QueueHead | None  # None: unchanged
    look_after: float | None  # seconds after which cards of other programs are tried again
    plan_by: float | None  # when the next plan must be made at the latest
    next_turn: float | None  # when the turn of a job on a card comes, or a card is quiet
    needs_guard: bool  # a card may run out of memory: it is to be watched closely

    @property
    def resumed(self) -> list[OpenAttempt]:
        """Suspended attempts that are to have their cards again."""
        return [one for one in self.moved if one.job.state is State.SUSPENDED]


def decide(state: EngineState, facts: TurnFacts, now: float) -> Turn:
    """Settle what ended, start what can start. Raises `NeedsMore` where the window holds too few waiting jobs."""
    decision = _Decision(state, facts, now)
    decision.settle()
    decision.end_rests()
    decision.make_way()
    decision.relieve()
    decision.start()
    decision.lower_claims()
    return decision.turn()


class _Decision:
    def __init__(self, state: EngineState, facts: TurnFacts, now: float) -> None:
        self._facts = facts
        self._now = now
        self._next = NextState(state)
        self._records: list[Record] = []
        self._begun: list[OpenAttempt] = []
        self._lowered: list[Key] = []
        self._moved: list[OpenAttempt] = []
        self._line: QueueHead | None = None
        self._look_after: float | None = None
        self._plan_by: float | None = None
        self._next_turn: float | None = None

    def turn(self) -> Turn:
        return Turn(
            state=self._next.freeze(),
            records=self._records,
            begun=self._begun,
            left=self._next.left,
            lowered=self._lowered,
            moved=self._moved,
            left_cards=frozenset(self._next.left_cards),
            events=self._next.events,
            line=self._line,
            look_after=self._look_after,
            plan_by=self._plan_by,
            next_turn=self._next_turn,
            needs_guard=self._needs_guard(),
        )

    # -- what became of attempts -----------------------------------------------------------------------

    def settle(self) -> None:
        for finding in self._facts.findings:
            if isinstance(finding, RemoteRunFound):
                self._runs_remotely(finding)
                continue
            one = self._next.open.get(finding.key) or self._next.remote.get(finding.key)
            if one is None:
                continue
            if isinstance(finding, NeverRan):
                self._queue_again(one, was_tried=finding.was_tried)
            elif isinstance(finding, MoveFound):
                self._move_ended(one, finding)
            elif isinstance(finding, ReleaseFound):
                self._next.remote[finding.key] = replace(one, job=replace(one.job, why_held=""))
                self._records.append(HoldThere(one.job.id, ""))
            else:
                self._end(one, finding)

    def _end(self, one: OpenAttempt, found: EndFound) -> None:
        """Record how an attempt ended, and whether the job is tried again."""
        job, attempt, outcome = one.job, one.attempt, found.outcome
        state, facts, now = self._next, self._facts, self._now
        pause, is_held = None, False
        if job.id in state.stopping:
            state.stopping.discard(job.id)
            outcome = _as_asked(outcome, state.why_stopped.pop(job.id, ""))
        elif facts.may_retry and retries_alone(job.request.wishes, attempt.claims, outcome):
            outcome = _not_alone(outcome)
            pause = 0.0
        elif facts.may_retry:
            pause = retry_after(job, outcome)
            # A job that saved a checkpoint continues at once, as does one whose node failed, on another node.
            if outcome.checkpointed or (pause is not None and attempt.backend and outcome.cause is Cause.LOST):
                pause = 0.0
        retry_at = None if pause is None else now + pause
        if state.false_starts.pop(job.id, None) is None:
            state.last_good_start = now
        if not attempt.backend:
            self._learn(one, found.usage, outcome)
        state.failures += retry_at is None and outcome.cause is not None
        if one.suspension is not None and one.suspension.was_lost:
            outcome = replace(outcome, message=f"could not be resumed: {one.suspension.why_not}")
        if one.suspension is not None and not one.suspension.is_over:
            over = replace(one.suspension, phase=SuspensionPhase.OVER, ended_at=now, resuming_at=None)
            self._records.append(SuspensionChanged(attempt, over))
        state.close(one)
        if retry_at is not None:
            tries = job.tries - (outcome.checkpointed or outcome.tried_alone)
            again = replace(job, state=State.QUEUED, tries=tries, not_before=retry_at, why_held="")
            if outcome.tried_alone:
                job = again = replace(again, request=with_whole_card(job.request))
            if not (is_held := outcome.checkpointed and _is_left_alone(one, now)):
                state.waiting.add(again)
        ended_at = now if found.ended_at is None else min(max(found.ended_at, attempt.opened_at), now)
        self._records.append(AttemptEnded(job, attempt, outcome, retry_at, found.usage, ended_at))
        if is_held:
            self._records.append(JobsHeld([job.id], f"suspended {_SAVED}"))
        state.events.append(Ended(job, attempt, outcome, retry_at, found.usage))
        if not outcome.tried_alone:  # it ran out of memory beside others, which says nothing about the card
            self._apply_breakers(job, attempt, outcome, is_last=retry_at is None)

    def _queue_again(self, one: OpenAttempt, *, was_tried: bool) -> None:
        """It never ran: queue it again, or hold it here. Fail it after several tries, sooner if others start."""
        job, attempt, state = one.job, one.attempt, self._next
        if job.id in state.stopping:
            outcome = Outcome(cause=Cause.STOPPED, message="cancelled before it started")
            self._end(one, EndFound(attempt.key, outcome))
            return
        if job.is_held_there:
            state.close(one)
            self._records.append(AttemptForgotten(attempt, None))
            return
        count, since = state.false_starts.get(job.id, (0, self._now))
        if was_tried:
            count += 1
            state.false_starts[job.id] = (count, since)
        others_start = state.last_good_start > since
        if was_tried and count >= (_MOST_FALSE_STARTS if others_start else _MOST_WITHOUT_OTHERS):
            message = "its supervisor could not be started: too many processes, or a full disk?"
            if attempt.backend:
                message = f"{attempt.backend} took it {count} times and forgot it each time before it started"
            outcome = Outcome(exit_code=127, cause=Cause.START_ERROR, message=message)
            self._end(one, EndFound(attempt.key, outcome))
            return
        retry_at = None if count <= 1 else self._now + min(_LONGEST_PAUSE, 0.1 * 2**count)
        state.close(one)
        again = replace(job, state=State.QUEUED, attempts=attempt.number - 1, tries=job.tries - 1, why_held="")
        state.waiting.add(replace(again, not_before=retry_at))
        self._records.append(AttemptForgotten(attempt, retry_at))

    def _runs_remotely(self, found: RemoteRunFound) -> None:
        """Another system has started it, or tells more about where it runs. The start is announced once."""
        one = self._next.remote.get(found.attempt.key)
        if one is None:
            return
        is_new = one.job.state is not State.RUNNING
        running = replace(one, job=replace(one.job, state=State.RUNNING, why_held=""), attempt=found.attempt)
        self._next.remote[found.attempt.key] = running
        self._records.append(AttemptRunning(running.job, found.attempt, is_new))
        if is_new:
            started = Started(running.job, found.attempt, found.stdout, found.stderr, adopted=not one.is_ours)
            self._next.events.append(started)

    # -- suspensions -----------------------------------------------------------------------------------

    def _move_ended(self, one: OpenAttempt, found: MoveFound) -> None:
        """It was suspended or resumed, or neither could be done."""
        before = one.suspension
        if before is None or not one.is_moving:
            return
        at = self._now if found.at is None else min(found.at, self._now)
        if found.rung is Rung.STOP and not found.stands_still:
            self._note_obstacle(one, found)
            self._moved.append(self._with_suspension(one, replace(before, rung=Rung.STOP, why_not=found.why_not)))
            return
        if not found.stands_still:
            after = replace(
                before,
                phase=SuspensionPhase.OVER,
                ended_at=at,
                why_not=found.why_not,
                rung=found.rung or before.rung,
            )
        elif before.phase is SuspensionPhase.SUSPENDING:
            after = replace(
                before,
                phase=SuspensionPhase.SUSPENDED,
                suspended_at=at,
                rung=found.rung,
                held={
                    gpu: max(before.held.get(gpu, 0), found.held.get(gpu, 0))
                    for gpu in {*before.held, *found.held}
                },
                frees_cards=found.frees_cards,
                why_not=found.why_not,
            )
        else:
            after = replace(before, phase=SuspensionPhase.SUSPENDED, resuming_at=None, why_not=found.why_not)
        new = self._with_suspension(one, after)
        if before.phase is SuspensionPhase.SUSPENDING:
            self._note_obstacle(one, found)
        self._announce_move(new, before, at)
        is_back = before.phase is SuspensionPhase.RESUMING and after.is_over
        if is_back and not before.resumes and one.job.id not in self._next.stopping:
            # Its owner has asked for it to be suspended again meanwhile.
            again = next_suspension(new, before.why, before.held, self._now, resumes=False)
            self._moved.append(self._with_suspension(new, again))
        if new.is_suspended and after.frees_cards:
            self._next.stepped_aside.append(new)
            self._lowered.append(new.attempt.key)

    def _note_obstacle(self, one: OpenAttempt, found: MoveFound) -> None:
        """Remember for its shape that the driver cannot suspend it, and forget it where it could."""
        shape, by_driver = shape_of_job(one.job.request), found.rung is Rung.CUDA
        if not shape or (found.obstacle is None and not by_driver):
            return
        models = self._facts.board.models(one.attempt.claims) or {""}
        known = self._facts.lessons
        if by_driver:
            models = {model for (name, model), lesson in known.items() if name == shape and lesson.obstacle}
        for model in models:
            self._teach(shape, model, replace(known.get((shape, model), Lesson()), obstacle=found.obstacle))

    def _needs_guard(self) -> bool:
        if not self._facts.can_suspend:
            return False
        from dibs.engine.turn.suspending import needs_guard  # where the driver can

        return needs_guard(self._next, self._facts)

    def relieve(self) -> None:
        """Suspend the youngest of the jobs of unknown size on a card that is about to run out of memory."""
        facts, state = self._facts, self._next
        if not facts.can_suspend or not facts.may_retry:  # all are being ended: their last seconds are theirs
            return
        from dibs.engine.turn.suspending import tenants_of  # where the driver can
        from dibs.policy.relief import whom_to_suspend

        for card in facts.board.pool.cards:
            seen, total = facts.board.cards.get(card.gpu.key), card.gpu.memory_total
            # Just left: what is free is known with the next reading.
            if seen is None or seen.memory_free is None or not total or seen.is_unsettled:
                continue
            if card.gpu.key in state.left_cards:
                continue
            tenants = tenants_of(card.gpu.key, state, facts)
            if key := whom_to_suspend(total, seen.memory_free, tenants, facts.move_speed.suspend):
                self._suspend(state.open[key], f"for want of memory on GPU {card.gpu.number}")

    def _announce_move(self, one: OpenAttempt, before: Suspension, at: float) -> None:
        is_resumed = before.phase is SuspensionPhase.RESUMING
        begun = before.resuming_at if is_resumed else before.began_at
        seconds = 0.0 if begun is None else max(0.0, at - begun)
        is_done = one.job.state is (State.RUNNING if is_resumed else State.SUSPENDED)
        self._next.events.append(Moved(one.job, one.attempt, is_resumed, is_done, seconds))

    def _suspend(self, one: OpenAttempt, why: str) -> None:
        """Make room: it goes on by itself when there is room again."""
        held = self._facts.held.get(one.attempt.key, {})
        self._moved.append(self._with_suspension(one, next_suspension(one, why, held, self._now, resumes=True)))

    def _resume(self, one: OpenAttempt) -> None:
        assert one.suspension is not None, "only what is suspended goes on"
        resuming = replace(one.suspension, phase=SuspensionPhase.RESUMING, resuming_at=self._now, why_not="")
        self._moved.append(self._with_suspension(one, resuming))

    def _with_suspension(self, one: OpenAttempt, suspension: Suspension) -> OpenAttempt:
        new = with_suspension(one, suspension)
        self._next.open[new.attempt.key] = new
        self._records.append(SuspensionChanged(new.attempt, suspension))
        return new

    def _learn(self, one: OpenAttempt, usage: Usage | None, outcome: Outcome) -> None:
        shape = one.job.request.wishes.shape
        if not shape:
            return
        usage = replace(usage or Usage(), was_alone=had_card_alone(one.attempt.claims))
        booked = max((claim.vram for claim in one.attempt.claims), default=0)
        for model in self._facts.board.models(one.attempt.claims):
            about = (shape, model)
            before = self._facts.lessons.get(about)
            lesson = learn(before, usage, outcome, booked)
            if lesson is not None and lesson != before:
                self._teach(shape, model, lesson)

    def _teach(self, shape: str, model: str, lesson: Lesson) -> None:
        # What follows in this turn is decided by it, too.
        self._facts = replace(self._facts, lessons={**self._facts.lessons, (shape, model): lesson})
        self._records.append(LessonLearned(shape, model, lesson))

    # -- circuit breakers ------------------------------------------------------------------------------

    def _apply_breakers(self, job: Job, attempt: Attempt, outcome: Outcome, *, is_last: bool) -> None:
        limits, state = self._facts.limits, self._next
        if limits is None:
            return
        gpus = tuple(claim.gpu for claim in attempt.claims)
        over = EndedAttempt(attempt=attempt.key, group=job.group, gpus=gpus, outcome=outcome, is_last=is_last)
        running: list[tuple[str, str]] = []
        if state.breakers.streaks or outcome.cause is not None:
            running = [(claim.gpu, one.job.group) for one in state.open.values() for claim in one.held_claims]
        state.breakers, verdicts = judge_end(state.breakers, over, limits, running)
        if verdicts.hold:
            self._records.append(GroupHeld(job.group, verdicts.hold))
            state.held_groups.add(job.group)
            state.waiting.drop(lambda other: other.group == job.group)
        rested = {*verdicts.trust, *verdicts.quarantine}
        if verdicts.rest or rested:
            resting = {**state.resting, **verdicts.rest}
            state.resting = {key: why for key, why in resting.items() if key not in rested}
        if verdicts.rest:
            state.rest_ends = self._now + _LONGEST_REST
        for key, why in verdicts.quarantine.items():
            self._set_mark(Mark(f"gpu {key}", "quarantined", why, self._now))
        self._excuse(verdicts)

    def _excuse(self, verdicts: StopDecision) -> None:
        """Note in the jobs whose failures led to a quarantine that the card was to blame."""
        said: dict[tuple[JobId, int], list[str]] = {}
        for gpu, failures in verdicts.failures.items():
            name = self._facts.board.pool.number(gpu)
            sentence = f"GPU {name} was quarantined after this: {verdicts.quarantine[gpu]}"
            for attempt in failures:
                said.setdefault(attempt, []).append(sentence)
        for (job, number), sentences in said.items():
            remedy = f"`dibs retry {job}` runs it again"
            self._records.append(AttemptExcused(job, number, "; ".join(sentences), remedy))

    def _set_mark(self, mark: Mark) -> None:
        self._records.append(MarkSet(mark))
        self._next.set_mark(mark)

    def end_rests(self) -> None:
        """No other job showed what caused the failures: use the resting cards again."""
        state = self._next
        if state.rest_ends is None or self._now < state.rest_ends:
            return
        for key in state.resting:
            state.breakers = without_gpu(state.breakers, key)
        state.resting, state.rest_ends = {}, None

    # -- neighbours ------------------------------------------------------------------------------------

    def make_way(self) -> None:
        """Suspend preemptible jobs whose cards a program without dibs uses."""
        state, facts, now = self._next, self._facts, self._now
        if not facts.suspend_rules.yields_to_others or not facts.may_start:
            return
        from dibs.engine.turn.suspending import preemptible_jobs  # few queues do
        from dibs.policy.neighbours import quiet_at, who_makes_way

        strangers = facts.board.strangers()
        state.quiet_at = quiet_at(state.quiet_at, strangers, now)
        if strangers and facts.may_suspend:
            memory = memory_to_fill(facts.memory_available, state.open.values())
            for makes_way in who_makes_way(preemptible_jobs(state, facts, now), strangers, memory):
                self._suspend(state.open[makes_way.one.key], makes_way.why)

    # -- starting --------------------------------------------------------------------------------------

    def start(self) -> None:
        state, facts, now = self._next, self._facts, self._now
        cached = state.plan
        state.plan = plan_cache.forgotten(cached)
        # The leases of those that were suspended must show it before others take the cards: in the next turn.
        if not self._may_start() or state.stepped_aside:
            return
        surroundings = (facts.board.pool, facts.board.news, state.marks, state.resting)
        is_unsettled = facts.board.are_unsettled(state.left_cards)
        places = []
        if not facts.leased:
            places = plan_cache.followers(cached, state, surroundings, now, is_unsettled=is_unsettled)
        if places:
            for job, claims in places:
                self._open(job, claims)
            state.plan = plan_cache.advanced(cached, state.left, self._begun)
            self._plan_by = cached.at + plan_cache.HOLDS
        elif state.waiting.count or state.wants_back:
            plan, snapshot = self._place()
            self._next_turn = plan.next_turn
            state.plan = plan_cache.made(cached, state, plan, snapshot, self._begun, surroundings)
            self._wait_in_line(plan, snapshot)
            if state.quiet_at and state.wants_back:
                moments = [*state.quiet_at.values(), *([plan.next_turn] if plan.next_turn else [])]
                self._next_turn = min(moments)
        self._note_turns()

    def _note_turns(self) -> None:
        """Remember who has had a card since a job was suspended: it is the turn of others."""
        if self._facts.suspend_rules.slice is None:
            return
        from dibs.policy.slices import party_of  # few take turns

        state = self._next
        if not state.wants_back:
            state.turns_began = {}
        elif got := [*self._begun, *(one for one in self._moved if one.job.state is State.SUSPENDED)]:
            parties = {party_of(one.job.request) for one in got if one.attempt.claims}
            state.turns_began = {**state.turns_began, **dict.fromkeys(parties, self._now)}

    def _may_start(self) -> bool:
        facts, state = self._facts, self._next
        return facts.may_start and "" not in paused_by(state.marks) and state.failures < facts.most_failures

    def _place(self) -> tuple[Plan, Snapshot]:
        """Place as much as fits. A plan sees some jobs of each class; where all of a class fit, more may.

        Jobs that already have their leases go first: another program only took the cards of the others.
        """
        while True:
            snapshot = take_snapshot(self._next, self._facts, self._now)
            leased = [job for job in snapshot.waiting if job.id in self._facts.leased]
            for job in leased:
                self._open(job, self._facts.leased[job.id])
            if leased:
                continue
            plan = schedule(snapshot)
            for placement in plan.placements:
                self._open(placement.job, placement.claims)
            for goes_on in plan.resumptions:
                self._resume(self._next.open[goes_on.key])
            for leaving in plan.suspensions:
                self._suspend(self._next.open[leaving.key], f"for job {leaving.for_job}")
            if not self._next.waiting.count or _each_kind_waits(snapshot, plan):
                return plan, snapshot

    def _open(self, job: Job, claims: tuple[Claim, ...]) -> None:
        """Open an attempt: here, with these claims, or on another system, which assigns the cards itself."""
        on, number = job.request.on, job.attempts + 1
        attempt = Attempt(
            job=job.id,
            number=number,
            claims=claims,
            boot_id="" if on else self._facts.boot_id,
            opened_at=self._now,
            folder=self._facts.folder(on, job.id, number),
            backend=on,
        )
        state = State.SUBMITTED if on else State.RUNNING
        one = OpenAttempt(changed(job, state=state, attempts=number, tries=job.tries + 1), attempt, is_ours=True)
        self._next.waiting.remove(job)
        if on:
            self._next.remote[attempt.key] = one
        else:
            self._next.enter(one)
        self._begun.append(one)
        self._records.append(AttemptOpened(one.job, attempt))

    def _wait_in_line(self, plan: Plan, snapshot: Snapshot) -> None:
        """Announce why the first job waits, and wait for cards that other programs hold."""
        # A job for another system does not wait for cards of this machine.
        stuck = next((job for job in snapshot.waiting if job.id in plan.reasons and not job.request.on), None)
        if stuck is None:
            self._line = QueueHead()
            return
        self._tell_reason(stuck, plan.reasons[stuck.id])
        board, wishes = self._facts.board, stuck.request.wishes
        cards = [board.pool.card(key) for key in board.awaited]
        claims = tuple(
            Claim(gpu=card.gpu.key, index=card.gpu.index, share=share, vram=vram)
            for card in cards
            if card is not None and is_allowed(card.gpu, wishes)
            for share, vram in [need(card, wishes, snapshot.lessons)]
        )
        self._line = QueueHead(stuck, claims)
        if claims:
            self._look_after = _LOOK_AT_OTHERS
        elif board.min_free:
            self._look_after = _LOOK_AT_FREE

    def _tell_reason(self, job: Job, reason: Reason) -> None:
        if (job.id, reason) != self._next.told_reason:
            self._next.told_reason = (job.id, reason)
            self._next.events.append(Waits(job, reason))

    # -- packing ---------------------------------------------------------------------------------------

    def lower_claims(self) -> None:
        """Book less for attempts of which more is known now than at their start.

        A job that now fits beside them starts in the next turn: the leases must show the lower claims first.
        """
        candidates = [one for one in self._next.open.values() if may_need_less(one)]
        if not candidates:
            return
        lessons = lessons_known(self._facts, self._next.open.values())
        for one in candidates:
            claims = tuple(self._lowered_claim(claim, one.job, lessons) for claim in one.attempt.claims)
            if claims != one.attempt.claims:
                attempt = replace(one.attempt, claims=claims)
                self._next.open[attempt.key] = replace(one, attempt=attempt)
                self._records.append(ClaimsLowered(attempt))
                self._lowered.append(attempt.key)

    def _lowered_claim(self, claim: Claim, job: Job, lessons: Lessons) -> Claim:
        card = self._facts.board.pool.card(claim.gpu)
        if card is None:
            return claim
        share, vram = need(card, job.request.wishes, lessons)
        return replace(claim, share=share, vram=vram) if share < claim.share else claim


def _is_left_alone(one: OpenAttempt, now: float) -> bool:
    """Whether its owner has suspended it, and it saved its work and ended since that was all it could do."""
    suspension = one.suspension
    by_owner = suspension is not None and not suspension.resumes
    return by_owner and suspension is not None and suspension.is_saving(one.job.request.checkpoint, now)


def _each_kind_waits(snapshot: Snapshot, plan: Plan) -> bool:
    """Whether a job of each kind was left over. Where none was, more of that kind may fit."""
    waiting = {kind_of(job.request) for job in snapshot.waiting if job.id in plan.reasons}
    return all(kind_of(job.request) in waiting for job in snapshot.waiting)


def _as_asked(outcome: Outcome, why: str) -> Outcome:
    """The outcome of a job that was asked to stop: an exit after a checkpoint counts as stopped."""
    if outcome.checkpointed:
        outcome = replace(outcome, cause=Cause.STOPPED, checkpointed=False)
    return replace(outcome, message=why) if why and outcome.cause is Cause.STOPPED else outcome


def _not_alone(outcome: Outcome) -> Outcome:
    """The outcome of a job that ran out of memory beside others."""
    message = f"{outcome.message}; {TRIED_ALONE}" if outcome.message else TRIED_ALONE
    return replace(outcome, tried_alone=True, message=message)
