"""The options of a run, its summary, and the protocol of what displays it."""

import os
import signal
import sys
from collections.abc import Mapping, Sequence
from dataclasses import field
from enum import IntEnum
from typing import NamedTuple, Protocol

from dibs.dataclass import dataclass
from dibs.engine.launch.results import Results
from dibs.errors import DibsError
from dibs.foreground.feed import JobList
from dibs.foreground.results import InAttemptFolders
from dibs.gpus.probe import Probe
from dibs.model.events import Ended, Event, Refused
from dibs.model.gpus import Pool
from dibs.model.jobs import Job, Outcome, Request, State
from dibs.settings import Settings

FAILED = (State.FAILED, State.TIMED_OUT, State.LOST)
_NO_MORE = sys.maxsize


class Stop(IntEnum):
    """How far the stopping has gone."""

    NO = 0
    DRAIN = 1  # start nothing more
    ASK = 2  # TERM to everything
    KILL = 3


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a run is."""

    done: int
    failed: int
    running: int
    waiting: int
    input_is_over: bool
    seconds: float  # since the run began


class RunDisplay(Protocol):
    """Shows what happens in a run."""

    follows_output: bool

    def show_events(self, events: Sequence[Event]) -> None: ...

    def lines(self, job: Job, is_error: bool, data: bytes) -> None: ...

    def tick(self, progress: Progress) -> None: ...

    def stopping(self, stop: Stop, running: int, by: signal.Signals | None, why: str) -> None:
        """`why` is empty, or says it behind the word: `after a failure (--fail-fast)`."""

    def trouble(self, error: DibsError) -> None: ...


@dataclass(frozen=True, kw_only=True)
class RunOptions:
    """What the user asked for."""

    lists: Sequence[JobList] = ()
    single: Request | None = None  # `dibs run -- COMMAND`: one job, connected to this terminal
    pool: Pool
    gpus_file: str | None = None
    probe: Probe | None = None
    results: Results = field(default_factory=InAttemptFolders)
    wait: bool = True
    fail_fast: bool = False
    max_failures: int = _NO_MORE
    respect_processes: bool = True
    settings: Settings = field(default_factory=Settings)  # how GPUs are shared with other programs
    environment: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))


class EndedJob(NamedTuple):
    """A job that is over, as the table at the end of a run shows it."""

    job: Job
    outcome: Outcome | None
    gpus: tuple[int, ...]
    streams: tuple[str, str]  # the files of stdout and stderr
    metrics: Mapping[str, float | None] = {}  # the last numbers; None: not finite


@dataclass
class RunSummary:
    """How a run went."""

    succeeded: int = 0
    skipped: int = 0
    failed: int = 0
    stopped: int = 0  # jobs that were asked to end
    stopped_by: signal.Signals | None = None
    left: int = 0  # jobs that were never started
    last: Ended | Refused | None = None
    errors: list[DibsError] = field(default_factory=list)
    seconds: float = 0.0
    recorded: int = 0  # jobs in the store, also those of earlier calls
    failures: Sequence[EndedJob] = ()  # the first of them; the same for the next two
    stops: Sequence[EndedJob] = ()
    successes: Sequence[EndedJob] = ()

    @property
    def is_empty(self) -> bool:
        """Whether there was no job, and no error or signal that kept jobs from being read."""
        jobs = self.succeeded + self.skipped + self.failed + self.stopped + self.left
        return not jobs and not self.recorded and not self.errors and self.stopped_by is None

    @property
    def exit_status(self) -> int:
        if self.stopped_by is not None:
            return 128 + self.stopped_by
        return int(bool(self.failed or self.stopped or self.left or self.errors))

    @property
    def single_exit_status(self) -> int:
        """Of a run of one command: the command's own."""
        if self.last is None:  # it was never started now; perhaps it had succeeded before
            return self.exit_status or int(not self.skipped)
        return self.last.outcome.exit_status
