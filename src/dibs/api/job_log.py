"""The output of a job as text, at once or line by line while it runs; for loops and for asyncio."""

import codecs
import re
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from dibs.api.connection import patient
from dibs.errors import BadInput
from dibs.model.jobs import State

if TYPE_CHECKING:
    from dibs.api.job import Job
    from dibs.client.client import LogPart, RetryingClient

_PIECE = 1 << 20  # bytes of one request
_HOLE = 1024  # so many zero bytes in a row are a hole: the middle of the file was cut out
_SHORT, _LONG = 0.1, 1.0  # seconds between two requests, while much and while nothing is written
_STREAMS = {"both": ("stdout", "stderr"), "stdout": ("stdout",), "stderr": ("stderr",)}


def streams_of(word: str) -> tuple[str, ...]:
    """The streams that a word means."""
    if word not in _STREAMS:
        raise BadInput(f"there is no stream called {word!r}", remedy="it is stdout, stderr or both")
    return _STREAMS[word]


class JobLog:
    """The lines of a job, without their ends. An interrupted loop may continue with the same object."""

    def __init__(self, job: "Job", streams: Sequence[str], lines: int | None = None) -> None:
        self._job = job
        self._names = streams
        self._lines = lines
        self._streams: list[_Stream] | None = None  # None: not opened yet
        self._attempt = 0  # the attempt that is read; 0: there is none yet
        self._ready: list[str] = []
        self._is_over = False
        self._wrote = False

    def all(self) -> str:
        """All output until now."""
        about = self._job.refresh().about
        if not about["attempts"]:
            return ""
        with patient() as daemon:
            return "".join(stream.text(daemon) for stream in self._open(about, about["attempts"]))

    def __iter__(self) -> Iterator[str]:
        pause = _SHORT
        while True:
            yield from self._take()
            if self._is_over:
                return
            self._look()
            pause = _SHORT if self._wrote else min(_LONG, pause * 1.3)
            if not self._ready and not self._is_over:
                time.sleep(pause)

    async def __aiter__(self) -> AsyncIterator[str]:
        import asyncio

        pause = _SHORT
        while True:
            for line in self._take():
                yield line
            if self._is_over:
                return
            # Each request is short: a cancelled reader leaves no thread behind that would delay the exit.
            await asyncio.to_thread(self._look)
            pause = _SHORT if self._wrote else min(_LONG, pause * 1.3)
            if not self._ready and not self._is_over:
                await asyncio.sleep(pause)

    def _take(self) -> list[str]:
        ready, self._ready = self._ready, []
        return ready

    def _look(self) -> None:
        """Read all new output; of a job that is retried, the attempts one after another."""
        # The state before the output: output of a job that is over is then complete.
        about = self._job.refresh().about
        self._wrote = False
        if not about["attempts"]:
            self._is_over = State(about["state"]).is_over
            return
        if self._streams is None:
            self._attempt = about["attempts"]
            self._streams = self._open(about, self._attempt)
        has_ended = State(about["state"]).is_over or about["attempts"] > self._attempt
        with patient() as daemon:
            for stream in self._streams:
                found = stream.new_lines(daemon, is_last=has_ended)
                self._wrote = self._wrote or bool(found)
                self._ready += found
        if about["attempts"] > self._attempt:
            self._attempt += 1
            self._streams = self._open(about, self._attempt)
        else:
            self._is_over = has_ended

    def _open(self, about: Any, attempt: int) -> "list[_Stream]":
        # With an output file both streams are in it, and stderr is the same text again.
        names = self._names[:1] if about.get("output") else self._names
        return [_Stream(about["id"], name, attempt, self._lines) for name in names]


class _Stream:
    """One of an attempt's two streams, as far as it was read."""

    def __init__(self, job: int, name: str, attempt: int, lines: int | None) -> None:
        self._asked = {"stream": name, "attempt": attempt}
        self._job = job
        self._lines = lines
        self._offset: int | None = None  # None: not read yet
        self._begun = ""  # an incomplete line
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def text(self, daemon: "RetryingClient", *, is_last: bool = True) -> str:
        """All new text. Text that is written in the meantime is left for the next call."""
        found, size = "", None
        while (part := self._part(daemon)).data:
            size = part.size if size is None else size
            found += self._decoder.decode(re.sub(rb"\x00{%d,}" % _HOLE, b"\n[... cut]\n", part.data))
            if part.end >= size:
                break
        return found + (self._decoder.decode(b"", final=True) if is_last else "")

    def new_lines(self, daemon: "RetryingClient", *, is_last: bool) -> list[str]:
        """The lines that are complete now; with `is_last` also an incomplete one."""
        *whole, self._begun = (self._begun + self.text(daemon, is_last=is_last)).split("\n")
        if is_last and self._begun:
            whole.append(self._begun)
        return whole

    def _part(self, daemon: "RetryingClient") -> "LogPart":
        wanted: dict[str, Any] = dict(self._asked)
        if self._offset is None and self._lines is not None:
            wanted["tail"] = self._lines
        else:
            wanted |= {"offset": self._offset or 0, "limit": _PIECE}
        part = daemon.ask(lambda client: client.log(self._job, **wanted))
        self._offset = part.end
        return part
