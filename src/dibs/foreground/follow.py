"""Follows the jobs' output files. The commands write straight to files: a pipe would end them with us."""

import os
from collections.abc import Callable
from dataclasses import field

from dibs.dataclass import dataclass
from dibs.model.jobs import Job, JobId
from dibs.supervise.folder import open_own_file

_CHUNK = 1 << 20
_MOST_AT_ONCE = 8 << 20  # bytes of one stream in one look: a flood must not keep the loop from its work
_LONGEST_LINE = 1 << 16  # a line without an end is shown in pieces

# job, whether it is stderr, whole lines with their ends
ShowLines = Callable[[Job, bool, bytes], None]


@dataclass(slots=True)
class _Stream:
    path: str
    is_error: bool
    fd: int = -1
    rest: bytes = b""  # the beginning of a line


@dataclass(slots=True)
class _Followed:
    job: Job
    streams: list[_Stream] = field(default_factory=list)


class Follower:
    """Hands out the output of all running jobs: whole lines, or, for a single job, every byte as it comes."""

    def __init__(self, show: ShowLines, *, whole_lines: bool) -> None:
        self._show = show
        self._whole_lines = whole_lines
        self._followed: dict[JobId, _Followed] = {}
        self._ended: list[_Followed] = []  # their jobs are over, but not all of their output has been shown

    def begin(self, job: Job, stdout: str, stderr: str) -> None:
        streams = [_Stream(stdout, False)]
        if stderr != stdout:
            streams.append(_Stream(stderr, True))
        self._followed[job.id] = _Followed(job, streams)

    def look(self) -> None:
        """Show what was written since the last look."""
        for followed in self._followed.values():
            for stream in followed.streams:
                self._read(followed.job, stream)
        self._ended = [followed for followed in self._ended if not self._finish(followed)]

    def end(self, job: Job) -> None:
        """Show the rest of a job's output; what is too much for now comes with the next looks."""
        followed = self._followed.pop(job.id, None)
        if followed is not None and not self._finish(followed):
            self._ended.append(followed)

    @property
    def is_idle(self) -> bool:
        """Everything that ended jobs wrote has been shown."""
        return not self._ended

    def _finish(self, followed: _Followed) -> bool:
        shown = [self._read(followed.job, stream) for stream in followed.streams]
        if not all(shown):
            return False
        for stream in followed.streams:
            if stream.rest:
                self._show(followed.job, stream.is_error, stream.rest + b"\n")
            if stream.fd >= 0:
                os.close(stream.fd)
        return True

    def _read(self, job: Job, stream: _Stream) -> bool:
        """Show what is there now; say whether that was all."""
        if stream.fd < 0:
            # Most looks find an empty file: asking its size is cheaper than opening it.
            try:
                if not os.stat(stream.path).st_size:
                    return True
                stream.fd = open_own_file(stream.path)
            except OSError:
                return True
        for _ in range(_MOST_AT_ONCE // _CHUNK):
            data = os.read(stream.fd, _CHUNK)
            if not data:
                return True
            self._show_data(job, stream, data)
        return False

    def _show_data(self, job: Job, stream: _Stream, data: bytes) -> None:
        if not self._whole_lines:
            self._show(job, stream.is_error, data)
            return
        whole, newline, rest = (stream.rest + data).rpartition(b"\n")
        if newline:
            self._show(job, stream.is_error, whole + newline)
        if len(rest) > _LONGEST_LINE:
            self._show(job, stream.is_error, rest + b"\n")
            rest = b""
        stream.rest = rest
