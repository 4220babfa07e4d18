"""What a turn is decided from, beside the engine's state: everything that had to be looked up, as plain values."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from dibs.engine.turn.card_board import CardBoard
from dibs.engine.turn.state import Key, NextState, OpenAttempt, card_marks, paused_by
from dibs.model.claims import Claim
from dibs.model.jobs import Attempt, Job, JobId, Outcome, Request, Wishes
from dibs.model.machine import NOT_COUNTED, Machine
from dibs.model.usage import Lesson, Lessons, Usage
from dibs.policy.breakers import Limits
from dibs.policy.lessons import beside, learn_early
from dibs.policy.snapshot import Snapshot
from dibs.policy.turns import in_turn, joined, trimmed


@dataclass(frozen=True, slots=True)
class EndFound:
    """An attempt is over."""

    key: Key
    outcome: Outcome
    usage: Usage | None = None


@dataclass(frozen=True, slots=True)
class NeverRan:
    """Nothing was started for an attempt."""

    key: Key


@dataclass(frozen=True, slots=True)
class RemoteRunFound:
    """Another system has started an attempt, as it stands here; or more is known of where it runs."""

    attempt: Attempt
    stdout: str
    stderr: str


Finding = EndFound | NeverRan | RemoteRunFound


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnFacts:
    """Gathered right before a decision."""

    board: CardBoard
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
    in_use: frozenset[str] = frozenset()  # cards that other programs hold; asked for where some are left to others
    lessons: Lessons = field(default_factory=dict)  # of the shapes that wait and run
    usages: Mapping[Key, Usage] = field(default_factory=dict)  # of open attempts, as far as they are measured
    limits: Limits | None = None  # of the stop rules; None: there are none


def lessons_known(
    facts: TurnFacts, open_attempts: Iterable[OpenAttempt], learned: Mapping[tuple[str, str], Lesson]
) -> Lessons:
    """What is known of the shapes that wait and run. What runs steadily counts before it has ended."""
    found: dict[tuple[str, str], Lesson] = {**facts.lessons, **learned}
    for one in open_attempts:
        if shape := one.job.request.wishes.shape:
            usage = facts.usages.get(one.attempt.key)
            for name in card_models(facts.board, one.attempt.claims):
                if lesson := learn_early(found.get((shape, name)), usage):
                    found[(shape, name)] = lesson
    return found


def card_models(board: CardBoard, claims: Iterable[Claim]) -> set[str]:
    """The models of these cards, where they are known."""
    cards = [board.pool.card(claim.gpu) for claim in claims]
    return {card.gpu.name for card in cards if card is not None and card.gpu.memory_total}


def take_snapshot(
    state: NextState, facts: TurnFacts, now: float, learned: Mapping[tuple[str, str], Lesson] | None = None
) -> Snapshot:
    """The machine and the head of the queue, as the policy looks at them."""
    board = facts.board
    given = Counter(one.attempt.backend for one in state.remote.values())
    remote_room = {name: max(0, most - given[name]) for name, most in facts.remote_most.items()}

    def most_at_once(request: Request) -> int:
        # At least one, so that its owner can be told why it waits.
        return max(1, remote_room.get(request.on, 0)) if request.on else facts.most_at_once(request.wishes)

    waiting: Sequence[Job] = state.waiting.first(most_at_once, now)
    if state.held_groups:
        waiting = [job for job in waiting if job.group not in state.held_groups]
    _let_join(state, {job.request.project for job in waiting})
    if len(state.projects) > 1:
        waiting = in_turn(waiting, state.served)
    lessons = lessons_known(facts, state.open.values(), learned or {})
    left = facts.machine.left(_booked(state, lessons))
    return Snapshot(
        cards=board.views(
            state.open,
            state.left_cards,
            card_marks(state.marks, state.resting),
            {key: usage.peak_vram or 0 for key, usage in facts.usages.items()},
        ),
        groups=board.pool.groups,
        waiting=waiting,
        room_without_gpu=facts.most_without_gpu - sum(not one.attempt.claims for one in state.open.values()),
        room_away=remote_room,
        now=now,
        cpus_free=left.cpus,
        mem_free=left.memory,
        array_running=_array_running(state),
        lessons=lessons,
        links=board.links,
        keep_free=board.min_free,
        in_use=facts.in_use,
        paused=paused_by(state.marks),
    )


def _booked(state: NextState, lessons: Lessons) -> Iterable[Wishes]:
    """What running jobs book of the machine: what they asked for, or what similar jobs were seen to use."""
    for one in state.open.values():
        wishes = one.job.request.wishes
        if wishes.shape:
            cpus, mem = beside(wishes, lessons)
            wishes = replace(wishes, cpus=cpus, mem=mem)
        yield wishes


def _let_join(state: NextState, waiting: set[str]) -> None:
    """A project that comes new, or back, stands where the others stand: turns cannot be saved up."""
    running = {one.job.request.project for ones in (state.open, state.remote) for one in ones.values()}
    active = frozenset(waiting | running)
    if active != state.projects:
        for project in active - state.projects:
            state.served = joined(state.served, project, state.projects)
        state.served = trimmed(state.served, active)
        state.projects = active


def _array_running(state: NextState) -> Counter[JobId]:
    arrays = (one.job.request.array for one in state.open.values())
    return Counter(array.array for array in arrays if array is not None and array.most is not None)
