"""What an engine needs to know of where results are written."""

from typing import Protocol

from dibs.model.jobs import Attempt, Job, Outcome
from dibs.model.usage import Usage


class Results(Protocol):
    """What becomes visible of a job outside the store."""

    @property
    def writes_more(self) -> bool:
        """Whether anything is written outside an attempt's own folder."""
        ...

    def shows_attempts(self, job: Job) -> bool:
        """Whether people are led into the folders of this job's attempts, so that these must stay."""
        ...

    def streams(self, job: Job, folder: str, node: str = "") -> tuple[str, str]:
        """The files that take stdout and stderr; `node` is where another system runs it."""
        ...

    def forget(self, job: Job) -> None:
        """The folder of its last attempt is gone."""
        ...

    def begin(self, job: Job, attempt: Attempt) -> None: ...

    def end(self, job: Job, attempt: Attempt, outcome: Outcome, usage: Usage | None = None) -> None: ...

    def refuse(self, job: Job, outcome: Outcome) -> None:
        """It can never run, and has no attempt."""
        ...

    def confirm(self, job: Job) -> None:
        """It succeeded in an earlier run, which may have died before it could show that."""
        ...
