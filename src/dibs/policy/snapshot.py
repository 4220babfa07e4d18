"""The input and output of the scheduler as plain values: GPUs, waiting jobs, the plan."""

from collections.abc import Mapping, Sequence
from dataclasses import field
from fractions import Fraction

from dibs.dataclass import dataclass
from dibs.errors import BadInput
from dibs.model.gpus import Card, Claim, Gpu, Links
from dibs.model.jobs import AttemptKey, Job, JobId, Reason, Request
from dibs.model.suspensions import Rung
from dibs.model.units import is_gpu_id
from dibs.model.usage import Lessons

WHOLE = Fraction(1)
Party = tuple[str, int]  # on whose behalf jobs take turns: a project and a sweep of it; 0: no sweep
QUIET = 60.0  # seconds without anybody else, after which jobs go on that made way
EMPTIEST, COOLEST, LAST = "emptiest", "coolest", "last"


@dataclass(frozen=True, slots=True)
class Hold:
    """What one holder has of a card, and when it ends at the latest."""

    share: Fraction
    vram: int = 0
    ends_at: float | None = None  # with its time limit and grace; None: it has no limit


@dataclass(frozen=True, kw_only=True, slots=True)
class CardView:
    """A card of the pool as it is now."""

    card: Card
    taken: Fraction = Fraction(0)  # by our attempts and by other programs
    vram_taken: int = 0
    vram_free: int | None = None  # as the card reports it, where it can be asked
    memory_free: int | None = None  # bytes, as the card reports it, whichever process holds the rest
    has_others: bool = False  # other programs hold a part of it: what our jobs hold is not all that is taken
    blocked: str = ""  # why nothing may start here, whatever is free
    remedy: str = ""  # what helps where it may be taken for ever
    holders: tuple[str, ...] = ()  # in words: "job 3", "job 7 of alice (pid 4711)"
    ends: tuple[Hold, ...] = ()  # of a part of what is taken; it is unknown when the rest ends
    shapes: tuple[str, ...] = ()  # of our jobs here that want `--vram auto`
    is_relieved: bool = False  # jobs of unknown size share it, and one of them leaves before it is full
    first: int = 0  # smaller: taken before others, however empty they are
    then: float = 0.0  # smaller: taken before others that are as empty
    quiet_at: float = 0.0  # from when on suspended jobs may go on here; inf: a program without dibs uses it

    @property
    def free(self) -> Fraction:
        return WHOLE - self.taken

    @property
    def label(self) -> str:
        return f"GPU {self.card.gpu.number}"


@dataclass(frozen=True, slots=True)
class MoveRate:
    """How long it takes to move the memory of a job one way."""

    bytes_per_second: float
    start: float  # seconds, whatever is moved

    def seconds(self, size: int) -> float:
        return self.start + size / self.bytes_per_second


@dataclass(frozen=True, slots=True)
class MoveSpeed:
    """How fast GPU memory is moved to the host's memory, and back. As measured on an H200, until more is known."""

    suspend: MoveRate = MoveRate(1.7e9, 0.5)
    resume: MoveRate = MoveRate(5.5e9, 0.3)


@dataclass(frozen=True, kw_only=True, slots=True)
class SuspendRules:
    """For what running jobs are suspended, as the settings have it."""

    preemptible: bool | tuple[str, ...] = False  # whether those are that do not say so; or of which projects
    slice: float | None = None  # seconds; None: no turns are taken
    yields_to_others: bool = False  # whether preemptible jobs leave a card that a program without dibs uses

    def lets_urgent_jobs_pass(self, request: Request) -> bool:
        """Whether a job may be suspended for an urgent one."""
        if request.preemptible is not None:
            return request.preemptible
        return self.preemptible if isinstance(self.preemptible, bool) else request.project in self.preemptible

    def takes_turns(self, request: Request) -> bool:
        """Whether a job may be suspended when it has had a slice of time."""
        return self.slice is not None and request.preemptible is not False

    def lets_others_pass(self, request: Request) -> bool:
        """Whether a job may be suspended for any of these."""
        return self.lets_urgent_jobs_pass(request) or self.takes_turns(request)


@dataclass(frozen=True, slots=True)
class NextTurn:
    """When a job's turn comes, and what it gets then; or why it does not come."""

    reason: Reason | None = None
    claims: tuple[Claim, ...] = ()
    why_not: str = ""  # empty, too, where there is nothing to take turns with


@dataclass(frozen=True, slots=True)
class PreemptibleJob:
    """A running attempt that may be suspended for another job. What it holds counts as taken of its cards.

    Where the driver cannot, it may be sent its checkpoint signal instead, for an urgent job.
    """

    key: AttemptKey
    job: Job
    claims: tuple[Claim, ...]
    held: int = 0  # bytes on its cards, which are to be moved
    leaving_since: float | None = None  # it is being suspended since then: its cards become free soon
    ends_at: float | None = None  # at the latest; None: it has no limit
    why_not: str = ""  # why it is not suspended, though it might be
    rung: Rung = Rung.CUDA  # how it is brought to leave its cards
    yields_to_urgent: bool = True  # it may be suspended for an urgent job
    takes_turns: bool = False  # it may be suspended when it has had a slice of time
    turn_began: float = 0.0  # when it started, or went on

    @property
    def is_leaving(self) -> bool:
        return self.leaving_since is not None


@dataclass(frozen=True, slots=True)
class SuspendedJob:
    """A suspended attempt that goes on as soon as its cards have room. It holds nothing of them now."""

    key: AttemptKey
    job: Job
    claims: tuple[Claim, ...]  # what it had, and gets again
    held: int = 0  # bytes that are to be moved back
    held_on: Mapping[str, int] = field(default_factory=dict)  # the same by a card's key, where that is known
    not_yet: str = ""  # why it is not resumed now, whatever room there is
    since: float = 0.0  # when it was suspended
    beside: Mapping[str, int] = field(default_factory=dict)  # bytes that must stay free beside it, by a card's key


@dataclass(frozen=True, slots=True)
class TurnTaking:
    """How projects and sweeps take turns on cards, where they do."""

    slice: float  # seconds
    held: Mapping[Party, Fraction]  # of all cards, by the jobs that run
    began: Mapping[Party, float]  # when each last got a card, as far as a job has been suspended since


@dataclass(frozen=True, kw_only=True, slots=True)
class Snapshot:
    """The machine and the head of the queue at one moment."""

    cards: tuple[CardView, ...]
    groups: tuple[tuple[str, ...], ...] = ()
    waiting: Sequence[Job] = ()  # in order
    room_without_gpu: int = 0  # how many more jobs without a GPU may run
    room_away: Mapping[str, int] = field(default_factory=dict)  # how many more jobs each other system takes
    why_away: Mapping[str, str] = field(default_factory=dict)  # why another system takes none now
    now: float = 0.0  # seconds since the epoch
    cpus_free: int | None = None  # not booked; None: they are not counted
    mem_free: int | None = None  # bytes of the machine's memory, likewise
    array_running: Mapping[JobId, int] = field(default_factory=dict)  # tasks of each array that run now
    lessons: Lessons = field(default_factory=dict)  # what is known about the shapes of waiting jobs
    links: Links = field(default_factory=dict)  # how well cards are connected
    keep_free: int = 0  # so many whole cards stay free for others
    in_use: frozenset[str] = frozenset()  # cards that other programs hold; filled only with keep_free
    paused: Mapping[str, str] = field(default_factory=dict)  # why, by project; the key "" is the whole queue
    preemptible: Sequence[PreemptibleJob] = ()
    memory_to_fill: int | None = None  # bytes of the machine's memory that these may be moved into
    suspended: Sequence[SuspendedJob] = ()  # without those that their owner suspended: these go on when told to
    move_speed: MoveSpeed = MoveSpeed()
    turns: TurnTaking | None = None  # None: no turns are taken


@dataclass(frozen=True, slots=True)
class Placement:
    """A job and the claims it gets."""

    job: Job
    claims: tuple[Claim, ...]


@dataclass(frozen=True, slots=True)
class Preemption:
    """A running attempt that is to be suspended, so that another job can start or go on."""

    key: AttemptKey
    job: Job
    for_job: JobId


@dataclass(slots=True)
class Plan:
    """Which jobs start or resume next, which are suspended for others, and why the others wait."""

    placements: list[Placement] = field(default_factory=list)
    reasons: dict[JobId, Reason] = field(default_factory=dict)  # of waiting and of suspended jobs
    suspensions: list[Preemption] = field(default_factory=list)
    promises: list[Placement] = field(default_factory=list)  # what jobs get once room was made for them
    resumptions: list[SuspendedJob] = field(default_factory=list)
    next_turn: float | None = None  # when the turn of a job comes


@dataclass(frozen=True, slots=True)
class Order:
    """Which card is used first (`gpu_order`): the emptiest, and of equally empty ones the coolest or the last.

    Or named cards first, in this order, as long as a job fits there.
    """

    word: str = EMPTIEST
    ids: tuple[str, ...] = ()

    def first(self, gpu: Gpu) -> int:
        """Smaller: used before others, however empty they are."""
        return next((place for place, one in enumerate(self.ids) if gpu.is_called(one)), len(self.ids))

    def then(self, gpu: Gpu, temperature: int | None) -> float:
        """Smaller: used before others that are as empty."""
        if self.word == COOLEST:
            return float("inf") if temperature is None else temperature
        return -gpu.index if self.word == LAST else 0.0


EMPTIEST_FIRST = Order()


def parse_order(text: str) -> Order:
    """`emptiest`, `coolest`, `last`, or GPUs like `3,2`."""
    if text in (EMPTIEST, COOLEST, LAST):
        return Order(text)
    ids = tuple(part.strip() for part in text.split(","))
    if not all(map(is_gpu_id, ids)) or len(set(ids)) < len(ids):
        raise BadInput(
            f"cannot read {text[:60]!r} as an order of GPUs",
            remedy=f"it is {EMPTIEST}, {COOLEST}, {LAST}, or GPUs like 3,2",
        )
    return Order(ids=ids)
