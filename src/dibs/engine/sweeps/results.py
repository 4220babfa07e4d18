"""What trials report: read from files that may be large, or on a disk that hangs, so beside the loop."""

import os
import stat
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dibs.engine.launch.browse import fill_in
from dibs.engine.sweeps.parts import Parts
from dibs.engine.turn.state import OpenAttempt
from dibs.model.jobs import Job, State
from dibs.model.sweeps import Trial
from dibs.paths import network_file_system
from dibs.store.rows import JobRow

if TYPE_CHECKING:
    from dibs.sweeps.results import Reader, Report
    from dibs.sweeps.spec import Spec

METRICS = "metrics"  # in the attempt's folder; DIBS_METRICS leads there
_PIECE = 256 * 1024  # bytes
_MOST_READ = 64 * 1024**2  # bytes at once; of what is longer only the end counts
_IS_OLDER = "it is older than the trial, which has not written it"
_MOST_IN_FILE = 16 * 1024**2  # bytes of a result file
_TICK = 0.01  # seconds at most; the kernel stamps files with the time of its last one
_LAST_WORDS = 4096  # bytes of a log
_LONGEST_WORDS = 120  # letters of its last line, in a sentence
_CLOCKS_DIFFER = 2.0  # seconds; a file server has a clock of its own, and some file systems round


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
        self._last_file: tuple[_Identity, _Attempt] | None = None  # whose result was read from a file last

    async def new_reports(self, trial: Trial, running: OpenAttempt) -> list[tuple[int, float]]:
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
                found += tail.judged(report.step, report.values[self._names[0]])
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

    async def last_words(self, row: JobRow) -> str:
        """The last line that a job said, on stderr rather than on stdout; empty where there is none."""
        if not row.folder:
            return ""
        out, err = self._parts.results.streams(row.job, row.folder)
        try:
            said: str = await self._parts.aside(lambda: _last_line(err) or _last_line(out))
        except TimeoutError:
            return ""
        return said

    def forget(self, trial: Trial) -> None:
        self._tails.pop(trial.number, None)

    def _stream_reader(self, trial: Trial, row: JobRow) -> "Callable[[], _Found]":
        tail = self._tail(trial, row.job, row.folder, row.job.attempts)
        # The last line of a command that was killed may be torn.
        is_whole = row.job.state is State.SUCCEEDED

        def read() -> _Found:
            tail.skim()
            return tail.result(is_whole)

        return read

    def _file_reader(self, row: JobRow) -> "Callable[[], _Found]":
        from dibs.sweeps.results import read_result_file

        path = os.path.join(row.job.request.workdir, fill_in(self._spec.results.path, row.job))
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


_Identity = tuple[int, int, int]  # of a file: its device, its number there, when it was written
_Attempt = tuple[int, int]  # a job, and which of its attempts
_Found = tuple[tuple[float, ...] | None, str]


@dataclass(slots=True)
class _Tail:
    """What an attempt writes, as far as it was read."""

    attempt: tuple[int, int]
    streams: "list[_Stream]"
    reports: int = 0  # of the first metric; they are the steps of a trial that names none
    last: float | None = None  # told without a step

    def read(self) -> "list[Report]":
        return [report for stream in self.streams for report in stream.read()]

    def judged(self, step: int | None, value: float) -> list[tuple[int, float]]:
        """What can be compared with other trials now.

        Without a step it may be the result, and the trial is about to end: it counts when another follows.
        """
        if step is not None:
            return [(step, value)]
        before = [] if self.last is None else [(self.reports, self.last)]
        self.reports += 1
        self.last = value
        return before

    def skim(self) -> None:
        """Read on where only the result is wanted: millions of reports would fill the memory."""
        for stream in self.streams:
            for piece in stream.pieces():
                stream.reader.skim(piece)

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
        """What is new."""
        return [report for piece in self.pieces() for report in self.reader.feed(piece)]

    def pieces(self) -> Iterator[bytes]:
        """What is new, piece by piece; nothing where there is no such file yet, or it is no plain one."""
        try:
            handle = _open(self.path)
        except OSError:
            return
        try:
            size = os.fstat(handle).st_size
            is_cut = size - self.offset > _MOST_READ
            if is_cut:
                self.offset = size - _MOST_READ
            os.lseek(handle, self.offset, os.SEEK_SET)
            while self.offset < size and (piece := os.read(handle, min(_PIECE, size - self.offset))):
                self.offset += len(piece)
                if is_cut:  # what comes first is the end of a line, and half a name is another name
                    yield b"\n"
                    piece, is_cut = piece[piece.find(b"\n") + 1 :], False
                yield piece
        except OSError:
            pass  # what could be read counts
        finally:
            os.close(handle)


def _open(path: str) -> int:
    """For reading, and only a plain file: nobody is to wait for a pipe. OSError otherwise."""
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise OSError(0, "it is no plain file")
    return handle


def _last_line(path: str) -> str:
    """Short, and fit for a sentence."""
    try:
        with open(_open(path), "rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - _LAST_WORDS))
            lines = file.read(_LAST_WORDS).decode("utf-8", "replace").split("\n")
    except OSError:
        return ""
    line = next((line for line in reversed(lines) if line.strip()), "")
    shown = "".join(letter if letter.isprintable() else " " for letter in line).strip()
    return shown if len(shown) <= _LONGEST_WORDS else f"{shown[: _LONGEST_WORDS - 3]}..."


def _whole_file(path: str, began: float) -> tuple[bytes, _Identity]:
    """What is in it, and what tells it from other files; ValueError for one that is not what this trial left."""
    handle = _open(path)
    with open(handle, "rb") as file:
        about = os.fstat(handle)
        if about.st_mtime < began - _blur(path, about):
            raise ValueError(_IS_OLDER)
        if about.st_size > _MOST_IN_FILE:
            raise ValueError(f"it has {about.st_size} bytes, and a result is short")
        return file.read(_MOST_IN_FILE), (about.st_dev, about.st_ino, about.st_mtime_ns)


def _blur(path: str, about: os.stat_result) -> float:
    """How many seconds a file that was written after a moment may seem to be older than that moment."""
    if about.st_mtime_ns % 1_000_000_000 == 0 or network_file_system(path):
        return _CLOCKS_DIFFER
    return _TICK
