"""The verbs of every backend: this machine, Slurm, and systems to come.

An attempt is identified by a key and a number that dibs chooses. The number that another system gives it is not
remembered between two calls: after a crash of that system it may belong to another job. The shim is the same
everywhere, and its exit record decides how an attempt ended; the other system only says where it is and why.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from enum import StrEnum
from typing import Any, Protocol

from dibs.dataclass import dataclass
from dibs.errors import DibsError
from dibs.model.jobs import Cause, Wishes

Identity = tuple[str, int]  # the key and the number of an attempt, as another system has them


@dataclass(frozen=True, slots=True)
class AttemptRef:
    """One attempt of a job, on any backend: its identity, and the folder from which it is found again."""

    key: str  # here `17`; elsewhere the queue's mark and the job: `k3f9-17`, for an array's element `k3f9-17_4`
    attempt: int
    folder: str  # absolute; on a shared file system the same path on every node
    opened_at: float | None = None  # of an attempt here: its record must say the same


@dataclass(frozen=True, kw_only=True, slots=True)
class Resources:
    """The resources that an attempt needs."""

    wishes: Wishes = field(default_factory=Wishes)
    time_limit: float | None = None  # seconds
    priority: int = 0
    most: int | None = None  # elements of its array that run at the same time
    avoid: tuple[str, ...] = ()  # nodes on which it failed before
    options: tuple[tuple[str, str], ...] = ()  # of this backend alone: `partition`, `account`, ...
    container_paths: tuple[str, ...] = ()  # folders that its container sees, where the backend chooses the engine


_NOTHING_WANTED = Resources()  # made once: the local backend gets its resources as leases


@dataclass(frozen=True, slots=True)
class AttachedStreams:
    """Descriptors that connect a command to the terminal or the pipe of `dibs run`."""

    stdin: int | None = None
    terminal: tuple[int, int, int] | None = None  # pty master, pty slave, pipe that closes with `dibs run`


NOT_ATTACHED = AttachedStreams()


@dataclass(frozen=True, slots=True)
class LocalInputs:
    """What only a backend on this machine can use. The others ignore it and are polled."""

    when_done: Callable[[], None]  # called when the attempt may have ended
    leases: Sequence[int] = ()  # locked descriptors for the shim and the command
    attached: AttachedStreams = NOT_ATTACHED


@dataclass(frozen=True, kw_only=True, slots=True)
class Submission:
    """An attempt that is to run: what its shim is told, and what it needs."""

    ref: AttemptRef
    spec: dict[str, Any]
    wanted: Resources = _NOTHING_WANTED
    local: LocalInputs | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Submitted:
    """The answer to some submissions. One that is in none of the three is to be submitted again."""

    accepted: frozenset[AttemptRef] = frozenset()
    refused: Mapping[AttemptRef, DibsError] = field(default_factory=dict)  # for ever
    put_off: Mapping[AttemptRef, str] = field(default_factory=dict)  # for now, with a sentence that says why


class Phase(StrEnum):
    """Where an attempt stands."""

    QUEUED = "queued"  # or not known now: an attempt that was running still counts as running
    RUNNING = "running"
    ENDED = "ended"  # its exit record is complete
    LOST = "lost"  # it does not exist any more, and there is no exit record


@dataclass(frozen=True, kw_only=True, slots=True)
class Observed:
    """What is known of an attempt."""

    phase: Phase
    reason: str = ""  # a sentence: why it waits, or how the other system explains its end
    cause: Cause | None = None  # according to the other system; replaces the record's
    record: Mapping[str, Any] | None = None  # the shim's exit record
    node: str = ""
    gpus: str = ""  # the cards that it was given, as that node counts them: `0,1`
    number: str = ""  # the other system's: `4711`, or `4711_3` in an array
    expected_start: float | None = None  # seconds since the epoch
    began: float | None = None  # when its command started and ended: seconds since the epoch, by our clock
    ended: float | None = None
    is_held: bool | None = None  # it waits, and a user holds it there; None: not known
    never_started: bool = False  # lost before its command ran: the same attempt may be submitted again
    may_linger: bool = False  # some of its processes may still run; its leases tell


@dataclass(frozen=True, kw_only=True, slots=True)
class NodeGpus:
    """The cards of one type on a node."""

    type: str  # empty where it is not known
    total: int
    used: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Node:
    """A machine of a backend."""

    name: str
    state: str  # as the other system calls it: `idle`, `mixed`, `down`, ...
    is_usable: bool
    reason: str = ""  # why it is not
    gpus: tuple[NodeGpus, ...] = ()
    shards: int = 0  # parts into which its cards are divided, where they are
    cpus: int = 0
    cpus_used: int = 0
    memory: int = 0  # bytes
    memory_used: int = 0  # bytes
    groups: tuple[str, ...] = ()  # partitions


@dataclass(frozen=True, kw_only=True, slots=True)
class BackendProspect:
    """What a backend says about an attempt that it would accept."""

    sentence: str  # when it would start, or why that is not known; without a full stop
    expected_start: float | None = None  # seconds since the epoch
    node: str = ""


class Backend(Protocol):
    """A place where attempts run. Each verb is one short exchange for all attempts; none waits for an attempt.

    `BackendSilent` means that the other system does not answer: nothing is known, and what was known still holds.
    """

    def nodes(self) -> Sequence[Node]:
        """The machines, with their cards."""

    def check(self, wanted: Resources) -> BackendProspect:
        """Whether an attempt with these wishes would ever be accepted, and when it would start. Submits nothing.

        Raises BackendRefused where it never would be.
        """

    def make_ready(self) -> None:
        """Prepare for submissions. Raises DibsError or OSError where nothing can be submitted now."""

    def submit(self, submissions: Sequence[Submission]) -> Submitted:
        """Run these attempts. Submitting an attempt again is the same as submitting it once.

        Raises BackendSilent only as long as nothing was handed over by this call.
        """

    def watch(self, ref: AttemptRef, when_done: Callable[[], None]) -> bool:
        """Have `when_done` called when an attempt that an earlier engine submitted may have ended.

        False where that is not possible (yet): then it is to be observed from time to time.
        """

    def cancel(self, refs: Sequence[AttemptRef], *, insist: bool = False) -> frozenset[AttemptRef]:
        """Ask for their end: with grace, or at once. Returns those that were certainly reached.

        To be repeated for the others until they are reached or `observe` says that they ended.
        """

    def hold(self, refs: Sequence[AttemptRef], *, release: bool = False) -> None:
        """Keep those that have not started from starting, or let them start.

        To be repeated until `observe` says so: what has started meanwhile is left alone.
        """

    def observe(self, refs: Sequence[AttemptRef]) -> Mapping[AttemptRef, Observed]:
        """Where each of them is."""

    def strays(self, mark: str) -> Sequence[Identity]:
        """What the last `observe` saw waiting or running under this mark, without having been asked about it."""

    def remove_strays(self, strays: Sequence[Identity]) -> None:
        """End these by the other system's own means: they are over in the store, and their outcome is known."""
