"""`dibs log`: what a job wrote, also while it writes."""

import os
import re
import time
from collections.abc import Mapping, Sequence
from typing import Any

import click

from dibs.cli.options import ParsedOption, count
from dibs.cli.output import (
    OVER,
    WAITING,
    harmless,
    job_name,
    outcome_text,
    put,
    say,
    show,
    styled,
    terminal_width,
    waiting_text,
)
from dibs.cli.references import REF, find_jobs
from dibs.client.client import Client, LogPart, RetryingClient, connect
from dibs.errors import Conflict

_PIECE = 1 << 20  # bytes of one question
_LONGEST_LINE = 1 << 16  # a line without an end is shown in pieces
_HOLE = 1024  # so many zero bytes in a row are no text: the middle of the file was cut out
_SHORT, _LONG = 0.1, 1.0  # seconds between two looks, while much and while nothing is written

_ALL = 0  # attempts


def _attempt(text: str) -> int:
    return _ALL if text.strip() == "all" else count(1).parse(text)


_EPILOG = """\b
Examples:
  dibs log 17               all of it: its stdout on stdout, its stderr on stderr
  dibs log -f @             until the last job is over; Ctrl-C leaves it running
  dibs log --err --lines 20 17
  dibs log --raw 17 > log   byte for byte
  dibs log 3-9 17_          several jobs and an array, each under a heading; -f: one after another
  dibs log --attempt all 17 every attempt, under a heading each

\b
Exit status: 0, also when you leave with Ctrl-C, and however the job ended: `dibs wait` tells that.
"""


@click.command(epilog=_EPILOG)
@click.argument("references", nargs=-1, required=True, type=REF, metavar="REF...")
@click.option("-f", "--follow", is_flag=True, help="Go on until the job is over; also before it has started.")
@click.option("--err", is_flag=True, help="Only what it wrote to stderr, on stdout.")
@click.option("--lines", type=count(0), metavar="N", help="Only the last N lines of each stream.")
@click.option(
    "--attempt",
    type=ParsedOption("attempt", _attempt),
    metavar="N|all",
    help="Of this attempt, not of the last one.",
)
@click.option("--raw", is_flag=True, help="Byte for byte, with control sequences that a terminal would execute.")
def log(references: Sequence[str], attempt: int | None, **options: Any) -> int:
    """Show what jobs wrote. Colours are kept; other control sequences are removed."""
    client = connect(os.environ)
    jobs = find_jobs(client, references)
    for number in jobs:
        job = client.job(number)
        begun = job["attempts"] - (job["state"] == "submitted")  # the last one waits at another system
        try:
            _show(client, job, begun, attempt, is_one=len(jobs) == 1, **options)
        except KeyboardInterrupt:
            say(f"\ndibs: `dibs log -f {number}` comes back to it; `dibs kill {number}` ends it")
            break
    return 0


def _show(
    client: Client,
    job: Mapping[str, Any],
    begun: int,
    attempt: int | None,
    *,
    is_one: bool,
    follow: bool,
    err: bool,
    lines: int | None,
    raw: bool,
) -> None:
    """One of the jobs. Each part of several has a heading, as `tail` shows them."""
    number = job["id"]
    if not follow and not begun:
        sentence, remedy = _nothing_written(client, job)
        if is_one:
            raise Conflict(sentence, remedy=remedy)
        say(f"dibs: {sentence}")
        return
    shown = _Shown(RetryingClient(client, say), number, _streams(job, err, raw, follow), lines)
    if attempt == _ALL:
        *earlier, last = range(1, begun + 1) or [None]
    else:
        earlier, last = [], attempt or (begun if job["state"] == "submitted" else None)
    for one in earlier:
        _put_heading(job, one, raw)
        shown.all_of(one)
    if earlier or not is_one:
        _put_heading(job, last if attempt == _ALL else None, raw)
    if follow:
        shown.follow(attempt or None)
    else:
        shown.all_of(last)


def _nothing_written(client: Client, job: Mapping[str, Any]) -> tuple[str, str]:
    """Why a job that has not started has no output, and what to do."""
    number = job["id"]
    if job["state"] == "cancelled":
        return (
            f"job {number} has written nothing: it was cancelled before it started",
            f"`dibs retry {number}` queues it again",
        )
    return (
        f"job {number} has written nothing: {waiting_text(client.why(number))}",
        f"`dibs log -f {number}` shows it when it starts",
    )


def _put_heading(job: Mapping[str, Any], attempt: int | None, raw: bool) -> None:
    """`==> job 17 (train), attempt 1 <==`; not between bytes that are to be as they were."""
    if not raw:
        which = f", attempt {attempt}" if attempt else ""
        show(styled(f"==> job {job_name(job)}{which} <==", "bold"))


class _Stream:
    """One of a job's two streams, on its way to one of ours."""

    def __init__(self, name: str, fd: int, *, raw: bool, is_live: bool) -> None:
        self.name = name
        self.fd = fd
        self.offset: int | None = None  # None: not asked for yet
        self._raw = raw
        self._is_live = is_live and os.isatty(fd)  # a line that is not finished is shown, too
        self._rest = b""
        self._in_hole = False

    def put(self, data: bytes) -> None:
        """Show whole lines; a line that grows is drawn again on a terminal."""
        if self._raw:
            put(self.fd, data)
            return
        text, self._rest = self._ready(self._rest + self._without_holes(data))
        put(self.fd, (b"\r\x1b[K" if self._is_live and (text or self._rest) else b"") + text)
        if self._is_live and self._rest:
            put(self.fd, self._shown_rest())

    def end(self) -> None:
        """Show what stands behind the last newline."""
        if self._rest:
            end = b"\n" if os.isatty(self.fd) else b""  # a prompt is not to stand beside it
            put(self.fd, (b"\r\x1b[K" if self._is_live else b"") + harmless(self._rest) + end)
        self._rest, self.offset, self._in_hole = b"", None, False

    def _ready(self, data: bytes) -> tuple[bytes, bytes]:
        """What can be shown for good, and the beginning of a line, which waits for its end."""
        whole, newline, rest = data.rpartition(b"\n")
        if len(rest) >= _LONGEST_LINE:  # of a progress bar only the last state counts
            rest = rest[rest.rfind(b"\r", 0, -1) + 1 :]
        if len(rest) < _LONGEST_LINE:
            return harmless(whole + newline), rest
        end = _end_of_letters(rest)
        return harmless(whole + newline + rest[:end]) + (b"\n" if self._is_live else b""), rest[end:]

    def _shown_rest(self) -> bytes:
        text = harmless(self._rest)
        return text if len(text) < terminal_width(self.fd) else b""  # drawn over two lines it could not be wiped

    def _without_holes(self, data: bytes) -> bytes:
        if self._in_hole:
            data = data.lstrip(b"\0")
            self._in_hole = not data
        self._in_hole = self._in_hole or data.endswith(b"\0" * _HOLE)
        return re.sub(rb"\n?\x00{%d,}\n?" % _HOLE, b"\n[... cut]\n", data)


class _Shown:
    """A job's output as far as it has been shown."""

    def __init__(self, daemon: RetryingClient, job: int, streams: list[_Stream], lines: int | None) -> None:
        self._daemon = daemon
        self._job = job
        self._streams = streams
        self._lines = lines
        self._said = ""

    def all_of(self, attempt: int | None) -> None:
        """What is there now. What is written in the meantime is left for the next call."""
        for stream in self._streams:
            size = None
            while (part := self._next(stream, attempt)).data:
                stream.put(part.data)
                size = part.size if size is None else size
                if part.end >= size:
                    break
            stream.end()

    def follow(self, attempt: int | None) -> int:
        """Until the job is over, or the attempt that was asked for."""
        shown, pause = attempt or 0, _SHORT
        while True:
            # Its state before its output: what was written until then is in what is read now.
            job = self._daemon.ask(lambda client: client.job(self._job))
            if not shown and job["attempts"]:
                shown = job["attempts"]
            is_last = job["state"] in OVER or job["attempts"] > shown
            wrote = self._more(shown) if shown and (is_last or shown <= job["attempts"]) else False
            if job["attempts"] > shown and shown:
                self._end()
                if attempt is not None:
                    return 0
                shown += 1
                say(f"dibs: attempt {shown} of job {self._job}")
            elif is_last:
                self._end()
                if job["state"] != "succeeded":
                    say(f"dibs: job {job_name(job)} {outcome_text(job)}")
                return 0
            else:
                self._say_wait(job)
                pause = _SHORT if wrote else min(_LONG, pause * 1.3)
                time.sleep(pause)

    def _more(self, attempt: int) -> bool:
        """Show everything new; whether there was anything."""
        wrote = False
        for stream in self._streams:
            while (part := self._next(stream, attempt)).data:
                stream.put(part.data)
                wrote = True
        return wrote

    def _next(self, stream: _Stream, attempt: int | None) -> LogPart:
        begins = stream.offset is None
        wanted: dict[str, Any] = {"stream": stream.name, "attempt": attempt}
        if begins and self._lines is not None:
            wanted["tail"] = self._lines
        else:
            wanted |= {"offset": stream.offset or 0, "limit": _PIECE}
        part = self._daemon.ask(lambda client: client.log(self._job, **wanted))
        stream.offset = part.end
        if len(part.data) == _PIECE and not part.data.strip(b"\0"):
            stream.offset = self._end_of_hole(stream.name, attempt, part.end)
        return part

    def _end_of_hole(self, stream: str, attempt: int | None, begin: int) -> int:
        """Near the end of what was cut out, found in strides: a hole may be much larger than the rest."""

        def is_hole(offset: int) -> bool:
            part = self._daemon.ask(
                lambda client: client.log(self._job, stream=stream, attempt=attempt, offset=offset, limit=_HOLE)
            )
            return part.data == b"\0" * _HOLE

        stride = _PIECE
        while is_hole(begin + stride):
            begin, stride = begin + stride, stride * 2
        while stride > _HOLE:
            stride //= 2
            if is_hole(begin + stride):
                begin += stride
        return begin

    def _end(self) -> None:
        for stream in self._streams:
            stream.end()

    def _say_wait(self, job: Mapping[str, Any]) -> None:
        """Why it has not started, once for each reason."""
        if job["state"] not in WAITING:
            return
        told = waiting_text(self._daemon.ask(lambda client: client.why(self._job)))
        if told != self._said:
            self._said = told
            say(f"dibs: job {self._job} {told}")


def _streams(job: Mapping[str, Any], err: bool, raw: bool, follow: bool) -> list[_Stream]:
    if err:
        return [_Stream("stderr", 1, raw=raw, is_live=follow)]
    streams = [_Stream("stdout", 1, raw=raw, is_live=follow)]
    if not job.get("output"):  # where it has a file of its own, both are in it
        streams.append(_Stream("stderr", 2, raw=raw, is_live=follow))
    return streams


def _end_of_letters(data: bytes) -> int:
    """Where text can be cut in two: not within a letter, nor within what colours it."""
    end = len(data)
    if (escape := data.rfind(b"\x1b", end - 32)) >= 0:
        return escape
    for back in range(1, 5):
        if data[-back] < 0x80 or data[-back] >= 0xC0:  # a letter of its own, or the first byte of one
            return end - back + (data[-back] < 0x80)
    return end
