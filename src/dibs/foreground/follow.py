"""Follows the jobs' output files. The commands write straight to files: a pipe would end them with us."""

import os
from collections.abc import Callable
from dataclasses import dataclass, field

from dibs.model.jobs import Job, JobId

_CHUNK = 1 << 20
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
    """Hands out whole lines of the output of all running jobs. Nothing is torn, nothing is held for long."""

    def __init__(self, show: ShowLines) -> None:
        self._show = show
        self._followed: dict[JobId, _Followed] = {}

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

    def end(self, job: Job) -> None:
        """Show the rest of a job's output, the last line too if it has no end."""
        followed = self._followed.pop(job.id, None)
        if followed is None:
            return
        for stream in followed.streams:
            self._read(job, stream)
            if stream.rest:
                self._show(job, stream.is_error, stream.rest + b"\n")
            if stream.fd >= 0:
                os.close(stream.fd)

    def _read(self, job: Job, stream: _Stream) -> None:
        if stream.fd < 0:
            # Most looks find an empty file: asking its size is cheaper than opening it.
            try:
                if not os.stat(stream.path).st_size:
                    return
                stream.fd = os.open(stream.path, os.O_RDONLY | os.O_CLOEXEC)
            except OSError:
                return
        while data := os.read(stream.fd, _CHUNK):
            whole, newline, rest = (stream.rest + data).rpartition(b"\n")
            if newline:
                self._show(job, stream.is_error, whole + newline)
            if len(rest) > _LONGEST_LINE:
                self._show(job, stream.is_error, rest + b"\n")
                rest = b""
            stream.rest = rest
