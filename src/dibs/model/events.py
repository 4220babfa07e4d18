"""What happened, announced once. The command line turns these into lines, tables and JSON."""

from dibs.dataclass import dataclass
from dibs.model.jobs import Attempt, Job, Outcome, Reason
from dibs.model.usage import Usage


@dataclass(frozen=True, slots=True)
class Queued:
    """A job was accepted."""

    job: Job


@dataclass(frozen=True, slots=True)
class Skipped:
    """A job of a resumed run has succeeded before."""

    job: Job


@dataclass(frozen=True, slots=True)
class Refused:
    """A job can never run."""

    job: Job
    outcome: Outcome


@dataclass(frozen=True, slots=True)
class Started:
    """An attempt was handed to its supervisor."""

    job: Job
    attempt: Attempt
    stdout: str
    stderr: str
    adopted: bool = False  # it was running already when this engine started


@dataclass(frozen=True, slots=True)
class Ended:
    """An attempt is over and its GPUs are free."""

    job: Job
    attempt: Attempt
    outcome: Outcome
    retry_at: float | None  # seconds since the epoch; None: the job is over
    usage: Usage | None = None  # None where nothing was measured


@dataclass(frozen=True, slots=True)
class Moved:
    """An attempt was suspended or resumed, or could not be."""

    job: Job
    attempt: Attempt
    is_resumed: bool  # that was tried; False: suspended
    is_done: bool
    seconds: float  # that it took


@dataclass(frozen=True, slots=True)
class Found:
    """An attempt of an earlier run was over when this one started: it does not count for this one."""

    job: Job
    attempt: Attempt
    outcome: Outcome


@dataclass(frozen=True, slots=True)
class Waits:
    """The head of the queue cannot start now."""

    job: Job
    reason: Reason


@dataclass(frozen=True, slots=True)
class Trouble:
    """A problem that may pass: a full disk, a card that does not answer."""

    sentence: str


Event = Queued | Skipped | Refused | Started | Ended | Moved | Found | Waits | Trouble
