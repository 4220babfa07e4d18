"""What a verb of the queue has changed."""

from dataclasses import field

from dibs.dataclass import dataclass
from dibs.model.jobs import Job, JobId


@dataclass(slots=True)
class Changed:
    """Which jobs were changed, and why the others were not."""

    jobs: list[JobId] = field(default_factory=list)
    cancelled: list[JobId] = field(default_factory=list)  # those of them that had not started, and are over now
    unchanged: list[tuple[JobId, str]] = field(default_factory=list)


def why_not(job: Job, rule: str) -> str:
    return f"{rule}; it {job.state.phrase}"
