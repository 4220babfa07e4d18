"""Reads the numbers that trials report. The files may be large or on a disk that hangs, so a thread reads them."""

import os
import time
from collections.abc import Callable, Sequence

from dibs.dataclass import dataclass
from dibs.engine.launch.browse import fill_in
from dibs.engine.launch.metric_sources import sources_of
from dibs.engine.sweeps.context import SweepContext
from dibs.engine.turn.state import OpenAttempt
from dibs.metrics.attempt import METRICS_FILE, AttemptMetrics, last_numbers
from dibs.metrics.files import GrowingFile
from dibs.metrics.lines import read_line, read_object
from dibs.metrics.series import MetricTable
from dibs.metrics.wandb_file import find_run_files, run_of
from dibs.model.jobs import Job, State
from dibs.model.sweeps import Trial
from dibs.paths import network_file_system
from dibs.store.codec import JobRow
from dibs.supervise.folder import open_own_file
from dibs.sweeps.results import (
    Bests,
    LogReader,
    MetricsReader,
    Reader,
    Report,
    Result,
    WandbResults,
    read_result_file,
)
from dibs.sweeps.spec import Spec

_IS_OLDER = "it is older than the trial, which has not written it"
_MOST_IN_FILE = 16 * 1024**2  # bytes of a result file
_READ_FOR = 20.0  # seconds for all numbers of a trial; of ten millions the last may be missing
_SOONEST_EVENTS = 1.0  # seconds that a trial takes in which a library was loaded that writes event files
_TICK = 0.01  # seconds; the largest resolution of the kernel's file times
_LOG_END = 4096  # bytes of a log, for its last line
_LONGEST_SHOWN = 120  # letters of that line, in a message
_CLOCKS_DIFFER = 2.0  # seconds; a file server has its own clock, and some file systems round


NO_RESULT = "no result"


class NoResult(Exception):
    """A trial has no result; the message says why. `kind` is the same for the same cause."""

    def __init__(self, sentence: str, kind: str = NO_RESULT) -> None:
        super().__init__(sentence)
        self.kind = kind


@dataclass(frozen=True, slots=True)
class TrialNews:
    """What a running trial has reported."""

    steps: Sequence[tuple[int, float]] = ()  # values of the first metric, by step
    not_finite: str = ""  # a clause about the first value that is not finite


class TrialReader:
    """Reads the reports of one sweep's trials, from the last attempt of each job, each byte once."""

    def __init__(self, spec: "Spec", context: SweepContext) -> None:
        self._spec = spec
        self._context = context
        self._names = [metric.name for metric in spec.metrics]
        self._bests: Bests = {metric.name: metric.goal for metric in spec.metrics if metric.take == "best"}
        self._tails: dict[int, _Tail] = {}  # by the trial's number
        self._last_file: tuple[_Identity, _Attempt] | None = None  # the result file that was read last

    async def news(self, trial: Trial, running: OpenAttempt) -> "TrialNews":
        """What a running trial has reported since the last call."""
        if self._spec.results.kind == "file" or not self._names:
            return TrialNews()
        attempt = running.attempt
        tail = self._tail(trial, running.job, attempt.folder, attempt.number, attempt.opened_at)
        try:
            reports = await self._context.in_thread(tail.read)
        except TimeoutError:
            return TrialNews()
        found: list[tuple[int, float]] = []
        bad = ""
        for report in reports:
            if self._names[0] in report.values:
                found += tail.judged(report.step, report.values[self._names[0]])
            if report.not_finite and not bad:
                where = "" if report.step is None else f" at step {report.step}"
                bad = f"{report.not_finite[0]} is not finite{where}"
        return TrialNews(found, bad)

    async def result(self, trial: Trial, row: JobRow) -> tuple[float, ...] | None:
        """The values of a trial whose job is over; None where the sweep has no metric. Raises NoResult."""
        if not self._names:
            return None
        if not row.folder:
            raise NoResult(f"job {row.job.id} never ran")
        if self._spec.results.kind == "file":
            read = self._file_reader(row)
        else:
            read = self._stream_reader(trial, row)
        try:
            values, problem = await self._context.in_thread(read)
        except TimeoutError:
            raise NoResult("its results cannot be read: the disk does not answer", "no answer") from None
        if values is None:
            raise NoResult(f"job {row.job.id} has no result: {problem}")
        found: tuple[float, ...] = values
        return found

    async def reported(self, row: JobRow) -> dict[str, float | None]:
        """The last of every number that a job has reported, in whatever way; None: it is not finite."""
        if not row.folder:
            return {}
        # Event files are searched in the working folder, and only where a program had the time to write one.
        has_events = row.outcome is not None and (row.outcome.seconds or 0.0) >= _SOONEST_EVENTS
        began = row.started_at or row.queued_at
        metrics = AttemptMetrics(
            sources_of(row.job, self._context.results, row.folder, began, node=row.node, has_events=has_events)
        )
        path = self._result_path(row) if self._spec.results.kind == "file" else ""

        def read() -> dict[str, float | None]:
            found = _numbers_in(path, began) if path else {}
            metrics.look(time.monotonic() + _READ_FOR, ended=row.ended_at, is_whole=_is_whole(row))
            return last_numbers(metrics) | found

        try:
            last: dict[str, float | None] = await self._context.in_thread(read)
        except TimeoutError:
            return {}
        return last

    async def last_line(self, row: JobRow) -> str:
        """The last line that a job wrote, to stderr or else to stdout; empty where there is none."""
        if not row.folder:
            return ""
        out, err = self._context.results.streams(row.job, row.folder, row.node)
        try:
            said: str = await self._context.in_thread(lambda: _last_line(err) or _last_line(out))
        except TimeoutError:
            return ""
        return said

    def forget(self, trial: Trial) -> None:
        self._tails.pop(trial.number, None)

    def _stream_reader(self, trial: Trial, row: JobRow) -> "Callable[[], _Found]":
        tail = self._tail(trial, row.job, row.folder, row.job.attempts, row.started_at or 0.0)

        def read() -> _Found:
            tail.skim()
            return tail.result(_is_whole(row))

        return read

    def _file_reader(self, row: JobRow) -> "Callable[[], _Found]":
        path = self._result_path(row)
        began = row.started_at or 0.0
        attempt = (row.job.id, row.job.attempts)

        def read() -> _Found:
            try:
                content, identity = _whole_file(path, began)
                if (
                    self._last_file is not None
                    and self._last_file[0] == identity
                    and self._last_file[1] != attempt
                ):
                    raise ValueError(_IS_OLDER)
                self._last_file = identity, attempt
            except (OSError, ValueError) as error:
                said = error.strerror if isinstance(error, OSError) else str(error)
                return None, f"cannot read {path}: {said}"
            result = read_result_file(content, self._names, self._bests)
            return result.values, result.problem

        return read

    def _result_path(self, row: JobRow) -> str:
        return os.path.join(row.job.request.workdir, fill_in(self._spec.results.path, row.job))

    def _tail(self, trial: Trial, job: Job, folder: str, attempt: int, began: float) -> "_Tail":
        tail = self._tails.get(trial.number)
        if tail is None or tail.attempt != (job.id, attempt):
            streams: list[_Stream | WandbResults] = [
                _Stream(GrowingFile(path), reader) for path, reader in self._sources(job, folder)
            ]
            if self._spec.results.kind == "wandb":
                run, where = run_of(dict(job.request.env), job.request.workdir)
                streams.insert(
                    0, WandbResults(self._names, lambda: find_run_files(where, run, began), self._bests)
                )
            tail = self._tails[trial.number] = _Tail((job.id, attempt), streams)
        return tail

    def _sources(self, job: Job, folder: str) -> "list[tuple[str, Reader]]":
        if self._spec.results.kind == "log":
            # Some programs print their numbers and some log them to stderr; with `-o` both are one file.
            paths = dict.fromkeys(self._context.results.streams(job, folder))
            return [(path, LogReader(self._spec.results.pattern, self._names, self._bests)) for path in paths]
        return [(f"{folder}/{METRICS_FILE}", MetricsReader(self._names, self._bests))]


_Identity = tuple[int, int, int]  # of a file: device, inode, modification time
_Attempt = tuple[int, int]  # a job, and which of its attempts
_Found = tuple[tuple[float, ...] | None, str]


@dataclass(slots=True)
class _Tail:
    """The files that an attempt writes, and how far they were read."""

    attempt: tuple[int, int]
    streams: "list[_Stream | WandbResults]"
    reports: int = 0  # of the first metric without a step; counts as the step
    last: float | None = None  # the last value without a step

    def read(self) -> "list[Report]":
        return [report for stream in self.streams for report in stream.read()]

    def judged(self, step: int | None, value: float) -> list[tuple[int, float]]:
        """The values that can be compared with other trials now.

        A value without a step may be the result of a trial that is about to end: it counts when another follows.
        """
        if step is not None:
            return [(step, value)]
        before = [] if self.last is None else [(self.reports, self.last)]
        self.reports += 1
        self.last = value
        return before

    def skim(self) -> None:
        """Read on for the result only: millions of reports would fill the memory."""
        for stream in self.streams:
            stream.skim()

    def result(self, is_whole: bool) -> _Found:
        """The numbers of the stream that has them all, or else the problem of the first stream."""
        for stream in self.streams if is_whole else ():
            stream.finish()
        results = [stream.result() for stream in self.streams]
        found = next((one for one in results if one.values is not None), results[0])
        return found.values, found.problem


@dataclass(slots=True)
class _Stream:
    """A growing file and what reads its lines."""

    file: GrowingFile
    reader: "Reader"

    def read(self) -> "list[Report]":
        """The new reports."""
        return [report for piece in self.file.pieces() for report in self.reader.feed(piece)]

    def skim(self) -> None:
        for piece in self.file.pieces():
            self.reader.skim(piece)

    def finish(self) -> None:
        self.reader.finish()

    def result(self) -> Result:
        return self.reader.result()


def _is_whole(row: JobRow) -> bool:
    """Whether a last line without its end counts: that of a command that was killed may be incomplete."""
    return row.job.state is State.SUCCEEDED


def _numbers_in(path: str, began: float) -> dict[str, float | None]:
    """Every number of a result file; none where it cannot be read."""
    try:
        content, _ = _whole_file(path, began)
    except (OSError, ValueError):
        return {}
    table = MetricTable()
    text = content.decode("utf-8", "replace")
    for told in (
        [read_object(text.strip())] if text.lstrip().startswith("{") else map(read_line, text.splitlines())
    ):
        table.take(told or {}, began)
    return {name: series.summary().last for name, series in table.series.items()}


def _last_line(path: str) -> str:
    """The last line that is not blank, shortened and printable."""
    try:
        with open(open_own_file(path), "rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - _LOG_END))
            lines = file.read(_LOG_END).decode("utf-8", "replace").split("\n")
    except OSError:
        return ""
    line = next((line for line in reversed(lines) if line.strip()), "")
    shown = "".join(letter if letter.isprintable() else " " for letter in line).strip()
    return shown if len(shown) <= _LONGEST_SHOWN else f"{shown[: _LONGEST_SHOWN - 3]}..."


def _whole_file(path: str, began: float) -> tuple[bytes, _Identity]:
    """The content and the identity of a file; ValueError for one that this trial has not written."""
    # A link to the file is common here: the name of a result file is the user's.
    handle = open_own_file(os.path.realpath(path))
    with open(handle, "rb") as file:
        about = os.fstat(handle)
        if about.st_mtime < began - _blur(path, about):
            raise ValueError(_IS_OLDER)
        if about.st_size > _MOST_IN_FILE:
            raise ValueError(f"it has {about.st_size} bytes, more than a result file may have")
        return file.read(_MOST_IN_FILE), (about.st_dev, about.st_ino, about.st_mtime_ns)


def _blur(path: str, about: os.stat_result) -> float:
    """By how many seconds the modification time of a file may precede the time of the write."""
    if about.st_mtime_ns % 1_000_000_000 == 0 or network_file_system(path):
        return _CLOCKS_DIFFER
    return _TICK
