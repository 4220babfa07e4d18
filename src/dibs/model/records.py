"""What is recorded: each thing that happens to jobs, cards and settings, as one value.

The row in the store, the line in the journal and the event for readers are made from it in `store/recorder.py`.
Records are tuples because they are many: as dataclasses they take a twentieth of the time of `dibs run -- true`.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from dibs.model.jobs import Attempt, Job, JobId, Outcome
from dibs.model.usage import Lesson, Usage


@dataclass(frozen=True, slots=True)
class Mark:
    """A pause, a drain or a quarantine. The subject is `queue`, `project NAME` or `gpu KEY`."""

    subject: str
    kind: str
    why: str
    since: float


@dataclass(frozen=True, slots=True)
class StagedList:
    """A list that arrives in several requests, with reserved numbers. It becomes jobs when all parts are there."""

    first: JobId
    last: JobId
    key: str  # of the call that adds it
    arrived: int = 0  # jobs
    at: float = 0.0  # when its last part arrived
    environment: str = ""  # known when all have arrived, as is the next
    code: str = ""

    @property
    def missing(self) -> int:
        """Jobs that have not arrived."""
        return self.last - self.first + 1 - self.arrived


@dataclass(frozen=True, slots=True)
class StagedPart:
    """Jobs of such a list that arrived together: consecutive numbers, and their requests as text."""

    list: StagedList  # as it was before this part
    first: JobId
    requests: Sequence[str]


@dataclass(slots=True)
class Consequences:
    """What the records of a turn have brought about beyond themselves."""

    released: list[Job] = field(default_factory=list)  # waited for an end, and may start now
    cancelled: list[tuple[Job, Outcome]] = field(default_factory=list)  # waited for another end
    held: list[JobId] = field(default_factory=list)  # of a group that failed too often
    touched: list[JobId] = field(default_factory=list)  # have started or ended
    retried: list[JobId] = field(default_factory=list)


class JobsAdded(NamedTuple):
    """What one call added: jobs with consecutive numbers, their requests as text, and the key of the call."""

    jobs: Sequence[Job]
    requests: Sequence[str]
    key: str


class PartStaged(NamedTuple):
    """Some jobs of a list have arrived. With the first of them its numbers are reserved."""

    part: StagedPart


class ListCompleted(NamedTuple):
    """All jobs of a list have arrived: it is acknowledged, and its parts become jobs."""

    list: StagedList


class PartEntered(NamedTuple):
    """A part of an acknowledged list has become jobs."""

    part: StagedPart
    jobs: Sequence[Job]


class ListDropped(NamedTuple):
    """The rest of a list did not come: it never was."""

    list: StagedList


class AttemptOpened(NamedTuple):
    """The intent: from now on the attempt may have been started, here or by another system."""

    job: Job
    attempt: Attempt


class AttemptRunning(NamedTuple):
    """Another system has started it, at the attempt's `opened_at`; or more is known of where it runs."""

    job: Job
    attempt: Attempt
    is_new: bool


class AttemptEnded(NamedTuple):
    """How an attempt ended. With `retry_at` its job is queued again, as it stands here."""

    job: Job
    attempt: Attempt
    outcome: Outcome
    retry_at: float | None
    usage: Usage | None


class AttemptForgotten(NamedTuple):
    """It never ran: the job waits again, and the try does not count."""

    attempt: Attempt
    retry_at: float | None


class ClaimsLowered(NamedTuple):
    """An open attempt holds less of its cards than before."""

    attempt: Attempt


class LessonLearned(NamedTuple):
    """What jobs of a shape were seen to need on cards of a model."""

    shape: str
    model: str
    lesson: Lesson


class JobsHeld(NamedTuple):
    jobs: Sequence[JobId]
    why: str


class GroupHeld(NamedTuple):
    """The waiting jobs of a group (`project NAME`, `batch N`) are held, and with them their sweeps."""

    group: str
    why: str


class JobReleased(NamedTuple):
    job: JobId


class JobRetried(NamedTuple):
    """An ended job is queued again; its tries are counted anew."""

    job: JobId


class JobsStopping(NamedTuple):
    """The end of running jobs was asked for: no crash and no retry undoes it."""

    jobs: Sequence[JobId]


class JobCancelled(NamedTuple):
    """A job that had not started is over, perhaps because another job ended otherwise than it should."""

    job: JobId
    outcome: Outcome
    by: JobId | None = None


class JobEdited(NamedTuple):
    """What a waiting job asks for, or its place in the queue, is another one now."""

    job: Job


class JobsRemoved(NamedTuple):
    """Ended jobs are forgotten. Their numbers are never given again."""

    jobs: Sequence[JobId]


class MarkSet(NamedTuple):
    mark: Mark


class MarkCleared(NamedTuple):
    subject: str
    was_set: bool = True  # False: the card only rested, which is not stored


class SettingChanged(NamedTuple):
    name: str
    value: str


class CardTested(NamedTuple):
    """A quarantined card was tested."""

    key: str
    has_passed: bool
    why: str


class GpusAstray(NamedTuple):
    """An attempt uses cards, by number, that it was not given."""

    attempt: Attempt
    gpus: Sequence[str]
    sentence: str


class AttemptExcused(NamedTuple):
    """The failure of an ended attempt is explained by its card, which was quarantined afterwards."""

    job: JobId
    number: int
    sentence: str
    remedy: str


Record = (
    JobsAdded
    | PartStaged
    | ListCompleted
    | PartEntered
    | ListDropped
    | AttemptOpened
    | AttemptRunning
    | AttemptEnded
    | AttemptForgotten
    | ClaimsLowered
    | LessonLearned
    | JobsHeld
    | GroupHeld
    | JobReleased
    | JobRetried
    | JobsStopping
    | JobCancelled
    | JobEdited
    | JobsRemoved
    | MarkSet
    | MarkCleared
    | SettingChanged
    | CardTested
    | GpusAstray
    | AttemptExcused
)
