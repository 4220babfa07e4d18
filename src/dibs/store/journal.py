"""The journal: what happened to the queue, one line for each thing, so that a store can be made again.

Lines are written before the store commits, so whatever is acknowledged stands here. What the store did not take
after all does no harm: numbers are given in order, so an `add` that counts from 17 means that no job 17 was
acknowledged before, and a second start or end of an attempt takes the place of the first.
"""

import json
import os
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from errno import ENOSPC
from typing import IO, Any, NamedTuple

from dibs.dataclass import dataclass
from dibs.files import replacing_file, sync_folder
from dibs.store.journal_lines import Line, cleaned, going_on_from, next_number, without_gone

NAME = "journal.jsonl"
_LONGEST = 64 * 1024**2  # bytes of one line; a batch of jobs is at most some megabytes
_CHECK = b',"crc":'  # stands last in a line
_WITH_CODE = ("add", "list", "sweep")


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
                sync_folder(os.path.dirname(path))
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
        """Remove what was appended since the file had this size: the store did not commit it."""
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
        """Rewrite it without the jobs that were cleaned away. A crash leaves the old file or the new one."""
        _remove_drafts(self.path)
        with replacing_file(self.path) as file:
            self._write_compact(file, is_kept)
        sync_folder(os.path.dirname(self.path))
        os.close(self._fd)
        self._fd = _open(self.path)
        self._size = self._before = os.fstat(self._fd).st_size
        self._head = _head(self.path)

    def close(self) -> None:
        os.close(self._fd)

    def _write_compact(self, file: IO[bytes], is_kept: Callable[[int], bool]) -> None:
        following = self._next_number()
        used = {line.body["code"] for line in self._kept(is_kept) if line.body and line.body["k"] in _WITH_CODE}
        file.write(encode(going_on_from(following, os.urandom(8).hex(), self.position)))
        for line in self._kept(is_kept):
            if line.body is None:
                file.write(line.raw)
            elif line.body["k"] != "code" or line.body["key"] in used:
                file.write(encode(line.body))
        # Jobs that waited for them must know that they have ended.
        file.write(encode(cleaned(number for number in range(1, following) if not is_kept(number))))

    def _kept(self, is_kept: Callable[[int], bool]) -> "Iterator[Read]":
        for line in read(self.path):
            if line.body is None:  # it cannot be read, so it is kept
                yield line
            elif (body := without_gone(line.body, is_kept)) is not None:
                yield Read(line.number, line.raw, body)

    def _next_number(self) -> int:
        return max((next_number(line.body) for line in read(self.path) if line.body), default=1)


# -- reading -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Read:
    """A line as it was found; no body where it cannot be read."""

    number: int  # counted from 1
    raw: bytes
    body: Line | None

    @property
    def is_torn(self) -> bool:
        """Its writer was stopped in the middle: it was not acknowledged."""
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
        if not found or check != b"%d}\n" % zlib.crc32(body):
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


def _remove_drafts(path: str) -> None:
    """Remove what compactions that were killed left behind: each is as large as a journal."""
    folder, name = os.path.split(path)
    for other in os.listdir(folder or "."):
        if other.startswith(f"{name}.") and other.endswith(".new"):
            os.unlink(os.path.join(folder, other))


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
