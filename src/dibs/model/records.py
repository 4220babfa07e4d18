"""What is recorded: each thing that happens to jobs, cards and settings, as one value.

The row in the store, the line in the journal and the event for readers are made from it in `store/recorder.py`.
"""

from collections.abc import Sequence
from dataclasses import field

from dibs.dataclass import dataclass
from dibs.model.jobs import Attempt, Job, JobId, Outcome
from dibs.model.suspensions import Suspension
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


@dataclass(frozen=True, slots=True)
class JobsAdded:
    """What one call added: jobs with consecutive numbers, their requests as text, and the key of the call."""

    jobs: Sequence[Job]
    requests: Sequence[str]
    key: str


@dataclass(frozen=True, slots=True)
class PartStaged:
    """Some jobs of a list have arrived. With the first of them its numbers are reserved."""

    part: StagedPart


@dataclass(frozen=True, slots=True)
class ListCompleted:
    """All jobs of a list have arrived: it is acknowledged, and its parts become jobs."""

    list: StagedList


@dataclass(frozen=True, slots=True)
class PartEntered:
    """A part of an acknowledged list has become jobs."""

    part: StagedPart
    jobs: Sequence[Job]


@dataclass(frozen=True, slots=True)
class ListDropped:
    """The rest of a list did not come: it never was."""

    list: StagedList


@dataclass(frozen=True, slots=True)
class AttemptOpened:
    """The intent: from now on the attempt may have been started, here or by another system."""

    job: Job
    attempt: Attempt


@dataclass(frozen=True, slots=True)
class AttemptRunning:
    """Another system has started it, at the attempt's `opened_at`; or more is known of where it runs."""

    job: Job
    attempt: Attempt
    is_new: bool


@dataclass(frozen=True, slots=True)
class AttemptEnded:
    """How an attempt ended. With `retry_at` its job is queued again, as it stands here."""

    job: Job
    attempt: Attempt
    outcome: Outcome
    retry_at: float | None
    usage: Usage | None
    ended_at: float


@dataclass(frozen=True, slots=True)
class AttemptForgotten:
    """It never ran: the job waits again, and the try does not count."""

    attempt: Attempt
    retry_at: float | None


@dataclass(frozen=True, slots=True)
class ClaimsLowered:
    """An open attempt holds less of its cards than before."""

    attempt: Attempt


@dataclass(frozen=True, slots=True)
class SuspensionChanged:
    """A suspension of an open attempt has begun, or stands elsewhere now."""

    attempt: Attempt
    suspension: Suspension


@dataclass(frozen=True, slots=True)
class LessonLearned:
    """What jobs of a shape were seen to need on cards of a model."""

    shape: str
    model: str
    lesson: Lesson


@dataclass(frozen=True, slots=True)
class JobsHeld:
    jobs: Sequence[JobId]
    why: str


@dataclass(frozen=True, slots=True)
class GroupHeld:
    """The waiting jobs of a group (`project NAME`, `batch N`) are held, and with them their sweeps."""

    group: str
    why: str


@dataclass(frozen=True, slots=True)
class JobReleased:
    job: JobId


@dataclass(frozen=True, slots=True)
class HoldThere:
    """The system that has a submitted job is to hold it, or to let it go (`BEING_RELEASED`); empty: it did."""

    job: JobId
    why: str


@dataclass(frozen=True, slots=True)
class JobRetried:
    """An ended job is queued again; its tries are counted anew."""

    job: JobId


@dataclass(frozen=True, slots=True)
class JobsStopping:
    """The end of running jobs was asked for: no crash and no retry undoes it."""

    jobs: Sequence[JobId]


@dataclass(frozen=True, slots=True)
class JobCancelled:
    """A job that had not started is over, perhaps because another job ended otherwise than it should."""

    job: JobId
    outcome: Outcome
    by: JobId | None = None


@dataclass(frozen=True, slots=True)
class JobEdited:
    """What a waiting job asks for, or its place in the queue, is another one now."""

    job: Job


@dataclass(frozen=True, slots=True)
class JobsRemoved:
    """Ended jobs are forgotten. Their numbers are never given again."""

    jobs: Sequence[JobId]


@dataclass(frozen=True, slots=True)
class MarkSet:
    mark: Mark


@dataclass(frozen=True, slots=True)
class MarkCleared:
    subject: str
    was_set: bool = True  # False: the card only rested, which is not stored


@dataclass(frozen=True, slots=True)
class SettingChanged:
    name: str
    value: str


@dataclass(frozen=True, slots=True)
class CardTested:
    """A quarantined card was tested."""

    key: str
    has_passed: bool
    why: str


@dataclass(frozen=True, slots=True)
class GpusAstray:
    """An attempt uses cards, by number, that it was not given."""

    attempt: Attempt
    gpus: Sequence[str]
    sentence: str


@dataclass(frozen=True, slots=True)
class AttemptExcused:
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
    | SuspensionChanged
    | LessonLearned
    | JobsHeld
    | GroupHeld
    | JobReleased
    | HoldThere
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
