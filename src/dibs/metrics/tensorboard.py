"""The scalars in TensorBoard's event files, without TensorBoard.

A file is a sequence of records: the length (8 bytes), its masked CRC-32C, the content, and the content's. Of the
content, a message `Event` of Protocol Buffers, a few fields are needed: https://github.com/tensorflow/tensorboard
has event.proto and summary.proto. The content's checksum is not checked: that would take most of the time.
"""

import math
import os
import re
import socket
import struct
import time
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from dibs.supervise.folder import open_own_file

_NAME = re.compile(r"events\.out\.tfevents\.(\d{1,12})\.(.+)")
_PID = re.compile(r"\.(\d{1,9})(?:\.|$)")
_LONGEST_RECORD = 1024**2  # bytes; longer ones hold pictures, and are skipped
_DEEPEST = 5  # folders below the working folder
_MOST_ENTRIES = 5_000  # that are looked at in one search
_SEARCH_FOR = 0.3  # seconds
MOST_FILES = 16
_NOT_SEARCHED = frozenset(("node_modules", "__pycache__", "site-packages", "venv"))
_CLOCK_MARGIN = 2.0  # seconds; the name has whole ones


class Scalar(NamedTuple):
    tag: str
    step: int
    at: float  # seconds since the epoch
    value: float


class EventFile:
    """One event file, read on record by record."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.folder = os.path.dirname(path)
        self.is_read = True  # to its end, as it was at the last look
        self.is_damaged = False
        self._offset = 0

    def scalars(self, deadline: float) -> Iterator[Scalar]:
        """The new ones, until a moment of the monotonic clock. The rest of a damaged file is not read."""
        if self.is_damaged:
            return
        try:
            file = open(open_own_file(self.path), "rb", buffering=256 * 1024)  # noqa: SIM115
        except OSError:
            return
        with file:
            try:
                file.seek(self._offset)
                self.is_read = True
                while len(head := file.read(12)) == 12:
                    if time.monotonic() >= deadline:
                        self.is_read = False
                        return
                    (length, checksum) = struct.unpack("<QI", head)
                    if checksum != masked_crc(head[:8]):
                        self.is_damaged = True
                        return
                    if length > _LONGEST_RECORD:
                        if self._offset + length + 16 > os.fstat(file.fileno()).st_size:
                            return  # it is still being written
                        file.seek(length + 4, os.SEEK_CUR)
                    else:
                        content = file.read(length)
                        if len(content) < length or len(file.read(4)) < 4:
                            return
                        yield from read_event(content)
                    self._offset += length + 16
            except OSError:
                return


def read_event(content: bytes) -> Iterator[Scalar]:
    """The scalars of one event; none where it is not one."""
    try:
        event = dict(_fields(content))
        summary = event.get(5)
        if not isinstance(summary, bytes):
            return
        (at,) = struct.unpack("<d", event[1]) if 1 in event else (0.0,)  # type: ignore[arg-type]
        given = event.get(2, 0)
        step = given - 2**64 if isinstance(given, int) and given >= 2**63 else given
        for number, value in _fields(summary):
            if number != 1 or not isinstance(value, bytes):
                continue
            fields = dict(_fields(value))
            found = _number(fields)
            if found is not None and isinstance(step, int) and math.isfinite(at):
                yield Scalar(fields[1].decode("utf-8", "replace"), step, at, found)  # type: ignore[union-attr]
    except (ValueError, KeyError, AttributeError, struct.error, TypeError):
        return


def _number(fields: Mapping[int, "int | bytes"]) -> float | None:
    """The value of a scalar: `simple_value`, or a tensor with one number and no dimensions."""
    if isinstance(simple := fields.get(2), bytes):
        return float(struct.unpack("<f", simple)[0])
    if not isinstance(tensor := fields.get(8), bytes):
        return None
    parts = dict(_fields(tensor))
    if isinstance(shape := parts.get(2), bytes) and any(number == 2 for number, _ in _fields(shape)):
        return None  # it has dimensions
    layout = {1: "<f", 2: "<d"}.get(parts.get(1, 0))  # type: ignore[arg-type]
    content = parts.get(4) or parts.get(5 if layout == "<f" else 6)
    if layout is None or not isinstance(content, bytes) or len(content) != struct.calcsize(layout):
        return None
    return float(struct.unpack(layout, content)[0])


def _fields(content: bytes) -> Iterator[tuple[int, "int | bytes"]]:
    """The fields of a message: numbers of variable length as numbers, all others as bytes."""
    at, end = 0, len(content)
    while at < end:
        key, at = _varint(content, at)
        kind = key & 7
        if kind == 0:
            value, at = _varint(content, at)
            yield key >> 3, value
            continue
        if kind == 2:
            length, at = _varint(content, at)
        elif kind in (1, 5):
            length = 8 if kind == 1 else 4
        else:
            raise ValueError(kind)
        if at + length > end:
            raise ValueError("it is cut off")
        yield key >> 3, content[at : at + length]
        at += length


def _varint(content: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = content[at] if at < len(content) else 256
        if byte > 255 or shift > 63:
            raise ValueError("not a number of variable length")
        value |= (byte & 0x7F) << shift
        at += 1
        if byte < 0x80:
            return value, at
        shift += 7


def masked_crc(data: bytes) -> int:
    """CRC-32C as TensorFlow's record files have it."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc = _TABLE[(crc ^ byte) & 0xFF] ^ (crc >> 8)
    crc ^= 0xFFFFFFFF
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def _crc_of(byte: int) -> int:
    for _ in range(8):
        byte = byte >> 1 ^ (0x82F63B78 if byte & 1 else 0)
    return byte


_TABLE = tuple(map(_crc_of, range(256)))


class FoundEventFiles(NamedTuple):
    paths: list[str]  # the newest first
    is_all: bool  # the search was not ended early, and no file was left out


def find_event_files(root: str, since: float, until: float | None, mark: bytes) -> FoundEventFiles:
    """Event files in a folder and below it that were begun in this time, by the seconds in their names.

    `mark` is the variable that the processes of the attempt carry: files of processes that run and carry another
    one are those of another job.
    """
    found: list[tuple[int, str]] = []
    deadline, entries, is_all = time.monotonic() + _SEARCH_FOR, 0, True
    folders = [(root, 0)]
    while folders:
        folder, depth = folders.pop()
        try:
            with os.scandir(folder) as inside:
                for entry in inside:
                    entries += 1
                    if entries > _MOST_ENTRIES or time.monotonic() > deadline:
                        is_all, folders = False, []
                        break
                    if name := _NAME.fullmatch(entry.name):
                        begun = int(name[1])
                        is_then = since - _CLOCK_MARGIN <= begun <= (until or 2**63) + _CLOCK_MARGIN
                        if is_then and not _is_of_another(name[2], mark):
                            found.append((begun, entry.path))
                    elif depth < _DEEPEST and _is_searched(entry):
                        folders.append((entry.path, depth + 1))
        except OSError:
            continue
    found.sort(reverse=True)
    return FoundEventFiles([path for _, path in found[:MOST_FILES]], is_all and len(found) <= MOST_FILES)


def _is_searched(entry: "os.DirEntry[str]") -> bool:
    if entry.name.startswith(".") or entry.name in _NOT_SEARCHED:
        return False
    return entry.is_dir(follow_symlinks=False)


def _is_of_another(rest: str, mark: bytes) -> bool:
    """Whether the process in a file's name (`HOST.PID.N`) runs here as a part of another job."""
    host = socket.gethostname()
    pid = _PID.match(rest.removeprefix(host)) if rest.startswith(host) else None
    if pid is None:
        return False
    try:
        with open(f"/proc/{pid[1]}/environ", "rb") as file:
            variables = file.read().split(b"\0")
    except OSError:
        return False  # it has ended
    name = mark.partition(b"=")[0] + b"="
    return mark not in variables and any(variable.startswith(name) for variable in variables)
