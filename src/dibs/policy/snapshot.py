"""What the policy looks at: everything it may know, as plain values."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction

from dibs.model.claims import Claim
from dibs.model.gpus import Links
from dibs.model.jobs import Job, JobId
from dibs.model.pool import Card
from dibs.model.reasons import Reason
from dibs.model.usage import Lessons

WHOLE = Fraction(1)


@dataclass(frozen=True, slots=True)
class Hold:
    """What one holder has of a card, and the latest moment at which it lets go."""

    share: Fraction
    vram: int = 0
    ends_at: float | None = None  # its time limit and grace are over; None: it has no limit


@dataclass(frozen=True, kw_only=True, slots=True)
class CardView:
    """A card of the pool as it stands now."""

    card: Card
    taken: Fraction = Fraction(0)  # by our attempts and by other programs
    vram_taken: int = 0
    vram_free: int | None = None  # what the card itself says, where it can be asked
    blocked: str = ""  # why nothing may start here, whatever is free
    holders: tuple[str, ...] = ()  # who has it, in words: "job 3", "job 7 of alice (pid 4711)"
    ends: tuple[Hold, ...] = ()  # parts of what is taken; a part that is not here may end at any moment or never
    shapes: tuple[str, ...] = ()  # of those of ours who have it, where they want `--vram auto`
    first: int = 0  # smaller: taken before others, however empty they are
    then: float = 0.0  # smaller: taken before others that are as empty

    @property
    def free(self) -> Fraction:
        return WHOLE - self.taken

    @property
    def label(self) -> str:
        return f"GPU {self.card.gpu.number}"


@dataclass(frozen=True, kw_only=True, slots=True)
class Snapshot:
    """The machine and the head of the queue at one moment."""

    cards: tuple[CardView, ...]
    groups: tuple[tuple[str, ...], ...] = ()
    waiting: Sequence[Job] = ()  # in order: who comes first stands first
    room_without_gpu: int = 0  # how many more jobs may run that want no GPU
    room_away: Mapping[str, int] = field(default_factory=dict)  # how many more each other system may be given
    now: float = 0.0  # seconds since the epoch
    cpus_free: int | None = None  # not booked yet; None: they are not counted
    mem_free: int | None = None  # bytes of the machine's memory, likewise
    array_running: Mapping[JobId, int] = field(default_factory=dict)  # tasks of each array that run now
    lessons: Lessons = field(default_factory=dict)  # what is known of the shapes that wait
    links: Links = field(default_factory=dict)  # how well cards are connected
    keep_free: int = 0  # so many whole cards are left to colleagues
    in_use: frozenset[str] = frozenset()  # cards that other programs hold; asked for where some are left to others
    paused: Mapping[str, str] = field(
        default_factory=dict
    )  # of which nothing starts, and why; `""`: of any project


@dataclass(frozen=True, slots=True)
class Placement:
    """A job and the claims it gets."""

    job: Job
    claims: tuple[Claim, ...]


@dataclass(slots=True)
class Plan:
    """What the policy wants done next, and why the others wait."""

    placements: list[Placement] = field(default_factory=list)
    reasons: dict[JobId, Reason] = field(default_factory=dict)
