"""What trials report: read from files that may be large, or on a disk that hangs, so beside the loop."""

import os
import stat
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dibs.engine.browse import fill_in
from dibs.engine.hand import Open
from dibs.engine.sweeps.parts import Parts
from dibs.model.jobs import Job, State
from dibs.model.sweeps import Trial
from dibs.store.rows import JobRow

if TYPE_CHECKING:
    from dibs.sweeps.results import Reader, Report
    from dibs.sweeps.spec import Spec

METRICS = "metrics"  # in the attempt's folder; DIBS_METRICS leads there
_PIECE = 256 * 1024  # bytes
_MOST_READ = 64 * 1024**2  # bytes at once; of what is longer only the end counts
_MOST_IN_FILE = 16 * 1024**2  # bytes of a result file
_CLOCKS_DIFFER = 2.0  # seconds; a file system may round, and a file server has a clock of its own


class Unreadable(Exception):
    """A trial has no result; the text says why. Trials whose results are missing alike are of one kind."""

    def __init__(self, sentence: str, kind: str = "no result") -> None:
        super().__init__(sentence)
        self.kind = kind


class TrialReader:
    """Reads what the trials of one sweep say. Of the last attempt of each job, and each byte once."""

    def __init__(self, spec: "Spec", parts: Parts) -> None:
        self._spec = spec
        self._parts = parts
        self._names = [metric.name for metric in spec.metrics]
        self._tails: dict[int, _Tail] = {}  # by the trial's number

    async def new_reports(self, trial: Trial, running: Open) -> list[tuple[int, float]]:
        """What a running trial has said of the first metric since the last time, by step."""
        if self._spec.results.kind == "file" or not self._names:
            return []
        tail = self._tail(trial, running.job, running.attempt.folder, running.attempt.number)
        try:
            reports = await self._parts.aside(tail.read)
        except TimeoutError:
            return []
        found = []
        for report in reports:
            if self._names[0] in report.values:
                tail.reports += 1
                step = tail.reports if report.step is None else report.step
                found.append((step, report.values[self._names[0]]))
        return found

    async def result(self, trial: Trial, row: JobRow) -> tuple[float, ...] | None:
        """The values of a trial whose job is over; None where the sweep has no metric. Unreadable says why not."""
        if not self._names:
            return None
        if not row.folder:
            raise Unreadable(f"job {row.job.id} never ran")
        if self._spec.results.kind == "file":
            read = self._file_reader(row)
        else:
            read = self._stream_reader(trial, row)
        try:
            values, problem = await self._parts.aside(read)
        except TimeoutError:
            raise Unreadable("its results cannot be read: the disk does not answer", "no answer") from None
        if values is None:
            raise Unreadable(f"job {row.job.id} has no result: {problem}")
        found: tuple[float, ...] = values
        return found

    def forget(self, trial: Trial) -> None:
        self._tails.pop(trial.number, None)

    def _stream_reader(self, trial: Trial, row: JobRow) -> "Callable[[], _Found]":
        tail = self._tail(trial, row.job, row.folder, row.job.attempts)
        # The last line of a command that was killed may be torn.
        is_whole = row.job.state is State.SUCCEEDED

        def read() -> _Found:
            tail.read()
            return tail.result(is_whole)

        return read

    def _file_reader(self, row: JobRow) -> "Callable[[], _Found]":
        from dibs.sweeps.results import read_result_file

        path = os.path.join(row.job.request.workdir, fill_in(self._spec.results.path, row.job))
        began = (row.started_at or 0.0) - _CLOCKS_DIFFER

        def read() -> _Found:
            try:
                content = _whole_file(path, began)
            except (OSError, ValueError) as error:
                said = error.strerror if isinstance(error, OSError) else str(error)
                return None, f"cannot read {path}: {said}"
            result = read_result_file(content, self._names)
            return result.values, result.problem

        return read

    def _tail(self, trial: Trial, job: Job, folder: str, attempt: int) -> "_Tail":
        tail = self._tails.get(trial.number)
        if tail is None or tail.attempt != (job.id, attempt):
            streams = [_Stream(path, reader) for path, reader in self._sources(job, folder)]
            tail = self._tails[trial.number] = _Tail((job.id, attempt), streams)
        return tail

    def _sources(self, job: Job, folder: str) -> "list[tuple[str, Reader]]":
        from dibs.sweeps.results import LogReader, MetricsReader

        if self._spec.results.kind == "log":
            # Some print their numbers, some log them to stderr; with `-o` both are one file.
            paths = dict.fromkeys(self._parts.results.streams(job, folder))
            return [(path, LogReader(self._spec.results.pattern, self._names)) for path in paths]
        return [(f"{folder}/{METRICS}", MetricsReader(self._names))]


_Found = tuple[tuple[float, ...] | None, str]


@dataclass(slots=True)
class _Tail:
    """What an attempt writes, as far as it was read."""

    attempt: tuple[int, int]
    streams: "list[_Stream]"
    reports: int = 0  # of the first metric; they are the steps of a trial that names none

    def read(self) -> "list[Report]":
        return [report for stream in self.streams for report in stream.read()]

    def result(self, is_whole: bool) -> _Found:
        """The numbers of the stream that has them all; else what the first one is short of."""
        for stream in self.streams if is_whole else ():
            stream.reader.finish()
        results = [stream.reader.result() for stream in self.streams]
        found = next((one for one in results if one.values is not None), results[0])
        return found.values, found.problem


@dataclass(slots=True)
class _Stream:
    """A file that grows."""

    path: str
    reader: "Reader"
    offset: int = 0

    def read(self) -> "list[Report]":
        """What is new; nothing where there is no such file yet, or it is no plain one."""
        found: list[Report] = []
        try:
            handle = _open(self.path)
        except OSError:
            return found
        try:
            size = os.fstat(handle).st_size
            is_cut = size - self.offset > _MOST_READ
            if is_cut:
                self.offset = size - _MOST_READ
            os.lseek(handle, self.offset, os.SEEK_SET)
            while self.offset < size and (piece := os.read(handle, min(_PIECE, size - self.offset))):
                self.offset += len(piece)
                if is_cut:  # what comes first is the end of a line, and half a name is another name
                    self.reader.feed(b"\n")
                    piece, is_cut = piece[piece.find(b"\n") + 1 :], False
                found += self.reader.feed(piece)
        except OSError:
            pass  # what could be read counts
        finally:
            os.close(handle)
        return found


def _open(path: str) -> int:
    """For reading, and only a plain file: nobody is to wait for a pipe. OSError otherwise."""
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise OSError(0, "it is no plain file")
    return handle


def _whole_file(path: str, began: float) -> bytes:
    """ValueError for a file that is not what this trial left."""
    handle = _open(path)
    with open(handle, "rb") as file:
        about = os.fstat(handle)
        if about.st_mtime < began:
            raise ValueError("it is older than the trial, which has not written it")
        if about.st_size > _MOST_IN_FILE:
            raise ValueError(f"it has {about.st_size} bytes, and a result is short")
        return file.read(_MOST_IN_FILE)
