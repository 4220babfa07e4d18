"""What a turn is decided from, beside the engine's state: everything that had to be looked up, as plain values."""

import math
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import field, replace
from fractions import Fraction

from dibs.dataclass import dataclass
from dibs.engine.turn.state import (
    Key,
    NextState,
    OpenAttempt,
    card_marks,
    claims_on,
    memory_to_fill,
    not_after,
    paused_by,
)
from dibs.model.gpus import NOT_COUNTED, Card, Claim, Links, Machine, Pool
from dibs.model.jobs import Attempt, Job, JobId, Outcome, Request, Wishes
from dibs.model.suspensions import Obstacle, Rung, SuspensionPhase
from dibs.model.usage import Lesson, Lessons, Usage
from dibs.policy.fitting import host_needs, learn_early
from dibs.policy.outcomes import Limits
from dibs.policy.schedule import fair_order, with_project, without_idle
from dibs.policy.snapshot import (
    EMPTIEST_FIRST,
    WHOLE,
    CardView,
    Hold,
    MoveSpeed,
    Order,
    Party,
    PreemptibleJob,
    Snapshot,
    SuspendedJob,
    SuspendRules,
    TurnTaking,
)

NOT_ASKED = "it is not known yet whether this driver can suspend jobs"
_OTHER_SWEEPS = 64  # more jobs of a class that are looked at where sweeps take turns: those before may be of one
BEING_READ = "is being looked at"  # why nothing starts on a card before its next reading


@dataclass(frozen=True, slots=True)
class SeenProcess:
    """A process on a card that does not belong to another dibs job with a claim of its own."""

    shown: str  # `ann, pid 4711, 3G`
    folder: str | None  # of the attempt of this engine that it was started in; None: a foreign process
    stranger: str = ""  # of a foreign process whose owner is known: `4711 (ann)`


@dataclass(frozen=True, slots=True)
class TakenByOthers:
    """Other programs hold a part of a card, or have waited for it longer."""

    holders: tuple[str, ...]  # for a sentence
    why: str  # why it is not available though no program holds it
    remedy: str = ""  # what helps where it may last for ever


@dataclass(frozen=True, slots=True, kw_only=True)
class CardFacts:
    """One card, from the last reading and the leases."""

    is_seen: bool = False
    fault: str = ""  # why nothing may start there at all: it does not answer, it is gone
    is_unsettled: bool = False  # an attempt left it, and it has not been read since
    processes: tuple[SeenProcess, ...] = ()
    memory_free: int | None = None  # bytes, as the card reports it
    temperature: int | None = None
    others: TakenByOthers | None = None


NOT_SEEN = CardFacts()


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolFacts:
    """The cards of the pool, without this engine's own attempts."""

    pool: Pool
    cards: Mapping[str, CardFacts] = field(default_factory=dict)  # by key
    order: Order = EMPTIEST_FIRST
    min_free: int = 0  # how many whole cards are left to other users
    links: Links = field(default_factory=dict)  # how well cards are connected
    respects_processes: bool = True
    awaited: tuple[str, ...] = ()  # cards that others hold or wait for, and those wanted together with them
    news: int = 0  # changes with each reading and each lease of another program

    def views(
        self,
        open_attempts: Mapping[Key, OpenAttempt],
        left: Collection[str] = (),
        marks: Mapping[str, str] | None = None,
        peaks: Mapping[Key, int] | None = None,
        quiet_at: Mapping[str, float] | None = None,
    ) -> tuple[CardView, ...]:
        """The cards as the policy looks at them, with these attempts on them.

        `left` are cards that an attempt has just left, `marks` say why nothing is started on a card, `peaks`
        are bytes that attempts were seen to hold, and `quiet_at` says when suspended jobs may go on.
        """
        held = claims_on(open_attempts)
        folders = {one.attempt.folder for one in open_attempts.values()}
        views = (
            self._view(card, held.get(card.gpu.key, []), folders, card.gpu.key in left, marks or {}, peaks or {})
            for card in self.pool.cards
        )
        if not quiet_at:
            return tuple(views)
        return tuple(replace(view, quiet_at=quiet_at.get(view.card.gpu.key, 0.0)) for view in views)

    def strangers(self) -> dict[str, list[str]]:
        """Who works without dibs on each card; only cards in use like that.

        Without its owner a process may be anybody's: in a container those of our jobs look like that, too.
        """
        found = {
            key: [one.stranger for one in facts.processes if one.stranger] for key, facts in self.cards.items()
        }
        return {key: names for key, names in found.items() if names}

    def models(self, claims: Iterable[Claim]) -> set[str]:
        """The models of these cards, where they are known."""
        cards = [self.pool.card(claim.gpu) for claim in claims]
        return {card.gpu.name for card in cards if card is not None and card.gpu.memory_total}

    def are_unsettled(self, left: Collection[str]) -> bool:
        """Whether a card that was left wants to be asked before it is given away again."""
        return self.respects_processes and any(
            facts.is_unsettled or (facts.is_seen and key in left) for key, facts in self.cards.items()
        )

    def _view(
        self,
        card: Card,
        ours: list[tuple[OpenAttempt, Claim]],
        folders: set[str],
        was_left: bool,
        marks: Mapping[str, str],
        peaks: Mapping[Key, int],
    ) -> CardView:
        key = card.gpu.key
        facts = self.cards.get(key, NOT_SEEN)
        taken, vram = Fraction(0), 0
        for one, claim in ours:
            taken += claim.share
            if claim.vram:  # it may not use yet what it booked, or may use more
                vram += max(claim.vram, peaks.get(one.attempt.key, 0))
        holders = [f"job {one.job.label}" for one, claim in ours if claim.share]  # a suspended job holds nothing
        ends = [Hold(claim.share, claim.vram, one.ends_at) for one, claim in ours]
        blocked = marks.get(key) or self._blocked(facts, ours, folders, was_left)
        if facts.others is not None:
            taken = WHOLE
            ends = [Hold(taken, 0, None)]  # when others let go is not known
            holders += facts.others.holders
            if not holders:
                blocked = blocked or facts.others.why
        return CardView(
            card=card,
            taken=taken,
            vram_taken=vram,
            vram_free=facts.memory_free if ours else None,  # alone, a job may have what it booked
            memory_free=facts.memory_free,
            has_others=facts.others is not None,
            blocked=blocked,
            remedy="" if facts.others is None else facts.others.remedy,
            holders=tuple(holders),
            ends=tuple(ends),
            shapes=tuple(shape for one, _ in ours if (shape := one.job.request.wishes.shape)),
            first=self.order.first(card.gpu),
            then=self.order.then(card.gpu, facts.temperature),
        )

    def _blocked(
        self, facts: CardFacts, ours: list[tuple[OpenAttempt, Claim]], folders: set[str], was_left: bool
    ) -> str:
        if facts.fault or not self.respects_processes or not facts.is_seen:
            return facts.fault
        if facts.is_unsettled or was_left:
            return BEING_READ
        here = {one.attempt.folder for one, _ in ours}
        foreign = [process for process in facts.processes if process.folder is None or process.folder not in here]
        if not foreign:
            return ""
        return f"is busy ({'; '.join(_shown(process, folders) for process in foreign[:3])})"


def _shown(process: SeenProcess, folders: set[str]) -> str:
    """`ann, pid 4711, 3G`, and the job where it is one of ours."""
    if process.folder is None:
        return process.shown
    job = process.folder.rpartition("/")[2].partition(".")[0]  # an attempt's folder is called 17.1
    return f"{process.shown}, {'of' if process.folder in folders else 'left by'} job {job}"


@dataclass(frozen=True, slots=True)
class EndFound:
    """An attempt is over."""

    key: Key
    outcome: Outcome
    usage: Usage | None = None
    ended_at: float | None = None  # where that is known better than by now being later


@dataclass(frozen=True, slots=True)
class NeverRan:
    """Nothing was started for an attempt."""

    key: Key
    was_tried: bool = True  # False: the other system was silent before it was given the attempt


@dataclass(frozen=True, slots=True)
class RemoteRunFound:
    """Another system has started an attempt, as it stands here; or more is known of where it runs."""

    attempt: Attempt
    stdout: str
    stderr: str


@dataclass(frozen=True, slots=True)
class ReleaseFound:
    """Another system does not hold an attempt any more, as its owner wished."""

    key: Key


@dataclass(frozen=True, slots=True, kw_only=True)
class MoveFound:
    """What came of suspending or resuming an attempt."""

    key: Key
    stands_still: bool  # afterwards
    rung: Rung | None = None  # how it was suspended; if it does not stand still, how it is to be tried next
    held: Mapping[str, int] = field(default_factory=dict)  # bytes that were moved then, by card
    frees_cards: bool = True
    why_not: str = ""  # it could not be done, for this reason; or, by a signal, not by the driver
    obstacle: Obstacle | None = None  # what of this reason will be the same the next time
    at: float | None = None  # when it was over, where that is known


Finding = EndFound | NeverRan | RemoteRunFound | ReleaseFound | MoveFound


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnFacts:
    """Gathered right before a decision."""

    board: PoolFacts
    most_at_once: Callable[[Wishes], int]  # how many jobs with these wishes could start at the most, in the pool
    folder: Callable[[str, JobId, int], str]  # of an attempt: its backend, its job, its number
    boot_id: str
    findings: Sequence[Finding] = ()
    leased: Mapping[JobId, tuple[Claim, ...]] = field(default_factory=dict)  # what jobs to start have by now
    may_start: bool = True
    may_retry: bool = True
    most_failures: int
    machine: Machine = NOT_COUNTED
    most_without_gpu: int = 1
    remote_most: Mapping[str, int] = field(default_factory=dict)  # attempts that each other system has at once
    remote_silent: Mapping[str, str] = field(default_factory=dict)  # those that do not answer, and why
    in_use: frozenset[str] = frozenset()  # cards that other programs hold; asked for where some are left to others
    lessons: Lessons = field(default_factory=dict)  # of the shapes that wait and run
    usages: Mapping[Key, Usage] = field(default_factory=dict)  # of open attempts, as far as they are measured
    limits: Limits | None = None  # of the circuit breakers; None: there are none
    # Bytes on their cards, of the attempts that may be suspended.
    held: Mapping[Key, Mapping[str, int]] = field(default_factory=dict)
    tried_lately: frozenset[Key] = frozenset()  # suspended attempts that found no room a moment ago
    move_speed: MoveSpeed = MoveSpeed()  # by earlier suspensions
    may_suspend: bool = False  # attempts, to make room for others
    why_no_driver: str = NOT_ASKED  # why this machine's driver suspends nothing; empty: it can
    suspend_rules: SuspendRules = SuspendRules()
    memory_available: int | None = None  # bytes of the machine's memory; looked at where attempts may be suspended
    grows: Mapping[Key, float] = field(default_factory=dict)  # bytes on their cards in the last second

    @property
    def can_suspend(self) -> bool:
        """Whether the driver of this machine can, as far as that was needed and asked."""
        return not self.why_no_driver


def lessons_known(facts: TurnFacts, open_attempts: Collection[OpenAttempt]) -> Lessons:
    """What is known of the shapes that wait and run. What runs steadily counts before it has ended."""
    found: dict[tuple[str, str], Lesson] = dict(facts.lessons)
    for one in open_attempts:
        if shape := one.job.request.wishes.shape:
            usage = facts.usages.get(one.attempt.key)
            for name in facts.board.models(one.attempt.claims):
                if lesson := learn_early(found.get((shape, name)), usage):
                    found[(shape, name)] = lesson
    if facts.can_suspend:
        from dibs.engine.turn.suspending import first_lessons  # where the driver can

        found |= first_lessons(found, facts, open_attempts)
    return found


def take_snapshot(state: NextState, facts: TurnFacts, now: float) -> Snapshot:
    """The machine and the head of the queue, as the policy looks at them."""
    board = facts.board
    given = Counter(one.attempt.backend for one in state.remote.values())
    silent = facts.remote_silent
    remote_room = {
        name: 0 if name in silent else max(0, most - given[name]) for name, most in facts.remote_most.items()
    }

    def most_at_once(request: Request) -> int:
        # At least one, so that its owner can be told why it waits.
        if request.on:
            return max(1, remote_room.get(request.on, 0))
        return facts.most_at_once(request.wishes) + (0 if facts.suspend_rules.slice is None else _OTHER_SWEEPS)

    waiting: Sequence[Job] = state.waiting.first(most_at_once, now)
    if state.held_groups:
        waiting = [job for job in waiting if job.group not in state.held_groups]
    _let_join(state, {job.request.project for job in waiting})
    if len(state.projects) > 1:
        waiting = fair_order(waiting, state.served)
    lessons = lessons_known(facts, state.open.values())
    left = facts.machine.left(_booked(state, lessons))
    preemptible: Sequence[PreemptibleJob] = ()
    suspended: Sequence[SuspendedJob] = ()
    if facts.may_suspend or any(one.suspension is not None for one in state.open.values()):
        from dibs.engine.turn.suspending import preemptible_jobs, suspended_jobs  # few jobs are suspended

        preemptible, suspended = list(preemptible_jobs(state, facts, now)), suspended_jobs(state, facts, now)
    views = board.views(
        state.open,
        state.left_cards,
        card_marks(state.marks, state.resting),
        {key: usage.peak_vram or 0 for key, usage in facts.usages.items()},
        state.quiet_at | dict.fromkeys(board.strangers() if state.quiet_at else (), math.inf),
    )
    if facts.can_suspend:
        from dibs.engine.turn.suspending import relieved_cards  # where the driver can

        if relieved := relieved_cards(state, facts):
            views = tuple(replace(view, is_relieved=view.card.gpu.key in relieved) for view in views)
    return Snapshot(
        cards=views,
        groups=board.pool.groups,
        waiting=waiting,
        room_without_gpu=facts.most_without_gpu
        - sum(not one.attempt.claims and not one.is_suspended for one in state.open.values()),
        room_away=remote_room,
        why_away=silent,
        now=now,
        cpus_free=left.cpus,
        mem_free=left.memory,
        array_running=_array_running(state),
        lessons=lessons,
        links=board.links,
        keep_free=board.min_free,
        in_use=facts.in_use,
        paused=paused_by(state.marks),
        preemptible=preemptible,
        memory_to_fill=memory_to_fill(facts.memory_available, state.open.values()),
        suspended=suspended,
        move_speed=facts.move_speed,
        turns=_turns(state, facts, now),
    )


def _turns(state: NextState, facts: TurnFacts, now: float) -> TurnTaking | None:
    """Who has how much of the cards, where turns are taken."""
    if facts.suspend_rules.slice is None:
        return None
    from dibs.policy.slices import party_of  # few take turns

    held: dict[Party, Fraction] = {}
    began = dict(state.turns_began)
    for one in state.open.values():
        party = party_of(one.job.request)
        is_leaving = one.suspension is not None and one.suspension.phase is SuspensionPhase.SUSPENDING
        if one.is_suspended or is_leaving:
            continue
        held[party] = held.get(party, Fraction(0)) + sum((claim.share for claim in one.held_claims), Fraction(0))
        began[party] = max(began.get(party, 0.0), not_after(now, one.turn_began))
    return TurnTaking(facts.suspend_rules.slice, held, began)


def _booked(state: NextState, lessons: Lessons) -> Iterable[Wishes]:
    """What running jobs book of the machine: what they asked for, or what similar jobs were seen to use."""
    for one in state.open.values():
        wishes = one.job.request.wishes
        if wishes.shape:
            cpus, mem = host_needs(wishes, lessons)
            wishes = replace(wishes, cpus=cpus, mem=mem)
        if one.suspension is not None and not one.suspension.is_over:
            mem = (wishes.mem or 0) + one.suspension.filled_bytes
            wishes = replace(wishes, cpus=0 if one.is_suspended else wishes.cpus, mem=mem)
        yield wishes


def _let_join(state: NextState, waiting: set[str]) -> None:
    """A project that comes new, or back, stands where the others stand: turns cannot be saved up."""
    running = {one.job.request.project for ones in (state.open, state.remote) for one in ones.values()}
    active = frozenset(waiting | running)
    if active != state.projects:
        for project in active - state.projects:
            state.served = with_project(state.served, project, state.projects)
        state.served = without_idle(state.served, active)
        state.projects = active


def _array_running(state: NextState) -> Counter[JobId]:
    arrays = (one.job.request.array for one in state.open.values())
    return Counter(array.array for array in arrays if array is not None and array.most is not None)
