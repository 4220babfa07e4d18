"""The numbers that `wandb.log` writes on this machine, `run-ID.wandb`, without W&B.

A file has seven bytes of its own, and is then a log of LevelDB: blocks of 32 KiB with records or parts of them,
each behind a checksum, a length and a type. A record is a message `Record` of Protocol Buffers, of which history
and summary are read: https://github.com/wandb/wandb has wandb_internal.proto. Checksums are not checked: that
would take most of the time.
"""

import glob
import json
import math
import os
import re
import struct
import time
from collections.abc import Iterator, Mapping

from dibs.metrics.lines import WRITTEN_AT, read_number
from dibs.metrics.protobuf import message_fields
from dibs.metrics.scalar import Scalar
from dibs.supervise.folder import open_own_file

RUN_FILE = re.compile(r"run-([\w-]{1,128})\.wandb", re.ASCII)
_FILE_HEADER = b":W&B\xe1\xbe\0"  # with the version of the format
_BLOCK = 32 * 1024
_HEADER = 7  # bytes, of the file and of a part of a record
_FULL, _FIRST, _MIDDLE, _LAST = range(1, 5)  # parts of a record
_LONGEST_RECORD = 1024**2  # bytes; longer ones are no numbers, and are skipped
_MOST_NAMES = 10_000  # of which the last value is kept
_HISTORY, _SUMMARY = 2, 3  # kinds of records
_TICK = 0.01  # seconds; the largest resolution of the kernel's file times


class WandbFile:
    """One run's file, read on record by record, at most once each."""

    kind = "wandb"

    def __init__(self, path: str) -> None:
        self.path = path
        self.folder = os.path.dirname(path)
        self.is_read = True  # to its end, as it was at the last look
        self.is_damaged = False  # the rest is not read
        self.summary: dict[str, float] = {}  # the last values, also of those not in the history
        self.logged: dict[str, float] = {}  # the last values in the history, by name
        self._offset = 0
        self._parts: list[bytes] | None = []  # of a record that is not complete; None: it is too long
        self._written_at = 0.0

    def scalars(self, deadline: float) -> Iterator[Scalar]:
        """The new ones of the history, until a moment of the monotonic clock."""
        for record in self._records(deadline):
            try:
                yield from self._read(record)
            except (ValueError, TypeError, AttributeError, RecursionError):
                continue  # a record that this reader does not know

    def finals(self) -> Iterator[Scalar]:
        """What was only set in the summary: `wandb.run.summary["test_acc"] = 0.9`."""
        for name, value in self.summary.items():
            if name not in self.logged:
                yield Scalar(name, None, self._written_at, value)

    def _records(self, deadline: float) -> Iterator[bytes]:
        if self.is_damaged:
            return
        try:
            file = open(open_own_file(self.path), "rb", buffering=_BLOCK)  # noqa: SIM115
        except OSError:
            return
        with file:
            try:
                self._written_at = os.fstat(file.fileno()).st_mtime
                if self._offset == 0:
                    head = file.read(_HEADER)
                    if len(head) < _HEADER:
                        return
                    self.is_damaged = head != _FILE_HEADER
                    self._offset = _HEADER
                file.seek(self._offset)
                self.is_read = True
                while not self.is_damaged:
                    if time.monotonic() >= deadline:
                        self.is_read = False
                        return
                    left = _BLOCK - self._offset % _BLOCK
                    if left < _HEADER:  # the end of a block has no room for a part
                        file.seek(left, os.SEEK_CUR)
                        self._offset += left
                        continue
                    head = file.read(_HEADER)
                    if len(head) < _HEADER:
                        return
                    _, length, part = struct.unpack("<IHB", head)
                    if not _FULL <= part <= _LAST or length > left - _HEADER:
                        self.is_damaged = head != bytes(_HEADER)  # zeros may still be written over
                        return
                    content = file.read(length)
                    if len(content) < length:
                        return
                    self._offset += _HEADER + length
                    if record := self._joined(part, content):
                        yield record
            except OSError:
                return

    def _joined(self, part: int, content: bytes) -> bytes:
        """The record that this part completes; else nothing."""
        if part in (_FULL, _FIRST):
            self._parts = []
        if self._parts is not None:
            self._parts.append(content)
            if sum(map(len, self._parts)) > _LONGEST_RECORD:
                self._parts = None
        if part not in (_FULL, _LAST) or self._parts is None:
            return b""
        record, self._parts = b"".join(self._parts), []
        return record

    def _read(self, record: bytes) -> Iterator[Scalar]:
        for number, content in message_fields(record):
            if isinstance(content, bytes) and number == _HISTORY:
                yield from self._read_history(content)
            elif isinstance(content, bytes) and number == _SUMMARY:
                for field, item in message_fields(content):
                    name, value = _item(item) if field == 1 and isinstance(item, bytes) else ("", None)
                    if value is not None and (name in self.summary or len(self.summary) < _MOST_NAMES):
                        self.summary[name] = value

    def _read_history(self, content: bytes) -> Iterator[Scalar]:
        step, at, values = 0, self._written_at, {}
        for field, item in message_fields(content):
            if field == 2 and isinstance(item, bytes):
                found = dict(message_fields(item)).get(1, 0)
                step = found if isinstance(found, int) and found < 2**63 else 0
            elif field == 1 and isinstance(item, bytes):
                name, value = _item(item, is_hidden=True)
                if name == WRITTEN_AT and value is not None and math.isfinite(value):
                    at = value
                elif value is not None and not name.startswith("_"):
                    values[name] = value
        for name, value in values.items():
            if name in self.logged or len(self.logged) < _MOST_NAMES:
                self.logged[name] = value
            yield Scalar(name, step, at, value)


def _item(content: bytes, *, is_hidden: bool = False) -> tuple[str, float | None]:
    """The name of an item of history or summary, and its number; None: it is none, or a name of W&B's own."""
    names: list[str] = []
    text = b""
    for field, value in message_fields(content):
        if field in (1, 2) and isinstance(value, bytes):
            names.append(value.decode("utf-8", "replace"))
        elif field == 16 and isinstance(value, bytes):
            text = value
    name = ".".join(names)
    if not name or (name.startswith("_") and not is_hidden) or text[:1] in (b'"', b"{", b"["):
        return name, None
    return name, read_number(json.loads(text))


def run_of(variables: Mapping[str, str], workdir: str) -> tuple[str, str]:
    """The id of a job's run, where the job was given one, and the folder that W&B's folder is in."""
    where = variables.get("WANDB_DIR")
    return variables.get("WANDB_RUN_ID", ""), os.path.join(workdir, where) if where else workdir


def find_run_files(folder: str, run: str, since: float) -> list[str]:
    """The files of a run in W&B's folder below this one that were written since then, the oldest first.

    A run that is begun again with the same id has another file, in a folder of its own.
    """
    found = []
    for path in glob.glob(f"{glob.escape(folder)}/wandb/*run-*-{run}/run-{run}.wandb"):
        try:
            if (about := os.lstat(path)).st_mtime >= since - _TICK:
                found.append((about.st_mtime, path))
        except OSError:
            continue
    return [path for _, path in sorted(found)]
