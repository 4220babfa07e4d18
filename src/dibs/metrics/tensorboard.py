"""The scalars in TensorBoard's event files, without TensorBoard.

A file is a sequence of records: the length (8 bytes), its masked CRC-32C, the content, and the content's. Of the
content, a message `Event` of Protocol Buffers, a few fields are needed: https://github.com/tensorflow/tensorboard
has event.proto and summary.proto. The content's checksum is not checked: that would take most of the time.
"""

import math
import os
import struct
import time
from collections.abc import Iterator, Mapping

from dibs.metrics.protobuf import message_fields
from dibs.metrics.scalar import Scalar
from dibs.supervise.folder import open_own_file

_LONGEST_RECORD = 1024**2  # bytes; longer ones hold pictures, and are skipped


class EventFile:
    """One event file, read on record by record."""

    kind = "tensorboard"

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

    def finals(self) -> Iterator[Scalar]:
        """None: every number has a step."""
        return iter(())


def read_event(content: bytes) -> Iterator[Scalar]:
    """The scalars of one event; none where it is not one."""
    try:
        event = dict(message_fields(content))
        summary = event.get(5)
        if not isinstance(summary, bytes):
            return
        (at,) = struct.unpack("<d", event[1]) if 1 in event else (0.0,)  # type: ignore[arg-type]
        given = event.get(2, 0)
        step = given - 2**64 if isinstance(given, int) and given >= 2**63 else given
        for number, value in message_fields(summary):
            if number != 1 or not isinstance(value, bytes):
                continue
            fields = dict(message_fields(value))
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
    parts = dict(message_fields(tensor))
    if isinstance(shape := parts.get(2), bytes) and any(number == 2 for number, _ in message_fields(shape)):
        return None  # it has dimensions
    layout = {1: "<f", 2: "<d"}.get(parts.get(1, 0))  # type: ignore[arg-type]
    content = parts.get(4) or parts.get(5 if layout == "<f" else 6)
    if layout is None or not isinstance(content, bytes) or len(content) != struct.calcsize(layout):
        return None
    return float(struct.unpack(layout, content)[0])


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
