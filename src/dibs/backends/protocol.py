"""Five verbs that every place where attempts run must know, and two for what it brings back from the dead.

Identity is ours: a key and the attempt's number. Whatever number the other system gives is forgotten between two
calls, because it may be used again after a crash over there. The shim is the same everywhere and its exit record
decides how an attempt ended; the other system only says where one stands and why.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Protocol

from dibs.errors import DibsError
from dibs.model.jobs import Cause, Wishes

Identity = tuple[str, int]  # a key and the attempt's number, of whatever the other system has
# What another system takes as a name, and `_4` for the fifth element of an array.
_KEY = re.compile(r"[A-Za-z0-9-]{1,80}(_[0-9]{1,9})?")


@dataclass(frozen=True, slots=True)
class AttemptRef:
    """One attempt of a job, wherever it runs: whose it is, and the folder from which it is found again."""

    key: str  # the store's own mark and the job's number: `k3f9-17`; an array's element: `k3f9-17_4`
    attempt: int
    folder: str  # absolute; the same on every node, where they share a file system

    def __post_init__(self) -> None:
        assert _KEY.fullmatch(self.key), self.key
        assert self.attempt > 0, self.attempt


@dataclass(frozen=True, kw_only=True, slots=True)
class Wanted:
    """What the place is asked for."""

    wishes: Wishes = field(default_factory=Wishes)
    time_limit: float | None = None  # seconds
    priority: int = 0
    most: int | None = None  # so many of an array at once
    avoid: tuple[str, ...] = ()  # nodes on which it failed before
    options: tuple[tuple[str, str], ...] = ()  # what only this place understands: `partition`, `account`, ...


@dataclass(frozen=True, kw_only=True, slots=True)
class Submission:
    """An attempt that is to run: what its shim is told, and what the place is asked for."""

    ref: AttemptRef
    spec: Mapping[str, Any]
    wanted: Wanted = field(default_factory=Wanted)


@dataclass(frozen=True, kw_only=True, slots=True)
class Submitted:
    """What became of some submissions. Who is named nowhere was not reached: ask again with the next turn."""

    accepted: frozenset[AttemptRef] = frozenset()
    refused: Mapping[AttemptRef, DibsError] = field(default_factory=dict)  # asking again changes nothing
    put_off: Mapping[AttemptRef, str] = field(default_factory=dict)  # the place is full; a sentence


class Phase(StrEnum):
    """Where an attempt stands."""

    QUEUED = "queued"  # or nobody can tell now: what has run before still does
    RUNNING = "running"
    ENDED = "ended"  # its exit record is whole, and nothing of it is left
    LOST = "lost"  # over there it is no more, and nobody wrote down how it ended


@dataclass(frozen=True, kw_only=True, slots=True)
class Observed:
    """What is known of an attempt, and why, in a sentence."""

    phase: Phase
    reason: str = ""  # why it waits, or how the other system explains its end
    cause: Cause | None = None  # what the other system blames, where the record does not know better
    record: Mapping[str, Any] | None = None  # how it ended, from the shim
    node: str = ""
    gpus: str = ""  # the cards that it was given, as that node counts them: `0,1`
    number: str = ""  # what people call it over there: `4711`, or `4711_3` in an array
    expected_start: float | None = None  # seconds since the epoch
    never_started: bool = False  # lost before its command ran: the same attempt may be submitted again


@dataclass(frozen=True, kw_only=True, slots=True)
class NodeGpus:
    """The cards of one type on a node."""

    type: str  # empty where the place does not tell
    total: int
    used: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Node:
    """A machine of a place."""

    name: str
    state: str  # the other system's word: `idle`, `mixed`, `down`, ...
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
    """What a place says about an attempt that it would take."""

    sentence: str  # when it would start, or why that is not known, without a stop
    expected_start: float | None = None  # seconds since the epoch
    node: str = ""


class Backend(Protocol):
    """A place where attempts run. Each verb is one short exchange for all; none waits for an attempt.

    `BackendSilent` means that nobody over there answers: nothing is known, and whatever was known still stands.
    """

    def nodes(self) -> Sequence[Node]:
        """The machines, with their cards."""

    def check(self, wanted: Wanted) -> BackendProspect:
        """Whether it would ever take an attempt with these wishes, and when. Submits nothing.

        Raises BackendRefused where it never would, with what is wrong.
        """

    def submit(self, submissions: Sequence[Submission]) -> Submitted:
        """Have them run. Submitting an attempt again is the same as submitting it once."""

    def cancel(self, refs: Sequence[AttemptRef], *, insist: bool = False) -> None:
        """Ask for their end: with grace, or at once. To be repeated until `observe` says that they ended."""

    def observe(self, refs: Sequence[AttemptRef]) -> Mapping[AttemptRef, Observed]:
        """Where each of them stands."""

    def unasked(self, mark: str) -> Sequence[Identity]:
        """What the last `observe` saw waiting or running under this mark beside what it was asked about."""

    def take_out(self, strays: Sequence[Identity]) -> None:
        """End what waits or runs of these by the other system's own means: they are over, and nobody asks how."""
