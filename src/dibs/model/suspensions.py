"""A time in which a running job stands still: its cards are free, its processes live."""

from collections.abc import Mapping
from dataclasses import field, replace
from enum import StrEnum

from dibs.dataclass import dataclass
from dibs.model.gpus import Claim
from dibs.model.jobs import Checkpoint
from dibs.model.units import show_size

_MARGIN = 1.05  # of what is moved: the driver needs more than the memory that it reports,
_BESIDE = 512 * 1024**2  # and bytes beside it
_NEVER_FREE = 1024**3  # bytes of a card that may be in use though nothing runs on it


class SuspensionPhase(StrEnum):
    """Where a suspension stands."""

    SUSPENDING = "suspending"
    SUSPENDED = "suspended"
    RESUMING = "resuming"
    OVER = "over"  # the job runs again, or has ended; or it could not be suspended


class Rung(StrEnum):
    """How the processes were brought to stand still; or, instead of it, to make room."""

    CUDA = "cuda"  # by the driver: the memory of their cards is in the machine's memory, and the cards are free
    CHECKPOINT = "checkpoint"  # not at all: they are to save their work and end, and the job is queued again
    STOP = "stop"  # by a signal: what they hold on a card stays there


class Obstacle(StrEnum):
    """What a program does that keeps the driver from suspending it: so will the next run of it."""

    MANAGED_MEMORY = "managed-memory"
    CUDA_IPC = "cuda-ipc"
    SEVERAL_PROCESSES = "several-processes"  # unless its owner says that they share nothing

    @property
    def phrase(self) -> str:
        """What jobs like this do."""
        return _OBSTACLES[self]

    def hinders(self, *, no_cuda_ipc: bool) -> bool:
        """Whether it keeps a job from being suspended of which its owner says this."""
        return self is not Obstacle.SEVERAL_PROCESSES or not no_cuda_ipc


_OBSTACLES = {
    Obstacle.MANAGED_MEMORY: "use managed memory, which cannot be moved",
    Obstacle.CUDA_IPC: "share memory of the card between processes (CUDA IPC)",
    Obstacle.SEVERAL_PROCESSES: "have several CUDA processes, which may share memory of the card",
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Suspension:
    """One suspension of an attempt, from the wish to its end."""

    number: int  # the first of an attempt is 1
    phase: SuspensionPhase
    why: str  # for people: `by you`, `for job 31`
    resumes: bool  # by itself, as soon as there is room
    began_at: float  # seconds since the epoch, as are the next three
    suspended_at: float | None = None  # None: not yet, or it could not be suspended
    resuming_at: float | None = None  # None: not yet, or it ended before it went on
    ended_at: float | None = None
    rung: Rung | None = None
    held: Mapping[str, int] = field(default_factory=dict)  # bytes of its cards' memory, by card
    frees_cards: bool = True  # False: something of it is still on them
    why_not: str = ""  # why it (or, stopped by a signal, the driver) could not; or why it was not resumed

    @property
    def held_bytes(self) -> int:
        """What is moved into the machine's memory, and back."""
        return sum(self.held.values())

    @property
    def filled_bytes(self) -> int:
        """What it has of the machine's memory beside its own, or is about to have."""
        return 0 if self.is_over or self.rung is Rung.STOP else self.held_bytes

    @property
    def is_over(self) -> bool:
        return self.phase is SuspensionPhase.OVER

    @property
    def event(self) -> str:
        """What has happened, for those that listen; empty where it ended with its attempt, which they hear of."""
        if not self.is_over:
            is_told = self.phase is SuspensionPhase.SUSPENDING and self.rung is not None
            return "" if is_told else str(self.phase)  # it has begun already, with another rung
        if self.resuming_at is not None:
            return "" if self.was_lost else "resumed"
        return "not_suspended" if self.why_not and self.suspended_at is None else ""

    @property
    def was_lost(self) -> bool:
        """Whether it could not be put back on its card, and was ended."""
        return self.is_over and self.resuming_at is not None and bool(self.why_not)

    def is_saving(self, checkpoint: Checkpoint | None, now: float) -> bool:
        """Whether the job may still end by the checkpoint signal that it was sent instead."""
        if self.rung is not Rung.CHECKPOINT or self.ended_at is None or checkpoint is None:
            return False
        return abs(now - self.ended_at) < checkpoint.seconds  # the clock may have been set back

    @property
    def stands_still(self) -> bool:
        """Whether the job does not run now."""
        return self.phase in (SuspensionPhase.SUSPENDED, SuspensionPhase.RESUMING)

    def seconds_until(self, now: float) -> float:
        """How long the job has stood still."""
        if self.suspended_at is None:
            return 0.0
        return max(0.0, (now if self.ended_at is None else self.ended_at) - self.suspended_at)


def without_hold(claims: tuple[Claim, ...]) -> tuple[Claim, ...]:
    """The claims as other programs see them while the job is suspended: it has nothing of its cards."""
    return tuple(replace(claim, share=claim.share * 0, vram=0) for claim in claims)


def room_for(held: int, total: int | None = None) -> int:
    """How much must be free, on the card or in the machine, where so many bytes are to be put.

    `total` is all that the card has: what fills it nearly needs it empty, and no more than that.
    """
    wanted = int(held * _MARGIN) + _BESIDE
    return wanted if total is None else min(wanted, max(held, total - _NEVER_FREE))


def too_much_to_move(held: int, available: int | None) -> str:
    """Why the machine's memory cannot take what a job holds on its cards; empty where it can."""
    if not held or available is None or room_for(held) <= available:
        return ""
    return f"it holds {show_size(held)} on its GPU, and the machine has {show_size(available)} of memory available"
