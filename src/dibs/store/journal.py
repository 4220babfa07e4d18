"""The journal: what happened to the queue, one line for each thing, so that a store can be made again.

Lines are written before the store commits, so whatever is acknowledged stands here. What the store did not take
after all does no harm: numbers are given in order, so an `add` that counts from 17 says that nobody has been
told of a job 17 before, and a second start or end of an attempt takes the place of the first.
"""

import json
import os
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from errno import ENOSPC
from typing import Any, NamedTuple

from dibs.model.jobs import Attempt, Job, JobId, Outcome, State
from dibs.store.codec import encode_claims, encode_request

NAME = "journal.jsonl"
_LONGEST = 64 * 1024**2  # bytes of one line; a batch of jobs is at most some megabytes
_CHECK = b',"crc":'  # stands last in a line
_WITH_CODE = ("add", "sweep")

Line = dict[str, Any]


class Position(NamedTuple):
    """A place in a journal: which writing of it, and how many bytes."""

    id: str  # another one after each compaction
    size: int

    def __str__(self) -> str:
        return f"{self.id}:{self.size}"

    @classmethod
    def parse(cls, text: str) -> "Position":
        name, _, size = text.rpartition(":")
        return cls(name, int(size))


class Journal:
    """An append-only file with one writer."""

    def __init__(self, path: str) -> None:
        """Open it for writing, and cut what a power cut left of the last line."""
        self.path = path
        is_new = not os.path.lexists(path)
        self._fd = _open(path)
        self._must_cut = False
        try:
            if is_new:
                _sync_folder(path)
            self._size = self._before = _cut_torn_end(self._fd)
            self._head = _head(path)
        except OSError:
            os.close(self._fd)
            raise

    @property
    def size(self) -> int:
        """Bytes."""
        return self._size

    @property
    def position(self) -> Position:
        """Where it ends. A store that commits this with what was appended knows how much of it has been told."""
        return Position(self._head.get("id", ""), self._size)

    @property
    def position_before(self) -> Position | None:
        """Where it ended before it was compacted the last time."""
        return Position(*self._head["was"]) if "was" in self._head else None

    def append(self, lines: Iterable[Mapping[str, Any]]) -> None:
        """Write them with one call, before the store commits. On a full disk OSError, and nothing was written."""
        content = b"".join(map(encode, lines))
        if not content:
            return
        if self._must_cut:
            self.take_back(self._size)
        self._before = self._size
        try:
            written = os.write(self._fd, content)
            if written != len(content):
                raise OSError(ENOSPC, os.strerror(ENOSPC), self.path)
        except OSError:
            self.take_back(self._before)
            raise
        self._size += written

    def take_back(self, size: int) -> None:
        """The store did not take what was appended since the file had this size: neither do we."""
        self._size = min(size, self._size)
        self._must_cut = True  # until it is done: behind half a line nothing could be read
        os.ftruncate(self._fd, self._size)
        self._must_cut = False

    def sync(self) -> None:
        """Come back when what was appended survives a power cut. Otherwise OSError, and it is taken back."""
        try:
            os.fdatasync(self._fd)
        except OSError:
            self.take_back(self._before)
            raise

    def compact(self, is_kept: Callable[[int], bool]) -> None:
        """Write it anew without the jobs that were cleaned away. A crash leaves the old file or the new one."""
        new = f"{self.path}.new"
        try:
            self._write_compact(new, is_kept)
            os.replace(new, self.path)
        except OSError:
            with suppress(OSError):
                os.unlink(new)  # the disk may be full
            raise
        _sync_folder(self.path)
        os.close(self._fd)
        self._fd = _open(self.path)
        self._size = self._before = os.fstat(self._fd).st_size
        self._head = _head(self.path)

    def close(self) -> None:
        os.close(self._fd)

    def _write_compact(self, new: str, is_kept: Callable[[int], bool]) -> None:
        following = self._next_number()
        used = {line.body["code"] for line in self._kept(is_kept) if line.body and line.body["k"] in _WITH_CODE}
        fd = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        with open(fd, "wb") as file:
            os.fchmod(fd, 0o600)
            file.write(encode(going_on_from(following, os.urandom(8).hex(), self.position)))
            for line in self._kept(is_kept):
                if line.body is None:
                    file.write(line.raw)
                elif line.body["k"] != "code" or line.body["key"] in used:
                    file.write(encode(line.body))
            # Those who waited for them must know that they have ended.
            file.write(encode(cleaned(number for number in range(1, following) if not is_kept(number))))
            file.flush()
            os.fsync(fd)

    def _kept(self, is_kept: Callable[[int], bool]) -> "Iterator[Read]":
        for line in read(self.path):
            if line.body is None:  # nobody knows what it says: not ours to remove
                yield line
            elif (body := _without_gone(line.body, is_kept)) is not None:
                yield Read(line.number, line.raw, body)

    def _next_number(self) -> int:
        return max((next_number(line.body) for line in read(self.path) if line.body), default=1)


# -- what a line says --------------------------------------------------------------------------------------


def added(jobs: Sequence[Job], requests: Sequence[str], *, key: str = "", now: float) -> Line:
    """What one call added: jobs with consecutive numbers, their requests as text, and the key of the call."""
    first = jobs[0]
    line = {"k": "add", "at": now, "first": first.id, "environment": first.environment, "code": first.code}
    return {**line, "key": key, "jobs": list(requests)}


def coded(key: str, content: Mapping[str, Any]) -> Line:
    """What is known about the code of jobs that name this key. Before their `add`."""
    return {"k": "code", "key": key, "content": dict(content)}


def started(attempt: Attempt) -> Line:
    """The intent: from now on it may have run."""
    more = {"backend": attempt.backend} if attempt.backend else {}
    return {
        "k": "start",
        "job": attempt.job,
        "attempt": attempt.number,
        "folder": attempt.folder,
        "claims": encode_claims(attempt.claims),
        "boot": attempt.boot_id,
        "at": attempt.opened_at,
        **more,
    }


def running(attempt: Attempt) -> Line:
    """Another system has started it, there and then."""
    return {
        "k": "run",
        "job": attempt.job,
        "attempt": attempt.number,
        "node": attempt.node,
        "gpus": attempt.node_gpus,
        "at": attempt.opened_at,
    }


def ended(attempt: Attempt, outcome: Outcome, state: State, retry_at: float | None, now: float) -> Line:
    """How it ended, and where its job stands now."""
    return {
        "k": "end",
        "job": attempt.job,
        "attempt": attempt.number,
        "outcome": _outcome(outcome),
        "state": state,
        "retry_at": retry_at,
        "at": now,
    }


def never_ran(attempt: Attempt, retry_at: float | None = None) -> Line:
    """Its job waits again, and the try does not count."""
    return {"k": "never", "job": attempt.job, "attempt": attempt.number, "retry_at": retry_at}


def changed(
    jobs: Iterable[int],
    state: State,
    *,
    now: float,
    why: str = "",
    outcome: Outcome | None = None,
    by: int | None = None,
    is_fresh: bool = False,
    not_before: float | None = None,
) -> Line:
    """Somebody held, released, cancelled, refused or retried them. `is_fresh`: their tries are counted anew."""
    line: Line = {"k": "set", "jobs": ranges(jobs), "state": state, "at": now}
    if why:
        line["why"] = why
    if outcome is not None:
        line["outcome"] = _outcome(outcome)
    if by is not None:  # the job whose end ended them
        line["by"] = by
    if is_fresh:
        line["fresh"] = True
    if not_before is not None:
        line["not_before"] = not_before
    return line


def stopped(jobs: Iterable[int]) -> Line:
    """Somebody asked for the end of jobs that run: they are not tried again."""
    return {"k": "stop", "jobs": ranges(jobs)}


def edited(job: Job) -> Line:
    """It is asked for in another way now, or stands at another place in the queue; its state stays."""
    line: Line = {"k": "edit", "job": job.id, "request": encode_request(job.request), "rank": job.rank}
    return {**line, "not_before": job.not_before}


def cleaned(jobs: Iterable[int]) -> Line:
    """They are gone, and so are their attempts."""
    return {"k": "gone", "jobs": ranges(jobs)}


def marked(subject: str, kind: str, why: str, now: float) -> Line:
    """A pause, a drain or a quarantine."""
    return {"k": "mark", "subject": subject, "kind": kind, "why": why, "at": now}


def unmarked(subject: str) -> Line:
    return {"k": "mark", "subject": subject, "kind": ""}


def setting(name: str, value: str) -> Line:
    """Something that was set while it ran."""
    return {"k": "setting", "name": name, "value": value}


def going_on_from(number: int, name: str, was: Position) -> Line:
    """The lines before are gone; whatever number was given before is not given again."""
    return {"k": "next", "number": number, "id": name, "was": list(was)}


def ranges(jobs: Iterable[int]) -> list[int | list[int]]:
    """`[[1, 5], 8]`: a hundred thousand numbers in few bytes. They come in order."""
    found: list[int | list[int]] = []
    first = last = None
    for job in jobs:
        if last is not None and job == last + 1:
            last = job
            continue
        if first is not None and last is not None:
            found.append(first if first == last else [first, last])
        first = last = job
    if first is not None and last is not None:
        found.append(first if first == last else [first, last])
    return found


def numbers(given: Iterable[int | list[int]]) -> Iterator[JobId]:
    """What `ranges` was made of."""
    for one in given:
        if isinstance(one, list):
            yield from map(JobId, range(one[0], one[1] + 1))
        else:
            yield JobId(one)


def next_number(line: Mapping[str, Any]) -> int:
    """The first number that is free as far as this line knows."""
    if line["k"] == "add":
        return int(line["first"] + len(line["jobs"]))
    return int(line["number"]) if line["k"] == "next" else 1


# -- reading -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Read:
    """A line as it was found; no body where it cannot be read."""

    number: int  # counted from 1
    raw: bytes
    body: Line | None

    @property
    def is_torn(self) -> bool:
        """Its writer was stopped in the middle: nobody was told of what it says."""
        return not self.raw.endswith(b"\n")


def read(path: str, start: int = 0) -> Iterator[Read]:
    """Every line in order, from a byte on. OSError where the file cannot be read."""
    with open(path, "rb") as file:
        file.seek(start)
        number = 0
        while raw := file.readline(_LONGEST):
            number += 1
            yield Read(number, raw, decode(raw))


def encode(line: Mapping[str, Any]) -> bytes:
    """A JSON object on a line of its own, with a checksum: a flipped bit may still be JSON."""
    body = json.dumps(line, separators=(",", ":")).encode()[:-1]
    return b"%s%s%d}\n" % (body, _CHECK, zlib.crc32(body))


def decode(raw: bytes) -> Line | None:
    """What `encode` wrote, or None where that is not what stands here."""
    body, found, check = raw.rpartition(_CHECK)
    try:
        if not found or zlib.crc32(body) != int(check.removesuffix(b"}\n")):
            return None
        line = json.loads(body + b"}")
    except ValueError:
        return None
    return line if isinstance(line, dict) and "k" in line else None


# -- the file ----------------------------------------------------------------------------------------------


def _open(path: str) -> int:
    flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW
    fd = os.open(path, flags, 0o600)
    os.fchmod(fd, 0o600)  # whatever the umask took away
    return fd


def _head(path: str) -> Line:
    """The first line, where that tells of a compaction."""
    first = next(read(path), None)
    return first.body if first is not None and first.body is not None and first.body["k"] == "next" else {}


def _cut_torn_end(fd: int) -> int:
    """Cut behind the last whole line; return the size that is left."""
    size = left = os.fstat(fd).st_size
    while left:
        start = max(0, left - 65536)
        at = os.pread(fd, left - start, start).rfind(b"\n")
        if at >= 0:
            left = start + at + 1
            break
        left = start
    if left != size:
        os.ftruncate(fd, left)
    return left


def _sync_folder(path: str) -> None:
    folder = os.open(os.path.dirname(path) or ".", os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def _without_gone(line: Line, is_kept: Callable[[int], bool]) -> Line | None:
    """The line without what it says about jobs that are gone; None where nothing is left of it."""
    kind = line["k"]
    if kind == "add":
        jobs = [text if is_kept(number) else None for number, text in enumerate(line["jobs"], line["first"])]
        return {**line, "jobs": jobs} if any(jobs) else None
    if kind == "set":
        kept = ranges(number for number in numbers(line["jobs"]) if is_kept(number))
        return {**line, "jobs": kept} if kept else None
    if kind in ("gone", "next"):
        return None
    return line if "job" not in line or is_kept(line["job"]) else None


def _outcome(outcome: Outcome) -> Line:
    """Only what is known."""
    said = {
        "exit_code": outcome.exit_code,
        "signal": outcome.signal,
        "cause": outcome.cause,
        "message": outcome.message or None,
        "seconds": outcome.seconds,
        "checkpointed": outcome.checkpointed or None,
        "tried_alone": outcome.tried_alone or None,
    }
    return {name: value for name, value in said.items() if value is not None}
